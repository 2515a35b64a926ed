"""RewardModelWrapper: a learned reward inside `step`."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import apportion
from apportion.core.config import UserError
from apportion.envs.delayed import DelayedReward

pytestmark = pytest.mark.slow

SMALL = {"hidden": (8,), "learning_rate": 1e-2}


def make(method: str = "rd", **more: Any) -> apportion.RewardModelWrapper:
    env = DelayedReward(gymnasium.make("apportion/Greenhouse-v0", max_episode_steps=10))
    settings = SMALL if method == "rd" else {}
    more = {"first_episodes": 2, "replay_steps": 400, "batch_size": 8} | more
    return apportion.RewardModelWrapper(env, method, settings=settings, **more)


def play(env: Any, episodes: int) -> list[list[tuple[float, dict[str, Any]]]]:
    env.action_space.seed(0)
    played = []
    for number in range(episodes):
        env.reset(seed=number)
        steps, ended = [], False
        while not ended:
            _, reward, terminated, truncated, info = env.step(env.action_space.sample())
            steps.append((reward, info))
            ended = terminated or truncated
        played.append(steps)
    return played


def test_it_learns_what_episodes_are_paid_and_pays_the_first_as_they_are() -> None:
    first, second, third, *_, last = play(make(updates_per_step=20), 20)
    for episode in (first, second):
        assert [reward for reward, _ in episode] == [info["paid"] for _, info in episode]
    assert third[0][0] != 0
    rewards, infos = zip(*last, strict=True)
    assert all(rewards), "every step earns something, though the environment pays at the end alone"
    assert [info["paid"] for info in infos[:-1]] == [0] * 9
    true = [info["true_reward"] for info in infos]
    assert abs(sum(rewards) - sum(true)) < 0.5 * abs(sum(true)) + 1


def test_actions_beyond_the_bounds_count_as_the_bounds() -> None:
    found = []
    for beyond in (0.0, 50.0):
        env = make()
        play(env, 2)
        env.reset(seed=5)
        found.append(env.step(env.action_space.high + np.float32(beyond))[1])
        assert env._unfinished.steps[-1]["actions"].max() <= 1
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:The environment .* is not")
def test_stable_baselines_and_gymnasium_accept_it() -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(make())


@pytest.mark.parametrize("method", ["transformer", "ircr", "observed"])
def test_methods_that_need_the_whole_segment_are_refused(method: str) -> None:
    with pytest.raises(UserError, match=r"inside step\(\) use grd, rd or rrd"):
        make(method)


class Counts(gymnasium.Env[Any, Any]):
    """Four steps that count themselves, in the same array each time; pays 1 a step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    max_episode_steps = 4

    def __init__(self) -> None:
        self.seen = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.seen[:] = 0
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.seen += 1
        return self.seen, 1.0, False, bool(self.seen[0] == 4), {}


def test_a_limit_must_be_known_and_may_be_declared_as_for_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrapped(Counts()).learner.spec.max_episode_steps == 4
    monkeypatch.setattr(Counts, "max_episode_steps", None)
    with pytest.raises(UserError, match="give max_episode_steps"):
        wrapped(Counts())


def wrapped(env: Any) -> apportion.RewardModelWrapper:
    return apportion.RewardModelWrapper(env, "rd", settings=SMALL, replay_steps=100)


def test_an_environment_may_write_into_the_same_array_and_what_was_left_is_no_part_of_the_next() -> None:
    env = wrapped(DelayedReward(Counts()))
    play(env, 1)
    assert env.learner.replay.segment_length[0, 0] == 4
    np.testing.assert_array_equal(env.learner.replay.observation[:, :5, 0], [[0, 1, 2, 3, 4]])
    env = wrapped(DelayedReward(Counts()))
    env.reset()
    for _ in range(3):
        env.step(np.zeros(1, np.float32))
    play(env, 1)
    assert env.learner.replay.segment_length[0, :2].tolist() == [4, 0]
