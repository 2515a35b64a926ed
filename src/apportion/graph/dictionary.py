"""Features of steps: functions of one dimension, products of several, and waves.

Of the dimensions of a dictionary, z = clip((x - mean) / std, ±5): z, z² - 1, cos(πk F(x)) for k = 1..K with F
its empirical distribution function, products z_i z_j .., and waves cos(z·direction + phase). The search looks
at all dimensions, with K = 4 and products of two; a reward function has rich features of its parents alone,
with K = 8, products of two and three, and waves.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph.features import COSINES, MAX_PAIRED, NUMBERS_AT_ONCE, ROWS, THREADS, Floats, Scale
from apportion.graph.priors import MOST

UNIVARIATE = 2 + COSINES  # features of one dimension
_FREQUENCIES = (0.3, 0.6, 1.2)

Dims = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Which features there are, and of which dimensions."""

    scale: Scale
    dims: Dims  # [K]; below, dimensions are places among these
    alone: Dims  # that have functions of their own
    functions: int  # so many each
    products: tuple[Dims, ...]  # [P, degree] of each degree: dimensions that are multiplied
    directions: Floats  # [K, W]
    phases: Floats  # [W]
    dtype: type[np.floating[Any]] = np.float32  # which is plenty for what is summed over steps

    @classmethod
    def over(cls, scale: Scale) -> "Dictionary":
        """All dimensions, with all pairs where there are not too many."""
        count = len(scale.dims)
        pairs = (subsets(count, 2),) if count <= MAX_PAIRED else ()
        none = np.zeros((count, 0)), np.zeros(0)
        return cls(scale, scale.dims, np.arange(count), UNIVARIATE, pairs, *none, np.float64)

    @classmethod
    def of_products(cls, scale: Scale, found: Dims) -> "Dictionary":
        """Of dimensions found and any other, and nothing else."""
        mine, every = np.searchsorted(scale.dims, found), np.arange(len(scale.dims))
        pairs = np.stack([np.repeat(mine, len(every)), np.tile(every, len(mine))], axis=1)
        twice = np.isin(pairs[:, 1], mine) & (pairs[:, 1] <= pairs[:, 0])
        return replace(cls.over(scale), alone=every[:0], products=(pairs[~twice],))

    @classmethod
    def rich(
        cls, scale: Scale, dims: Dims, waves: int, rng: np.random.Generator, noted: Iterable[Dims] = ()
    ) -> "Dictionary":
        """Of a few dimensions: products of two, of three while they are few, those `noted` by their
        dimensions, and waves in directions of 1 to 4 dimensions."""
        k = len(dims)
        degrees = (2, 3) if k <= MOST else (2,)
        noted = [p for p in noted if len(p) not in degrees and np.isin(p, dims).all()]
        waves = waves if k else 0
        sizes = rng.integers(1, min(k, MOST // 2) + 1, waves) if k else np.zeros(0)
        mixed = rng.random((waves, k)).argsort(axis=1).argsort(axis=1) < sizes[:, None]
        frequencies = rng.choice(_FREQUENCIES, waves)
        directions = (mixed * rng.normal(size=(waves, k)) * frequencies[:, None]).T
        products = [subsets(k, degree) for degree in degrees]
        products += [np.searchsorted(dims, p)[None] for p in noted]
        functions, phases = UNIVARIATE + COSINES, rng.uniform(0, 2 * np.pi, waves)
        return cls(scale, dims, np.arange(k), functions, tuple(products), directions, phases)

    def shortened(self) -> "Dictionary":
        """Without cosines, where there are very many dimensions."""
        return self if self.products else replace(self, functions=UNIVARIATE - COSINES)

    def restricted(self, dims: Dims) -> "Dictionary":
        """To the features that look at any of these dimensions of rows, which rise, in their order."""
        some = np.searchsorted(self.dims, dims)
        mixed = np.any(self.directions[some] != 0, axis=0)
        return replace(
            self,
            alone=some,
            products=tuple(places[np.isin(places, some).any(axis=1)] for places in self.products),
            directions=self.directions[:, mixed],
            phases=self.phases[mixed],
        )

    @property
    def size(self) -> int:
        return self.functions * len(self.alone) + sum(map(len, self.products)) + len(self.phases)

    @cached_property
    def owners(self) -> NDArray[np.bool_]:
        """[D, P] which dimensions of rows each feature looks at."""
        every = np.arange(len(self.dims))[:, None]
        single = every == np.repeat(self.alone, self.functions)
        products = [np.any(every[:, :, None] == places, axis=2) for places in self.products]
        owners = np.zeros((len(self.scale.live), self.size), np.bool_)
        owners[self.dims] = np.concatenate([single, *products, self.directions != 0], axis=1)
        return owners

    def touching(self, dims: Dims) -> Dims:
        """Numbers of all features that look at any of these dimensions of rows."""
        return np.flatnonzero(self.owners[dims].any(axis=0))

    def within(self, dims: Dims) -> Dims:
        """Numbers of all features that look at these dimensions of rows only."""
        return np.flatnonzero(~np.delete(self.owners, dims, axis=0).any(axis=0))

    def features(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Of rows [N, D]: [N, P]. They are written to `out`, if it is given."""
        # Samples of one feature lie side by side in memory, as those of a dimension do in `columns`.
        features = np.empty((self.size, len(x)), self.dtype).T if out is None else out
        columns = np.asarray(x)[:, self.dims]
        z = self.scale.standardised(columns, self.dims).astype(self.dtype, copy=False)
        mine, singles = z[:, self.alone], self.functions * len(self.alone)
        ranks = self.scale.ranks(columns[:, self.alone], self.dims[self.alone])
        functions = (mine, mine**2 - 1, *cosines(ranks, self.functions - 2)) if singles else ()
        for number, function in enumerate(functions):
            features[:, number : singles : self.functions] = function
        start = singles
        for places in self.products:
            factors = [z[:, column] for column in places.T]
            product = features[:, start : start + len(places)]
            np.multiply(factors[0], factors[1], out=product)
            for factor in factors[2:]:
                product *= factor
            start += len(places)
        if len(self.phases):
            waves = z @ self.directions.astype(self.dtype) + self.phases.astype(self.dtype)
            np.cos(waves, out=features[:, start:])
        return features

    def sums(self, segments: Iterable[NDArray[Any]]) -> Floats:
        """Features of each segment's rows [T, D], summed: [E, P]."""
        jobs = list[Future[Floats]]()
        with ThreadPoolExecutor(THREADS) as pool:
            for batch in batches(segments, self.size):
                if len(jobs) >= 2 * THREADS:  # not all batches are held at once
                    jobs[-2 * THREADS].result()
                jobs.append(pool.submit(self._sums, batch))
        return np.concatenate([np.zeros((0, self.size)), *(job.result() for job in jobs)])

    def _sums(self, segments: list[NDArray[Any]]) -> Floats:
        starts = np.cumsum([0, *(len(rows) for rows in segments)])
        x = self.features(np.concatenate(segments)).astype(np.float64, copy=False)
        if x.size < 5 * ROWS * len(segments):
            return np.add.reduceat(x, starts[:-1])
        # Of long segments not by `reduceat`, during which no other thread runs.
        return np.stack([np.add.reduce(x[start:end]) for start, end in pairwise(starts)])


def cosines(ranks: Floats, count: int) -> Iterator[NDArray[np.float32]]:
    """cos(πkF) for k = 1..count, [N, K] each, by the recurrence of Chebyshev's polynomials."""
    first = np.cos(np.float32(np.pi) * ranks.astype(np.float32))
    before: NDArray[np.float32] | float
    before, wave = 1.0, first
    for _ in range(count):
        yield wave
        before, wave = wave, 2 * first * wave - before


def subsets(count: int, size: int) -> Dims:
    """[N, size] all choices of so many places."""
    return np.array(list(combinations(range(count), size)), np.int64).reshape(-1, size)


def rows_at_once(features: int) -> int:
    """How many rows of so many features are computed together."""
    return 1 + NUMBERS_AT_ONCE // max(features, 1)


def batches(segments: Iterable[NDArray[Any]], features: int) -> Iterator[list[NDArray[Any]]]:
    """Consecutive segments, as many as have rows_at_once."""
    batch: list[NDArray[Any]] = []
    rows, enough = 0, rows_at_once(features)
    for segment in segments:
        batch.append(segment)
        rows += len(segment)
        if rows >= enough:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch
