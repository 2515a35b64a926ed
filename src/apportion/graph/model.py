"""A reward function in closed form: ridge regression on rich features of the reward's parents.

r̂(x) = per_step + linear·z + quadratic·(z² - 1) + Σ_k cosines_k·cos(πk F(x)) + zᵀ products z
       + Σ triple_weights·z_i z_j z_k + amplitudes·cos(z directions + phases)

with z = clip((x - mean) / std, ±5) and F the empirical distribution function of each dimension.

All arrays have sizes that depend on D alone, so that a jitted program can take a new model without compiling
again; dimensions that are no parents have weight zero.
"""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.graph.features import CLIP, QUANTILES, Floats, Scale, batches, cosines
from apportion.graph.ridge import Ridge

COSINES = 8
WAVES = 200
TRIPLES = 20
_UNIVARIATE = 2 + COSINES
_FREQUENCIES = (0.3, 0.6, 1.2)
_MIXED = 4  # dimensions in one wave, at most


class RewardModel(NamedTuple):
    """Weights of a reward function of state-action rows [N, D]; see the module's formula."""

    mean: Floats  # [D]
    std: Floats  # [D]
    quantiles: Floats  # [33, D] of the data, at levels 0, 1/32, ..., 1: F(x) interpolates them
    linear: Floats  # [D]
    quadratic: Floats  # [D]
    cosines: Floats  # [D, 8]
    products: Floats  # [D, D], upper triangle
    triples: NDArray[np.int64]  # [20, 3] dimensions
    triple_weights: Floats  # [20]
    directions: Floats  # [D, 200]
    phases: Floats  # [200]
    amplitudes: Floats  # [200]
    per_step: float  # a constant in every step
    per_segment: float  # a constant in every total, which belongs to no step

    def predict(self, x: NDArray[Any]) -> Floats:
        """Reward of each row [N, D]: [N]."""
        x = np.asarray(x, np.float64)
        z = np.clip((x - self.mean) / self.std, -CLIP, CLIP)
        levels = np.linspace(0, 1, QUANTILES)
        rewards = self.per_step + z @ self.linear + (z**2 - 1) @ self.quadratic
        for dim in np.flatnonzero(self.cosines.any(axis=1)):
            ranks = np.interp(x[:, dim], self.quantiles[:, dim], levels)
            rewards += cosines(ranks[:, None], COSINES)[:, 0] @ self.cosines[dim]
        rewards += np.sum((z @ self.products) * z, axis=1)
        rewards += np.prod(z[:, self.triples], axis=2) @ self.triple_weights
        return np.asarray(rewards + np.cos(z @ self.directions + self.phases) @ self.amplitudes)


