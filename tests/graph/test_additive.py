"""An additive reward comes back from sums of it, with few segments, whatever else is in the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.graph import additive, additive_fit


def _segments(count: int, reward: object, length: int = 20, dims: int = 6) -> tuple[list, np.ndarray]:
    """Steps of one segment resemble each other, as those of an episode do."""
    rng = np.random.default_rng(0)
    rows = [
        (rng.normal(size=(1, dims)) + 0.5 * rng.normal(size=(length + i % 5, dims))).astype(np.float32)
        for i in range(count)
    ]
    return rows, np.array([reward(x).sum() for x in rows])  # type: ignore[operator]


def _fit(rows: list, totals: np.ndarray, allowed: np.ndarray) -> additive.Additive:
    return additive.Additive.of(additive_fit.fit(rows, totals, allowed))


def _correlation(model: additive.Additive, rows: list, reward: object) -> float:
    x = np.concatenate(rows)
    return float(np.corrcoef(additive.predict(model, jnp.asarray(x)), reward(x))[0, 1])  # type: ignore[operator]


@pytest.mark.parametrize(
    "reward",
    [
        lambda x: 3 * x[:, 0] - x[:, 1],
        lambda x: x[:, 0] - 0.5 * x[:, 2] ** 2,
        lambda x: -np.abs(x[:, 1]) + 0.2 * x[:, 3],
    ],
    ids=["linear", "quadratic", "absolute"],
)
def test_forty_segments_are_enough(reward: object) -> None:
    rows, totals = _segments(40, reward)
    model = _fit(rows, totals, np.ones(6, bool))
    assert _correlation(model, rows, reward) > 0.98


def test_prediction_equals_a_plain_sum() -> None:
    rng = np.random.default_rng(1)
    mean, std, weights = rng.normal(size=3), rng.uniform(1, 2, 3), rng.normal(size=(3, 4))
    model = additive.Additive(*(jnp.asarray(a, jnp.float32) for a in (mean, std, weights, 0.7, 1.0)))
    x = 4 * rng.normal(size=(5, 3))
    z = np.clip((x - mean) / std, -5, 5)
    functions = np.stack([z, z**2 - 1, np.abs(z), np.tanh(z)], axis=2)
    expected = 0.7 + np.sum(functions * weights, axis=(1, 2))
    np.testing.assert_allclose(jax.jit(additive.predict)(model, x), expected, rtol=1e-4)
    np.testing.assert_array_equal(additive.predict(additive.zero(3), x), np.zeros(5))


def test_evidence_and_leave_one_out_as_if_computed_one_by_one() -> None:
    """Segments count by their length, in the fit, in its evidence and in its error."""
    rng = np.random.default_rng(2)
    features, lengths = rng.normal(size=(12, 3)), rng.integers(1, 9, 12) * 1.0
    target = features @ [1.0, 0.5, 0.0] + rng.normal(size=12)
    found = additive_fit._ridge(features, target, lengths)
    share = lengths / lengths.mean()
    middle = np.average(features, axis=0, weights=share)
    centred = np.sqrt(share)[:, None] * (features - middle)
    wanted = np.sqrt(share) * (target - np.average(target, weights=share))
    largest = np.linalg.svd(centred, compute_uv=False)[0] ** 2
    tried = []
    for penalty in additive_fit._PENALTIES * largest:
        # Without the free offset 11 directions are left: y ~ N(0, σ² C), at the best σ².
        covariance = np.eye(12) + centred @ centred.T / penalty
        noise = wanted @ np.linalg.solve(covariance, wanted)
        evidence = -0.5 * 11 * np.log(noise) - 0.5 * np.linalg.slogdet(covariance)[1]
        # Weights are those of a ridge on data centred without the one left out.
        misses = np.zeros(12)
        for i in range(12):
            rest = np.delete(np.arange(12), i)
            centre = np.average(features[rest], axis=0, weights=share[rest])
            level = np.average(target[rest], weights=share[rest])
            z, counted = features[rest] - centre, share[rest][:, None]
            w = np.linalg.solve(
                z.T @ (counted * z) + penalty * np.eye(3), (counted * z).T @ (target[rest] - level)
            )
            misses[i] = target[i] - level - (features[i] - centre) @ w
        weights = np.linalg.solve(centred.T @ centred + penalty * np.eye(3), centred.T @ wanted)
        tried.append((np.exp(evidence), misses, weights))
    evidences, misses, weights = map(np.array, zip(*tried, strict=True))
    chosen = evidences / evidences.sum()
    assert found.evidence == pytest.approx(np.log(evidences.sum()), rel=1e-6)
    assert found.error == pytest.approx(np.sqrt(np.mean(share * (chosen @ misses) ** 2)), rel=1e-6)
    np.testing.assert_allclose(found.weights, chosen @ weights, rtol=1e-6)


def test_few_segments_do_not_say_that_all_is_noise() -> None:
    """Of twelve segments the evidence of "all is noise" can be the largest, and a reward's next to it."""
    rng, kept = np.random.default_rng(1), []
    for _ in range(20):
        rows = [rng.normal(rng.normal(size=20), 1.0, (50, 20)) for _ in range(12)]
        rewards = [x[:, 0] + x[:, 1] + 2 * rng.normal(size=50) for x in rows]
        model = _fit(rows, np.array([each.sum() for each in rewards]), np.ones(20, bool))
        found = additive.predict(model, jnp.asarray(np.concatenate(rows), jnp.float32))
        kept.append(float(np.std(found)))
    assert min(kept) > 0.05


