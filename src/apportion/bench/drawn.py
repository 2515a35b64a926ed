"""Trainings on tasks that are drawn at random, and whose graph is known."""

import json
from dataclasses import replace

from apportion.training.presets import GREENHOUSE, preset
from apportion.training.settings import Config

TASK = "apportion/Factored-v0"
STEPS = 48_000


def training(problem: int, method: str, seeds: int, steps: int = STEPS, reward: str = "nonlinear") -> Config:
    """The small networks of the Greenhouse, on the task with this number."""
    config = preset(GREENHOUSE, method, "sac")
    drawn = {"problem": problem, "reward": reward, "state_size": 10, "action_size": 3, "dead": 1}
    env = replace(config.env, id=TASK, kwargs=json.dumps(drawn))
    return replace(config, env=env, lanes=seeds, schedule=replace(config.schedule, steps=steps))
