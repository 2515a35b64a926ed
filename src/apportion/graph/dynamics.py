"""Which dimensions feed the next value of each state dimension, from transitions.

One regression of all next states on the same features shares one inverse. What a source is worth to a target
is how much worse the fit gets without every feature that touches it: given all others, so correlation between
sources does little harm. Edges that pass are then thinned, target by target, on simpler features. Of sources
that say nearly the same none is missed beside the others: what is left is offered to them (`stand_ins`).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.features import THREADS, Dictionary, Floats, Units
from apportion.graph.stand_ins import EXACT, Target, told_by_others

FLOOR = 1e-3  # an edge must change the unexplained variance by this share,
FINAL_FLOOR = 2e-3  # and by this one among its target's parents
ROWS = 2_000  # whose products a thread takes at once: more, and one thread would wait for another


@dataclass(eq=False)
class DynamicsEvidence:
    """Second moments of features, low-degree features and next states over transitions."""

    dictionary: Dictionary
    targets: Units  # of the state dimensions [S]
    gram: Floats = field(init=False)  # [P, P]
    cross: Floats = field(init=False)  # [P, S]
    squares: Floats = field(init=False)  # [S]
    count: int = 0

    def __post_init__(self) -> None:
        size, states = self.dictionary.size + 1, len(self.targets.live)
        self.gram = np.zeros((size, size))
        self.cross = np.zeros((size, states))
        self.squares = np.zeros(states)

    def add(self, x: NDArray[Any], following: NDArray[Any]) -> None:
        """More transitions: state-action rows [N, D] and the states after them [N, S]."""
        blocks = (slice(start, start + ROWS) for start in range(0, len(x), ROWS))
        with ThreadPoolExecutor(THREADS) as pool:
            # Added up in the order of the rows, whoever is first: so the same rows give the same numbers.
            for gram, cross, squares in pool.map(
                lambda rows: self._moments(x[rows], following[rows]), blocks
            ):
                self.gram += gram
                self.cross += cross
                self.squares += squares
        self.count += len(x)

    def _moments(self, x: NDArray[Any], following: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
        """Second moments of some rows, not divided by their number."""
        features = np.ones((len(self.gram), len(x))).T
        self.dictionary.features(x, out=features[:, 1:])
        states = np.zeros((len(self.targets.live), len(x))).T
        states[:, self.targets.live] = self.targets.standardise_live(following)
        return features.T @ features, features.T @ states, np.sum(states**2, axis=0)

    def merge(self, other: "DynamicsEvidence") -> None:
        """What another worker has gathered with the same dictionary."""
        self.gram += other.gram
        self.cross += other.cross
        self.squares += other.squares
        self.count += other.count


class DynamicsEdges(NamedTuple):
    """Dimensions that feed each next state."""

    edges: NDArray[np.bool_]  # [D, S] (source, target)
    strength: Floats  # [D, S] how much the unexplained variance grows without the source, as log ratio
    confidence: (
        Floats  # [D, S] of each verdict: an edge by the information criterion's odds, none by evidence
    )
    explained: Floats  # [S] share of each target's variance that its parents explain


def dynamics_edges(evidence: DynamicsEvidence, negligible: float = 0.01) -> DynamicsEdges:
    """Drop-one test of every source in the full model, then backward elimination per target. A source whose
    loss would change a target's unexplained variance by less than `negligible` is absent."""
    n, dictionary = evidence.count, evidence.dictionary
    dims, states = len(dictionary.scale.live), len(evidence.targets.live)
    growth = np.zeros((dims, states))  # of the unexplained variance, without each source
    sizes = np.zeros((dims, 1))  # how many features touch it; none those that are not searched
    gram = evidence.gram / n
    gram = gram + 1e-6 * np.diag(np.maximum(np.diag(gram), 1e-6))
    cross, variance = evidence.cross / n, evidence.squares / n
    inverse = np.asarray(np.linalg.inv(gram))  # not SciPy's, during which no other thread runs
    weights = inverse @ cross
    rest = np.maximum(variance - np.sum(weights * cross, axis=0), EXACT)
    for sources in dictionary.scale.teams:
        features = 1 + dictionary.touching(sources)
        growth[sources], sizes[sources] = _loss(inverse, weights, features) / rest, len(features)
    searched, live = sizes > 0, evidence.targets.live
    strength = np.log1p(growth)
    odds = np.where(searched, (n * strength - _price(sizes, n, dims)) / 2, -np.inf)  # of an edge, as log
    worth = np.where(  # the same of one that is not negligible
        searched & live, _log_odds_of_worth(growth, n - len(gram), sizes, negligible), -np.inf
    )
    edges = (odds > 0) & (growth > FLOOR) & live
    explained, alike = np.zeros(states), told_by_others(dictionary, gram)
    at_most, came_in = np.ones((dims, states)), np.zeros((dims, states), np.bool_)
    for target in np.flatnonzero(live):
        parents = np.flatnonzero(edges[:, target])
        facts = Target(dictionary, n, gram, cross[:, target], variance[target])
        kept, explained[target] = _thin(facts, parents)
        if variance[target] * (1 - explained[target]) > (1 + FINAL_FLOOR) * rest[target]:
            more = facts.with_overlooked(kept, alike, FINAL_FLOOR)
            came = np.setdiff1d(more, kept)
            kept, explained[target] = _thin(facts, more) if len(came) else (kept, explained[target])
            for dim in np.intersect1d(came, kept):
                came_in[dim, target] = True
                for other, sure in facts.confidences(kept, int(dim), alike).items():
                    at_most[other, target] = min(sure, at_most[other, target])
        edges[:, target] = np.isin(np.arange(dims), kept)
    confidence = special.expit(np.where(edges, odds, -worth))
    confidence = np.where(came_in, at_most, np.minimum(confidence, at_most))
    return DynamicsEdges(edges, np.where(edges, strength, 0.0), confidence, explained)


