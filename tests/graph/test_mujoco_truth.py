"""MuJoCo's graphs are dense, but some dimensions never move: those must not get an edge."""

import numpy as np
import pytest
from greenhouse_log import collect

from apportion.envs.make import EnvConfig
from apportion.graph import identify
from apportion.graph.features import Scale


@pytest.mark.parametrize(
    ("task", "dead", "episodes", "steps"),
    [("Reacher-v4", [10], 40, 50), ("Ant-v4", list(range(27, 111)), 15, 40)],
)
def test_dead_dimensions_have_no_edges(task: str, dead: list[int], episodes: int, steps: int) -> None:
    spec, (observations, actions, totals) = collect(EnvConfig(task, max_episode_steps=steps), episodes)
    graph = identify(observations, actions, totals).graph
    still = np.isin(np.arange(spec.observation_size), dead)
    assert not graph.state_to_reward[still].any()
    assert not graph.state_to_state[still].any()
    assert not graph.state_to_state[:, still].any()
    assert not graph.action_to_state[:, still].any()
    assert graph.state_to_state[~still].any()


def test_the_dead_dimensions_of_humanoid_are_not_searched() -> None:
    spec, (observations, _, _) = collect(EnvConfig("Humanoid-v4", max_episode_steps=10), 3)
    live = Scale.over(observations).live
    assert spec.observation_size == 376
    assert not live[-84:].any()
    assert live[:45].all()
