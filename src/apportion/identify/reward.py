"""Which dimensions feed the reward, from sums of reward alone (the closed form behind the GRD paper's proof).

If r is a weighted sum of features, a segment's total is the same weighted sum of the features' sums. So one
linear regression of totals on summed features finds r, and a sparse one finds its parents. All it needs are
second moments, which add up over episodes, lanes and workers.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from apportion.identify.features import Dictionary, Floats

FOLDS = 10  # second moments are kept in so many parts, for confidence
RESAMPLES = 40
SHARE_OF_TOTAL = 1e-3  # a group must explain so much of the totals' variance,
SHARE_OF_REST = 0.2  # or so much of what is still unexplained
MAX_GROUPS = 60
RIDGE = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2)  # penalties, as shares of each feature's own second moment
_OFFSETS = 2  # every total may contain a constant, and a constant per step


@dataclass(eq=False)
class RewardEvidence:
    """Second moments of [1, T, summed features, total] over segments, in folds."""

    dictionary: Dictionary
    moments: Floats = field(init=False)  # [FOLDS, P, P]
    counts: NDArray[np.int64] = field(init=False)  # [FOLDS] segments

    def __post_init__(self) -> None:
        size = _OFFSETS + self.dictionary.size + 1
        self.moments = np.zeros((FOLDS, size, size))
        self.counts = np.zeros(FOLDS, np.int64)

    @property
    def segments(self) -> int:
        return int(self.counts.sum())

    def add(self, x: list[NDArray[np.float32]], totals: NDArray[np.float64]) -> None:
        """More segments: the state-action rows [T, D] of each, and what each was paid."""
        for rows, total in zip(x, totals, strict=True):
            sums = self.dictionary.features(rows).sum(axis=0)
            vector = np.concatenate([[1.0, len(rows)], sums, [total]])
            fold = self.segments % FOLDS
            self.moments[fold] += np.outer(vector, vector)
            self.counts[fold] += 1

    def merge(self, other: "RewardEvidence") -> None:
        """What another worker has gathered with the same dictionary."""
        self.moments += other.moments
        self.counts += other.counts


class RewardEdges(NamedTuple):
    """Dimensions that feed the reward."""

    edges: NDArray[np.bool_]  # [D]
    strength: Floats  # [D] share of the totals' variance that is lost without the dimension
    confidence: Floats  # [D] how often resampled halves of the data agree about the edge
    explained: float  # share of the totals' variance that the chosen features explain
    held_out: float  # the same on folds that the weights were not fitted to
    held_out_all: float  # the same for all features together, under the best ridge penalty


class _Regression(NamedTuple):
    """Second moments with the offsets projected out, per segment."""

    gram: Floats  # [P, P]
    cross: Floats  # [P]
    variance: float
    segments: int


def reward_edges(evidence: RewardEvidence, seed: int = 0) -> RewardEdges:
    """Select groups of features on all segments; agreement of random halves is the confidence."""
    dictionary = evidence.dictionary
    size = len(dictionary.scale.live)
    everything = _regression(evidence, np.arange(FOLDS))
    chosen = select(everything, dictionary)
    edges = _dims(chosen, dictionary, size)
    rng = np.random.default_rng(seed)
    votes = np.zeros(size)
    for _ in range(RESAMPLES):
        half = rng.choice(FOLDS, FOLDS // 2, replace=False)
        votes += _dims(select(_regression(evidence, half), dictionary), dictionary, size)
    share = votes / RESAMPLES
    return RewardEdges(
        edges=edges,
        strength=_strength(everything, chosen, dictionary, size),
        confidence=np.where(edges, share, 1 - share),
        explained=_explained(everything, _columns(chosen, dictionary)),
        held_out=held_out(evidence, _columns(chosen, dictionary), RIDGE[0]),
        held_out_all=max(held_out(evidence, np.arange(dictionary.size), penalty) for penalty in RIDGE),
    )


def held_out(evidence: RewardEvidence, columns: NDArray[np.int64], penalty: float) -> float:
    """Share of the totals' variance explained on each fold by a ridge regression on the other folds."""
    error, alone = (
        _held_out_error(evidence, np.concatenate([np.arange(_OFFSETS), _OFFSETS + chosen]), penalty)
        for chosen in (columns, np.zeros(0, np.int64))
    )
    return 1 - error / alone if alone > 0 else 0.0


def _held_out_error(evidence: RewardEvidence, columns: NDArray[np.int64], penalty: float) -> float:
    """Squared error of predicted totals: second moments are enough to compute it."""
    everything = evidence.moments.sum(axis=0)
    scale = np.sqrt(np.maximum(np.diag(everything)[columns], 1e-12))
    ridge = np.where(columns < _OFFSETS, RIDGE[0], penalty)  # offsets are free, but may be collinear
    error = 0.0
    for fold in evidence.moments:
        rest = everything - fold
        gram = rest[np.ix_(columns, columns)] / np.outer(scale, scale) + np.diag(ridge)
        weights = linalg.solve(gram, rest[columns, -1] / scale, assume_a="pos") / scale
        error += (
            fold[-1, -1]
            - 2 * weights @ fold[columns, -1]
            + weights @ fold[np.ix_(columns, columns)] @ weights
        )
    return float(max(error, 0.0))


