"""The dictionary in which reward and dynamics are searched: functions of one dimension, and products of two.

Each dimension is standardised and clipped; then come x, x² - 1, cos(πk F(x)) for k = 1..4 with F its
empirical distribution function, and x_i x_j for every pair. Constant dimensions have no features.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

COSINES = 4
UNIVARIATE = 2 + COSINES  # features of one dimension
QUANTILES = 33
CLIP = 5.0
MAX_PAIRED = 40  # beyond so many live dimensions, products of two would be too many to tell apart


@dataclass(frozen=True, eq=False)
class Scale:
    """What is known of each dimension's range: enough to compute its features."""

    mean: Floats  # [D]
    std: Floats  # [D], 1 where the dimension is constant
    live: NDArray[np.bool_]  # [D] False where it is constant
    quantiles: Floats  # [QUANTILES, D]

    @classmethod
    def fit(cls, x: NDArray[Any]) -> "Scale":
        """From samples [N, D] of any size and unit."""
        x = np.asarray(x, np.float64)
        low, high = x.min(axis=0), x.max(axis=0)
        # Rounding of 32-bit numbers must not look like life.
        live = high - low > 1e-6 * np.maximum(np.abs(low), np.abs(high))
        std = np.where(live, x.std(axis=0), 1.0)
        quantiles = np.quantile(x, np.linspace(0, 1, QUANTILES), axis=0)
        return cls(x.mean(axis=0), std, live, quantiles)

    @cached_property
    def dims(self) -> NDArray[np.int64]:
        """The live dimensions."""
        return np.flatnonzero(self.live)

    def standardise(self, x: NDArray[Any]) -> Floats:
        """Live dimensions [N, K], centred, scaled and clipped."""
        z = (np.asarray(x, np.float64)[:, self.dims] - self.mean[self.dims]) / self.std[self.dims]
        return np.clip(z, -CLIP, CLIP)

    def ranks(self, x: NDArray[Any]) -> Floats:
        """F(x) in [0, 1] of the live dimensions [N, K]."""
        levels = np.linspace(0, 1, QUANTILES)
        x = np.asarray(x, np.float64)
        columns = [np.interp(x[:, dim], self.quantiles[:, dim], levels) for dim in self.dims]
        return np.stack(columns, axis=1) if columns else np.zeros((len(x), 0))


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Features of samples, and which dimensions each group of features belongs to."""

    scale: Scale
    pairs: NDArray[np.int64]  # [P, 2] dimensions multiplied with each other

    @classmethod
    def over(cls, scale: Scale) -> "Dictionary":
        """With all pairs where there are not too many."""
        dims = scale.dims
        if len(dims) > MAX_PAIRED:
            return cls(scale, np.zeros((0, 2), np.int64))
        first, second = np.triu_indices(len(dims), k=1)
        return cls(scale, np.stack([dims[first], dims[second]], axis=1))

    @property
    def size(self) -> int:
        return UNIVARIATE * len(self.scale.dims) + len(self.pairs)

    @cached_property
    def groups(self) -> list[NDArray[np.int64]]:
        """Feature numbers of each group: one group per live dimension, then one per pair."""
        blocks = np.arange(UNIVARIATE * len(self.scale.dims)).reshape(-1, UNIVARIATE)
        singles = UNIVARIATE * len(self.scale.dims) + np.arange(len(self.pairs)).reshape(-1, 1)
        return [*blocks, *singles]

    @cached_property
    def members(self) -> list[tuple[int, ...]]:
        """Dimensions of each group."""
        return [(int(dim),) for dim in self.scale.dims] + [(int(i), int(j)) for i, j in self.pairs]

    def touching(self, dim: int) -> NDArray[np.int64]:
        """Numbers of all features that involve a dimension."""
        groups = [group for group, dims in zip(self.groups, self.members, strict=True) if dim in dims]
        return np.concatenate(groups) if groups else np.zeros(0, np.int64)

    def features(self, x: NDArray[Any]) -> Floats:
        """[N, size] features of samples [N, D]."""
        z, ranks = self.scale.standardise(x), self.scale.ranks(x)
        k = np.arange(1, COSINES + 1)
        cosines = np.cos(np.pi * ranks[:, :, None] * k)
        univariate = np.concatenate([z[:, :, None], z[:, :, None] ** 2 - 1, cosines], axis=2)
        place = np.searchsorted(self.scale.dims, self.pairs)
        products = z[:, place[:, 0]] * z[:, place[:, 1]]
        return np.concatenate([univariate.reshape(len(z), -1), products], axis=1)
