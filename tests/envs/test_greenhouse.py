"""The demo task: its graph is true, control pays, and harvests alone reveal the reward of each step."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from known_graphs import mean_return
from numpy.typing import NDArray

from apportion.envs.greenhouse import OBSERVATION_NAMES, Greenhouse

STEPS = 40

BEST_CONSTANT = np.array([0.41, 0.73, -0.55])  # heater, valve, shade

# What the expert adds to each action (heater, valve, shade) per unit of a gauge.
EXPERT_GAINS = {
    "temperature": (-1.1, 0.5, 0.0),
    "moisture": (0.0, -1.5, 0.0),
    "light": (-0.2, 0.0, 0.6),
    "leaf mass": (0.0, 0.4, 0.0),
    "outside temperature": (-0.7, 0.0, 0.0),
    "sunlight": (0.0, 0.0, 1.2),
}
EXPERT_CONSTANT = np.array([0.78, 0.65, -0.62])


def expert_action(observation: NDArray[Any]) -> NDArray[Any]:
    """A hand-tuned controller: the level that a learner should come near."""
    gains = np.array([EXPERT_GAINS.get(name, (0.0, 0.0, 0.0)) for name in OBSERVATION_NAMES])
    return np.clip(observation @ gains + EXPERT_CONSTANT, -1.0, 1.0)


def test_the_graph_tells_the_story() -> None:
    graph = Greenhouse.true_graph
    assert graph.state_to_reward.tolist() == [True] * 5 + [False] * 5  # gauges that decide growth come first
    assert graph.action_to_reward.tolist() == [True, False, False]
    current = OBSERVATION_NAMES.index("heater current")
    assert graph.action_to_state[0, current]
    assert graph.state_to_state[current].sum() == 1  # it drives nothing but itself


def test_episodes_are_truncated_after_forty_steps() -> None:
    env = gymnasium.make("apportion/Greenhouse-v0")
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[2:4] for _ in range(STEPS)]
    assert ends == [(False, False)] * (STEPS - 1) + [(False, True)]


def test_rollouts_follow_the_declared_reward_at_a_sensible_scale() -> None:
    env = Greenhouse()
    observations, actions, rewards = rollouts(env, range(20))
    declared = [env.true_reward(*pair) for pair in zip(observations[0], actions[0], strict=True)]
    np.testing.assert_array_equal(rewards[0], declared)
    assert np.abs(observations).max() < 2
    assert observations.std(axis=(0, 1)).min() > 0.3
    assert np.quantile(np.abs(rewards), 0.9) < 1.5


def test_expert_beats_constant_beats_random() -> None:
    env = Greenhouse()
    random = mean_return(env, lambda _, rng: rng.uniform(-1, 1, 3), range(60), STEPS)
    constant = mean_return(env, lambda *_: BEST_CONSTANT, range(60), STEPS)
    expert = mean_return(env, lambda observation, _: expert_action(observation), range(60), STEPS)
    assert random == pytest.approx(6, abs=4)
    assert constant == pytest.approx(20.3, abs=3)
    assert expert == pytest.approx(33.1, abs=1)


def test_harvests_alone_reveal_the_reward_of_each_step() -> None:
    """Ridge regression of 600 harvests on summed features; the features then predict single steps."""
    env = Greenhouse()
    observations, actions, rewards = rollouts(env, range(600))
    features, harvests = polynomial(observations, actions).sum(axis=1), rewards.sum(axis=1)
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scaled = (features - centre) / scale
    penalty = np.eye(scaled.shape[1])
    weights = np.linalg.solve(scaled.T @ scaled + penalty, scaled.T @ (harvests - harvests.mean())) / scale
    observations, actions, rewards = rollouts(env, range(1000, 1100))
    predicted = polynomial(observations, actions) @ weights
    assert np.corrcoef(predicted.ravel(), rewards.ravel())[0, 1] > 0.98


def polynomial(observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """All first and second powers: x, x², and pairs."""
    inputs = np.concatenate([observations, actions], axis=-1)
    first, second = np.triu_indices(inputs.shape[-1])
    return np.concatenate([inputs, inputs[..., first] * inputs[..., second]], axis=-1)


def rollouts(env: Greenhouse, seeds: range) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Observations, actions and rewards; every other episode leans towards an action of its own."""
    observations, actions, rewards = np.zeros((len(seeds), STEPS, 10)), np.zeros((len(seeds), STEPS, 3)), []
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng([seed, 2])
        plan = rng.uniform(-1, 1, (STEPS, 3))
        if row % 2:
            plan = np.clip(plan[0] + 0.4 * rng.standard_normal((STEPS, 3)), -1, 1)
        observation, _ = env.reset(seed=seed)
        for step, action in enumerate(plan):
            observations[row, step], actions[row, step] = observation, action
            observation, reward, *_ = env.step(action)
            rewards.append(reward)
    return observations, actions, np.reshape(rewards, (len(seeds), STEPS))