class Basis(NamedTuple):
    """Rich features of a few dimensions, in the order of RewardModel's weights."""

    scale: Scale
    dims: NDArray[np.int64]  # [K]
    pairs: NDArray[np.int64]  # [P, 2] places among dims
    triples: NDArray[np.int64]  # [Q, 3]
    directions: Floats  # [K, W]
    phases: Floats  # [W]

    @classmethod
    def of(cls, scale: Scale, dims: NDArray[np.int64], waves: int, rng: np.random.Generator) -> "Basis":
        """Products of two, of three while they are few, and waves in directions of 1 to 4 dimensions."""
        k = len(dims)
        triples = list(combinations(range(k), 3)) if k <= 6 else []
        waves = waves if k else 0
        sizes = rng.integers(1, min(k, _MIXED) + 1, waves) if k else np.zeros(0)
        mixed = rng.random((waves, k)).argsort(axis=1).argsort(axis=1) < sizes[:, None]
        frequencies = rng.choice(_FREQUENCIES, waves)
        return cls(
            scale,
            dims,
            np.array(list(combinations(range(k), 2)), np.int64).reshape(-1, 2),
            np.array(triples, np.int64).reshape(-1, 3),
            (mixed * rng.normal(size=(waves, k)) * frequencies[:, None]).T,
            rng.uniform(0, 2 * np.pi, waves),
        )

    def without_waves(self) -> "Basis":
        return self._replace(directions=self.directions[:, :0], phases=self.phases[:0])

    @property
    def owners(self) -> NDArray[np.bool_]:
        """[K, P] which dimensions each feature looks at."""
        k = len(self.dims)
        single = np.repeat(np.eye(k, dtype=np.bool_), _UNIVARIATE, axis=1)
        products = [
            np.any(np.arange(k)[:, None, None] == places, axis=2) for places in (self.pairs, self.triples)
        ]
        return np.concatenate([single, *products, self.directions != 0], axis=1)

    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Of rows [N, D]: [N, P]. Single precision is plenty for what is summed over steps."""
        z, ranks = self.values(x)
        univariate = np.concatenate([z[..., None], z[..., None] ** 2 - 1, cosines(ranks, COSINES)], axis=2)
        return np.concatenate(
            [
                univariate.reshape(len(z), -1),
                z[:, self.pairs[:, 0]] * z[:, self.pairs[:, 1]],
                z[:, self.triples[:, 0]] * z[:, self.triples[:, 1]] * z[:, self.triples[:, 2]],
                np.cos(z @ self.directions.astype(np.float32) + self.phases.astype(np.float32)),
            ],
            axis=1,
        )

    def values(self, x: NDArray[Any]) -> tuple[NDArray[np.float32], Floats]:
        """z and F(x) of the dimensions [N, K]."""
        x, scale, dims = np.asarray(x)[:, self.dims], self.scale, self.dims
        z = np.clip((x - scale.mean[dims]) / scale.std[dims], -CLIP, CLIP).astype(np.float32)
        levels = np.linspace(0, 1, QUANTILES)
        columns = [np.interp(x[:, k], scale.quantiles[:, dim], levels) for k, dim in enumerate(dims)]
        return z, np.stack(columns, axis=1) if columns else np.zeros((len(x), 0))

    def sums(self, segments: list[NDArray[Any]]) -> Floats:
        """Features of each segment, summed: [E, P]."""
        parts = []
        for batch in batches(segments, len(self.dims) * _UNIVARIATE + WAVES):
            starts = np.cumsum([0, *(len(rows) for rows in batch)])[:-1]
            features = self.features(np.concatenate(batch))
            parts.append(np.add.reduceat(features, starts, axis=0, dtype=np.float64))
        return np.concatenate(parts)

    def model(self, fit: Ridge) -> RewardModel:
        """The fit's weights, each in its place."""
        dims, size = self.dims, len(self.scale.live)
        k, p, q = len(dims), len(self.pairs), len(self.triples)
        single, pair, triple, wave = np.split(fit.weights, np.cumsum([k * _UNIVARIATE, p, q]))
        single = single.reshape(k, _UNIVARIATE)
        univariate, products = np.zeros((size, _UNIVARIATE)), np.zeros((size, size))
        univariate[dims] = single
        products[dims[self.pairs[:, 0]], dims[self.pairs[:, 1]]] = pair
        directions = np.zeros((size, WAVES))
        directions[dims, : len(wave)] = self.directions
        return RewardModel(
            mean=self.scale.mean,
            std=self.scale.std,
            quantiles=self.scale.quantiles,
            linear=univariate[:, 0],
            quadratic=univariate[:, 1],
            cosines=univariate[:, 2:],
            products=products,
            triples=_padded(dims[self.triples] if k else self.triples, TRIPLES),
            triple_weights=_padded(triple, TRIPLES),
            directions=directions,
            phases=_padded(self.phases, WAVES),
            amplitudes=_padded(wave, WAVES),
            per_step=fit.per_step,
            per_segment=fit.per_segment,
        )


def _padded(x: NDArray[Any], size: int) -> NDArray[Any]:
    return np.pad(x, [(0, size - len(x))] + [(0, 0)] * (x.ndim - 1))
