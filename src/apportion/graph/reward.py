"""Which dimensions feed the reward, from sums of reward alone (the closed form behind the GRD paper's proof).

If r is a weighted sum of features, a segment's total is the same weighted sum of the features' sums. So one
linear regression of totals on summed features finds r, and a sparse one finds its parents. All it needs are
second moments, which add up over episodes, lanes and workers.
"""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from apportion.graph.features import Dictionary, Floats
from apportion.graph.select import Groups, Regression, explained, select

FOLDS = 10  # second moments are kept in so many parts, for confidence;
FEW_FOLDS = 4  # in fewer where there are
MANY_FEATURES = 1000
RESAMPLES = 40
OFFSETS = 2  # every total may contain a constant, and a constant per step


@dataclass(eq=False)
class RewardEvidence:
    """Second moments of [1, T, summed features, total] over segments, in folds."""

    dictionary: Dictionary
    folds: int = 0  # 0: as many as confidence asks for
    moments: Floats = field(init=False)  # [folds, P, P]
    counts: NDArray[np.int64] = field(init=False)  # [folds] segments

    def __post_init__(self) -> None:
        size = OFFSETS + self.dictionary.size + 1
        self.folds = self.folds or (FOLDS if size <= MANY_FEATURES else FEW_FOLDS)
        self.moments = np.zeros((self.folds, size, size))
        self.counts = np.zeros(self.folds, np.int64)

    @property
    def segments(self) -> int:
        return int(self.counts.sum())

    def add(self, x: list[NDArray[Any]], totals: NDArray[Any]) -> None:
        """More segments: the state-action rows [T, D] of each, and what each was paid."""
        self.add_sums(self.dictionary.sums(x), np.array([len(rows) for rows in x]), totals)

    def add_sums(self, sums: Floats, lengths: NDArray[Any], totals: NDArray[Any]) -> None:
        """The same from features that are summed already [E, P]."""
        if not len(sums):
            return
        vectors = np.column_stack([np.ones(len(sums)), lengths, sums, totals])
        folds = (self.segments + np.arange(len(sums))) % len(self.counts)
        for fold in np.unique(folds):
            mine = vectors[folds == fold]
            self.moments[fold] += mine.T @ mine
            self.counts[fold] += len(mine)

    def merge(self, other: "RewardEvidence") -> None:
        """What another worker has gathered with the same dictionary."""
        self.moments += other.moments
        self.counts += other.counts

    def regression(self, folds: NDArray[np.int64] | None = None) -> Regression:
        """Second moments of some folds, or all: offsets projected out, features scaled to unit variance."""
        folds = np.arange(len(self.counts)) if folds is None else folds
        n = int(self.counts[folds].sum())
        if n == 0:
            empty = self.dictionary.size
            return Regression(np.eye(empty), np.zeros(empty), 0.0, 0)
        moments = self.moments[folds].sum(axis=0) / n
        offsets, rest = moments[:OFFSETS], moments[OFFSETS:, OFFSETS:]
        weights = linalg.lstsq(offsets[:, :OFFSETS], offsets[:, OFFSETS:])[0]
        left = rest - offsets[:, OFFSETS:].T @ weights
        spread = np.diag(left)[:-1]
        # What the offsets explain but for rounding has nothing of its own.
        alive = spread > 1e-9 * np.maximum(np.diag(rest)[:-1], 1e-12)
        scale = np.where(alive, 1 / np.sqrt(np.where(alive, spread, 1.0)), 0.0)
        gram = left[:-1, :-1] * np.outer(scale, scale)
        gram[np.diag_indices(len(gram))] += 1e-6 + (~alive)
        return Regression(gram, left[:-1, -1] * scale, float(max(left[-1, -1], 0.0)), n)


class RewardEdges(NamedTuple):
    """Dimensions that feed the reward."""

    edges: NDArray[np.bool_]  # [D]
    strength: Floats  # [D] share of the totals' variance that is lost without the dimension
    confidence: Floats  # [D] how often resampled halves of the data agree about the edge
    explained: float  # share of the totals' variance that the chosen features explain
    chosen: NDArray[np.int64]  # features


def reward_edges(evidence: RewardEvidence, seed: int = 0) -> RewardEdges:
    """Select groups of features on all segments; agreement of random halves is the confidence."""
    groups = Groups.of(evidence.dictionary)
    everything = evidence.regression()
    chosen = select(everything, groups)
    edges = touched(chosen, evidence.dictionary)
    share = np.mean([touched(votes, evidence.dictionary) for votes in halves(evidence, groups, seed)], axis=0)
    return RewardEdges(
        edges=edges,
        strength=_strength(everything, chosen, evidence.dictionary),
        confidence=np.where(edges, share, 1 - share),
        explained=explained(everything, chosen),
        chosen=chosen,
    )


def first_edges(evidence: RewardEvidence) -> tuple[NDArray[np.bool_], Floats]:
    """Edges and their strengths alone, which one fold is enough for."""
    everything = evidence.regression()
    chosen = select(everything, Groups.of(evidence.dictionary))
    return touched(chosen, evidence.dictionary), _strength(everything, chosen, evidence.dictionary)


def halves(evidence: RewardEvidence, groups: Groups, seed: int) -> list[NDArray[np.int64]]:
    """The features chosen on halves of the folds: on all halves, or on RESAMPLES of them."""
    folds = len(evidence.counts)
    every = list(combinations(range(folds), folds // 2))
    rng = np.random.default_rng(seed)
    picks = rng.choice(len(every), min(RESAMPLES, len(every)), replace=False)
    return [select(evidence.regression(np.array(every[pick])), groups) for pick in picks]


def touched(features: NDArray[np.int64], dictionary: Dictionary) -> NDArray[np.bool_]:
    """[D] the dimensions of these features."""
    edges = np.zeros(len(dictionary.scale.live), np.bool_)
    edges[dictionary.owners[features]] = True
    return edges


def _strength(regression: Regression, chosen: NDArray[np.int64], dictionary: Dictionary) -> Floats:
    """For each dimension, the share of variance lost when every chosen feature with it goes."""
    strength = np.zeros(len(dictionary.scale.live))
    full = explained(regression, chosen)
    for dim in np.flatnonzero(touched(chosen, dictionary)):
        without = chosen[~(dictionary.owners[chosen] == dim).any(axis=1)]
        strength[dim] = full - explained(regression, without)
    return strength
