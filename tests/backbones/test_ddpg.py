"""DDPG: targets and steps equal their formulas; tiny tasks with a known optimum are solved."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import actor_critic, td3
from apportion.core.config import UserError
from builders import SPEC, assert_close, numpy, transitions
from probes import BEST_ACTION, PLACES, bandit, chain, chain_values, plain_outputs, plain_values, train

CONFIG = td3.DDPGConfig(hidden=(8, 8), batch_size=6, discount=0.9, polyak=0.1, learning_rate=1e-2)
STEPS = transitions(1, 6)


@pytest.fixture(scope="module")
def state() -> td3.State:
    """Networks and targets differ, as they do after the first update."""
    fresh = jax.jit(lambda key: td3.make_ddpg(CONFIG).init(key, SPEC))(jax.random.key(0))
    targets = (fresh.target_actor, fresh.target_critics)
    target_actor, target_critic = jax.tree.map(lambda weight: 0.5 * weight, targets)
    return fresh._replace(target_actor=target_actor, target_critics=target_critic)


@pytest.fixture(scope="module")
def updated(state: td3.State) -> tuple[td3.State, Any]:
    return jax.jit(td3.make_ddpg(CONFIG).update)(state, STEPS, STEPS.paid, jax.random.key(4))


def test_the_critic_steps_towards_the_target_actors_value(
    state: td3.State, updated: tuple[td3.State, Any]
) -> None:
    after, metrics = updated
    plain = numpy(STEPS)
    next_action = np.tanh(plain_outputs(numpy(state.target_actor), plain.next_observation))
    [next_values] = plain_values(numpy(state.target_critics), plain.next_observation, next_action)
    target = plain.paid + 0.9 * np.where(plain.terminated, 0, next_values)
    [values] = plain_values(numpy(state.critics), plain.observation, plain.action)
    loss = ((values - target) ** 2).mean()
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], values.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["reward_mean"], plain.paid.mean(), rtol=1e-4)
    assert plain.terminated.any() and not plain.terminated.all()  # noqa: PT018 - the batch has both

    [values] = plain_values(numpy(after.critics), plain.observation, plain.action)
    assert ((values - target) ** 2).mean() < loss


def test_the_actor_climbs_the_critic(state: td3.State, updated: tuple[td3.State, Any]) -> None:
    after, metrics = updated
    plain = numpy(STEPS.observation)
    action = np.tanh(plain_outputs(numpy(state.actor), plain))
    [values] = plain_values(numpy(after.critics), plain, action)
    np.testing.assert_allclose(metrics["actor_loss"], -values.mean(), rtol=1e-4)
    action = np.tanh(plain_outputs(numpy(after.actor), plain))
    [climbed] = plain_values(numpy(after.critics), plain, action)
    assert climbed.mean() > values.mean()


def test_both_targets_follow_by_the_polyak_step(state: td3.State, updated: tuple[td3.State, Any]) -> None:
    after, _ = updated
    for name in ("actor", "critics"):
        old, network = getattr(state, f"target_{name}"), getattr(after, name)
        expected = jax.tree.map(lambda t, n: 0.9 * t + 0.1 * n, old, network)
        assert_close(getattr(after, f"target_{name}"), expected, rtol=1e-4, atol=1e-7)


# --- Tasks with a known optimum


def test_the_policy_finds_the_best_action_of_a_bandit() -> None:
    backbone = td3.make_ddpg(td3.DDPGConfig(hidden=(16, 16), batch_size=64, learning_rate=5e-3))
    state = train(backbone, bandit(), updates=600)
    best = backbone.act(state, jnp.ones(1), jax.random.key(0), False)
    np.testing.assert_allclose(best, [BEST_ACTION], atol=0.1)


def test_the_critic_learns_analytic_values() -> None:
    config = td3.DDPGConfig(hidden=(16, 16), batch_size=60, learning_rate=5e-3, discount=0.6, polyak=0.05)
    state = train(td3.make_ddpg(config), chain(), updates=600)
    values = actor_critic.values(state.critics, PLACES, jnp.asarray([[0.5], [-0.5], [0.0]]))
    np.testing.assert_allclose(values, [chain_values(0.6)], atol=0.1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden": ()}, "backbone.hidden needs at least one layer"),
        ({"polyak": 0.0}, r"backbone.polyak=0.0 must be in \(0, 1\]"),
        ({"exploration_noise": -0.1}, "backbone.exploration_noise=-0.1 must not be negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        td3.DDPGConfig(**change)
