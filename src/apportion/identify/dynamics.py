"""Which dimensions feed the next value of each state dimension, from transitions.

One regression of all next states on the same features shares one inverse. What a source is worth to a target
is how much worse the fit gets without every feature that touches it: given all others, so correlation between
sources does no harm. Edges that pass are then thinned, target by target, on simpler features.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from apportion.identify.features import Dictionary, Floats, Scale

FLOOR = 1e-3  # an edge must change the unexplained variance by this share,
FINAL_FLOOR = 2e-3  # and by this one among its target's parents
EXACT = 1e-8  # a target explained this well follows a formula; nothing finer is asked of its edges


@dataclass(eq=False)
class DynamicsEvidence:
    """Second moments of features, low-degree features and next states over transitions."""

    dictionary: Dictionary
    targets: Scale  # of the state dimensions [S]
    gram: Floats = field(init=False)  # [P, P]
    cross: Floats = field(init=False)  # [P, S]
    squares: Floats = field(init=False)  # [S]
    count: int = 0

    def __post_init__(self) -> None:
        size, states = self.dictionary.size + 1, len(self.targets.live)
        self.gram = np.zeros((size, size))
        self.cross = np.zeros((size, states))
        self.squares = np.zeros(states)

    def add(self, x: NDArray[np.float32], following: NDArray[np.float32]) -> None:
        """More transitions: state-action rows [N, D] and the states after them [N, S]."""
        features = self.dictionary.features(x)
        features = np.concatenate([np.ones((len(features), 1)), features], axis=1)
        states = np.zeros((len(following), len(self.targets.live)))
        states[:, self.targets.dims] = self.targets.standardise(following)
        self.gram += features.T @ features
        self.cross += features.T @ states
        self.squares += np.sum(states**2, axis=0)
        self.count += len(x)

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
    confidence: Floats  # [D, S] of each verdict, by the information criterion's odds
    explained: Floats  # [S] share of each target's variance that its parents explain


def dynamics_edges(evidence: DynamicsEvidence) -> DynamicsEdges:
    """Drop-one test of every source in the full model, then backward elimination per target."""
    n = evidence.count
    dims, states = len(evidence.dictionary.scale.live), len(evidence.targets.live)
    edges, strength = np.zeros((dims, states), np.bool_), np.zeros((dims, states))
    odds = np.full((dims, states), -np.inf)  # log odds of an edge; constant dimensions have none
    gram = evidence.gram / n
    gram = gram + 1e-6 * np.diag(np.diag(gram))
    inverse = linalg.inv(gram)
    weights = inverse @ (evidence.cross / n)
    variance = evidence.squares / n
    rest = np.maximum(variance - np.sum(weights * (evidence.cross / n), axis=0), EXACT)
    for source in evidence.dictionary.scale.dims:
        features = 1 + evidence.dictionary.touching(int(source))
        block = weights[features]
        loss = np.sum(
            block * linalg.solve(inverse[np.ix_(features, features)], block, assume_a="pos"), axis=0
        )
        strength[source] = np.log1p(loss / rest)
        price = len(features) * np.log(n) + 2 * np.log(dims)
        odds[source] = (n * strength[source] - price) / 2
        edges[source] = (odds[source] > 0) & (loss / rest > FLOOR)
    edges &= evidence.targets.live[None, :]
    explained = np.zeros(states)
    for target in evidence.targets.dims:
        kept, explained[target] = _thin(evidence, gram, int(target), np.flatnonzero(edges[:, target]))
        edges[:, target] = False
        edges[kept, target] = True
    confidence = special.expit(np.where(edges, odds, -odds))
    return DynamicsEdges(edges, np.where(edges, strength, 0.0), confidence, explained)


def _thin(
    evidence: DynamicsEvidence, gram: Floats, target: int, parents: NDArray[np.int64]
) -> tuple[NDArray[np.int64], float]:
    """Backward elimination among the parents of one target; their features are those within the parents."""
    n = evidence.count
    cross, variance = evidence.cross[:, target] / n, evidence.squares[target] / n
    kept = list(parents)
    rest = _rest(evidence, gram, cross, variance, kept)
    while kept:
        without = [
            _rest(evidence, gram, cross, variance, [k for k in kept if k != source]) for source in kept
        ]
        weakest = int(np.argmin(without))
        growth = without[weakest] / rest - 1
        features = len(_within(evidence, kept)) - len(
            _within(evidence, [k for k in kept if k != kept[weakest]])
        )
        worth = n * np.log1p(growth) > features * np.log(n) + 2 * np.log(len(evidence.dictionary.scale.live))
        if worth and growth > FINAL_FLOOR:
            break
        rest = without[weakest]
        kept.pop(weakest)
    return np.asarray(kept, np.int64), float(1 - rest / variance) if variance > 0 else 0.0


def _rest(
    evidence: DynamicsEvidence, gram: Floats, cross: Floats, variance: float, sources: list[int]
) -> float:
    """Unexplained variance of a target, given these sources only."""
    columns = _within(evidence, sources)
    part = cross[columns]
    explained = part @ linalg.solve(gram[np.ix_(columns, columns)], part, assume_a="pos")
    return float(max(variance - explained, EXACT))


def _within(evidence: DynamicsEvidence, sources: list[int]) -> NDArray[np.int64]:
    """The constant, and all features whose dimensions are among the sources."""
    allowed = set(sources)
    pairs = zip(evidence.dictionary.groups, evidence.dictionary.members, strict=True)
    groups = [group for group, members in pairs if set(members) <= allowed]
    return 1 + np.concatenate([[-1], *groups]).astype(np.int64)
