"""TD3: smoothing, targets and delayed steps equal their formulas; tiny tasks of known optimum are solved."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import actor_critic, td3
from apportion.core.config import UserError
from apportion.envs import acting
from apportion.nn.networks import MLP
from builders import SPEC, assert_close, assert_equal, lane, numpy, stack, transitions
from probes import BEST_ACTION, PLACES, bandit, chain, chain_values, plain_outputs, plain_values, train

CONFIG = td3.Config(hidden=(8, 8), batch_size=6, discount=0.9, polyak=0.1, learning_rate=1e-2)
UPDATE = jax.jit(td3.make(CONFIG).update)
LOSS = jax.jit(actor_critic.deterministic_loss)
STEPS = transitions(1, 6)


@pytest.fixture(scope="module")
def state() -> td3.State:
    """Networks and targets differ, as they do after the first updates."""
    fresh = jax.jit(lambda key: td3.make(CONFIG).init(key, SPEC))(jax.random.key(0))
    targets = (fresh.target_actor, fresh.target_critics)
    target_actor, target_critics = jax.tree.map(lambda weight: 0.5 * weight, targets)
    return fresh._replace(target_actor=target_actor, target_critics=target_critics)


def _constant_actor(output: float) -> MLP:
    return MLP(weights=[jnp.zeros((3, 2))], biases=[jnp.full(2, output)])


# --- Target smoothing


def test_smoothing_is_clipped_noise_around_the_target_action() -> None:
    actor, observation = _constant_actor(0.0), jnp.zeros((4000, 3))
    found = td3.smoothed_action(actor, observation, jax.random.key(1), 0.2, 0.5)
    assert np.std(found) == pytest.approx(0.2, abs=0.01)
    assert np.max(np.abs(found)) == pytest.approx(0.5)  # 2.5 standard deviations: some of 8000 reach it
    narrow = td3.smoothed_action(actor, observation, jax.random.key(1), 0.2, 0.05)
    np.testing.assert_allclose(narrow, np.clip(found, -0.05, 0.05))  # the same noise, cut sooner


def test_smoothed_actions_are_actions() -> None:
    found = td3.smoothed_action(_constant_actor(2.0), jnp.zeros((4000, 3)), jax.random.key(1), 0.2, 0.5)
    assert np.max(found) == 1.0
    assert np.min(found) >= np.tanh(2.0) - 0.5 - 1e-6


def test_without_noise_the_target_action_stays(state: td3.State) -> None:
    found = td3.smoothed_action(state.target_actor, STEPS.observation, jax.random.key(1), 0.0, 0.5)
    expected = np.tanh(plain_outputs(numpy(state.target_actor), numpy(STEPS.observation)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


# --- Steps


def test_critics_step_towards_the_smaller_target_value(state: td3.State) -> None:
    key = jax.random.key(4)
    after, metrics = jax.jit(td3._update_critics, static_argnums=4)(state, STEPS, STEPS.paid, key, CONFIG)

    plain = numpy(STEPS)
    action = np.tanh(plain_outputs(numpy(state.target_actor), plain.next_observation))
    noise = np.clip(0.2 * numpy(jax.random.normal(key, action.shape)), -0.5, 0.5)
    next_action = np.clip(action + noise, -1, 1)
    next_values = plain_values(numpy(state.target_critics), plain.next_observation, next_action).min(axis=0)
    target = plain.paid + 0.9 * np.where(plain.terminated, 0, next_values)
    values = plain_values(numpy(state.critics), plain.observation, plain.action)
    loss = ((values - target) ** 2).mean(axis=1).sum()
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], values.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["reward_mean"], plain.paid.mean(), rtol=1e-4)
    assert plain.terminated.any() and not plain.terminated.all()  # noqa: PT018 - the batch has both

    values = plain_values(numpy(after.critics), plain.observation, plain.action)
    assert ((values - target) ** 2).mean(axis=1).sum() < loss


def test_actor_and_targets_move_at_every_second_update(state: td3.State) -> None:
    for number in range(1, 5):
        after, metrics = UPDATE(state, STEPS, STEPS.paid, jax.random.key(number))
        assert after.updates == number
        loss = LOSS(state.actor, after.critics, STEPS.observation)
        np.testing.assert_allclose(metrics["actor_loss"], loss, rtol=1e-4)  # also while the actor waits
        assert np.any(after.critics.weights[0] != state.critics.weights[0])
        if number % 2 == 1:
            critics = {"critics": after.critics, "critic_optimiser": after.critic_optimiser}
            assert_equal(after, state._replace(updates=after.updates, **critics))
        else:
            stepped = LOSS(after.actor, after.critics, STEPS.observation)
            assert stepped < metrics["actor_loss"]
            for name in ("actor", "critics"):
                old, network = getattr(state, f"target_{name}"), getattr(after, name)
                expected = jax.tree.map(lambda t, n: 0.9 * t + 0.1 * n, old, network)
                assert_close(getattr(after, f"target_{name}"), expected, rtol=1e-4, atol=1e-7)
        state = after


def test_in_lanes_together_some_actors_wait_while_others_step(state: td3.State) -> None:
    """There both branches are computed and one is chosen."""
    states = [state, state._replace(updates=state.updates + 1)]
    keys = jax.random.split(jax.random.key(5), 2)
    lanes = jax.vmap(td3.make(CONFIG).update, in_axes=(0, None, None, 0))
    together = jax.jit(lanes)(stack(*states), STEPS, STEPS.paid, keys)
    for index in range(2):
        alone = UPDATE(states[index], STEPS, STEPS.paid, keys[index])
        assert_close(lane(together, index), alone)
        assert np.any(alone[0].actor.weights[0] != state.actor.weights[0]) == (index == 1)


# --- Acting


def test_workers_get_the_size_of_the_noise(state: td3.State) -> None:
    still = td3.make(td3.Config(hidden=(8, 8), exploration_noise=0.0))
    lively = td3.make(td3.Config(hidden=(8, 8), exploration_noise=0.5))
    mask, observation = np.ones(3, np.float32), np.zeros(3, np.float32)
    explored = []
    for backbone in (still, lively):
        actor = {"mask": mask} | {name: np.asarray(array) for name, array in backbone.actor(state).items()}
        rng = np.random.default_rng(0)
        actions = [acting.act(actor, backbone.head, observation, rng) for _ in range(500)]
        explored.append(np.stack(actions))
    np.testing.assert_array_equal(explored[0], explored[0][:1].repeat(500, axis=0))
    np.testing.assert_allclose(explored[1].std(axis=0), 0.5, atol=0.1)


# --- Tasks with a known optimum


def test_the_policy_finds_the_best_action_of_a_bandit() -> None:
    backbone = td3.make(td3.Config(hidden=(16, 16), batch_size=64, learning_rate=5e-3))
    state = train(backbone, bandit(), updates=600)
    best = backbone.act(state, jnp.ones(1), jax.random.key(0), False)
    np.testing.assert_allclose(best, [BEST_ACTION], atol=0.1)


def test_critics_learn_analytic_values() -> None:
    config = td3.Config(hidden=(16, 16), batch_size=60, learning_rate=5e-3, discount=0.6, polyak=0.1)
    state = train(td3.make(config), chain(), updates=600)
    values = actor_critic.values(state.critics, PLACES, jnp.asarray([[0.5], [-0.5], [0.0]]))
    np.testing.assert_allclose(values, [chain_values(0.6)] * 2, atol=0.1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden": (8, 0)}, r"backbone.hidden=\(8, 0\) must be at least 1 each"),
        ({"discount": 1.0}, r"backbone.discount=1.0 must be in \[0, 1\)"),
        ({"exploration_noise": -0.1}, "backbone.exploration_noise=-0.1 must not be negative"),
        ({"smoothing_noise": -0.1}, "backbone.smoothing_noise=-0.1 must not be negative"),
        ({"smoothing_clip": -0.1}, "backbone.smoothing_clip=-0.1 must not be negative"),
        ({"actor_every": 0}, "backbone.actor_every=0 must be at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        td3.Config(**change)
