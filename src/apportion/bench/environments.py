"""Environment throughput: steps per second of all lanes together, acting with a policy of the usual size."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from apportion.bench import timing
from apportion.envs.make import EnvConfig
from apportion.envs.wire import Arrays
from apportion.envs.workers import Pool
from apportion.training import loop as train
from apportion.training.settings import Config

TASKS = ("HalfCheetah-v4", "Ant-v4", "Humanoid-v4")


def table(
    lanes: tuple[int, ...], steps: int, seconds: float, report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """One row for each task and number of lanes, with as many workers as a training would have."""
    for env_id in TASKS:
        for count in lanes:
            report(f"environment: {env_id}, {count} lanes")
            yield measure(Config(EnvConfig(env_id), method="oracle", lanes=count), steps, seconds)


def measure(config: Config, steps: int, seconds: float) -> dict[str, Any]:
    """Chunks of `steps` steps per lane, one after the other, with nobody learning meanwhile."""
    with train.open_pool(config) as pool:
        run = _collector(pool, _actors(config, pool), steps)
        run()
        taken = timing.repeated(run, seconds)
    return {
        "env": config.env.id,
        "lanes": config.lanes,
        "workers": len(pool.groups),
        "steps_per_second": steps * config.lanes / timing.median(taken),
    }


def _actors(config: Config, pool: Pool) -> Arrays:
    agent, _ = train.start(config, pool.spec)
    actors = train._compile(config, pool.spec).actor(agent)
    return {name: np.asarray(array) for name, array in actors.items()}


def _collector(pool: Pool, actors: Arrays, steps: int) -> Callable[[], None]:
    iteration = 0

    def run() -> None:
        nonlocal iteration
        pool.start_chunk(actors, steps, iteration)
        pool.finish_chunk()
        iteration += 1

    return run
