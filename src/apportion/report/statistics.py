"""Numbers over lanes: mean, median and interquartile mean, with 95% bootstrap intervals; and over several
tasks, where lanes are drawn anew within each (Agarwal et al., Deep Reinforcement Learning at the Edge of the
Statistical Precipice, 2021).

A lane without a number (it diverged) is left out; whoever shows the numbers says how many are.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2_000
LEVELS = (0.025, 0.975)
FEW = 5  # lanes: with fewer, an interval holds less often than it says

Lanes = NDArray[Any] | Sequence[float]  # [L]
Strata = Sequence[Lanes]  # the lanes of each task
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


UNKNOWN = Interval(np.nan, np.nan, np.nan)


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
    sides = _finite((ours, theirs))
    if min(map(len, sides)) < 2:
        return UNKNOWN
    rng = np.random.default_rng(0)
    mine, other = (statistic(side[_draws(len(side), rng)]) for side in sides)
    low, high = np.quantile(mine - other, LEVELS)
    return Interval(float(statistic(sides[0]) - statistic(sides[1])), float(low), float(high))


# --- Over tasks: lanes are drawn anew within each


def stratified(strata: Strata, statistic: Statistic) -> Interval:
    """The statistic over the lanes of all tasks together."""
    known = _finite(strata)
    if not all(map(len, known)) or not known:
        return UNKNOWN
    centre = float(statistic(np.concatenate(known)))
    if min(map(len, known)) < 2:
        return Interval(centre, np.nan, np.nan)
    rng = np.random.default_rng(0)
    drawn = [lanes[_draws(len(lanes), rng)] for lanes in known]
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=-1)), LEVELS)
    return Interval(centre, float(low), float(high))


def profile(strata: Strata, thresholds: NDArray[np.float64]) -> Band:
    """Performance profile: the share of lanes above each threshold [K], the mean over tasks."""
    known = _finite(strata)
    result = Band(*np.full((3, len(thresholds)), np.nan))
    if not all(map(len, known)) or not known:
        return result
    above = [lanes[:, None] > thresholds for lanes in known]  # [L, K] each
    centre = np.mean([each.mean(axis=0) for each in above], axis=0)
    if min(map(len, known)) < 2:
        return result._replace(centre=centre)
    rng = np.random.default_rng(0)
    drawn = np.mean([_weights(len(each), rng) @ each for each in above], axis=0)  # [R, K]
    return Band(centre, *np.quantile(drawn, LEVELS, axis=0))


def improvement(ours: Strata, theirs: Strata) -> Interval:
    """Probability that a lane of ours beats one of theirs on the same task, a tie being half a win; the mean
    over tasks."""
    mine, other = _finite(ours), _finite(theirs)
    if not mine or not all(map(len, (*mine, *other))):
        return UNKNOWN
    pairs = zip(mine, other, strict=True)
    wins = [np.mean([x[:, None] > y, x[:, None] >= y], axis=0) for x, y in pairs]  # [L, L] each
    centre = float(np.mean([each.mean() for each in wins]))
    if min(min(each.shape) for each in wins) < 2:
        return Interval(centre, np.nan, np.nan)
    rng = np.random.default_rng(0)
    drawn = [
        np.einsum("rx,xy,ry->r", _weights(each.shape[0], rng), each, _weights(each.shape[1], rng))
        for each in wins
    ]
    low, high = np.quantile(np.mean(drawn, axis=0), LEVELS).clip(0, 1)  # rounding may leave it
    return Interval(centre, float(low), float(high))


def area(steps: NDArray[Any], values: NDArray[Any]) -> float:
    """Area under a curve [K], by trapezoids, over its length in steps: the mean height between the first and
    the last number that is known."""
    steps, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    known = np.isfinite(values)
    x, y = steps[known], values[known]
    if len(x) < 2:
        return float(y[0]) if len(y) else float("nan")
    return float(np.sum(np.diff(x) * (y[:-1] + y[1:]) / 2) / (x[-1] - x[0]))


def _finite(strata: Strata) -> list[NDArray[np.float64]]:
    lanes = [np.asarray(each, np.float64) for each in strata]
    return [each[np.isfinite(each)] for each in lanes]


def _weights(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[R, L] the share that each lane has in each draw."""
    return np.mean(_draws(count, rng)[..., None] == np.arange(count), axis=1)


def _draws(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(count, size=(RESAMPLES, count))


def thinned(count: int, at_most: int) -> list[int]:
    """Up to `at_most` of the numbers 0 to count-1, evenly spaced, the first and the last among them."""
    if at_most <= 1:
        return [count - 1][:count]
    return sorted({int(place) for place in np.linspace(0, count - 1, min(count, at_most)).round()})
