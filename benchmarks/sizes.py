"""What does one search for the graph cost? Seconds of one core and memory, for sizes of real tasks.

    python benchmarks/sizes.py --out results/identification-sizes.json

Each size runs in a process of its own, with one thread for linear algebra.
"""

import multiprocessing
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apportion.graph import identify
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions

Rows = NDArray[np.float32]

# States, actions, steps per episode, episodes.
SIZES = {
    "Greenhouse, 150 episodes": (10, 3, 40, 150),
    "HalfCheetah, 150 episodes": (17, 6, 1000, 150),
    "20 states, 5,000 episodes": (20, 4, 50, 5000),
    "Ant, 150 episodes": (111, 8, 1000, 150),
    "Humanoid, 150 episodes": (376, 17, 1000, 150),
    "Humanoid, 1,000 episodes": (376, 17, 100, 1000),
}


@dataclass(frozen=True)
class Sizes:
    """Measure `identify` on made-up data of several sizes."""

    out: Path
    """JSON file to write."""


def main(args: Sizes) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when the child imports NumPy
    rows = {}
    for name, size in SIZES.items():
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context) as pool:
            rows[name] = pool.submit(measure, *size).result()
    write_json(
        args.out, {"config": {**asdict(args), "out": str(args.out)}, "versions": versions(), "rows": rows}
    )
    table = Table(title="One search for the graph", title_justify="left")
    for column in ("size", "CPU seconds", "data MB", "more MB at the peak"):
        table.add_column(column, justify="left" if column == "size" else "right")
    for name, row in rows.items():
        table.add_row(name, f"{row['cpu_seconds']:.1f}", f"{row['data_mb']:.0f}", f"{row['peak_mb']:.0f}")
    Console().print(table)


def drawn(
    states: int, actions: int, steps: int, episodes: int, seed: int = 0
) -> tuple[list[Rows], list[Rows], NDArray[np.float64]]:
    """States that remember and are pushed by actions; two of them and one action earn the reward.
    Observations and actions of each episode, and what it was paid."""
    rng = np.random.default_rng(seed)
    observations, acted = [], []
    push = rng.normal(size=(actions, states)) / np.sqrt(actions)
    for _ in range(episodes):
        moves = rng.uniform(-1, 1, (steps, actions)).astype(np.float32)
        pushed = moves @ push + 0.3 * rng.normal(size=(steps, states))
        path = np.zeros((steps + 1, states), np.float32)
        for t in range(steps):
            path[t + 1] = 0.8 * path[t] + pushed[t]
        observations.append(path)
        acted.append(moves)
    pairs = zip(observations, acted, strict=True)
    totals = [np.sum(np.abs(o[:-1, 0]) + o[:-1, 1] - a[:, 0] ** 2) for o, a in pairs]
    return observations, acted, np.array(totals)


def measure(states: int, actions: int, steps: int, episodes: int) -> dict[str, float]:
    observations, acted, totals = drawn(states, actions, steps, episodes)
    before, start = _peak_mb(), time.process_time()
    result = identify(observations, acted, totals)
    seconds = time.process_time() - start
    parents = [*np.flatnonzero(result.graph.state_to_reward), *np.flatnonzero(result.graph.action_to_reward)]
    assert parents == [0, 1, 0], parents
    data = sum(array.nbytes for array in (*observations, *acted)) / 1e6
    return {"cpu_seconds": seconds, "data_mb": data, "peak_mb": _peak_mb() - before}


def _peak_mb() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(tyro.cli(Sizes))
