"""Dimensions that go together from step to step, so that either could stand for the other."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph.features import varies

ALIKE = 0.5  # of the variance of one, that the other shares


def goes_with(rows: NDArray[Any], chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which dimensions of steps [N, D] share more than half of their variance with one of those chosen."""
    x = rows.astype(np.float64)
    live = varies(x.min(axis=0), x.max(axis=0))
    z = (x - x.mean(axis=0)) / np.where(live, x.std(axis=0), 1.0)
    shared = (z.T @ z[:, chosen & live] / len(z)) ** 2
    return np.asarray(live & np.any(shared > ALIKE, axis=1))
