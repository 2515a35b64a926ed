"""Logged episodes of environments with a known graph, for the identification tests."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS, Graph, Spec
from apportion.envs.make import EnvConfig, make

Log = tuple[list[NDArray[Any]], list[NDArray[Any]], NDArray[np.float64]]


def collect(config: EnvConfig, episodes: int, seed: int = 0) -> tuple[Spec, Log]:
    """Random actions, half of the episodes with a bias of their own: observations, actions, totals."""
    env, spec = make(config)
    rng = np.random.default_rng(seed)
    all_observations, all_actions, totals = [], [], []
    for episode in range(episodes):
        observation, _ = env.reset(seed=1000 * seed + episode)
        observations, actions, total, ended = [observation], [], 0.0, False
        bias = rng.uniform(-0.6, 0.6, spec.action_size) * (episode % 2)
        while not ended:
            action = np.clip(bias + rng.uniform(-1, 1, spec.action_size), -1, 1).astype(np.float32)
            observation, paid, terminated, truncated, _ = env.step(action)
            observations.append(observation)
            actions.append(action)
            total += float(paid)
            ended = terminated or truncated
        all_observations.append(np.array(observations))
        all_actions.append(np.array(actions))
        totals.append(total)
    return spec, (all_observations, all_actions, np.array(totals))


def same(found: Graph, true: Graph | None) -> bool:
    """Whether every block has exactly the true edges."""
    assert true is not None
    return all(np.array_equal(getattr(found, name), getattr(true, name)) for name in BLOCKS)
