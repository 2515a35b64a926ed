"""Which dimensions have a place in the reward: those that a search found and those that it overlooked, each
compared with the rivals that might stand there in its stead.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.candidates import Candidates, Dims, Known
from apportion.graph.evidence import Columns, Remainder
from apportion.graph.features import Floats
from apportion.graph.priors import DOUBT, MISFIT, PARENTS, SURE
from apportion.graph.refine import RICH, Fit, gaussian_ratio
from apportion.graph.ridge import Ridge, ridge
from apportion.graph.screen import Segments

MOST = 8  # dimensions that come in; that leave, or give their place to another; that are rivals of a parent
SWAPS = 3  # rivals that are compared with a parent by putting them in its place


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
    def better(self) -> Dims | None:
        """The rival to whom the place rather belongs, if there is one."""
        best = int(np.argmax(self.share))
        return self.rivals[best - 1] if best > 0 and self.some >= 0.5 else None

    @property
    def group(self) -> list[Dims]:
        """Who may stand here if something surely does: the parent, and its likeliest rivals, until their
        shares together are sure. The parent alone where it is its own."""
        if self.some < SURE:
            return [self.team]
        order = 1 + np.argsort(-self.share[1:])
        before = self.share[0] + np.cumsum(self.share[order]) - self.share[order]
        return [self.team, *(self.rivals[k - 1] for k in order[before < SURE])]


class Settled(NamedTuple):
    """Who has a place, and what is left beside them."""

    places: list[Place]
    others: list[Dims]
    effects: Floats  # log ratio of the evidence with an effect of each of the others to that without
    found: NDArray[np.bool_]  # [D]
    remainder: Remainder
    added: dict[int, float]  # what a parent that was overlooked is worth, by the first of its entries


@dataclass(frozen=True, eq=False)
class Contest:
    """The data of the comparison."""

    segments: Segments
    candidates: Candidates
    fit: Fit
    rng: np.random.Generator

    def settle(self) -> Settled:
        """Add what was overlooked; let the weakest go, or its better take its place; and look again."""
        known, barred, added = Known.of(self.fit), list[int](), dict[int, float]()
        while True:
            known, remainder = self._with_overlooked(known, barred, added)
            found = known.found
            places = [self._place(known, team) for team in self.segments.scale.teams if found[team].any()]
            leaving = [place for place in places if place.leaves]
            if not leaving or len(barred) >= MOST:
                others = self._others(found)
                effects = remainder.for_effects([self.candidates.families(team, found) for team in others])
                return Settled(self._sobered(known, places), others, effects, found, remainder, added)
            weakest = min(leaving, key=lambda place: place.presence)
            known = known.without(weakest.team)
            barred.append(int(weakest.team[0]))
            if weakest.better is not None:
                rest = known.remainder(self.segments, self.candidates.columns)
                added[int(weakest.better[0])] = rest.share(self.candidates.alone(weakest.better))[0]
                known = known.also(self.candidates, weakest.better)

    def _others(self, found: NDArray[np.bool_]) -> list[Dims]:
        return [team for team in self.segments.scale.teams if not found[team].any()]

    @property
    def _prior(self) -> float:
        """Log odds of a dimension to feed the reward."""
        return float(special.logit(min(0.5, PARENTS / max(len(self.segments.scale.teams), 1))))

    def _with_overlooked(
        self, known: Known, barred: list[int], added: dict[int, float]
    ) -> tuple[Known, Remainder]:
        """Add dimensions that surely have an effect on what is left, one by one, the clearest first."""
        remainder = known.remainder(self.segments, self.candidates.columns)
        for _ in range(MOST):
            others = [team for team in self._others(known.found) if int(team[0]) not in barred]
            families = [self.candidates.families(team, known.found) for team in others]
            effects = remainder.for_effects(families)
            if not others or special.expit(effects.max() + self._prior) < 1 - DOUBT:
                break
            team = others[int(np.argmax(effects))]
            added[int(team[0])] = remainder.share(self.candidates.alone(team))[0]
            known = known.also(self.candidates, team)
            remainder = known.remainder(self.segments, self.candidates.columns)
        return known, remainder

    def _place(self, known: Known, team: Dims) -> Place:
        """Rivals are the dimensions that would explain most of what is left without the parent."""
        candidates, rest, others = self.candidates, known.without(team), self._others(known.found)
        without = rest.remainder(self.segments, candidates.columns)
        mine = without.for_effects([candidates.families(team, rest.found)])[0]
        own = Columns.of(known.sums[:, known.owners[team].any(axis=0)], self.segments.offsets)
        rich = max(mine, rest.remainder(self.segments, own).for_any())
        fits = without.linear**2 / np.maximum(without.curvature, 1e-9)
        best = [float(np.max(fits[candidates.alone(other)], initial=0.0)) for other in others]
        rivals = [others[place] for place in np.argsort(best)[::-1][:MOST]]
        effects = without.for_effects([candidates.families(rival, rest.found) for rival in rivals])
        close = np.flatnonzero(effects > max(mine + np.log(MISFIT), -self._prior))
        if np.isin(team, self.fit.basis.dims).any():
            for place in close[np.argsort(-effects[close])][:SWAPS]:
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
            basis = fit.basis._replace(dims=np.where(fit.basis.dims == team[0], rival[0], fit.basis.dims))
            swapped = ridge(basis.sums(segments.rows), segments.totals, segments.offsets)
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
