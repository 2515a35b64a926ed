"""End to end: real trainings with the default settings, timed once they have begun to learn."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax

from apportion.bench import peers, timing
from apportion.training.settings import Config

# Iterations from one wait to the next. Where they are short, waiting for the end of each would keep the next
# one from beginning meanwhile, as it does in a training.
TOGETHER = {"gpu": 20, "tpu": 20}


def table(
    env_ids: tuple[str, ...], lanes: tuple[int, ...], seconds: float, report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """One row for each task, method and number of lanes."""
    for env_id in env_ids:
        ours = peers.our_config(env_id)
        for name, config in {
            "grd": ours,
            "oracle": replace(ours, method="oracle", method_config=None),
        }.items():
            for count in lanes:
                report(f"training: {env_id}, {name}, {count} lanes")
                yield measure(replace(config, lanes=count), seconds)


def measure(config: Config, seconds: float) -> dict[str, Any]:
    """An iteration is the schedule's steps and updates in every lane; both overlap as in a training."""
    schedule = config.schedule
    together = TOGETHER.get(jax.default_backend(), 1)
    with peers.our_training(config) as steps:
        taken = timing.repeated(lambda: steps(together * schedule.steps_per_iteration), seconds, least=2)
    second = timing.median(taken) / together
    return {
        "env": config.env.id,
        "method": config.method,
        "lanes": config.lanes,
        "iterations_per_second": 1 / second,
        "lane_steps_per_second": config.lanes * schedule.steps_per_iteration / second,
        "lane_updates_per_second": config.lanes * schedule.updates_per_iteration / second,
    }