def test_what_nearly_cancels_in_every_segment_gets_no_weight() -> None:
    """Every episode passes the clock once. By leave-one-out it had most of the steps' variance: correlation
    0.34, and a spread of 3.5 times the truth's."""
    rng = np.random.default_rng(5)
    rows, rewards = [], []
    for _ in range(40):
        x = np.zeros((96, 8))
        for t in range(96):
            x[t] = (0.9 * x[t - 1] if t else 0) + np.sqrt(0.19) * rng.normal(size=8)
        angle = 2 * np.pi * np.arange(96) / 96 + 0.1 * rng.normal(size=96)
        clock = np.stack([np.sin(angle), np.cos(angle)], axis=1)
        rewards.append(x[:, 1] - 0.5 * x[:, 0] ** 2 - np.abs(x[:, 6]))
        rewards[-1] += 0.3 * (x[:, 2] * x[:, 3] + x[:, 0] * x[:, 7])
        sensors = x[:, :3] + 0.02 * rng.normal(size=(96, 3))
        rows.append(np.concatenate([x, sensors, clock, np.round(1.8 * x[:, :3], 2)], axis=1))
    model = _fit(rows, np.array([each.sum() for each in rewards]), np.ones(16, bool))
    found = additive.predict(model, jnp.asarray(np.concatenate(rows), jnp.float32))
    truth = np.concatenate(rewards)
    assert np.corrcoef(found, truth)[0, 1] > 0.85
    assert np.std(found) < 1.2 * np.std(truth)


def test_a_fine_in_short_episodes_does_not_spoil_what_long_ones_pay_for() -> None:
    """Episodes of five steps end with a fine of ten; long ones pay for the first dimension."""
    rng = np.random.default_rng(3)
    lengths = np.where(np.arange(200) % 3 == 0, 5, 100)
    rows = [rng.normal(size=(length, 3)) + rng.normal(size=3) for length in lengths]
    fines = np.where(lengths == 5, -10.0, 0.0)
    totals = np.array([x[:, 0].sum() for x in rows]) + fines
    model = _fit(rows, totals, np.ones(3, bool))
    steps = np.concatenate([x for x in rows if len(x) == 100])
    found = additive.predict(model, jnp.asarray(steps, jnp.float32))
    assert np.corrcoef(found, steps[:, 0])[0, 1] > 0.99
    assert abs(float(np.mean(found - steps[:, 0]))) < 0.2  # equal weights would take 0.67 from every step


def test_only_allowed_and_living_dimensions_have_a_say() -> None:
    rows, totals = _segments(60, lambda x: x[:, 0] + x[:, 1])
    for x in rows:
        x[:, 4] = 7.0
    allowed = np.array([True, False, True, True, True, True])
    model = _fit(rows, totals, allowed)
    assert not np.any(model.weights[1])
    assert not np.any(model.weights[4])
    assert np.any(model.weights[0])
    assert np.isfinite(model.weights).all()


@pytest.mark.parametrize("count", [1, 3, 7])
def test_of_a_few_segments_only_the_mean_is_known(count: int) -> None:
    rows, totals = _segments(count, lambda x: x[:, 0])
    model = _fit(rows, totals, np.ones(6, bool))
    assert not np.any(model.weights)
    expected = np.sum(totals) / sum(len(x) for x in rows)
    assert float(model.offset) == pytest.approx(expected, rel=1e-4)
    assert float(model.error) > 0


def test_equal_totals_constant_data_and_wide_data_do_no_harm() -> None:
    rows, _ = _segments(20, lambda x: x[:, 0])
    lengths = np.array([len(x) for x in rows])
    same = _fit(rows, 2.0 * lengths, np.ones(6, bool))
    assert (float(same.offset), float(same.error)) == (2.0, 1.0)
    dead = _fit([np.ones_like(x) for x in rows], np.arange(20.0), np.ones(6, bool))
    assert not np.any(dead.weights)
    wide, totals = _segments(12, lambda x: x[:, 0], dims=90)
    model = _fit(wide, totals, np.ones(90, bool))
    assert all(np.isfinite(leaf).all() for leaf in model)


def test_many_dimensions_are_measured_as_if_at_once() -> None:
    rows, _ = _segments(30, lambda x: x[:, 0], dims=101)
    x = np.concatenate(rows).astype(np.float64)
    measured = additive_fit.Measured.of(rows)
    np.testing.assert_array_equal(measured.mean, x.mean(axis=0))
    np.testing.assert_array_equal(measured.std, x.std(axis=0))


def test_few_dimensions_that_pay_are_found_among_many() -> None:
    """Ridge regression alone gives something to all of them."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(20, 30)) for _ in range(40)]
    totals = np.array([each[:, 0].sum() for each in rows])
    totals += 0.3 * totals.std() * rng.normal(size=40)
    weights = additive_fit.fit(rows, totals, np.ones(30, np.bool_)).weights[:, 0]
    means = np.array([each.mean(axis=0) for each in rows])
    once = additive_fit._ridge(means, totals / 20, np.full(40, 20.0)).weights
    assert np.abs(weights[1:]).sum() / weights[0] < 0.7 * np.abs(once[1:]).sum() / once[0]
