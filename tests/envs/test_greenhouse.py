"""The demo task: control pays. That its graph is the true one stands in test_factored.py and test_docs.py."""

from typing import Any

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


def test_rollouts_follow_the_declared_reward_at_a_sensible_scale() -> None:
    env = Greenhouse()
    rng, observations, rewards = np.random.default_rng(0), [], []
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        for action in rng.uniform(-1, 1, (STEPS, 3)):
            observations.append(observation)
            observation, reward, *ends, _ = env.step(action)
            assert reward == env.true_reward(observations[-1].astype(np.float64), action)
            assert ends == [False, False]  # they end by their time limit alone
            rewards.append(reward)
    assert np.abs(observations).max() < 2
    assert np.std(observations, axis=0).min() > 0.3
    assert np.quantile(np.abs(rewards), 0.9) < 1.5


def test_expert_beats_constant_beats_random() -> None:
    env = Greenhouse()
    random = mean_return(env, lambda _, rng: rng.uniform(-1, 1, 3), range(60), STEPS)
    constant = mean_return(env, lambda *_: BEST_CONSTANT, range(60), STEPS)
    expert = mean_return(env, lambda observation, _: expert_action(observation), range(60), STEPS)
    assert random == pytest.approx(6, abs=4)
    assert constant == pytest.approx(20.3, abs=3)
    assert expert == pytest.approx(33.1, abs=1)
