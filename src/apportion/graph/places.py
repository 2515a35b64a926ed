"""Which dimensions have a place in the reward: those that a search found and those that it overlooked, each
compared with the rivals that might stand there in its stead.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.candidates import Candidates, Dims, Known
from apportion.graph.evidence import MISFIT, Columns, Remainder
from apportion.graph.features import MAX_PAIRED, Floats
from apportion.graph.refine import EFFORT, Refined, fit_to, gaussian_ratio, plainest
from apportion.graph.ridge import Ridge, ridge
from apportion.graph.screen import Segments

PARENTS = 3.0  # dimensions that are expected to feed the reward, before any data; but at most half of them


class _Limits(NamedTuple):
    """A dimension that was overlooked comes in with the probability `enter`, at most `most` of them. So many
    `rivals` are compared with each parent; those whose log ratio is above `rival`, and not more than `close`
    below the parent's own, by putting the first `swaps` in its place. At most `most` times a parent that
    others make needless leaves, or gives its place to a rival to whom it belongs by so large a share that it
    is `clearly` theirs, for good; `most_of_many` times where dimensions are so many that each time takes
    seconds."""

    enter: float = 0.9
    most: int = 8
    most_of_many: int = 2
    rivals: int = 12
    rival: float = 3.0
    close: float = 8.0
    swaps: int = 3
    clearly: float = 0.8


LIMITS = _Limits()


class Place(NamedTuple):
    """Where a parent stands: the probability that there is something, and how it is shared."""

    team: Dims
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
        return self.some < 0.5 or float(self.share[1:].max(initial=0.0)) >= LIMITS.clearly

    @property
    def better(self) -> Dims | None:
        """The rival to whom the place rather belongs, if there is one."""
        best = int(np.argmax(self.share))
        return self.rivals[best - 1] if best > 0 and self.some >= 0.5 else None


class Settled(NamedTuple):
    """Who has a place, and what is left beside them."""

    places: list[Place]
    others: list[Dims]
    found: NDArray[np.bool_]  # [D]
    remainder: Remainder
    added: dict[int, float]  # what a parent that was overlooked is worth, by the first of its entries


@dataclass(frozen=True, eq=False)
class Contest:
    """The data of the comparison."""

    segments: Segments
    candidates: Candidates
    refined: Refined
    teams: list[Dims]
    rng: np.random.Generator

    def settle(self) -> Settled:
        """Add what was overlooked; let the weakest go, or its better take its place; and look again."""
        known, barred, added = Known.of(self.refined.fit), list[int](), dict[int, float]()
        most = LIMITS.most if len(self.teams) <= MAX_PAIRED else LIMITS.most_of_many
        while True:
            known, remainder = self._overlooked(known, barred, added)
            found = known.found
            others = [team for team in self.teams if not found[team].any()]
            places = [self._place(known, team, others) for team in self.teams if found[team].any()]
            leaving = [place for place in places if place.leaves]
            if not leaving or len(barred) >= most:
                return Settled(self._sobered(known, places), others, found, remainder, added)
            weakest = min(leaving, key=lambda place: place.presence)
            known = known.without(weakest.team)
            barred.append(int(weakest.team[0]))
            if weakest.better is not None:
                rest = known.remainder(self.segments, self.candidates.columns)
                added[int(weakest.better[0])] = rest.worth(self.candidates.alone(weakest.better))
                known = known.also(self.candidates, weakest.better)

    @property
    def _prior(self) -> float:
        """Log odds of a dimension to feed the reward."""
        return float(special.logit(min(0.5, PARENTS / max(len(self.teams), 1))))

    def _overlooked(
        self, known: Known, barred: list[int], added: dict[int, float]
    ) -> tuple[Known, Remainder]:
        """Add dimensions that clearly have an effect on what is left, one by one, the clearest first."""
        remainder = known.remainder(self.segments, self.candidates.columns)
        for _ in range(LIMITS.most):
            found = known.found
            others = [team for team in self.teams if not found[team].any() and int(team[0]) not in barred]
            effects = remainder.for_effects([self.candidates.families(team, found) for team in others])
            if not others or special.expit(effects.max() + self._prior) < LIMITS.enter:
                break
            team = others[int(np.argmax(effects))]
            added[int(team[0])] = remainder.worth(self.candidates.alone(team))
            known = known.also(self.candidates, team)
            remainder = known.remainder(self.segments, self.candidates.columns)
        return known, remainder

    def _place(self, known: Known, team: Dims, others: list[Dims]) -> Place:
        """Rivals are the dimensions that would explain most of what is left without the parent."""
        candidates, rest = self.candidates, known.without(team)
        without = rest.remainder(self.segments, candidates.columns)
        mine = without.for_effect(candidates.families(team, rest.found))
        own = Columns.of(known.sums[:, known.owners[team].any(axis=0)], self.segments.offsets)
        rich = max(mine, rest.remainder(self.segments, own).for_any())
        fits = without.linear**2 / np.maximum(without.curvature, 1e-9)
        best = [float(np.max(fits[candidates.alone(other)], initial=0.0)) for other in others]
        rivals = [others[place] for place in np.argsort(best)[::-1][: LIMITS.rivals]]
        effects = without.for_effects([candidates.families(rival, rest.found) for rival in rivals])
        close = np.flatnonzero(effects > max(mine - LIMITS.close, LIMITS.rival))
        if np.isin(team, self.refined.parents).any():
            for place in close[np.argsort(-effects[close])][: LIMITS.swaps]:
                effects[place] = rich - self._advantage(team, rivals[place])
        elif len(close):
            rich = mine  # both were looked at by plain features only
        some = float(special.expit(rich + self._prior))
        return Place(team, some, np.asarray(special.softmax([rich, *effects])), rivals)

    def _advantage(self, team: Dims, rival: Dims) -> float:
        """Log ratio of the chances of all totals, each predicted from all others, with a parent and with its
        rival in its place: both with rich features, so that a curve is not taken for another cause, and with
        the same ones if it is one column for another, so that chance has no part in it."""
        segments, fit = self.segments, self.refined.fit
        if len(rival) == len(team) == 1:
            basis = fit.basis._replace(dims=np.where(fit.basis.dims == team[0], rival[0], fit.basis.dims))
            swapped = ridge(basis.sums(segments.rows), segments.totals, segments.offsets)
        else:
            dims = np.union1d(np.setdiff1d(fit.basis.dims, team), rival)
            swapped = fit_to(segments, dims, self.rng, fit.noted).ridge
        least = MISFIT * segments.variance
        ratio = segments.count / 2 * float(np.log(max(swapped.error, least) / max(fit.ridge.error, least)))
        most = gaussian_ratio(swapped, fit.ridge)
        return float(np.clip(ratio, -most, most))

    def _sobered(self, known: Known, places: list[Place]) -> list[Place]:
        """Something is in a place only as surely as the scatter of errors lets it be known: a few totals that
        are missed by much do not make it sure. Who has a place keeps it, though. Without a parent the others
        have features as rich; unless parents are many, or this one was looked at by plain features only."""
        few, first = np.sum(known.found) <= EFFORT.rich, self.refined.fit.ridge
        rich = [bool(few and np.isin(place.team, self.refined.parents).any()) for place in places]
        whole = {each: self._predicted(known, each) for each in set(rich)}
        if True in whole and first.error <= whole[True].error:
            whole[True] = first
        sobered = []
        for place, each in zip(places, rich, strict=True):
            without = self._predicted(known.without(place.team), each)
            ratio = gaussian_ratio(without, whole[each]) if without.error > whole[each].error else 0.0
            most = max(float(special.expit(ratio + self._prior)), 0.5)
            sobered.append(place._replace(some=min(place.some, most)))
        return sobered

    def _predicted(self, known: Known, rich: bool) -> Ridge:
        """Totals from the features that are known, or from those that a search has of their dimensions."""
        segments, fit = self.segments, self.refined.fit
        if not rich:
            return ridge(known.sums, segments.totals, segments.offsets)
        dims = np.flatnonzero(known.found)
        if set(dims.tolist()) == fit.parents:
            return fit.ridge
        return plainest(segments, fit_to(segments, dims, self.rng, fit.noted)).ridge
