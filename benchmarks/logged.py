"""Hidden rewards from logged outcomes: fit and relabel a table, and correlate each step with the truth.

Three rewards of 5 states and 2 actions: additive, with an interaction, and with thresholds.

    python benchmarks/logged.py
    python benchmarks/logged.py --unit 1e-5
    python benchmarks/logged.py --level 100
"""

import csv
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

import apportion

REWARDS = {
    "additive": lambda s, a: s[:, 0] - 0.5 * s[:, 1] ** 2 + 0.1 * a[:, 1],
    "interaction": lambda s, a: s[:, 0] * s[:, 1] + 0.5 * s[:, 2],
    "threshold": lambda s, a: 2.0 * (s[:, 0] > 0.5) + 1.0 * (a[:, 0] > 7),
}


@dataclass(frozen=True)
class Logged:
    """Which logs to fit."""

    episodes: int = 600
    """Episodes in each, of 5 to 30 steps."""
    method: str = "grd"
    """What is fitted."""
    seed: int = 0
    """Of the logs, and of the fits."""
    unit: float = 1.0
    """What outcomes are multiplied with."""
    level: float = 0.0
    """What is added to each outcome, which no step has earned."""


def main(flags: Logged) -> None:
    for name in REWARDS:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            data, new = Path(folder) / "log.csv", Path(folder) / "new.csv"
            hidden = write_log(data, name, flags)
            run = apportion.fit(data, flags.method, seed=flags.seed, out=Path(folder) / "run", quiet=True)
            apportion.relabel(run, data, new)
            with new.open() as file:
                found = [float(row["reward"]) for row in csv.DictReader(file)]
            facts, seconds = run.summary(), time.monotonic() - began
            correlation, steps = np.corrcoef(found, hidden)[0, 1], facts["status"]["step"]
            [missed] = facts["data"]["unexplained"]
            print(f"{name}: correlation {correlation:.4f}, {missed:.1%} of outcomes' variance unexplained,")
            print(f"  {steps:,} updates, {seconds:.0f} s")


def write_log(path: Path, name: str, flags: Logged) -> NDArray[Any]:
    """A table with outcomes only; returns the reward of each row."""
    rng, hidden = np.random.default_rng(flags.seed), []
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["episode", "step", *(f"s_{i}" for i in range(5)), "a_0", "a_1", "outcome"])
        for episode in range(flags.episodes):
            length = int(rng.integers(5, 31))
            states, actions = np.zeros((length, 5)), rng.uniform(0, 10, (length, 2))
            states[0] = rng.normal(size=5)
            for step in range(1, length):
                states[step] = 0.7 * states[step - 1] + 0.7 * rng.normal(size=5)
                states[step, 1] += 0.05 * (actions[step - 1, 0] - 5)
            reward = REWARDS[name](states, actions)
            hidden.append(reward)
            outcome = float(flags.unit * reward.sum() + flags.level)
            for step, row in enumerate(np.hstack([states, actions]).tolist()):
                writer.writerow([episode, step, *row, outcome])
    return np.concatenate(hidden)


if __name__ == "__main__":
    main(tyro.cli(Logged))
