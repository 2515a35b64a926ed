"""Statistics over lanes and tasks, against the same in plain loops and against SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import bootstrap, trim_mean

from apportion.report.statistics import (
    RESAMPLES,
    area,
    band,
    difference,
    improvement,
    interval,
    iqm,
    mean,
    profile,
    stratified,
    thinned,
)

Values = NDArray[np.float64]

RNG = np.random.default_rng(3)
OURS = [RNG.normal(0, 1, 5), RNG.normal(3, 2, 4), RNG.normal(1, 1, 7)]
THEIRS = [RNG.normal(0.5, 1, 3), RNG.normal(2, 2, 5), RNG.normal(1, 1, 6)]


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_iqm_is_the_mean_without_a_quarter_at_each_end(lanes: int, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal(lanes)
    np.testing.assert_allclose(iqm(values), trim_mean(values, 0.25), rtol=1e-12, atol=1e-12)


def test_intervals_are_those_of_the_percentile_bootstrap_with_lanes_drawn_anew_within_each_task() -> None:
    found = stratified(OURS, iqm)
    theirs = bootstrap(
        OURS,
        lambda *lanes, axis: iqm(np.concatenate(lanes, axis=-1)),
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert found.centre == pytest.approx(float(trim_mean(np.concatenate(OURS), 0.25)))
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))
    assert stratified(OURS[:1], iqm) == interval(OURS[0], iqm)


def test_a_difference_has_the_spread_of_both_sides() -> None:
    """As of normal means: the interval's half width is 1.96 standard errors, and it lies around the truth."""
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(3, 1, 400), rng.normal(1, 2, 400)
    centre, low, high = difference(ours, theirs, mean)
    error = np.sqrt(ours.var() / 400 + theirs.var() / 400)
    assert centre == pytest.approx(ours.mean() - theirs.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.1)
    assert low < 2 < high


def test_a_profile_is_the_share_of_lanes_above_each_threshold_the_mean_over_tasks() -> None:
    thresholds = np.array([-1.0, 0.5, 2.0])
    found = profile(OURS, thresholds)
    for place, threshold in enumerate(thresholds):
        shares = [sum(value > threshold for value in lanes) / len(lanes) for lanes in OURS]
        assert found.centre[place] == pytest.approx(sum(shares) / 3)
    assert (found.low <= found.centre).all()
    assert (found.centre <= found.high).all()


def test_the_probability_of_improvement_counts_pairs_a_tie_being_half_a_win() -> None:
    found = improvement(OURS, THEIRS)
    wins = [np.mean([x > y for x in a for y in b]) for a, b in zip(OURS, THEIRS, strict=True)]
    assert found.centre == pytest.approx(np.mean(wins))
    assert 0 <= found.low < found.centre < found.high <= 1
    assert improvement([[1.0, 2.0]], [[1.0, 2.0]]).centre == 0.5
    assert found.centre + improvement(THEIRS, OURS).centre == pytest.approx(1)


def test_the_area_is_that_of_trapezoids() -> None:
    steps, values = np.array([100, 200, 400]), np.array([0.0, 10.0, 20.0])
    assert area(steps, values) == (100 * 5 + 200 * 15) / 300
    assert area(steps, np.array([0.0, np.nan, 20.0])) == 10.0  # the line between those that are known
    assert area(steps[:1], values[1:2]) == 10.0
    assert np.isnan(area(steps, np.full(3, np.nan)))


def test_what_is_no_number_is_left_out_and_one_lane_has_no_interval() -> None:
    curve = band(np.array([[1.0, np.nan, 3.0], [np.nan, np.inf, 2.0], [np.nan] * 3]), mean)
    np.testing.assert_array_equal(curve.centre, [2, 2, np.nan])
    np.testing.assert_array_equal(np.isnan(curve.low), [False, True, True])
    assert stratified([[1.0, np.nan, 3.0], [2.0, 2.0]], mean) == stratified([[1.0, 3.0], [2.0, 2.0]], mean)
    alone = [stratified([[1.0], [3.0, 3.0]], mean), improvement([[1.0]], [[0.0, 2.0]])]
    for found in (*alone, difference([1.0, np.nan], [1.0, 2.0], mean)):
        assert np.isfinite(found.centre)
        assert np.isnan([found.low, found.high]).all()
    for nothing in (stratified([], iqm), stratified([[np.nan]], iqm), improvement([[1.0]], [[]])):
        assert np.isnan(nothing).all()
    assert np.shape(profile([[]], np.zeros(2))) == (3, 2)
    assert np.isnan(profile([[]], np.zeros(2))).all()
    assert band(np.zeros((0, 3)), mean).centre.shape == (0,)


@given(st.integers(0, 300), st.integers(1, 50))
def test_thinning_keeps_the_ends(count: int, at_most: int) -> None:
    places = thinned(count, at_most)
    assert len(places) == min(count, at_most)
    assert places == sorted(set(places))
    if count:
        assert places[-1] == count - 1
        assert at_most == 1 or places[0] == 0