def _thin(target: Target, kept: NDArray[np.int64]) -> tuple[NDArray[np.int64], float]:
    """Backward elimination among the parents of one target; their features are those within the parents."""
    dictionary, gram, cross, variance = target.dictionary, target.gram, target.cross, target.variance
    columns = np.concatenate([[0], 1 + dictionary.within(kept)])
    inverse = np.linalg.inv(gram[np.ix_(columns, columns)])
    weights = inverse @ cross[columns]
    rest = max(variance - float(weights @ cross[columns]), EXACT)
    teams = [dictionary.scale.teams[place] for place in np.unique(dictionary.scale.team_places[kept])]
    place = np.full(len(gram), -1)  # of each feature among those left
    while teams:
        place[:], place[columns] = -1, np.arange(len(columns))
        touching = [place[1 + dictionary.touching(team)] for team in teams]
        touching = [mine[mine >= 0] for mine in touching]
        losses = _losses(inverse, weights, touching)
        weakest = int(np.argmin(losses))
        growth = losses[weakest] / rest
        price = _price(len(touching[weakest]), target.n, len(dictionary.scale.live))
        if target.n * np.log1p(growth) > price and growth > FINAL_FLOOR:
            break
        inverse, weights, left = _without(inverse, weights, touching[weakest])
        columns, rest = columns[left], rest + losses[weakest]
        del teams[weakest]
    kept = np.concatenate([np.zeros(0, np.int64), *teams])
    return kept, float(1 - rest / variance) if variance > 0 else 0.0


def _loss(inverse: Floats, weights: Floats, features: NDArray[np.int64]) -> Floats:
    """How much the squared error grows without these features: B_gᵀ [(G⁻¹)_gg]⁻¹ B_g, for each target."""
    block = weights[features]
    return np.asarray(np.sum(block * np.linalg.solve(inverse[np.ix_(features, features)], block), axis=0))


def _losses(inverse: Floats, weights: Floats, blocks: list[NDArray[np.int64]]) -> Floats:
    """The same for one target and many blocks of features: those of a size together, for each is small."""
    losses, sizes = np.zeros(len(blocks)), np.array([len(block) for block in blocks])
    for size in np.unique(sizes):
        alike = np.flatnonzero(sizes == size)
        features = np.stack([blocks[k] for k in alike])
        own = weights[features]
        solved = np.linalg.solve(inverse[features[:, :, None], features[:, None, :]], own[:, :, None])
        losses[alike] = np.sum(own * solved[:, :, 0], axis=1)
    return losses


def _without(
    inverse: Floats, weights: Floats, features: NDArray[np.int64]
) -> tuple[Floats, Floats, NDArray[np.int64]]:
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
    effects = free * least * 2.0 ** np.arange(8)
    ratios = np.full_like(growth, -np.inf)
    for effect in effects:
        root = np.sqrt(1 + effect * free * growth / order**2)
        ratio = order * (root - 1 - np.log((1 + root) / 2)) - np.log(root) / 2 - effect / 2
        ratios = np.logaddexp(ratios, ratio)
    return ratios - np.log(len(effects))


def _price(features: int | Floats, n: int, dims: int) -> Floats:
    """What an information criterion asks for so many features, chosen among the dimensions."""
    return np.asarray(features * np.log(n) + 2 * np.log(dims))
