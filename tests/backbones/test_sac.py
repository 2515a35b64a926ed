"""SAC: densities, targets and steps equal their formulas."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from apportion.backbones import actor_critic, sac, soft
from apportion.nn.networks import MLP
from builders import SPEC, numpy, transitions
from probes import plain_values

CONFIG = sac.Config(hidden=(8, 8), batch_size=6, discount=0.9, polyak=0.1, learning_rate=1e-2)


@pytest.fixture(scope="module")
def state() -> soft.State:
    """Critics and targets differ, as they do after the first update."""
    fresh = jax.jit(lambda key: sac.make(CONFIG).init(key, SPEC))(jax.random.key(0))
    targets = jax.tree.map(lambda weight: 0.5 * weight, fresh.target_critics)
    return fresh._replace(target_critics=targets, log_temperature=jnp.asarray(-0.7))


def _constant_actor(mean: list[float], log_std: list[float]) -> MLP:
    """The same Gaussian everywhere."""
    return MLP(weights=[jnp.zeros((3, 2 * len(mean)))], biases=[jnp.asarray([*mean, *log_std])])


# --- The policy's density


def test_log_density_is_the_change_of_variables(state: soft.State) -> None:
    observation = transitions(0, 50).observation
    action, log_density = soft.sample_action(state.actor(observation), jax.random.key(1))
    assert action.shape == (50, 2)
    mean, log_std = numpy(soft.gaussian(state.actor(observation)))
    action = np.asarray(action, np.float64)
    expected = stats.norm.logpdf(np.arctanh(action), mean, np.exp(log_std)) - np.log(1 - action**2)
    typical = np.abs(action).max(axis=1) < 0.99  # beyond, float32 has forgotten what was inside the tanh
    assert typical.sum() > 30
    np.testing.assert_allclose(log_density[typical], expected.sum(axis=1)[typical], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mean", [-80.0, 80.0])
def test_log_density_and_its_gradient_are_finite_where_tanh_saturates(mean: float) -> None:
    def total(actor: MLP) -> jax.Array:
        return jnp.sum(soft.sample_action(actor(jnp.zeros((5, 3))), jax.random.key(3))[1])

    value, gradient = jax.value_and_grad(total)(_constant_actor([mean], [2.0]))
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_spread_is_clipped() -> None:
    _, log_std = soft.gaussian(jnp.asarray([[0.0, 0.0, -100.0, 100.0]]))
    np.testing.assert_array_equal(log_std, [[-20.0, 2.0]])


# --- Critics and temperature


def test_only_a_true_end_stops_the_bootstrap() -> None:
    rewards, next_values = jnp.asarray([1.0, 2.0]), jnp.asarray([10.0, jnp.nan])
    target = actor_critic.bellman_target(rewards, jnp.asarray([False, True]), next_values, 0.9)
    np.testing.assert_allclose(target, [1 + 0.9 * 10, 2])


@pytest.mark.parametrize(("pool", "pooled"), [("min", np.min), ("mean", np.mean)])
def test_critics_step_towards_the_soft_bellman_target_and_targets_follow(
    state: soft.State, pool: Any, pooled: Any
) -> None:
    steps, key = transitions(1, 6), jax.random.key(4)
    rewards, config = steps.paid, replace(CONFIG, critic_pool=pool)
    after, metrics = jax.jit(sac.make(config).update)(state, steps, rewards, key)

    sampled = soft.sample_action(state.actor(steps.next_observation), jax.random.split(key)[0])
    plain, critics = numpy(steps), numpy(state.critics)
    next_action, next_log_density = numpy(sampled)
    both = plain_values(numpy(state.target_critics), plain.next_observation, next_action)
    next_values = pooled(both, axis=0)
    soft_values = next_values - np.exp(-0.7) * next_log_density
    target = plain.paid + 0.9 * np.where(plain.terminated, 0, soft_values)
    values = plain_values(critics, plain.observation, plain.action)
    loss = ((values[0] - target) ** 2).mean() + ((values[1] - target) ** 2).mean()
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], values.mean(), rtol=1e-4)
    assert plain.terminated.any() and not plain.terminated.all()  # noqa: PT018 - the batch has both

    stepped = numpy(after.critics)
    values = plain_values(stepped, plain.observation, plain.action)
    assert ((values - target) ** 2).mean(axis=1).sum() < loss
    before, targets = numpy((state.target_critics, after.target_critics))
    for old, new, followed in zip(*map(jax.tree.leaves, (before, stepped, targets)), strict=True):
        np.testing.assert_allclose(followed, 0.9 * old + 0.1 * new, rtol=1e-4, atol=1e-7)
    # The temperature aims at minus the number of actions, where nothing else was asked for.
    assert np.sign(after.log_temperature - state.log_temperature) == -np.sign(metrics["entropy"] + 2)


@pytest.mark.parametrize(("rate", "critics"), [(None, 1e-2), (1e-3, 1e-3)])
def test_critics_may_have_a_learning_rate_of_their_own(rate: float | None, critics: float) -> None:
    state = sac.make(replace(CONFIG, critic_learning_rate=rate)).init(jax.random.key(0), SPEC)
    others = (state.actor_optimiser.learning_rate, state.temperature_optimiser.learning_rate)
    np.testing.assert_allclose([state.critic_optimiser.learning_rate, *others], [critics, 1e-2, 1e-2])


@pytest.mark.parametrize(("entropy", "direction"), [(-1.0, -1), (-3.0, 1)])
def test_temperature_falls_while_entropy_is_above_its_target(
    state: soft.State, entropy: float, direction: int
) -> None:
    kind: Any = soft.Kind(None, None)  # type: ignore[arg-type]
    after = soft.step_temperature(state._replace(entropy=jnp.asarray(entropy)), -2.0, kind)
    assert np.sign(after.log_temperature - state.log_temperature) == direction
