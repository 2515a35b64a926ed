"""An environment that fails in chosen episodes; workers find it as `faulty_envs:Faulty-v0`."""

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from apportion.envs.lane import _EPISODES, _EPISODES_AGAIN, _EVALUATION, _EVALUATION_AGAIN, _seed

STEPS = 5  # of an episode, unless a time limit is set


def _fail(how: str) -> None:
    match how:
        case "raises":
            raise RuntimeError("the motor is hot")
        case "leaves":
            raise SystemExit(3)
        case "dies":
            os._exit(7)
        case "hangs":
            time.sleep(1e9)
        case "writes":  # to whatever is open, its worker's answers among it
            for descriptor in range(3, 30):
                with contextlib.suppress(OSError):
                    os.write(descriptor, b"hello, world, this is not for you")
        case "forks":  # and its copy comes back from step(), too
            child = os.fork()
            if child:
                os.waitpid(child, 0)
        case "spins":  # in C, without letting any other thread of Python run
            re.match(r"(a+)+$", "a" * 60 + "b")


class Faulty(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """Two numbers that wander. In episodes that begin from one of `seeds`, the third step fails."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, how: str = "", seeds: tuple[int, ...] = (), at: int = 3, mark: str = "") -> None:
        self.how = how
        self.mark = mark  # a file that appears just before it fails
        self.seeds = set(seeds)
        self.at = at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.fails = seed in self.seeds
        self.steps = 0
        self.place = self.np_random.normal(size=2).astype(np.float32)
        if self.fails and self.at == 0:
            _fail(self.how)
        return self.place, {}

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.place = np.tanh(self.place + action + self.np_random.normal(size=2)).astype(np.float32)
        reward = float(self.place[0])
        if self.fails and self.steps == self.at:
            if self.mark:
                Path(self.mark).touch()
            _fail(self.how)
            if self.how == "nonsense":
                self.place = np.array([np.nan, 0], np.float32)
            if self.how == "pays":
                reward = 1e6
        return self.place, reward, False, False, {}


def episode_seed(lane_seed: int, episode: int, restarts: int = 0) -> int:
    """What a training episode begins from."""
    again = (_EPISODES_AGAIN, restarts) if restarts else (_EPISODES,)
    return _seed(lane_seed, *again, episode)


def evaluation_seed(lane_seed: int, stage: int, number: int, failed: int = 0) -> int:
    """What an evaluation episode begins from."""
    again = (_EVALUATION_AGAIN, failed) if failed else (_EVALUATION,)
    return _seed(lane_seed, *again, stage, number)


if "Faulty-v0" not in gymnasium.registry:
    gymnasium.register("Faulty-v0", entry_point=Faulty, max_episode_steps=STEPS)
