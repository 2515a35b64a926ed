"""Find out by perturbation which edges an environment really has."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import Graph


def effects(env: Any, points: int = 20, seed: int = 0) -> Graph:
    """The largest effect of each cause on each target, when it alone is changed at random points."""
    rng = np.random.default_rng(seed)
    states, actions = len(env.observation_names), len(env.action_names)
    to_reward, to_state = np.zeros(states + actions), np.zeros((states + actions, states))
    for _ in range(points):
        point, other = rng.uniform(-1.0, 1.0, (2, states + actions))
        disturbance = 0.1 * rng.standard_normal(states)
        reward, after = _outcome(env, point, disturbance)
        for cause in range(states + actions):
            changed = point.copy()
            changed[cause] = other[cause]
            new_reward, new_after = _outcome(env, changed, disturbance)
            to_reward[cause] = max(to_reward[cause], abs(new_reward - reward))
            to_state[cause] = np.maximum(to_state[cause], np.abs(new_after - after))
    return Graph(to_reward[:states], to_reward[states:], to_state[:states], to_state[states:])


def _outcome(env: Any, point: NDArray[Any], disturbance: NDArray[Any]) -> tuple[float, NDArray[Any]]:
    observation, action = np.split(point, [len(env.observation_names)])
    return env.true_reward(observation, action), env.transition(observation, action, disturbance)


def mean_return(env: Any, policy: Any, seeds: range, steps: int) -> float:
    """The policy sees the observation and a generator of its own."""
    total = 0.0
    for seed in seeds:
        rng = np.random.default_rng([seed, 1])
        observation, _ = env.reset(seed=seed)
        for _ in range(steps):
            observation, reward, *_ = env.step(policy(observation, rng))
            total += reward
    return total / len(seeds)
