"""Ridge regression of totals: its leave-one-out errors are those of really leaving one out."""

import numpy as np
import pytest

from apportion.graph.ridge import PENALTIES, Offsets, ridge


def data(segments: int, features: int, lengths: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    sums = rng.normal(size=(segments, features)) * np.logspace(-3, 3, features)
    steps = rng.integers(5, lengths, segments) if lengths > 6 else np.full(segments, 5)
    totals = sums @ (rng.normal(size=features) / np.logspace(-3, 3, features)) + 0.3 * steps + 2.0
    return sums, totals + rng.normal(size=segments), steps


def fit_plainly(sums: np.ndarray, totals: np.ndarray, steps: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """[features, steps, constant]: least squares with one more row for each penalty."""
    offsets = np.stack([steps, np.ones(len(steps))], axis=1)
    design = np.concatenate([sums, offsets], axis=1)
    extra = np.concatenate([np.diag(np.sqrt(penalty)), np.zeros((len(penalty), 2))], axis=1)
    y = np.concatenate([totals, np.zeros(len(penalty))])
    return np.linalg.lstsq(np.concatenate([design, extra]), y, rcond=None)[0]


@pytest.mark.parametrize(("segments", "features"), [(40, 6), (12, 30)])
def test_errors_are_those_of_leaving_each_segment_out(segments: int, features: int) -> None:
    sums, totals, steps = data(segments, features)
    offsets = Offsets.of(steps)
    fit = ridge(sums, totals, offsets, np.array([0.1]))
    penalty = 0.1 * np.sum(offsets.remove(sums) ** 2, axis=0)
    whole = fit_plainly(sums, totals, steps, penalty)
    np.testing.assert_allclose(fit.weights, whole[:-2], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose([fit.per_step, fit.per_segment], whole[-2:], rtol=1e-5)
    for out in range(segments):
        rest = np.arange(segments) != out
        weights = fit_plainly(sums[rest], totals[rest], steps[rest], penalty)
        predicted = np.concatenate([sums[out], [steps[out], 1.0]]) @ weights
        assert fit.errors[out] == pytest.approx(totals[out] - predicted, rel=1e-4, abs=1e-6)


def test_the_penalty_is_the_one_with_the_smallest_error() -> None:
    sums, totals, steps = data(60, 40)
    best = ridge(sums, totals, Offsets.of(steps))
    errors = [ridge(sums, totals, Offsets.of(steps), np.array([p])).error for p in PENALTIES]
    assert best.error == pytest.approx(min(errors))
    assert best.penalty == PENALTIES[int(np.argmin(errors))]


def test_constants_where_all_lengths_are_equal_and_without_features() -> None:
    sums, totals, steps = data(200, 3, lengths=6)
    fit = ridge(sums, totals, Offsets.of(steps))
    assert fit.per_segment == 0.0  # it belongs to the steps
    assert fit.per_step == pytest.approx((0.3 * 5 + 2.0) / 5, abs=0.1)
    bare = ridge(np.zeros((200, 0)), totals, Offsets.of(steps))
    np.testing.assert_allclose(bare.errors, (totals - totals.mean()) * 200 / 199)


def test_constant_and_equal_features_do_no_harm() -> None:
    sums, totals, steps = data(80, 4)
    odd = np.column_stack([sums, sums[:, 0], 3.0 * steps, np.full(80, 7.0), np.zeros(80)])
    plain, fit = (ridge(each, totals, Offsets.of(steps)) for each in (sums, odd))
    assert np.isfinite(fit.weights).all()
    assert fit.error == pytest.approx(plain.error, rel=0.02)


@pytest.mark.parametrize(("segments", "features"), [(150, 391), (150, 149), (150, 151)])
def test_noise_is_not_predicted_where_features_outnumber_segments(segments: int, features: int) -> None:
    rng = np.random.default_rng(0)
    sums, noise = rng.normal(size=(segments, features)), rng.normal(size=segments)
    steps = np.full(segments, 5)
    assert ridge(sums, noise, Offsets.of(steps)).error > 0.9 * noise.var()
    weak = ridge(sums, noise, Offsets.of(steps), np.array([1e-8])).error
    assert weak > 0.9 * noise.var()


def test_what_an_end_pays_is_found_beside_what_the_features_do() -> None:
    sums, totals, steps = data(80, 4)
    ends = np.random.default_rng(1).random(80) < 0.4
    blind = ridge(sums, totals - 40.0 * ends, Offsets.of(steps))
    fit = ridge(sums, totals - 40.0 * ends, Offsets.of(steps, ends))
    assert fit.per_end == pytest.approx(-40.0, abs=1.0)
    assert blind.per_end == 0.0
    assert fit.error < 0.1 * blind.error


@pytest.mark.parametrize("ends", [np.ones(50), np.zeros(50), np.arange(50) >= 25])
def test_offsets_that_tell_nothing_new_are_left_out(ends: np.ndarray) -> None:
    """Every episode ended, or none did, or just those did that are short."""
    steps = np.where(np.arange(50) < 25, 20, 10)
    offsets = Offsets.of(steps, ends)
    assert offsets.basis.shape == (50, 2)
    np.testing.assert_allclose(offsets.basis.T @ offsets.basis, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(offsets.remove(np.asarray(ends, np.float64)), 0.0, atol=1e-12)


def test_the_only_segment_of_its_length_tells_nothing() -> None:
    """Without it nobody would know what a step pays: to leave it out is no test of the features."""
    sums, totals, steps = data(40, 6, lengths=5)
    alike = ridge(sums, totals, Offsets.of(steps))
    odd = ridge(np.vstack([sums, 0.2 * sums[0]]), np.append(totals, 1e3), Offsets.of(np.append(steps, 2)))
    assert odd.errors[-1] == 0
    np.testing.assert_allclose(odd.errors[:-1], alike.errors, rtol=1e-3)
