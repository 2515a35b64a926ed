"""The reward function in closed form: what it predicts, and that JAX can evaluate it from its arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.graph import identify
from apportion.graph.features import Scale
from apportion.graph.model import TRIPLES, WAVES, Basis, RewardModel
from apportion.graph.ridge import Offsets, ridge


def log(episodes: int = 300, steps: int = 15):
    """Two of four states and one of two actions earn the reward; state 3 never changes."""
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(steps + 1, 4)) * [1, 100, 1e-3, 0] for _ in range(episodes)]
    actions = [rng.uniform(-1, 1, size=(steps, 2)) for _ in range(episodes)]
    rows = [np.concatenate([o[:-1], a], axis=1) for o, a in zip(observations, actions, strict=True)]
    rewards = [np.abs(x[:, 0]) + x[:, 1] / 100 * x[:, 4] - 0.5 for x in rows]
    return observations, actions, rows, rewards


@pytest.fixture(scope="module")
def found() -> tuple[RewardModel, np.ndarray, np.ndarray]:
    observations, actions, rows, rewards = log()
    model = identify(observations, actions, np.array([r.sum() for r in rewards])).reward_model
    return model, np.concatenate(rows), np.concatenate(rewards)


def test_the_reward_of_each_step_comes_from_totals(found: tuple[RewardModel, np.ndarray, np.ndarray]) -> None:
    model, x, rewards = found
    assert np.corrcoef(model.predict(x), rewards)[0, 1] > 0.999
    assert np.mean(model.predict(x)) == pytest.approx(np.mean(rewards), abs=0.01)


def test_only_parents_matter(found: tuple[RewardModel, np.ndarray, np.ndarray]) -> None:
    model, x, _ = found
    moved = x.copy()
    moved[:, [2, 3, 5]] += 17.0
    np.testing.assert_allclose(model.predict(moved), model.predict(x), rtol=1e-9, atol=1e-9)


def test_far_beyond_the_data_the_reward_stays_bounded(
    found: tuple[RewardModel, np.ndarray, np.ndarray],
) -> None:
    model, x, rewards = found
    assert np.all(np.abs(model.predict(1e9 * x)) < 100 * np.abs(rewards).max())


def test_jax_predicts_the_same_from_the_same_arrays(
    found: tuple[RewardModel, np.ndarray, np.ndarray],
) -> None:
    model, x, _ = found

    @jax.jit
    def predict(m: RewardModel, x: jax.Array) -> jax.Array:
        z = jnp.clip((x - m.mean[None]) / m.std[None], -5.0, 5.0)
        levels = jnp.linspace(0.0, 1.0, len(m.quantiles))
        ranks = jax.vmap(jnp.interp, (1, 1, None), 1)(x, m.quantiles, levels)
        waves = jnp.cos(jnp.pi * ranks[..., None] * jnp.arange(1.0, m.cosines.shape[1] + 1)[None, None])
        rewards = m.per_step + z @ m.linear + (z**2 - 1) @ m.quadratic
        rewards += jnp.sum(waves * m.cosines[None], axis=(1, 2)) + jnp.sum((z @ m.products) * z, axis=1)
        rewards += jnp.prod(z[:, m.triples], axis=2) @ m.triple_weights
        return rewards + jnp.cos(z @ m.directions + m.phases[None]) @ m.amplitudes

    arrays = jax.tree.map(jnp.asarray, model)
    np.testing.assert_allclose(predict(arrays, jnp.asarray(x)), model.predict(x), atol=2e-3)


def test_sizes_depend_on_the_number_of_dimensions_alone() -> None:
    x = np.random.default_rng(0).normal(size=(100, 9))
    shapes = set()
    for dims in ([], [3], [0, 8], [0, 1, 2, 3, 4, 5], list(range(9))):
        rng = np.random.default_rng(0)
        basis = Basis.of(Scale.fit(x), np.array(dims, np.int64), 50, rng)
        sums = basis.sums(np.split(x, 20))
        model = basis.model(ridge(sums, rng.normal(size=20), Offsets.of(np.full(20, 5))))
        shapes.add(tuple(np.shape(array) for array in model))
        assert basis.owners.shape == (len(dims), sums.shape[1])
    assert len(shapes) == 1
    assert {(TRIPLES,), (WAVES,), (9, 9)} <= set(shapes.pop())


def test_totals_are_the_sums_of_what_is_predicted() -> None:
    """The weights are put where the formula reads them: all kinds of features together."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 5))
    basis = Basis.of(Scale.fit(x), np.array([0, 2, 4]), 40, rng)
    segments = np.split(x, 60)
    fit = ridge(basis.sums(segments), rng.normal(size=60), Offsets.of(np.full(60, 10)))
    predicted = [basis.model(fit).predict(segment).sum() for segment in segments]
    plain = basis.sums(segments) @ fit.weights + 10 * fit.per_step
    np.testing.assert_allclose(predicted, plain, atol=1e-3)
