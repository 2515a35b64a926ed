"""Numbers over lanes: mean, median and interquartile mean, with 95% bootstrap intervals; and over several
tasks, where lanes are drawn anew within each (Agarwal et al., Deep Reinforcement Learning at the Edge of the
Statistical Precipice, 2021).

A lane without a number (it diverged) is left out; whoever shows the numbers says how many are.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2_000  # as Agarwal et al. have it
FEW = 5  # lanes: with fewer, an interval holds less often than it says

Lanes = NDArray[Any] | Sequence[float]  # [L]
Strata = Sequence[Lanes]  # the lanes of each task
Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]  # over the last axis


class Interval(NamedTuple):
    """A statistic over lanes, and where it lies with 95% confidence: numbers, or [K] at so many moments."""

    centre: Any
    low: Any  # NaN with fewer than two lanes
    high: Any

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


def bootstrap(samples: Strata, statistic: Callable[..., Any]) -> NDArray[np.float64]:
    """[3, ...] the statistic of all samples [L] together, and the ends of its 95% percentile interval, with
    the finite lanes of each sample drawn anew. All NaN where a sample has none, the ends where one has one.

    The same lanes are drawn at every call: bands over moments are smooth."""
    lanes = [np.asarray(each, np.float64) for each in samples]
    known = [each[np.isfinite(each)] for each in lanes]
    if not known or not all(map(len, known)):
        return np.full(3, np.nan)
    centre = np.asarray(statistic(*known))
    if min(map(len, known)) < 2:
        return np.stack([centre, *np.full((2, *centre.shape), np.nan)])
    rng = np.random.default_rng(0)
    drawn = [each[rng.integers(len(each), size=(RESAMPLES, len(each)))] for each in known]
    return np.stack([centre, *np.quantile(statistic(*drawn), (0.025, 0.975), axis=0)])


def band(lanes: NDArray[Any], statistic: Statistic) -> Interval:
    """The statistic over each row of `lanes` [K, L]."""
    return Interval(*np.array([bootstrap([row], statistic) for row in lanes]).reshape(-1, 3).T)


def interval(lanes: Lanes, statistic: Statistic) -> Interval:
    """The statistic over `lanes` [L]."""
    return stratified([lanes], statistic)


def difference(ours: Lanes, theirs: Lanes, statistic: Statistic) -> Interval:
    return Interval(*map(float, bootstrap((ours, theirs), lambda x, y: statistic(x) - statistic(y))))


# --- Over tasks: lanes are drawn anew within each


def stratified(strata: Strata, statistic: Statistic) -> Interval:
    """The statistic over the lanes of all tasks together."""
    found = bootstrap(strata, lambda *lanes: statistic(np.concatenate(lanes, axis=-1)))
    return Interval(*map(float, found))


def profile(strata: Strata, thresholds: NDArray[np.float64]) -> Interval:
    """Performance profile: the share of lanes above each threshold [K], the mean over tasks."""

    def above(*lanes: NDArray[np.float64]) -> Any:
        return np.mean([np.mean(each[..., None] > thresholds, axis=-2) for each in lanes], axis=0)

    return Interval(*np.broadcast_to(bootstrap(strata, above).T, (len(thresholds), 3)).T)


def improvement(ours: Strata, theirs: Strata) -> Interval:
    """Probability that a lane of ours beats one of theirs on the same task, a tie being half a win; the mean
    over tasks."""

    def wins(*lanes: NDArray[np.float64]) -> Any:
        pairs = [(x[..., :, None], y[..., None, :]) for x, y in zip(lanes[::2], lanes[1::2], strict=True)]
        halves = [np.mean(way, axis=(-2, -1)) for x, y in pairs for way in (x > y, x >= y)]
        return np.mean(halves, axis=0)

    together = [lanes for pair in zip(ours, theirs, strict=True) for lanes in pair]
    return Interval(*map(float, bootstrap(together, wins)))


def area(steps: NDArray[Any], values: NDArray[Any]) -> float:
    """Area under a curve [K], by trapezoids, over its length in steps: the mean height between the first and
    the last number that is known."""
    steps, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    known = np.isfinite(values)
    x, y = steps[known], values[known]
    if len(x) < 2:
        return float(y[0]) if len(y) else float("nan")
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def thinned(count: int, at_most: int) -> list[int]:
    """Up to `at_most` of the numbers 0 to count-1, evenly spaced, the first and the last among them."""
    if at_most <= 1:
        return [count - 1][:count]
    return sorted({int(place) for place in np.linspace(0, count - 1, min(count, at_most)).round()})
