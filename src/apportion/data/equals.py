"""Columns that say nearly the same: which of them feeds the reward, no data can tell."""

import numpy as np
from numpy.typing import NDArray

ALIKE = 0.995  # correlation
_ROWS = 50_000


def equal_groups(names: list[str], values: NDArray[np.float64]) -> list[str]:
    """A sentence for each group of columns [N, D] that go along with each other."""
    some = values[:: -(-len(values) // _ROWS)]
    centred = some - some.mean(axis=0)
    size = np.sqrt(np.mean(centred**2, axis=0))
    live = size > 1e-12 * np.maximum(np.abs(some).max(axis=0, initial=0.0), 1e-300)
    unit = centred * np.where(live, 1 / np.where(live, size, 1.0), 0.0)
    alike = np.abs(unit.T @ unit) / max(len(some), 1) > ALIKE
    sentences, left = [], set(np.flatnonzero(live).tolist())
    for first in range(len(names)):
        group = [other for other in np.flatnonzero(alike[first]).tolist() if other in left and first in left]
        left -= set(group)
        if len(group) > 1:
            members = ", ".join(names[dim] for dim in group)
            sentences.append(f"{members} say nearly the same: credit of one may belong to another")
    return sentences
