"""Statistics over tasks and seeds, against the same in plain loops."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import trim_mean

from apportion.report.statistics import (
    RESAMPLES,
    Interval,
    area,
    improvement,
    interval,
    iqm,
    mean,
    profile,
    stratified,
)

Values = NDArray[np.float64]

RNG = np.random.default_rng(3)
OURS = [RNG.normal(0, 1, 5), RNG.normal(3, 2, 4), RNG.normal(1, 1, 7)]
THEIRS = [RNG.normal(0.5, 1, 3), RNG.normal(2, 2, 5), RNG.normal(1, 1, 6)]


def _resampled(rng: np.random.Generator, lanes: Values) -> list[Values]:
    """As many lanes as there are, drawn with repetition, again and again."""
    places = rng.integers(len(lanes), size=(RESAMPLES, len(lanes)))
    return [np.array([lanes[place] for place in row]) for row in places]


def _bounds(values: list[float]) -> list[float]:
    ordered = np.sort(values)
    return [float(np.quantile(ordered, level)) for level in (0.025, 0.975)]


@pytest.mark.parametrize(
    ("statistic", "plain"), [(iqm, lambda x: trim_mean(x, 0.25)), (mean, np.mean)], ids=["IQM", "mean"]
)
def test_lanes_are_drawn_anew_within_each_task(
    statistic: Callable[[Values], Values], plain: Callable[[Values], float]
) -> None:
    rng = np.random.default_rng(0)
    by_task = [_resampled(rng, lanes) for lanes in OURS]
    drawn = [float(plain(np.concatenate(draw))) for draw in zip(*by_task, strict=True)]
    found = stratified(OURS, statistic)
    assert found.centre == pytest.approx(float(plain(np.concatenate(OURS))))
    assert [found.low, found.high] == pytest.approx(_bounds(drawn))


def test_one_task_has_the_interval_of_its_lanes() -> None:
    assert stratified(OURS[:1], iqm) == interval(OURS[0], iqm)


def test_a_profile_is_the_share_of_lanes_above_each_threshold() -> None:
    thresholds = np.array([-1.0, 0.5, 2.0])
    rng = np.random.default_rng(0)
    by_task = [_resampled(rng, lanes) for lanes in OURS]
    found = profile(OURS, thresholds)
    for place, threshold in enumerate(thresholds):
        shares = [sum(value > threshold for value in lanes) / len(lanes) for lanes in OURS]
        assert found.centre[place] == pytest.approx(sum(shares) / 3)
        drawn = [
            float(np.mean([np.mean([value > threshold for value in lanes]) for lanes in draw]))
            for draw in zip(*by_task, strict=True)
        ]
        assert [found.low[place], found.high[place]] == pytest.approx(_bounds(drawn))


def _wins(ours: Values, theirs: Values) -> float:
    pairs = [(x, y) for x in ours for y in theirs]
    return sum(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs) / len(pairs)


def test_the_probability_of_improvement_counts_pairs() -> None:
    found = improvement(OURS, THEIRS)
    pairs = list(zip(OURS, THEIRS, strict=True))
    assert found.centre == pytest.approx(np.mean([_wins(x, y) for x, y in pairs]))
    rng = np.random.default_rng(0)
    by_task = [(_resampled(rng, x)[:200], _resampled(rng, y)[:200]) for x, y in pairs]
    drawn = [
        float(np.mean([_wins(x[number], y[number]) for x, y in by_task])) for number in range(200)
    ]  # a tenth of the draws: near enough, and quick
    assert [found.low, found.high] == pytest.approx(_bounds(drawn), abs=0.03)


def test_ties_are_half_a_win_and_sides_add_up() -> None:
    assert improvement([[1.0, 2.0]], [[1.0, 2.0]]).centre == 0.5
    assert improvement(OURS, THEIRS).centre + improvement(THEIRS, OURS).centre == pytest.approx(1)


def test_the_area_is_that_of_trapezoids() -> None:
    steps, values = np.array([100, 200, 400]), np.array([0.0, 10.0, 20.0])
    total = sum(
        (steps[k + 1] - steps[k]) * (values[k] + values[k + 1]) / 2 for k in range(2)
    )  # 500 and 3,000
    assert area(steps, values) == total / 300
    assert area(steps, np.array([0.0, np.nan, 20.0])) == 10.0  # the line between those that are known
    assert area(steps[:1], values[1:2]) == 10.0
    assert np.isnan(area(steps, np.full(3, np.nan)))


def test_what_is_no_number_is_left_out_and_one_lane_has_no_interval() -> None:
    assert stratified([[1.0, np.nan, 3.0], [2.0, 2.0]], mean) == stratified([[1.0, 3.0], [2.0, 2.0]], mean)
    for found in (stratified([[1.0], [3.0, 3.0]], mean), improvement([[1.0]], [[0.0, 2.0]])):
        assert np.isfinite(found.centre)
        assert np.isnan([found.low, found.high]).all()
    for nothing in (stratified([], iqm), stratified([[np.nan]], iqm), improvement([[1.0]], [[]])):
        assert isinstance(nothing, Interval)
        assert np.isnan(nothing).all()
    assert np.isnan(profile([[]], np.zeros(2))).all()
