"""What could explain the remainder of the totals: a product of more dimensions, or one more dimension that
works together with those found."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from apportion.graph.dictionary import Dictionary, batches, subsets
from apportion.graph.features import MAX_PAIRED, Floats
from apportion.graph.ridge import ridge
from apportion.graph.segments import Segments

_MOST_WORK = 4e9  # multiplications that the search for products of four may take
_CONTEXT = 30  # waves of the dimensions found that a new one is multiplied with


def product_degrees(segments: Segments) -> list[int]:
    """Of which degrees products are looked at: as high as there are not too many of them."""
    dims, rows = len(segments.scale.dims), int(segments.lengths.sum())
    if dims > MAX_PAIRED:
        return [2]
    pairs = dims * (dims - 1) // 2
    return [3, 4] if rows * pairs**2 <= _MOST_WORK else [3]


def best_product(segments: Segments, remainder: Floats, degree: int) -> tuple[NDArray[np.int64], float, int]:
    """The product of so many dimensions whose sums go best with the remainder: its dimensions, the squared
    correlation, and how many products there were."""
    dims = segments.scale.dims
    if len(dims) < degree:
        return np.zeros(0, np.int64), 0.0, 1
    remainder, basis = segments.offsets.remove(remainder), segments.offsets.basis
    first, second = (subsets(len(dims), size) for size in (degree // 2 + degree % 2, degree // 2))
    cross, squares = np.zeros((2, len(first), len(second)))
    along = np.zeros((basis.shape[1], len(first), len(second)))
    for number, sums in enumerate(_product_sums(segments, first, second)):
        cross += remainder[number] * sums
        squares += sums**2
        for direction, part in zip(basis[number], along, strict=True):
            part += direction * sums
    spread = squares - np.sum(along**2, axis=0)
    alive = (spread > 1e-9 * squares) & (second[:, 0] > first[:, -1:])
    fit = np.where(alive, cross**2 / np.where(alive, spread, 1.0), 0.0) / max(
        float(np.sum(remainder**2)), 1e-300
    )
    place, last = np.unravel_index(np.argmax(fit), fit.shape)
    return dims[[*first[place], *second[last]]], float(fit.max()), max(int(alive.sum()), 1)


def _product_sums(
    segments: Segments, first: NDArray[np.int64], second: NDArray[np.int64]
) -> Iterator[Floats]:
    """For each segment the sums over its steps of the products of all places in `first` and `second`."""
    for batch in batches(segments.rows, len(first) + len(second)):
        z = segments.scale.standardise(np.concatenate(batch)).astype(np.float32)
        left, right = (np.prod([z[:, column] for column in places.T], axis=0) for places in (first, second))
        end = 0
        for rows in batch:
            start, end = end, end + len(rows)
            yield (left[start:end].T @ right[start:end]).astype(np.float64)


def best_addition(
    segments: Segments, found: NDArray[np.int64], errors: Floats, rng: np.random.Generator
) -> tuple[int, float, float]:
    """The dimension that explains most of the errors together with those found: its number, the share of the
    squared error it would cut on segments left out, and how many standard errors that is."""
    dims = segments.scale.dims
    basis = Dictionary.rich(segments.scale, found, min(_CONTEXT, segments.count // 8), rng)
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


def _context_sums(segments: Segments, basis: Dictionary) -> Floats:
    """[E, 2M, K] of each dimension's z and z² - 1, times 1, the values found and their waves, summed."""
    parts = []
    for batch in batches(segments.rows, 4 * len(segments.scale.dims)):
        x = np.concatenate(batch)
        z = segments.scale.standardise(x).astype(np.float32)
        own = segments.scale.standardised(x[:, basis.dims], basis.dims).astype(np.float32)
        waves = np.cos(own @ basis.directions.astype(np.float32) + basis.phases.astype(np.float32))
        context = np.concatenate([np.ones((len(x), 1), np.float32), own, waves], axis=1)
        square, end = z**2 - 1, 0
        for rows in batch:
            start, end = end, end + len(rows)
            part = context[start:end].T
            parts.append(np.concatenate([part @ z[start:end], part @ square[start:end]]))
    return np.stack(parts).astype(np.float64)
