"""Which dimensions feed the reward, from sums of reward alone (the closed form behind the GRD paper's proof).

If r is a weighted sum of features, a segment's total is the same weighted sum of the features' sums. So one
linear regression of totals on summed features finds r, and a sparse one finds its parents.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from apportion.graph.features import Dictionary, Floats
from apportion.graph.select import Groups, Regression, explained, select

OFFSETS = 2  # every total may contain a constant, and a constant per step


def first_edges(
    dictionary: Dictionary, sums: Floats, lengths: NDArray[Any], totals: NDArray[Any]
) -> tuple[NDArray[np.bool_], Floats]:
    """[D] dimensions whose features are selected, and the share of the totals' variance that is lost without
    each: from the features' sums [M, P] over segments, how long these are, and what they were paid."""
    everything = regression(sums, lengths, totals)
    chosen = select(everything, Groups.of(dictionary))
    return touched(chosen, dictionary), _strength(everything, chosen, dictionary)


def regression(sums: Floats, lengths: NDArray[Any], totals: NDArray[Any]) -> Regression:
    """Second moments: offsets projected out, features scaled to unit variance."""
    vectors = np.column_stack([np.ones(len(sums)), lengths, sums, totals])
    moments = vectors.T @ vectors / len(vectors)
    offsets, rest = moments[:OFFSETS], moments[OFFSETS:, OFFSETS:]
    weights = linalg.lstsq(offsets[:, :OFFSETS], offsets[:, OFFSETS:])[0]
    left = rest - offsets[:, OFFSETS:].T @ weights
    spread = np.diag(left)[:-1]
    # What the offsets explain but for rounding has nothing of its own.
    alive = spread > 1e-9 * np.maximum(np.diag(rest)[:-1], 1e-12)
    scale = np.where(alive, 1 / np.sqrt(np.where(alive, spread, 1.0)), 0.0)
    gram = left[:-1, :-1] * np.outer(scale, scale)
    gram[np.diag_indices(len(gram))] += 1e-6 + (~alive)
    return Regression(gram, left[:-1, -1] * scale, float(max(left[-1, -1], 0.0)), len(vectors))


def touched(features: NDArray[np.int64], dictionary: Dictionary) -> NDArray[np.bool_]:
    """[D] the dimensions of these features."""
    edges = np.zeros(len(dictionary.scale.live), np.bool_)
    edges[dictionary.owners[features]] = True
    return edges


def _strength(everything: Regression, chosen: NDArray[np.int64], dictionary: Dictionary) -> Floats:
    """For each dimension, the share of variance lost when every chosen feature with it goes."""
    strength = np.zeros(len(dictionary.scale.live))
    full = explained(everything, chosen)
    for dim in np.flatnonzero(touched(chosen, dictionary)):
        without = chosen[~(dictionary.owners[chosen] == dim).any(axis=1)]
        strength[dim] = full - explained(everything, without)
    return strength
