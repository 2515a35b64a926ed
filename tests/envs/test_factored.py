"""Synthetic tasks: the declared graph is the true one, and acting well pays."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from known_graphs import effects, mean_return

from apportion.core.config import UserError
from apportion.core.spec import BLOCKS
from apportion.envs.factored import Factored
from apportion.envs.greenhouse import Greenhouse

VARIANTS: list[dict[str, Any]] = [
    {},
    {"reward": "nonlinear", "dead": 3, "problem": 1},
    {"state_size": 1, "action_size": 1, "density": 0.0},
    {"state_size": 12, "action_size": 4, "density": 1.0, "reward": "nonlinear"},
    {"state_size": 20, "action_size": 3, "density": 0.1, "dead": 5, "problem": 7},
]


@pytest.mark.parametrize("env", [*(Factored(**each) for each in VARIANTS), Greenhouse()], ids=str)
def test_every_edge_has_an_effect_and_every_other_pair_exactly_none(env: Any) -> None:
    measured = effects(env)
    for block in BLOCKS:
        edges, effect = getattr(env.true_graph, block), getattr(measured, block)
        assert edges.dtype == bool
        assert np.all(effect[edges] > 0.01), block
        assert np.all(effect[~edges] == 0), block


def test_reward_has_a_state_parent_and_can_be_steered() -> None:
    graphs = [Factored(density=0.05, dead=2, problem=problem).true_graph for problem in range(20)]
    for graph in graphs:
        assert graph.state_to_reward.any()
        assert graph.action_to_state[:, graph.state_to_reward].any(axis=0).all()
        assert (graph.action_to_state.any(axis=1) | graph.action_to_reward).all()
    assert len({graph.state_to_state.tobytes() for graph in graphs}) > 15  # each problem has its own


TASKS = ["Greenhouse", "KeyDoor", "KeyDoorLottery", "Factored"]


@pytest.mark.parametrize(
    ("name", "arguments"), [*((name, {}) for name in TASKS), *(("Factored", each) for each in VARIANTS[1:])]
)
def test_gymnasiums_checker_is_content(name: str, arguments: dict[str, Any]) -> None:
    mode = {"render_mode": "rgb_array"} if name == "Greenhouse" else {}
    env = gymnasium.make(f"apportion/{name}-v0", **arguments, **mode).unwrapped
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*render", UserWarning)  # of modes that we do not have
        check_env(env, skip_render_check=name != "Greenhouse")


def test_rollouts_follow_the_declared_reward_and_stay_bounded() -> None:
    env = Factored(reward="nonlinear", noise=0.5, dead=1, episode_steps=300)
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    constant = observation[-1]
    for step in range(300):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        before = observation
        observation, reward, terminated, truncated, _ = env.step(action)
        assert reward == env.true_reward(before, action)
        assert np.abs(observation).max() <= 1
        assert abs(reward) <= 1
        assert observation[-1] == constant
        assert (terminated, truncated) == (False, step == 299)


@pytest.mark.parametrize("reward", ["linear", "nonlinear"])
@pytest.mark.parametrize("problem", range(3))
def test_a_good_policy_clearly_beats_a_random_one(problem: int, reward: Any) -> None:
    env = Factored(problem=problem, reward=reward)
    rng = np.random.default_rng(problem)

    def feedback(gains: Any) -> Any:
        return lambda observation, _: np.clip(observation @ gains[1:] + gains[0], -1, 1)

    candidates = [feedback(rng.standard_normal((9, 2))) for _ in range(40)]
    best = max(candidates, key=lambda policy: mean_return(env, policy, range(2), 40))
    random = mean_return(env, lambda _, rng: rng.uniform(-1, 1, 2), range(100, 130), 40)
    assert mean_return(env, best, range(100, 120), 40) > random + 2.5  # of at most 40


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"state_size": 0}, "state_size must be at least 1"),
        ({"action_size": 0}, "action_size must be at least 1"),
        ({"density": 1.5}, "between 0 and 1"),
        ({"reward": "cubic"}, '"linear" or "nonlinear"'),
        ({"noise": -1.0}, "not be negative"),
        ({"dead": 8}, "choose 0 to state_size - 1"),
        ({"episode_steps": 0}, "episode_steps must be at least 1"),
    ],
)
def test_senseless_arguments_are_refused(arguments: dict[str, Any], fix: str) -> None:
    with pytest.raises(UserError, match=fix):
        Factored(**arguments)
