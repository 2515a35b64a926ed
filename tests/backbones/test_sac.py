"""SAC: densities, targets and steps equal their formulas; tiny tasks with a known optimum are solved."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from apportion.backbones import actor_critic, sac, soft
from apportion.core.config import UserError
from apportion.nn.networks import MLP, NormedMLP
from builders import SPEC, numpy, transitions
from probes import BEST_ACTION, PLACES, bandit, chain, chain_values, plain_values, train

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
    action, log_density = actor_critic.sample_action(state.actor(observation), jax.random.key(1))
    assert action.shape == (50, 2)
    mean, log_std = numpy(actor_critic.gaussian(state.actor(observation)))
    action = np.asarray(action, np.float64)
    expected = stats.norm.logpdf(np.arctanh(action), mean, np.exp(log_std)) - np.log(1 - action**2)
    typical = np.abs(action).max(axis=1) < 0.99  # beyond, float32 has forgotten what was inside the tanh
    assert typical.sum() > 30
    np.testing.assert_allclose(log_density[typical], expected.sum(axis=1)[typical], rtol=1e-3, atol=1e-3)


def test_densities_sum_to_one() -> None:
    """The density that samples claim integrates to one, and as many of them lie in an interval as it says."""
    actor = _constant_actor([0.3], [-0.5])
    action, log_density = actor_critic.sample_action(actor(jnp.zeros((4000, 3))), jax.random.key(2))
    order = np.argsort(np.asarray(action)[:, 0])
    x, density = np.asarray(action)[order, 0], np.exp(np.asarray(log_density))[order]
    assert integrate.trapezoid(density, x) == pytest.approx(1.0, abs=0.01)
    inside = stats.norm.cdf(np.arctanh(0.5), 0.3, np.exp(-0.5)) - stats.norm.cdf(0, 0.3, np.exp(-0.5))
    assert np.mean((x > 0) & (x < 0.5)) == pytest.approx(inside, abs=0.03)


@pytest.mark.parametrize("mean", [-80.0, 80.0])
def test_log_density_and_its_gradient_are_finite_where_tanh_saturates(mean: float) -> None:
    def total(actor: MLP) -> jax.Array:
        return jnp.sum(actor_critic.sample_action(actor(jnp.zeros((5, 3))), jax.random.key(3))[1])

    value, gradient = jax.value_and_grad(total)(_constant_actor([mean], [2.0]))
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_spread_is_clipped() -> None:
    _, log_std = actor_critic.gaussian(jnp.asarray([[0.0, 0.0, -100.0, 100.0]]))
    np.testing.assert_array_equal(log_std, [[-20.0, 2.0]])


# --- Critics and temperature


@pytest.mark.parametrize(("pool", "pooled"), [("min", np.min), ("mean", np.mean)])
def test_critics_step_towards_the_soft_bellman_target(state: soft.State, pool: Any, pooled: Any) -> None:
    steps, key = transitions(1, 6), jax.random.key(4)
    rewards, config = steps.paid, replace(CONFIG, critic_pool=pool)
    after, metrics = jax.jit(soft.update_critics, static_argnums=4)(state, steps, rewards, key, config)

    sampled = actor_critic.sample_action(state.actor(steps.next_observation), key)
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


def test_two_critics_make_one_value() -> None:
    both = jnp.asarray([[1.0, 5.0, -2.0], [3.0, 4.0, -4.0]])
    np.testing.assert_allclose(CONFIG.pooled(both), [1, 4, -4])
    np.testing.assert_allclose(replace(CONFIG, critic_pool="mean").pooled(both), [2, 4.5, -3])


@pytest.mark.parametrize(("rate", "critics"), [(None, 1e-2), (1e-3, 1e-3)])
def test_critics_may_have_a_learning_rate_of_their_own(rate: float | None, critics: float) -> None:
    state = sac.make(replace(CONFIG, critic_learning_rate=rate)).init(jax.random.key(0), SPEC)
    others = (state.actor_optimiser.learning_rate, state.temperature_optimiser.learning_rate)
    np.testing.assert_allclose([state.critic_optimiser.learning_rate, *others], [critics, 1e-2, 1e-2])


def test_targets_follow_the_critics_by_the_polyak_step(state: soft.State) -> None:
    after, metrics = jax.jit(sac.make(CONFIG).update)(
        state, transitions(1, 6), jnp.ones(6), jax.random.key(4)
    )
    # By the way: the temperature aims at minus the number of actions, where nothing else was asked for.
    assert np.sign(after.log_temperature - state.log_temperature) == -np.sign(metrics["entropy"] + 2)
    before, critics, targets = numpy((state.target_critics, after.critics, after.target_critics))
    for old, new, followed in zip(*map(jax.tree.leaves, (before, critics, targets)), strict=True):
        np.testing.assert_allclose(followed, 0.9 * old + 0.1 * new, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("entropy", "direction"), [(-1.0, -1), (-3.0, 1)])
def test_temperature_falls_while_entropy_is_above_its_target(
    state: soft.State, entropy: float, direction: int
) -> None:
    after, metrics = soft.update_temperature(state, jnp.asarray(entropy), -2.0)
    assert np.sign(after.log_temperature - state.log_temperature) == direction
    np.testing.assert_allclose(metrics["temperature"], np.exp(after.log_temperature), rtol=1e-6)


# --- Tasks with a known optimum


def test_the_policy_finds_the_best_action_of_a_bandit() -> None:
    config = sac.Config(
        hidden=(16, 16), batch_size=64, learning_rate=5e-3, initial_temperature=0.1, target_entropy=-2.0
    )
    state = train(sac.make(config), bandit(), updates=600)
    best = sac.make(config).act(state, jnp.ones(1), jax.random.key(0), False)
    np.testing.assert_allclose(best, [BEST_ACTION], atol=0.1)


@pytest.mark.parametrize("norm", [False, True])
def test_critics_learn_analytic_values(norm: bool) -> None:
    config = sac.Config(
        hidden=(16, 16),
        critic_norm=norm,
        batch_size=60,
        learning_rate=5e-3,
        discount=0.6,
        polyak=0.05,
        initial_temperature=1e-6,  # or entropy would add to every value
    )
    state = train(sac.make(config), chain(), updates=600)
    assert isinstance(state.critics, NormedMLP) == norm
    values = actor_critic.values(state.critics, PLACES, jnp.asarray([[0.5], [-0.5], [0.0]]))
    np.testing.assert_allclose(values, [chain_values(0.6)] * 2, atol=0.1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden": ()}, "backbone.hidden needs at least one layer"),
        ({"hidden": (8, 0)}, r"backbone.hidden=\(8, 0\) must be at least 1 each"),
        ({"learning_rate": -1.0}, "backbone.learning_rate=-1.0 must be positive"),
        ({"critic_learning_rate": 0.0}, "backbone.critic_learning_rate=0.0 must be positive"),
        ({"batch_size": 0}, "backbone.batch_size=0 must be at least 1"),
        ({"discount": 1.0}, r"backbone.discount=1.0 must be in \[0, 1\)"),
        ({"polyak": 0.0}, r"backbone.polyak=0.0 must be in \(0, 1\]"),
        ({"initial_temperature": 0.0}, "backbone.initial_temperature must be positive"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        sac.Config(**change)
