"""The suite: ten own tasks as strangers would bring them, each in raw units and scaled by hand.

    apportion train suite_tasks:Crane-v0          in the folder of this file
    apportion train suite_tasks:CraneScaled-v0

Five may be looked at while methods are worked on; five are unseen, and judge at the end.
`python benchmarks/suite_tasks.py` measures `RANDOM` anew.
"""

import gymnasium
import numpy as np

from lib import suite_seen, suite_unseen
from lib.suite_base import Task

EPISODES = 300  # behind each number below
# Mean returns of random actions.
RANDOM = {
    "Antenna": -19.9,
    "Fishery": 106.7,
    "Kiln": -10.7,
    "HeatPump": 11.9,
    "Crane": -70.0,
    "BloodBank": -83.0,
    "Harvester": 44.8,
    "ServerFarm": -145.3,
    "SewageWorks": 2.6,
    "Desalination": 18.8,
}
TASKS = tuple(RANDOM)


def task_class(name: str) -> type[Task]:
    """The class of a task."""
    kind: type[Task] = getattr(suite_seen if hasattr(suite_seen, name) else suite_unseen, name)
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
        print(f'    "{_name}": {np.mean(play(_name, scaled=True, by_rule=False, episodes=EPISODES)):.1f},')
