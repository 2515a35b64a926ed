"""Columns that say nearly the same: which of them feeds the reward, no data can tell."""

import numpy as np
from numpy.typing import NDArray

ALIKE = 0.995  # correlation
_ROWS = 50_000

Floats = NDArray[np.float64]


def equal_groups(names: list[str], values: Floats) -> list[str]:
    """A sentence for each group of columns [N, D] that go along with each other; NaN where one is missing."""
    alike = np.abs(_correlations(values[:: -(-len(values) // _ROWS)])) > ALIKE
    sentences, left = [], set(range(len(names)))
    for first in range(len(names)):
        group = [other for other in range(first, len(names)) if other in left and alike[first, other]]
        if len(group) > 1:
            left -= set(group)
            members = ", ".join(names[dim] for dim in group)
            sentences.append(f"{members} say nearly the same: credit of one may belong to another")
    return sentences


def outcomes_told(names: list[str], last: Floats, totals: Floats) -> list[str]:
    """A sentence for each column that goes along with the outcomes [E] of episodes on their last rows [E, D]:
    one that was written afterwards explains all, and what truly earned it nothing."""
    told = np.abs(_correlations(np.column_stack([last, totals]))[-1, :-1]) > ALIKE
    return [
        f"{name!r} on the last row of an episode tells the outcome: leave it out if it was known afterwards"
        for name, tells in zip(names, told, strict=True)
        if tells
    ]


def _correlations(values: Floats) -> Floats:
    """[D, D], of each pair over the rows where neither is missing; 0 where one does not vary."""
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, values, 0.0).sum(axis=0) / count
    x = np.where(known, values - centre, 0.0)
    size = np.sqrt((x**2).sum(axis=0) / count)
    x *= np.where(size > 1e-9 * np.abs(centre), 1 / np.where(size > 0, size, 1.0), 0.0)
    here = known.astype(np.float64)
    both = np.maximum(here.T @ here, 1.0)
    mean, square = x.T @ here / both, (x**2).T @ here / both
    spread = np.maximum(square - mean**2, 0.0)
    scale = np.sqrt(spread * spread.T)
    return np.where(scale > 1e-9, (x.T @ x / both - mean * mean.T) / np.maximum(scale, 1e-9), 0.0)
