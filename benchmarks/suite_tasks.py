"""The suite: fifteen own tasks as strangers would bring them, each in raw units and scaled by hand.

    apportion train suite_tasks:Battery-v0          in the folder of this file
    apportion train suite_tasks:BatteryScaled-v0

Five may be looked at while methods are worked on; five were held out, and have been looked at since; five are
unseen, and judge at the end.
`python benchmarks/suite_tasks.py` measures `LEVELS` anew.
"""

from typing import NamedTuple

import gymnasium
import numpy as np

from lib import suite_development, suite_held_out, suite_unseen
from lib.suite_base import Task

DEVELOPMENT = ("Battery", "Reactor", "Courier", "Office", "Pump")
HELD_OUT = ("Antenna", "Fishery", "Kiln", "HeatPump", "Crane")
UNSEEN = ("BloodBank", "Harvester", "ServerFarm", "SewageWorks", "Desalination")
MODULES = {
    **dict.fromkeys(DEVELOPMENT, suite_development),
    **dict.fromkeys(HELD_OUT, suite_held_out),
    **dict.fromkeys(UNSEEN, suite_unseen),
}
TASKS = tuple(MODULES)
EPISODES = 300  # behind each level


class Level(NamedTuple):
    """Mean returns of two policies that do not learn."""

    random: float
    rule: float


LEVELS = {
    "Battery": Level(random=-108.2, rule=123.3),
    "Reactor": Level(random=-23.9, rule=153.4),
    "Courier": Level(random=-84.5, rule=38.4),
    "Office": Level(random=-163.2, rule=100.1),
    "Pump": Level(random=-19.2, rule=67.9),
    "Antenna": Level(random=-19.9, rule=708.9),
    "Fishery": Level(random=106.7, rule=170.4),
    "Kiln": Level(random=-10.7, rule=66.7),
    "HeatPump": Level(random=11.9, rule=48.8),
    "Crane": Level(random=-70.0, rule=91.0),
    "BloodBank": Level(random=-83.0, rule=101.4),
    "Harvester": Level(random=44.8, rule=173.7),
    "ServerFarm": Level(random=-145.3, rule=189.3),
    "SewageWorks": Level(random=2.6, rule=107.5),
    "Desalination": Level(random=18.8, rule=202.0),
}


def task_class(name: str) -> type[Task]:
    """The class of a task."""
    kind: type[Task] = getattr(MODULES[name], name)
    return kind


def env_id(name: str, scaled: bool) -> str:
    """A task's id in Gymnasium."""
    return f"{name}{'Scaled' if scaled else ''}-v0"


def play(name: str, scaled: bool, by_rule: bool, episodes: int) -> list[float]:
    """Returns of the hand rule, or of uniformly random actions, from seeds 0, 1, ..."""
    env = gymnasium.make(env_id(name, scaled), disable_env_checker=True)
    task = env.unwrapped
    assert isinstance(task, Task)
    env.action_space.seed(0)
    returns = []
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action = task.rule_action(observation) if by_rule else env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


for _name in TASKS:
    for _scaled in (False, True):
        gymnasium.register(
            env_id(_name, _scaled),
            entry_point=task_class(_name),
            max_episode_steps=task_class(_name).steps,
            kwargs={"scaled": _scaled},
        )


if __name__ == "__main__":
    for _name in TASKS:
        _level = Level(*(float(np.mean(play(_name, True, by_rule, EPISODES))) for by_rule in (False, True)))
        print(f'    "{_name}": Level(random={_level.random:.1f}, rule={_level.rule:.1f}),')
