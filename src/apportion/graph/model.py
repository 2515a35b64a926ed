"""A reward function in closed form: ridge regression on rich features of the reward's parents.

r̂(x) = per_step + Σ_k w_k φ_k(x), where φ are, of the parents alone: z, z² - 1, cos(πk F(x)) for k = 1..8,
products of two and three, and waves cos(z·direction + phase); z = clip((x - mean) / std, ±5), and F is the
empirical distribution function of a dimension.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.graph import features
from apportion.graph.features import CLIP, QUANTILES, Floats, Scale, batches, cosines, rows_at_once, summed
from apportion.graph.ridge import Ridge

COSINES = 2 * features.COSINES
WAVES = 200  # at the most
_UNIVARIATE = 2 + COSINES
_FREQUENCIES = (0.3, 0.6, 1.2)
_MIXED = 4  # dimensions in one wave, at most
_MANY = 6  # dimensions; products of three of more would be too many


class Basis(NamedTuple):
    """Rich features of a few dimensions."""

    scale: Scale
    dims: NDArray[np.int64]  # [K]
    alone: NDArray[np.int64]  # places among dims of those that have functions of their own
    products: tuple[NDArray[np.int64], ...]  # [P, degree] of each degree: places among dims, multiplied
    directions: Floats  # [K, W]
    phases: Floats  # [W]

    @classmethod
    def of(
        cls,
        scale: Scale,
        dims: NDArray[np.int64],
        waves: int,
        rng: np.random.Generator,
        noted: Iterable[NDArray[np.int64]] = (),
    ) -> "Basis":
        """Products of two, of three while they are few, those `noted` by their dimensions, and waves in
        directions of 1 to 4 dimensions."""
        k = len(dims)
        degrees = (2, 3) if k <= _MANY else (2,)
        noted = [p for p in noted if np.isin(p, dims).all() and len(p) not in degrees]
        waves = waves if k else 0
        sizes = rng.integers(1, min(k, _MIXED) + 1, waves) if k else np.zeros(0)
        mixed = rng.random((waves, k)).argsort(axis=1).argsort(axis=1) < sizes[:, None]
        frequencies = rng.choice(_FREQUENCIES, waves)
        return cls(
            scale,
            dims,
            np.arange(k),
            (*(subsets(k, degree) for degree in degrees), *(np.searchsorted(dims, p)[None] for p in noted)),
            (mixed * rng.normal(size=(waves, k)) * frequencies[:, None]).T,
            rng.uniform(0, 2 * np.pi, waves),
        )

    def without_waves(self) -> "Basis":
        return self._replace(directions=self.directions[:, :0], phases=self.phases[:0])

    def touching(self, some: NDArray[np.int64]) -> "Basis":
        """The features that look at any of the dimensions at some places, which rise, in their order."""
        mixed = np.any(self.directions[some] != 0, axis=0)
        return self._replace(
            alone=some,
            products=tuple(places[np.any(np.isin(places, some), axis=1)] for places in self.products),
            directions=self.directions[:, mixed],
            phases=self.phases[mixed],
        )

    @property
    def owners(self) -> NDArray[np.bool_]:
        """[K, P] which dimensions each feature looks at."""
        k = len(self.dims)
        single = np.repeat(np.eye(k, dtype=np.bool_)[:, self.alone], _UNIVARIATE, axis=1)
        products = [np.any(np.arange(k)[:, None, None] == places, axis=2) for places in self.products]
        return np.concatenate([single, *products, self.directions != 0], axis=1)

    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Of rows [N, D]: [N, P]. Single precision is plenty for what is summed over steps."""
        z, ranks = self.values(x)
        alone = z[:, self.alone]
        univariate = np.stack([alone, alone**2 - 1, *cosines(ranks, COSINES)], axis=2)
        products = [np.prod([z[:, column] for column in places.T], axis=0) for places in self.products]
        waves = np.cos(z @ self.directions.astype(np.float32) + self.phases.astype(np.float32))
        return np.concatenate([univariate.reshape(len(z), -1), *products, waves], axis=1)

    def values(self, x: NDArray[Any]) -> tuple[NDArray[np.float32], Floats]:
        """z of the dimensions [N, K], and F(x) of those that have functions of their own."""
        x, scale, dims = np.asarray(x)[:, self.dims], self.scale, self.dims
        z = np.clip((x - scale.mean[dims]) / scale.std[dims], -CLIP, CLIP).astype(np.float32)
        levels = np.linspace(0, 1, QUANTILES)
        columns = [np.interp(x[:, k], scale.quantiles[:, dims[k]], levels) for k in self.alone]
        return z, np.stack(columns, axis=1) if columns else np.zeros((len(x), 0))

    def sums(self, segments: Iterable[NDArray[Any]]) -> Floats:
        """Features of each segment, summed: [E, P]."""
        parts = []
        for batch in batches(segments, len(self.dims) * _UNIVARIATE + WAVES):
            starts = np.cumsum([0, *(len(rows) for rows in batch)])
            parts.append(summed(self.features(np.concatenate(batch)), starts))
        return np.concatenate(parts)


class RewardModel(NamedTuple):
    """A reward function of state-action rows."""

    basis: Basis
    weights: Floats  # [P]
    per_step: float  # a constant in every step
    per_segment: float  # a constant in every total, which belongs to no step
    per_end: float  # what a step pays besides that ends an episode by itself

    @classmethod
    def of(cls, basis: Basis, fit: Ridge) -> "RewardModel":
        return cls(basis, fit.weights, fit.per_step, fit.per_segment, fit.per_end)

    def predict(self, x: NDArray[Any]) -> Floats:
        """Reward of each row [N, D], without what an end pays: [N]."""
        x, rows = np.asarray(x), rows_at_once(len(self.weights))
        parts = [self.basis.features(x[start : start + rows]) for start in range(0, len(x), rows)]
        return self.per_step + np.concatenate([np.zeros(0), *(part @ self.weights for part in parts)])


def subsets(count: int, size: int) -> NDArray[np.int64]:
    """[N, size] all choices of so many places."""
    return np.array(list(combinations(range(count), size)), np.int64).reshape(-1, size)
