"""Numbers over lanes: mean, median and interquartile mean, with 95% bootstrap intervals.

A lane without a number (it diverged) is left out; the page says how many are.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2_000
LEVELS = (0.025, 0.975)

Lanes = NDArray[Any] | Sequence[float]  # [L]
Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]  # over the last axis


class Band(NamedTuple):
    """A statistic over lanes at K moments, and where it lies with 95% confidence."""

    centre: NDArray[np.float64]  # [K]
    low: NDArray[np.float64]  # [K] NaN with fewer than two lanes
    high: NDArray[np.float64]  # [K]


class Interval(NamedTuple):
    """A statistic over lanes, and where it lies with 95% confidence."""

    centre: float
    low: float  # NaN with fewer than two lanes
    high: float

    def known(self) -> list[float]:
        """Those of the three that are numbers."""
        return [number for number in self if np.isfinite(number)]


def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.mean(values, axis=-1)


def median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.median(values, axis=-1)


def iqm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interquartile mean: a quarter of the lanes, rounded down, is cut off at each end."""
    count = values.shape[-1]
    cut = count // 4
    return np.mean(np.sort(values, axis=-1)[..., cut : count - cut], axis=-1)


def band(lanes: NDArray[Any], statistic: Statistic, seed: int = 0) -> Band:
    """The statistic over the finite values of each row of `lanes` [K, L], and its bootstrap interval."""
    lanes = np.asarray(lanes, np.float64)
    result = Band(*np.full((3, len(lanes)), np.nan))
    draws: dict[int, NDArray[np.int64]] = {}  # the same lanes are drawn at every moment: smooth bands
    for moment, row in enumerate(lanes):
        values = row[np.isfinite(row)]
        count = len(values)
        if count == 0:
            continue
        result.centre[moment] = statistic(values)
        if count >= 2:
            if count not in draws:
                draws[count] = _draws(count, np.random.default_rng(seed))
            resampled = statistic(values[draws[count]])
            result.low[moment], result.high[moment] = np.quantile(resampled, LEVELS)
    return result


def interval(lanes: Lanes, statistic: Statistic) -> Interval:
    """The same at one moment, of `lanes` [L]."""
    return Interval(*(float(part[0]) for part in band(np.asarray(lanes, np.float64)[None], statistic)))


def difference(ours: Lanes, theirs: Lanes, statistic: Statistic) -> Interval:
    """Our statistic less theirs, with lanes of both sides drawn anew; NaN with fewer than two finite."""
    sides = [np.asarray(side, np.float64) for side in (ours, theirs)]
    sides = [side[np.isfinite(side)] for side in sides]
    if min(map(len, sides)) < 2:
        return Interval(np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    mine, other = (statistic(side[_draws(len(side), rng)]) for side in sides)
    low, high = np.quantile(mine - other, LEVELS)
    return Interval(float(statistic(sides[0]) - statistic(sides[1])), float(low), float(high))


def _draws(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(count, size=(RESAMPLES, count))


def thinned(count: int, at_most: int) -> list[int]:
    """Up to `at_most` of the numbers 0 to count-1, evenly spaced, the first and the last among them."""
    if at_most <= 1:
        return [count - 1][:count]
    return sorted({int(place) for place in np.linspace(0, count - 1, min(count, at_most)).round()})
