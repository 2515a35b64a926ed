"""DQN: targets, steps and exploration equal their formulas; tiny tasks with a known optimum are solved."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import dqn
from apportion.core.types import Transitions
from builders import BUTTONS, assert_close, lane, numpy, transitions
from probes import PLACES, TINY, chain, chain_values, plain_outputs, train

CONFIG = dqn.Config(hidden=(8, 8), batch_size=6, discount=0.9, polyak=0.1, learning_rate=1e-2)
STEPS = transitions(1, 6, BUTTONS)
TWO_BUTTONS = replace(TINY, action_names=("first", "second"), discrete=True)


@pytest.fixture(scope="module")
def state() -> dqn.State:
    """Targets differ from the networks, also in which action they like best."""
    fresh = jax.jit(lambda key: dqn.make(CONFIG).init(key, BUTTONS))(jax.random.key(0))
    return fresh._replace(target_networks=jax.tree.map(lambda weight: -0.5 * weight, fresh.networks))


@pytest.fixture(scope="module")
def updated(state: dqn.State) -> tuple[dqn.State, Any]:
    return jax.jit(dqn.make(CONFIG).update)(state, STEPS, STEPS.paid, jax.random.key(4))


def _plain_values(networks: Any, observation: np.ndarray) -> list[np.ndarray]:
    """What each of the two says of every action."""
    return [plain_outputs(numpy(lane(networks, j)), observation) for j in range(2)]


def _plain_target(state: dqn.State, steps: Any) -> np.ndarray:
    """r + γ min Q'(s', argmax Q_1(s')), step by step; r alone after a true end."""
    chosen = _plain_values(state.networks, steps.next_observation)[0]
    judged = _plain_values(state.target_networks, steps.next_observation)
    target = []
    for i in range(len(steps.paid)):
        best = 0 if chosen[i, 0] > chosen[i, 1] else 1
        target.append(
            steps.paid[i]
            + (0.0 if steps.terminated[i] else 0.9 * min(judged[0][i, best], judged[1][i, best]))
        )
    return np.array(target)


def test_both_networks_step_towards_the_double_target_and_targets_follow_by_the_polyak_step(
    state: dqn.State, updated: tuple[dqn.State, Any]
) -> None:
    after, metrics = updated
    plain = numpy(STEPS)
    target, taken = _plain_target(state, plain), plain.action.argmax(axis=1)
    values = [found[np.arange(6), taken] for found in _plain_values(state.networks, plain.observation)]
    loss = sum(((found - target) ** 2).mean() for found in values)
    np.testing.assert_allclose(metrics["critic_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], np.mean(values), rtol=1e-4)
    np.testing.assert_allclose(metrics["reward_mean"], plain.paid.mean(), rtol=1e-4)
    assert plain.terminated.any() and not plain.terminated.all()  # noqa: PT018 - the batch has both
    assert set(taken) == {0, 1}

    values = [found[np.arange(6), taken] for found in _plain_values(after.networks, plain.observation)]
    assert sum(((found - target) ** 2).mean() for found in values) < loss
    after, _ = updated
    expected = jax.tree.map(lambda t, n: 0.9 * t + 0.1 * n, state.target_networks, after.networks)
    assert_close(after.target_networks, expected, rtol=1e-4, atol=1e-7)


# --- Exploration


@pytest.mark.parametrize(("updates", "share"), [(0, 0.9), (50, 0.5), (100, 0.1), (10**6, 0.1)])
def test_the_share_of_random_actions_falls_along_a_line(updates: int, share: float) -> None:
    config = dqn.Config(initial_epsilon=0.9, final_epsilon=0.1, exploration_updates=100)
    assert float(dqn.epsilon(jnp.asarray(updates), config)) == pytest.approx(share, abs=1e-6)


# --- Tasks with a known optimum


def _with_buttons(steps: Transitions) -> Transitions:
    """Whatever the continuous probe had for an action, now one of two buttons at random."""
    pressed = np.random.default_rng(0).integers(2, size=len(steps.paid))
    return steps._replace(action=jax.nn.one_hot(pressed, 2, dtype=jnp.float32))


def test_the_values_are_those_known() -> None:
    """Ends, time limits and steps on the way, whatever the action."""
    config = dqn.Config(hidden=(16, 16), batch_size=60, learning_rate=5e-3, discount=0.6, polyak=0.05)
    state = train(dqn.make(config), _with_buttons(chain()), updates=600, spec=TWO_BUTTONS)
    expected = np.array(chain_values(0.6))[:, None]
    for j in range(2):
        np.testing.assert_allclose(lane(state.networks, j)(PLACES), np.repeat(expected, 2, axis=1), atol=0.1)
