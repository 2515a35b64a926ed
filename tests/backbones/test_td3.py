"""TD3 and DDPG: targets and delayed steps equal their formulas."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import deterministic as td3
from apportion.backbones.deterministic import State, smoothed_action
from apportion.nn.networks import MLP
from builders import SPEC, assert_close, assert_equal, lane, numpy, stack, transitions
from probes import plain_outputs, plain_values

SMALL: Any = {"hidden": (8, 8), "batch_size": 6, "discount": 0.9, "polyak": 0.1, "learning_rate": 1e-2}
STEPS = transitions(1, 6)


class Kind(NamedTuple):
    """TD3, or DDPG, which is TD3 with one critic, no smoothing and no delay."""

    make: Any
    config: Any
    critics: int
    actor_every: int
    smoothing: float


KINDS = {"td3": Kind(td3.make, td3.Config, 2, 2, 0.2), "ddpg": Kind(td3.make_ddpg, td3.DDPGConfig, 1, 1, 0.0)}
TD3 = KINDS["td3"]
EITHER = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


@cache
def updating(kind: Kind) -> Any:
    return jax.jit(kind.make(kind.config(**SMALL)).update)


@cache
def start(kind: Kind) -> State:
    """Networks and targets differ, as they do after the first updates."""
    fresh: State = jax.jit(lambda key: kind.make(kind.config(**SMALL)).init(key, SPEC))(jax.random.key(0))
    targets = (fresh.target_actor, fresh.target_critics)
    target_actor, target_critics = jax.tree.map(lambda weight: 0.5 * weight, targets)
    return fresh._replace(target_actor=target_actor, target_critics=target_critics)


def _constant_actor(output: float) -> MLP:
    return MLP(weights=[jnp.zeros((3, 2))], biases=[jnp.full(2, output)])


# --- Target smoothing


def test_smoothing_is_clipped_noise_around_the_target_action() -> None:
    actor, observation = _constant_actor(0.0), jnp.zeros((4000, 3))
    found = smoothed_action(actor, observation, jax.random.key(1), 0.2, 0.5)
    assert np.std(found) == pytest.approx(0.2, abs=0.01)
    assert np.max(np.abs(found)) == pytest.approx(0.5)  # 2.5 standard deviations: some of 8000 reach it
    narrow = smoothed_action(actor, observation, jax.random.key(1), 0.2, 0.05)
    np.testing.assert_allclose(narrow, np.clip(found, -0.05, 0.05))  # the same noise, cut sooner


# --- Steps


@EITHER
def test_critics_step_towards_the_smaller_target_value(kind: Kind) -> None:
    key, state = jax.random.key(4), start(kind)
    after, metrics = updating(kind)(state, STEPS, STEPS.paid, key)

    plain = numpy(STEPS)
    action = np.tanh(plain_outputs(numpy(state.target_actor), plain.next_observation))
    noise = np.clip(kind.smoothing * numpy(jax.random.normal(key, action.shape)), -0.5, 0.5)
    next_action = np.clip(action + noise, -1, 1)
    next_values = plain_values(numpy(state.target_critics), plain.next_observation, next_action).min(axis=0)
    target = plain.paid + 0.9 * np.where(plain.terminated, 0, next_values)
    values = plain_values(numpy(state.critics), plain.observation, plain.action)
    assert len(values) == kind.critics
    loss = ((values - target) ** 2).mean(axis=1).sum()
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], values.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["reward_mean"], plain.paid.mean(), rtol=1e-4)
    assert plain.terminated.any() and not plain.terminated.all()  # noqa: PT018 - the batch has both

    values = plain_values(numpy(after.critics), plain.observation, plain.action)
    assert ((values - target) ** 2).mean(axis=1).sum() < loss


def _actor_loss(actor: Any, critics: Any) -> Any:
    """-Q(s, tanh(actor(s))) by the first critic, in NumPy."""
    seen = numpy(STEPS.observation)
    return -plain_values(numpy(critics), seen, np.tanh(plain_outputs(numpy(actor), seen)))[0].mean()


@EITHER
def test_the_actor_climbs_the_critic_and_targets_follow_every_so_many_updates(kind: Kind) -> None:
    state = start(kind)
    for number in range(1, 2 * kind.actor_every + 1):
        after, metrics = updating(kind)(state, STEPS, STEPS.paid, jax.random.key(number))
        assert after.updates == number
        # Also while the actor waits.
        np.testing.assert_allclose(
            metrics["actor_loss"], _actor_loss(state.actor, after.critics), rtol=1e-4, atol=1e-6
        )
        assert np.any(after.critics.weights[0] != state.critics.weights[0])
        if number % kind.actor_every:
            critics = {"critics": after.critics, "critic_optimiser": after.critic_optimiser}
            assert_equal(after, state._replace(updates=after.updates, **critics))
        else:
            assert _actor_loss(after.actor, after.critics) < metrics["actor_loss"]
            for name in ("actor", "critics"):
                old, network = getattr(state, f"target_{name}"), getattr(after, name)
                expected = jax.tree.map(lambda t, n: 0.9 * t + 0.1 * n, old, network)
                assert_close(getattr(after, f"target_{name}"), expected, rtol=1e-4, atol=1e-7)
        state = after


def test_in_lanes_together_some_actors_wait_while_others_step() -> None:
    """There both branches are computed and one is chosen."""
    state, update = start(TD3), updating(TD3)
    states = [state, state._replace(updates=state.updates + 1)]
    keys = jax.random.split(jax.random.key(5), 2)
    together = jax.jit(jax.vmap(update, in_axes=(0, None, None, 0)))(stack(*states), STEPS, STEPS.paid, keys)
    for index in range(2):
        alone = update(states[index], STEPS, STEPS.paid, keys[index])
        assert_close(lane(together, index), alone)
        assert np.any(alone[0].actor.weights[0] != state.actor.weights[0]) == (index == 1)
