"""SimBa: SAC's update on residual networks with weight decay; tiny tasks with a known optimum are solved."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import actor_critic, simba, soft
from apportion.core.config import UserError
from apportion.envs import acting
from apportion.nn import optimise
from builders import SPEC, assert_close, normal, numpy, transitions
from probes import (
    BEST_ACTION,
    PLACES,
    bandit,
    chain,
    chain_values,
    plain_residual,
    plain_values,
    train,
)

CONFIG = simba.Config(hidden=(8,), critic_hidden=(8, 8), batch_size=6, discount=0.9, weight_decay=0.5)
STEPS = transitions(1, 6)


@pytest.fixture(scope="module")
def state() -> soft.State:
    """As if it had learned: biases have a say, and targets differ from critics."""
    fresh = jax.jit(lambda key: simba.make(CONFIG).init(key, SPEC))(jax.random.key(0))
    rng = np.random.default_rng(0)
    names = ("actor", "critics", "target_critics")
    parts = {
        name: jax.tree.map(lambda leaf: leaf + 0.2 * normal(rng, *leaf.shape), getattr(fresh, name))
        for name in names
    }
    return fresh._replace(**parts)


def test_an_update_is_that_of_sac_with_weight_decay(state: soft.State) -> None:
    key = jax.random.key(4)
    after, metrics = jax.jit(simba.make(CONFIG).update)(state, STEPS, STEPS.paid, key)

    target_key, _ = jax.random.split(key)
    sampled = actor_critic.sample_action(state.actor(STEPS.next_observation), target_key)
    plain, (next_action, next_log_density) = numpy(STEPS), numpy(sampled)
    judged = plain_values(
        numpy(state.target_critics), plain.next_observation, next_action, plain_residual
    ).min(axis=0)
    soft_values = judged - 0.01 * next_log_density
    target = plain.paid + 0.9 * np.where(plain.terminated, 0, soft_values)
    values = plain_values(numpy(state.critics), plain.observation, plain.action, plain_residual)
    loss = ((values - target) ** 2).mean(axis=1).sum()
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)

    target = jnp.asarray(target, jnp.float32)
    without = optimise.start(state.critics, 1e-4)
    stepped, _, _ = jax.jit(actor_critic.step_critics)(state.critics, without, STEPS, target)
    shorter = jax.tree.map(lambda new, old: new - 1e-4 * 0.5 * old, stepped, state.critics)
    assert_close(after.critics, shorter)


def test_actor_and_critics_decay_and_the_temperature_does_not(state: soft.State) -> None:
    for optimiser in (state.actor_optimiser, state.critic_optimiser):
        assert (float(optimiser.learning_rate), float(optimiser.weight_decay)) == pytest.approx((1e-4, 0.5))
    assert state.temperature_optimiser.weight_decay is None
    assert float(jnp.exp(state.log_temperature)) == pytest.approx(0.01)


def test_the_entropy_aimed_at_is_half_of_what_sac_aims_at() -> None:
    assert simba.Config().entropy_for(6) == -3.0
    assert simba.Config(target_entropy=-1.0).entropy_for(6) == -1.0


def test_workers_act_with_residual_blocks(state: soft.State) -> None:
    backbone = simba.make(CONFIG)
    actor = {name: np.asarray(array) for name, array in backbone.actor(state).items()}
    assert list(actor) == [*(f"{kind}{i}" for i in range(4) for kind in "wb"), "norm_epsilon"]
    expected = np.tanh(plain_residual(numpy(state.actor), numpy(STEPS.observation))[:, :2])
    for observation, action in zip(np.asarray(STEPS.observation), expected, strict=True):
        found = acting.act(actor | {"mask": np.ones(3, np.float32)}, backbone.head, observation, None)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, action, rtol=1e-4, atol=1e-6)


# --- Tasks with a known optimum


def _learner(**changes: Any) -> simba.Config:
    return simba.Config(hidden=(16,), critic_hidden=(16,), learning_rate=3e-3, polyak=0.05, **changes)


def test_the_policy_finds_the_best_action_of_a_bandit() -> None:
    config = _learner(batch_size=64, target_entropy=-2.0)
    state = train(simba.make(config), bandit(), updates=600)
    best = simba.make(config).act(state, jnp.ones(1), jax.random.key(0), False)
    np.testing.assert_allclose(best, [BEST_ACTION], atol=0.1)


def test_critics_learn_analytic_values() -> None:
    config = _learner(batch_size=60, discount=0.6, initial_temperature=1e-6)
    state = train(simba.make(config), chain(), updates=600)
    values = actor_critic.values(state.critics, PLACES, jnp.asarray([[0.5], [-0.5], [0.0]]))
    np.testing.assert_allclose(values, [chain_values(0.6)] * 2, atol=0.1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden": (8, 4)}, r"backbone.hidden=\(8, 4\) must be the same width for every block"),
        (
            {"critic_hidden": (8, 4)},
            r"backbone.critic_hidden=\(8, 4\) must be the same width for every block",
        ),
        ({"critic_hidden": ()}, "backbone.critic_hidden needs at least one layer"),
        ({"critic_hidden": (0,)}, r"backbone.critic_hidden=\(0,\) must be at least 1 each"),
        ({"weight_decay": -0.1}, "backbone.weight_decay=-0.1 must not be negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        simba.Config(**change)
