"""Which dimensions feed the next value of each state dimension, from transitions.

One regression of all next states on the same features shares one inverse. What a source is worth to a target
is how much worse the fit gets without every feature that touches it: given all others, so correlation between
sources does little harm. Edges that pass are then thinned, target by target, on the features of the parents
alone. Of sources that say nearly the same, such as two sensors of one thing, none is missed beside the
others: where parents leave more unexplained than all sources do, these are thinned out with them, and who
stays is compared with each that could stand in its place.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.dictionary import Dictionary, Dims
from apportion.graph.features import MAX_PAIRED, ROWS, THREADS, Floats, Units
from apportion.graph.priors import ALIKE, DOUBT, MISFIT, NEGLIGIBLE, ROUNDED, WORTH

EXACT = MISFIT**2  # a target explained this well follows a formula; nothing finer is asked of its edges


class Moments(NamedTuple):
    """Second moments of features, of which the first is a constant, and of next states."""

    dictionary: Dictionary
    targets: Units  # of the state dimensions [S]
    transitions: int
    gram: Floats  # [P, P]
    cross: Floats  # [P, S]
    variance: Floats  # [S]

    @classmethod
    def of(cls, dictionary: Dictionary, x: NDArray[Any], following: NDArray[Any]) -> Self:
        """From state-action rows [N, D] and the states after them [N, S]."""
        targets, count = Units.of([following]), len(x)
        live = np.flatnonzero(targets.live)

        def moments(rows: slice) -> tuple[Floats, Floats, Floats]:
            features = np.ones((dictionary.size + 1, len(x[rows]))).T
            dictionary.features(x[rows], out=features[:, 1:])
            states = np.zeros((len(targets.live), len(features))).T
            states[:, live] = targets.standardised(following[rows][:, live], live)
            return features.T @ features, features.T @ states, np.sum(states**2, axis=0)

        with ThreadPoolExecutor(THREADS) as pool:
            # Added up in the order of the rows, whoever is first: so the same rows give the same numbers.
            parts = pool.map(moments, (slice(row, row + ROWS) for row in range(0, count, ROWS)))
            gram, cross, variance = next(parts)
            for part in parts:
                gram, cross, variance = gram + part[0], cross + part[1], variance + part[2]
        gram /= count
        gram += ROUNDED * np.diag(np.maximum(np.diag(gram), ROUNDED))
        return cls(dictionary, targets, count, gram, cross / count, variance / count)

    def price(self, features: int | Floats) -> Floats:
        """What an information criterion asks for so many features, chosen among the dimensions."""
        return np.asarray(features * np.log(self.transitions) + 2 * np.log(len(self.dictionary.scale.live)))

    def touched(self, columns: Dims, teams: list[Dims]) -> NDArray[np.bool_]:
        """[teams, columns] which columns look at which team; the first, the constant, at none."""
        owners = self.dictionary.owners[:, columns[1:] - 1]
        touched = [np.append(False, owners[team].any(axis=0)) for team in teams]
        return np.array(touched, np.bool_).reshape(len(teams), len(columns))


class DynamicsEdges(NamedTuple):
    """Dimensions that feed each next state."""

    edges: NDArray[np.bool_]  # [D, S] (source, target)
    strength: Floats  # [D, S] how much the unexplained variance grows without the source, as log ratio
    confidence: Floats  # [D, S] of each verdict
    explained: Floats  # [S] share of each target's variance that its parents explain


def dynamics_edges(moments: Moments, negligible: float = NEGLIGIBLE) -> DynamicsEdges:
    """Drop-one test of every source in the full model, then backward elimination per target. An edge is as
    sure as the information criterion's odds; a source is absent whose loss would change a target's
    unexplained variance by less than `negligible`."""
    dictionary, live = moments.dictionary, moments.targets.live
    growth = np.zeros((len(dictionary.scale.live), len(live)))  # of the unexplained variance, without each
    sizes = np.zeros((len(growth), 1))  # how many features touch it; none those that are not searched
    inverse = np.asarray(np.linalg.inv(moments.gram))  # not SciPy's, during which no other thread runs
    weights = inverse @ moments.cross
    rest = np.maximum(moments.variance - np.sum(weights * moments.cross, axis=0), EXACT)
    touched = moments.touched(np.arange(len(inverse)), dictionary.scale.teams)
    losses = _losses(inverse, weights, touched)
    for sources, loss, features in zip(dictionary.scale.teams, losses, touched, strict=True):
        growth[sources], sizes[sources] = loss / rest, features.sum()
    searched, strength = sizes > 0, np.log1p(growth)
    odds = np.where(searched, (moments.transitions * strength - moments.price(sizes)) / 2, -np.inf)
    worth = _log_odds_of_worth(growth, moments.transitions - len(inverse), sizes, negligible)
    edges = (odds > 0) & (growth > WORTH) & live
    confidence = special.expit(np.where(searched & live, -worth, np.inf))
    explained, alike = np.zeros(len(live)), told_by_others(moments)
    for number in np.flatnonzero(live):
        target = Target(moments, moments.cross[:, number], float(moments.variance[number]))
        missed = np.flatnonzero(edges[:, number])
        kept, explained[number] = target.thinned(missed)
        if moments.variance[number] * (1 - explained[number]) > (1 + WORTH) * rest[number]:
            kept, explained[number] = target.thinned(np.union1d(missed, alike))
        edges[:, number] = np.isin(np.arange(len(edges)), kept)
        confidence[kept, number] = special.expit(odds[kept, number])
        came = np.setdiff1d(kept, missed)
        confidence[came, number] = 1.0  # beside their like they are not missed
        for dim in came:
            for other, sure in target.confidences(kept, int(dim), alike).items():
                confidence[other, number] = min(sure, confidence[other, number])
    return DynamicsEdges(edges, np.where(edges, strength, 0.0), confidence, explained)


def told_by_others(moments: Moments) -> Dims:
    """Dimensions that a sum of all others nearly equals. Entries of a one-hot vector always do, and are
    tested together. Among very many dimensions none is looked for: most would be such ones."""
    scale = moments.dictionary.scale
    if not 1 < len(scale.dims) <= MAX_PAIRED:
        return np.zeros(0, np.int64)
    shared = _covariance(moments)
    left = 1 / np.diag(np.linalg.inv(shared + ROUNDED * np.eye(len(shared))))
    alone = [len(scale.teams[place]) == 1 for place in scale.team_places[scale.dims]]
    return scale.dims[(left < DOUBT * np.diag(shared)) & np.array(alone, np.bool_)]


def _covariance(moments: Moments) -> Floats:
    """Of the searched dimensions."""
    dictionary = moments.dictionary
    lines = 1 + dictionary.functions * np.arange(len(dictionary.scale.dims))
    means = moments.gram[0, lines]
    return moments.gram[np.ix_(lines, lines)] - np.outer(means, means)


@dataclass(frozen=True, eq=False)
class Target:
    """One next value, and how features explain it."""

    moments: Moments
    cross: Floats  # [P]
    variance: float

    def thinned(self, kept: Dims) -> tuple[Dims, float]:
        """Backward elimination among parents, whose features are those within them; and the share of the
        variance that is explained by who is left."""
        columns, scale = self._columns(kept), self.moments.dictionary.scale
        inverse = np.asarray(np.linalg.inv(self.moments.gram[np.ix_(columns, columns)]), np.float64)
        weights = inverse @ self.cross[columns]
        rest = max(self.variance - float(weights @ self.cross[columns]), EXACT)
        teams = [scale.teams[place] for place in np.unique(scale.team_places[kept])]
        touched = self.moments.touched(columns, teams)
        while teams:
            losses = _losses(inverse, weights[:, None], touched)[:, 0]
            weakest = int(np.argmin(losses))
            growth, features = float(losses[weakest]) / rest, np.flatnonzero(touched[weakest])
            needed = self.moments.transitions * np.log1p(growth) > self.moments.price(len(features))
            if needed and growth > WORTH:
                break
            inverse, weights, left = _without(inverse, weights, features)
            touched, rest = np.delete(touched[:, left], weakest, axis=0), rest + float(losses[weakest])
            del teams[weakest]
        kept = np.concatenate([np.zeros(0, np.int64), *teams])
        return kept, float(1 - rest / self.variance) if self.variance > 0 else 0.0

    def confidences(self, kept: Dims, dim: int, offered: Dims) -> dict[int, float]:
        """That a dimension which came in is an edge, and that those which could take its place are none."""
        others, own = np.setdiff1d(kept, [dim]), self._score(kept)
        missed = (self._score(others) - own - float(self.moments.price(0))) / 2
        instead = self._alike(dim, np.setdiff1d(offered, kept))
        over = {int(other): (self._score(np.append(others, other)) - own) / 2 for other in instead}
        sure = {dim: min([missed, *over.values()]), **over}
        return {each: min(1 - DOUBT, float(special.expit(odds))) for each, odds in sure.items()}

    def _columns(self, dims: Iterable[int]) -> Dims:
        return np.concatenate([[0], 1 + self.moments.dictionary.within(np.array(list(dims), np.int64))])

    def _score(self, dims: Iterable[int]) -> float:
        """The information criterion of features within these dimensions: less is better."""
        columns, count = self._columns(dims), self.moments.transitions
        cross = self.cross[columns]
        weights = np.linalg.solve(self.moments.gram[np.ix_(columns, columns)], cross)
        rest = max(self.variance - float(weights @ cross), EXACT)
        return count * float(np.log(rest)) + len(columns) * float(np.log(count))

    def _alike(self, dim: int, offered: Dims) -> Dims:
        """Of those offered, the ones with which a dimension shares its variance."""
        shared, dims = _covariance(self.moments), self.moments.dictionary.scale.dims
        own, places = np.searchsorted(dims, dim), np.searchsorted(dims, offered)
        return offered[shared[own, places] ** 2 > ALIKE * shared[own, own] * np.diag(shared)[places]]


def _losses(inverse: Floats, weights: Floats, groups: NDArray[np.bool_]) -> Floats:
    """[G, S] how much each target's squared error grows without each group of features [G, P]:
    B_gᵀ [(G⁻¹)_gg]⁻¹ B_g, groups of a size together."""
    losses, sizes = np.zeros((len(groups), weights.shape[1])), groups.sum(axis=1)
    for size in np.unique(sizes):
        mine = np.nonzero(groups[sizes == size])[1].reshape(-1, size)
        within, block = inverse[mine[:, :, None], mine[:, None, :]], weights[mine]
        losses[sizes == size] = np.sum(block * np.linalg.solve(within, block), axis=1)
    return losses


def _without(inverse: Floats, weights: Floats, features: Dims) -> tuple[Floats, Floats, Dims]:
    """Inverse and weights once these features are gone, and the numbers of those left."""
    left = np.setdiff1d(np.arange(len(inverse)), features)
    share = np.linalg.solve(inverse[np.ix_(features, features)], inverse[np.ix_(features, left)])
    smaller = inverse[np.ix_(left, left)] - inverse[np.ix_(left, features)] @ share
    return smaller, weights[left] - share.T @ weights[features], left


def _log_odds_of_worth(growth: Floats, free: int, features: Floats, least: float) -> Floats:
    """Log odds that leaving so many features out truly lets the error grow by `least` or more, if it was as
    likely as not: densities of free·growth as a noncentral χ², averaged over effects, and as a central one.

    Their ratio is exp(-δ/2) 0F1(k/2; δ·free·growth/4), by the uniform expansion of Bessel's I.
    """
    if free < 1:
        return np.zeros_like(growth)
    order = np.maximum(features / 2 - 1, 0.5)
    effects = free * least * 2.0 ** np.arange(np.ceil(-np.log2(least)) + 1)
    ratios = np.full_like(growth, -np.inf)
    for effect in effects:
        root = np.sqrt(1 + effect * free * growth / order**2)
        ratio = order * (root - 1 - np.log((1 + root) / 2)) - np.log(root) / 2 - effect / 2
        ratios = np.logaddexp(ratios, ratio)
    return ratios - np.log(len(effects))