def select(regression: _Regression, dictionary: Dictionary) -> list[int]:
    """Group orthogonal matching pursuit forward, then the same test backward. Returns group numbers."""
    if regression.segments < 3 or regression.variance <= 0:
        return []
    return _backward(regression, dictionary, _forward(regression, dictionary))


def _forward(regression: _Regression, dictionary: Dictionary) -> list[int]:
    gram, cross = regression.gram.copy(), regression.cross.copy()
    rest = regression.variance
    chosen: list[int] = []
    while len(chosen) < MAX_GROUPS and rest > 1e-9 * regression.variance:
        gains = _gains(gram, cross, dictionary)
        gains[chosen] = 0.0
        best = int(np.argmax(gains))
        if not _worth(gains[best], rest, regression, dictionary, best):
            break
        chosen.append(best)
        rest -= gains[best]
        group = dictionary.groups[best]
        # Schur complement: what the others still have to say once this group is in.
        weights = linalg.solve(
            gram[np.ix_(group, group)] + 1e-9 * np.eye(len(group)), gram[group], assume_a="pos"
        )
        cross = cross - weights.T @ cross[group]
        gram = gram - gram[:, group] @ weights
    return chosen


def _backward(regression: _Regression, dictionary: Dictionary, chosen: list[int]) -> list[int]:
    while chosen:
        columns = _columns(chosen, dictionary)
        rest = regression.variance * (1 - _explained(regression, columns))
        losses = [
            regression.variance
            * (1 - _explained(regression, _columns([g for g in chosen if g != group], dictionary)))
            - rest
            for group in chosen
        ]
        weakest = int(np.argmin(losses))
        if _worth(losses[weakest], rest + losses[weakest], regression, dictionary, chosen[weakest]):
            break
        chosen = [group for i, group in enumerate(chosen) if i != weakest]
    return chosen


def _worth(gain: float, rest: float, regression: _Regression, dictionary: Dictionary, group: int) -> bool:
    """An information criterion with a price for the choice among groups, and a floor on the effect's size."""
    n = regression.segments
    features = len(dictionary.groups[group])
    left = max(1 - gain / rest, 1e-12) if rest > 0 else 1.0
    criterion = n * np.log(left) + features * np.log(n) + 2 * np.log(len(dictionary.groups))
    floor = min(SHARE_OF_TOTAL * regression.variance, SHARE_OF_REST * rest)
    return bool(criterion < 0 and gain > floor)


def _gains(gram: Floats, cross: Floats, dictionary: Dictionary) -> Floats:
    """How much of the variance each group would explain: c_gᵀ G_gg⁻¹ c_g."""
    gains = np.zeros(len(dictionary.groups))
    for number, group in enumerate(dictionary.groups):
        if len(group) == 1:
            spread = gram[group[0], group[0]]
            gains[number] = cross[group[0]] ** 2 / spread if spread > 1e-9 else 0.0
        else:
            block = gram[np.ix_(group, group)] + 1e-6 * np.eye(len(group))
            gains[number] = cross[group] @ linalg.solve(block, cross[group], assume_a="pos")
    return gains


def _regression(evidence: RewardEvidence, folds: NDArray[np.int64]) -> _Regression:
    """Second moments of some folds, offsets projected out, features scaled to unit variance."""
    n = int(evidence.counts[folds].sum())
    if n == 0:
        empty = evidence.dictionary.size
        return _Regression(np.eye(empty), np.zeros(empty), 0.0, 0)
    moments = evidence.moments[folds].sum(axis=0) / n
    offsets, rest = np.arange(_OFFSETS), np.arange(_OFFSETS, len(moments))
    weights = linalg.lstsq(moments[np.ix_(offsets, offsets)], moments[np.ix_(offsets, rest)])[0]
    left = moments[np.ix_(rest, rest)] - moments[np.ix_(rest, offsets)] @ weights
    scale = np.sqrt(np.maximum(np.diag(left)[:-1], 1e-12))
    gram = left[:-1, :-1] / np.outer(scale, scale)
    return _Regression(gram + 1e-6 * np.eye(len(gram)), left[:-1, -1] / scale, float(left[-1, -1]), n)


def _explained(regression: _Regression, columns: NDArray[np.int64]) -> float:
    if not len(columns) or regression.variance <= 0:
        return 0.0
    gram, cross = regression.gram[np.ix_(columns, columns)], regression.cross[columns]
    return float(min(cross @ linalg.solve(gram, cross, assume_a="pos") / regression.variance, 1.0))


def _strength(regression: _Regression, chosen: list[int], dictionary: Dictionary, size: int) -> Floats:
    """For each dimension, the share of variance lost when every chosen group with it goes."""
    strength = np.zeros(size)
    full = _explained(regression, _columns(chosen, dictionary))
    for dim in np.flatnonzero(_dims(chosen, dictionary, size)):
        without = [group for group in chosen if dim not in dictionary.members[group]]
        strength[dim] = full - _explained(regression, _columns(without, dictionary))
    return strength


def _columns(chosen: list[int], dictionary: Dictionary) -> NDArray[np.int64]:
    groups = [dictionary.groups[group] for group in chosen]
    return np.concatenate(groups) if groups else np.zeros(0, np.int64)


def _dims(chosen: list[int], dictionary: Dictionary, size: int) -> NDArray[np.bool_]:
    edges = np.zeros(size, np.bool_)
    for group in chosen:
        edges[list(dictionary.members[group])] = True
    return edges
