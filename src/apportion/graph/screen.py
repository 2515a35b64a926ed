"""What could explain the remainder of the totals: a product of more dimensions, or one more dimension that
works together with those found."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph.features import MAX_PAIRED, Floats, Scale, batches
from apportion.graph.model import Basis
from apportion.graph.ridge import Offsets, ridge

_CONTEXT = 30  # waves of the dimensions found that a new one is multiplied with


@dataclass(frozen=True, eq=False)
class Segments:
    """The data of a search."""

    rows: list[NDArray[Any]]  # [T, D] of each segment
    totals: Floats  # [E]
    scale: Scale

    @property
    def count(self) -> int:
        return len(self.totals)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(rows) for rows in self.rows])

    @cached_property
    def offsets(self) -> Offsets:
        return Offsets.of(self.lengths)

    @cached_property
    def variance(self) -> float:
        """Of the totals, but for offsets; never zero, so that shares of it can be taken."""
        return max(float(np.mean(self.offsets.remove(self.totals) ** 2)), 1e-300)


def best_product(segments: Segments, remainder: Floats) -> tuple[NDArray[np.int64], float, int]:
    """The product of three dimensions (of two, where there are too many to pair) whose sums go best with the
    remainder: its dimensions, the squared correlation, and how many products there were."""
    dims = segments.scale.dims
    degree = 3 if len(dims) <= MAX_PAIRED else 2
    if len(dims) < degree:
        return np.zeros(0, np.int64), 0.0, 1
    remainder, basis = segments.offsets.remove(remainder), segments.offsets.basis
    pair = np.array(list(combinations(range(len(dims)), degree - 1)))
    cross, squares = np.zeros((2, len(pair), len(dims)))
    along = np.zeros((basis.shape[1], len(pair), len(dims)))
    for number, sums in enumerate(_product_sums(segments, pair)):
        cross += remainder[number] * sums
        squares += sums**2
        along += basis[number][:, None, None] * sums
    spread = squares - np.sum(along**2, axis=0)
    alive = (spread > 1e-9 * squares) & (np.arange(len(dims)) > pair[:, -1:])
    fit = np.where(alive, cross**2 / np.where(alive, spread, 1.0), 0.0) / max(
        float(np.sum(remainder**2)), 1e-300
    )
    place, last = np.unravel_index(np.argmax(fit), fit.shape)
    return dims[[*pair[place], last]], float(fit.max()), max(int(alive.sum()), 1)


def _product_sums(segments: Segments, pair: NDArray[np.int64]) -> Iterator[Floats]:
    """For each segment Σ_t z_i z_j z_k [pairs, K], or Σ_t z_i z_j [K, K] where `pair` has one column."""
    for batch in batches(segments.rows, len(pair) + len(segments.scale.dims)):
        z = segments.scale.standardise(np.concatenate(batch)).astype(np.float32)
        products = z[:, pair[:, 0]] * z[:, pair[:, 1]] if pair.shape[1] == 2 else z
        end = 0
        for rows in batch:
            start, end = end, end + len(rows)
            yield (products[start:end].T @ z[start:end]).astype(np.float64)


def best_addition(
    segments: Segments, found: NDArray[np.int64], errors: Floats, rng: np.random.Generator
) -> tuple[int, float, float]:
    """The dimension that explains most of the errors together with those found: its number, the share of the
    squared error it would cut on segments left out, and how many standard errors that is."""
    dims = segments.scale.dims
    basis = Basis.of(segments.scale, found, min(_CONTEXT, segments.count // 8), rng)
    sums = _context_sums(segments, basis)
    others = [place for place, dim in enumerate(dims) if dim not in found]
    best = (-1, 0.0, 0.0)
    for place in others:
        left = ridge(sums[:, :, place].reshape(segments.count, -1), errors, segments.offsets).errors
        gain = errors**2 - left**2
        cut = float(gain.mean() / np.mean(errors**2))
        if cut > best[1]:
            best = (int(dims[place]), cut, float(gain.mean() / (gain.std() / np.sqrt(len(gain)) + 1e-300)))
    return best


def _context_sums(segments: Segments, basis: Basis) -> Floats:
    """[E, 2M, K] of each dimension's z and z² - 1, times 1, the values found and their waves, summed."""
    parts = []
    for batch in batches(segments.rows, 4 * len(segments.scale.dims)):
        x = np.concatenate(batch)
        z = segments.scale.standardise(x).astype(np.float32)
        own = basis.values(x)[0]
        waves = np.cos(own @ basis.directions.astype(np.float32) + basis.phases.astype(np.float32))
        context = np.concatenate([np.ones((len(x), 1), np.float32), own, waves], axis=1)
        square, end = z**2 - 1, 0
        for rows in batch:
            start, end = end, end + len(rows)
            part = context[start:end].T
            parts.append(np.concatenate([part @ z[start:end], part @ square[start:end]]))
    return np.stack(parts).astype(np.float64)
