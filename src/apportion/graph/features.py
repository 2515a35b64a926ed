"""What is known of each dimension before features are made of it: unit, range, copies, one-hot vectors.

Constant dimensions have no features, nor have copies: of dimensions that are equal but for their unit, the
first stands for all.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph.priors import ALIKE, MISFIT, MOST, ROUNDED

Floats = NDArray[np.float64]

COSINES = 4  # of a dimension; rich features have twice as many,
QUANTILES = 8 * COSINES + 1  # and four points for each half of the shortest wave
CLIP = 5.0
MAX_PAIRED = 5 * MOST  # beyond so many live dimensions, products of two would be too many to tell apart
THREADS = os.cpu_count() or 1  # that compute features of blocks of rows; how many there are changes no result
ROWS = 2_000  # steps that variances are taken from, or whose features one thread computes at once
NUMBERS_AT_ONCE = 500 * ROWS  # what bounds the memory of features: larger arrays are new pages every time
DIMS_AT_ONCE = MAX_PAIRED  # whose functions are summed up together
SAMPLE = 25 * ROWS  # in which copies, one-hot vectors and quantiles are looked for


@dataclass(frozen=True, eq=False)
class Units:
    """In which each dimension is measured: enough to standardise it."""

    mean: Floats  # [D]
    std: Floats  # [D], 1 where the dimension is constant
    live: NDArray[np.bool_]  # [D] False where it is constant

    @classmethod
    def of(cls, parts: list[NDArray[Any]], extremes: tuple[Floats, Floats] | None = None) -> "Units":
        """From samples [N, D] in parts, which are never put together: there may be many."""
        count = sum(len(x) for x in parts)
        dtype = parts[0].dtype
        rounding = float(np.finfo(dtype).resolution) if np.issubdtype(dtype, np.floating) else 0.0
        live = varies(*(extremes or _extremes(parts)), rounding)
        mean = np.sum([x.sum(axis=0, dtype=np.float64) for x in parts], axis=0) / count
        pieces = (part for x in parts for part in np.array_split(x, 1 + x.size // NUMBERS_AT_ONCE))
        squares = [np.sum((piece - mean) ** 2, axis=0) for piece in pieces]
        return cls(mean, np.where(live, np.sqrt(np.sum(squares, axis=0) / count), 1.0), live)

    def standardised(self, columns: NDArray[Any], dims: NDArray[np.int64]) -> Floats:
        """The columns [N, K] of some dimensions, centred, scaled and clipped."""
        z = columns - self.mean[dims]
        z *= 1 / self.std[dims]
        return np.clip(z, -CLIP, CLIP, out=z)


@dataclass(frozen=True, eq=False)
class Scale(Units):
    """What is known of each dimension's range: enough to compute its features."""

    quantiles: Floats  # [QUANTILES, D]
    original: NDArray[np.int64]  # [D] its own number, or that of the dimension it is a copy of
    team: NDArray[np.int64]  # [D] its own number, or that of the first entry of its one-hot vector

    @classmethod
    def over(cls, parts: list[NDArray[Any]]) -> "Scale":
        """From samples [N, D] of any size and unit, in parts, which are never put together: there may be
        many."""
        extremes = _extremes(parts)
        units = Units.of(parts, extremes)
        some = evenly(SAMPLE, sum(len(x) for x in parts))
        few = some[evenly(SAMPLE // (1 + parts[0].shape[1] // DIMS_AT_ONCE), len(some))]
        quantiles = np.quantile(rows_of(parts, few), np.linspace(0, 1, QUANTILES), axis=0)
        quantiles = quantiles.astype(np.float64)
        quantiles[0], quantiles[-1] = extremes
        original, team = _originals(parts, some, units), _teams(parts, some, units.live)
        return cls(units.mean, units.std, units.live, quantiles, original, team)

    @cached_property
    def dims(self) -> NDArray[np.int64]:
        """The dimensions that are neither constant nor copies."""
        return np.flatnonzero(self.live & (self.original == np.arange(len(self.live))))

    @cached_property
    def teams(self) -> list[NDArray[np.int64]]:
        """Those dimensions, as they are tested: entries of a one-hot vector together, all others alone."""
        return [self.dims[self.team[self.dims] == first] for first in np.unique(self.team[self.dims])]

    @cached_property
    def team_places(self) -> NDArray[np.int64]:
        """[D] the place of each dimension's team among the teams; -1 where it is not searched."""
        places = np.full(len(self.live), -1)
        for place, team in enumerate(self.teams):
            places[team] = place
        return places

    @property
    def copies(self) -> dict[int, int]:
        """Dimensions that equal an earlier one, and which."""
        different = np.flatnonzero(self.original != np.arange(len(self.original)))
        return {int(dim): int(self.original[dim]) for dim in different}

    def standardise(self, x: NDArray[Any]) -> Floats:
        """Searched dimensions [N, K], centred, scaled and clipped."""
        return self.standardised(np.asarray(x)[:, self.dims], self.dims)

    def ranks(self, columns: NDArray[Any], dims: NDArray[np.int64]) -> Floats:
        """F(x) in [0, 1] of the columns [N, K] of some dimensions."""
        levels = np.linspace(0, 1, QUANTILES)
        ranks = np.empty((len(dims), len(columns)))
        for place, dim in enumerate(dims):
            ranks[place] = np.interp(columns[:, place], self.quantiles[:, dim], levels)
        return ranks.T


def varies(low: Floats, high: Floats, rounding: float = ROUNDED) -> NDArray[np.bool_]:
    """Whether dimensions with these extremes do: rounding, of 32-bit numbers by default, is no life."""
    return np.asarray(high - low > rounding * np.maximum(np.abs(low), np.abs(high)))


def together(rows: NDArray[Any], chosen: NDArray[np.bool_] | slice = slice(None)) -> NDArray[np.bool_]:
    """[D, K] which dimensions of steps [N, D] share more than half of their variance with which of those
    chosen."""
    x = rows.astype(np.float64)
    live = varies(x.min(axis=0), x.max(axis=0))
    z = np.where(live, x - x.mean(axis=0), 0.0) / np.where(live, x.std(axis=0), 1.0)
    return np.asarray((z.T @ z[:, chosen] / len(z)) ** 2 > ALIKE)


def _extremes(parts: list[NDArray[Any]]) -> tuple[Floats, Floats]:
    """The least and the greatest value of each dimension [D]."""
    low, high = (edge([edge(x, axis=0) for x in parts], axis=0) for edge in (np.min, np.max))
    return low.astype(np.float64), high.astype(np.float64)


def evenly(count: int, rows: int) -> NDArray[np.int64]:
    """Numbers of up to so many rows: all, or evenly spread by the golden ratio, for every n-th row might be
    the same step of every episode."""
    if rows <= count:
        return np.arange(rows)
    return np.unique((np.arange(count) * ((5**0.5 - 1) / 2) % 1.0 * rows).astype(np.int64))


def rows_of(parts: list[NDArray[Any]], chosen: NDArray[np.int64]) -> NDArray[Any]:
    """Rows of all parts by their numbers, which rise, as if the parts were one array."""
    ends = np.cumsum([len(x) for x in parts])
    mine = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    return np.concatenate([x[m - end + len(x)] for x, m, end in zip(parts, mine, ends, strict=True)])


def _originals(parts: list[NDArray[Any]], some: NDArray[np.int64], units: Units) -> NDArray[np.int64]:
    """For each dimension the first that equals it in some rows, up to unit and sign."""
    original, dims = np.arange(len(units.live)), np.flatnonzero(units.live)
    few = units.standardised(rows_of(parts, some[evenly(ROWS, len(some))])[:, dims], dims)
    alike = np.abs(few.T @ few) / len(few)
    spread = np.diag(alike)
    candidates = np.argwhere(np.triu(alike > (1 - ROUNDED) * np.sqrt(np.outer(spread, spread)), k=1))
    for first, second in dims[candidates]:
        if original[first] != first:
            continue  # a copy itself: its original has been compared already
        a, b = (
            (rows_of([part[:, dim] for part in parts], some) - units.mean[dim]) / units.std[dim]
            for dim in (first, second)
        )
        if min(np.std(a - b), np.std(a + b)) < MISFIT:
            original[second] = first
    return original


def _teams(parts: list[NDArray[Any]], some: NDArray[np.int64], live: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Entries of a one-hot vector, such as a discrete action, are one team: each is what the others are not,
    so that none of them would be missed alone. There may be several teams, and flags that are in none."""
    team = np.arange(len(live))
    dims = np.flatnonzero(live)
    few = rows_of(parts, some[evenly(ROWS, len(some))])  # which rules out most dimensions already
    dims = dims[[len(np.unique(few[:, dim])) <= 2 for dim in dims]]
    x = rows_of([part[:, dims] for part in parts], some)
    low, high = x.min(axis=0), x.max(axis=0)
    two = np.flatnonzero(np.all((x == low) | (x == high), axis=0))
    dims, on = dims[two], x[:, two] == high[two]
    free = np.ones(len(dims), np.bool_)
    for first in range(len(dims)):
        members = _one_hot(on, [first], ~on[:, first], free) if free[first] else None
        if members is not None and len(members) > 2:
            free[members] = False
            team[dims[members]] = dims[min(members)]
    return team


def _one_hot(
    on: NDArray[np.bool_], chosen: list[int], rows: NDArray[np.bool_], free: NDArray[np.bool_]
) -> list[int] | None:
    """Columns of which exactly one is on in every row, beginning with those chosen; `rows` are not covered.
    Of what is on in the first such row one must be the next, if it is never on with another."""
    if not rows.any():
        return chosen
    for column in np.flatnonzero(on[np.argmax(rows)] & free):
        if column > chosen[0] and not np.any(on[:, column] & ~rows):
            members = _one_hot(on, [*chosen, int(column)], rows & ~on[:, column], free)
            if members is not None:
                return members
    return None
