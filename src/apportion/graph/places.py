"""Which dimensions have a place in the reward: those that a search found and those that it overlooked, each
compared with the rivals that might stand there in its stead.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.dictionary import Dims
from apportion.graph.evidence import Remainder
from apportion.graph.features import Floats
from apportion.graph.priors import DOUBT, MISFIT, MOST, RICH, SURE, chance_of_each
from apportion.graph.refine import Fit, gaussian_ratio
from apportion.graph.ridge import Ridge, Spectrum, ridge
from apportion.graph.segments import Columns, Segments


class Known(NamedTuple):
    """What has been found to feed the reward: summed features, and which dimensions each looks at."""

    sums: Floats  # [E, F]
    owners: NDArray[np.bool_]  # [D, F]

    @property
    def found(self) -> NDArray[np.bool_]:
        """[D] the dimensions."""
        return np.asarray(self.owners.any(axis=1))

    def also(self, columns: Columns, team: Dims) -> Self:
        """With functions of these dimensions."""
        more = columns.alone(team)
        owners = np.zeros((len(self.owners), len(more)), np.bool_)
        owners[team] = True
        sums = np.concatenate([self.sums, columns.sums[:, more]], axis=1)
        return type(self)(sums, np.concatenate([self.owners, owners], axis=1))

    def without(self, team: Dims) -> Self:
        left = ~self.owners[team].any(axis=0)
        return type(self)(self.sums[:, left], self.owners[:, left])


class Place(NamedTuple):
    """Where a parent stands: the probability that there is something, and how it is shared."""

    team: Dims
    ratio: float  # log ratio of the evidence with something there to that without
    some: float
    share: Floats  # [1 + rivals] the parent's first
    rivals: list[Dims]

    @property
    def presence(self) -> float:
        """The probability that it is this parent."""
        return self.some * float(self.share[0])

    @property
    def leaves(self) -> bool:
        """Whether nothing is there, or clearly another. Where that is open parent and rivals are a group: who
        takes a place has plain features only, and what these miss would fall to bystanders."""
        return self.some < 0.5 or float(self.share[1:].max(initial=0.0)) >= SURE

    @property
    def group(self) -> list[Dims]:
        """Who may stand here if something surely does: the parent, and its likeliest rivals, until their
        shares together are sure. The parent alone where it is its own."""
        if self.some < SURE:
            return [self.team]
        order = 1 + np.argsort(-self.share[1:])
        before = self.share[0] + np.cumsum(self.share[order]) - self.share[order]
        return [self.team, *(self.rivals[k - 1] for k in order[before < SURE])]


@dataclass(frozen=True, eq=False)
class Contest:
    """The data of the comparison."""

    segments: Segments
    columns: Columns
    fit: Fit
    rng: np.random.Generator

    def settle(self) -> tuple[list[Place], Known]:
        """Add what was overlooked; let the weakest go, and look again."""
        known, barred = Known(self.fit.sums, self.fit.basis.owners), list[int]()
        while True:
            known = self._with_overlooked(known, barred)
            found = known.found
            places = [self._place(known, team) for team in self.segments.scale.teams if found[team].any()]
            leaving = [place for place in places if place.leaves]
            if not leaving or len(barred) >= MOST:
                return self._sobered(known, places), known
            weakest = min(leaving, key=lambda place: place.presence)
            known = known.without(weakest.team)
            barred.append(int(weakest.team[0]))

    def remainder(self, known: Known) -> Remainder:
        """What is left of the totals beside what is known, as it bears on all columns."""
        return self._remainders(known, self.columns.unit)[0]

    def _remainders(self, known: Known, *units: Floats) -> list[Remainder]:
        spectrum = Spectrum.of(known.sums, self.segments.offsets)
        return [Remainder.of(unit, spectrum, self.segments.totals) for unit in units]

    def others(self, known: Known) -> list[Dims]:
        """Who has no place."""
        return [team for team in self.segments.scale.teams if not known.found[team].any()]

    def effects(self, remainder: Remainder, known: Known, teams: list[Dims]) -> Floats:
        """Log ratio of the evidence with an effect of each team, alone or beside what is known, to that
        without."""
        return remainder.for_effects([self.columns.families(team, known.found) for team in teams])

    @property
    def _prior(self) -> float:
        """Log odds of a dimension to feed the reward."""
        return float(special.logit(chance_of_each(1 / len(self.segments.scale.teams))))

    def _with_overlooked(self, known: Known, barred: list[int]) -> Known:
        """Add dimensions that surely have an effect on what is left, one by one, the clearest first."""
        for _ in range(MOST):
            others = [team for team in self.others(known) if int(team[0]) not in barred]
            effects = self.effects(self.remainder(known), known, others)
            if not others or special.expit(effects.max() + self._prior) < 1 - DOUBT:
                break
            known = known.also(self.columns, others[int(np.argmax(effects))])
        return known

    def _place(self, known: Known, team: Dims) -> Place:
        """Rivals go with the parent in steps, or have most evidence of an effect where it is left out."""
        rest, found, like = known.without(team), known.found, np.zeros_like(known.found)
        like[self.segments.alike(team)] = True
        own = self.segments.offsets.normalised(known.sums[:, known.owners[team].any(axis=0)])[0]
        without, by_own = self._remainders(rest, self.columns.unit, own)
        teams = self.segments.scale.teams
        others = [each for each in teams if not found[each].any() or like[each].any()]
        others = [each for each in others if each is not team]
        mine = self.effects(without, rest, [team])[0]
        rich = max(mine, by_own.for_any())
        effects = self.effects(without, rest, others)
        alike = np.array([like[other].any() for other in others], np.bool_)
        order = np.lexsort((-effects, ~alike))[:MOST]
        rivals, effects = [others[place] for place in order], effects[order]
        close = np.flatnonzero(alike[order] | (effects > max(mine + np.log(MISFIT), -self._prior)))
        if np.isin(team, self.fit.basis.dims).any():
            for place in close:
                effects[place] = rich - self._advantage(team, rivals[place])
        elif len(close):
            rich = mine  # both were looked at by plain features only
        shares = np.asarray(special.softmax([rich, *effects]))
        return Place(team, rich, float(special.expit(rich + self._prior)), shares, rivals)

    def _advantage(self, team: Dims, rival: Dims) -> float:
        """Log ratio of the chances of all totals, each predicted from all others, with a parent and with its
        rival in its place: both with rich features, so that a curve is not taken for another cause, and with
        the same ones if it is one column for another, so that chance has no part in it."""
        segments, fit = self.segments, self.fit
        if len(rival) == len(team) == 1:
            swapped = fit.instead(segments, int(team[0]), int(rival[0]))
        else:
            dims = fit.parents.difference(team.tolist()).union(rival.tolist())
            swapped = Fit.of(segments, dims, self.rng, fit.noted).ridge
        least = MISFIT * segments.variance
        ratio = segments.count / 2 * float(np.log(max(swapped.error, least) / max(fit.ridge.error, least)))
        most = gaussian_ratio(swapped, fit.ridge)
        return float(np.clip(ratio, -most, most))

    def _sobered(self, known: Known, places: list[Place]) -> list[Place]:
        """Something is in a place only as surely as the scatter of errors lets it be known: a few totals that
        are missed by much do not make it sure. Who has a place keeps it, though. Without a parent the others
        have features as rich; unless parents are many, or this one was looked at by plain features only."""
        few, first = np.sum(known.found) <= RICH, self.fit.ridge
        rich = [bool(few and np.isin(place.team, self.fit.basis.dims).any()) for place in places]
        whole = {each: self._predicted(known, each) for each in set(rich)}
        if True in whole and first.error <= whole[True].error:
            whole[True] = first
        sobered = []
        for place, each in zip(places, rich, strict=True):
            without = self._predicted(known.without(place.team), each)
            ratio = gaussian_ratio(without, whole[each]) if without.error > whole[each].error else 0.0
            ratio = min(place.ratio, max(ratio, -self._prior))
            some = float(special.expit(ratio + self._prior))
            sobered.append(place._replace(ratio=ratio, some=some))
        return sobered

    def _predicted(self, known: Known, rich: bool) -> Ridge:
        """Totals from the features that are known, or from those that a search has of their dimensions."""
        segments, fit, dims = self.segments, self.fit, np.flatnonzero(known.found).tolist()
        if not rich:
            return ridge(known.sums, segments.totals, segments.offsets)
        if set(dims) == fit.parents:
            return fit.ridge
        return Fit.of(segments, dims, self.rng, fit.noted).plainest(segments).ridge
