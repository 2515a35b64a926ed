"""How far do contributions depend on the steps that they are compared with, and do their error bars say so?

    python benchmarks/background.py --out results/background.json

Logs of a few hundred episodes, most of them short, in units of their own: a reward of some dimensions, with
products of two and three of them. GRD is fitted to each, and explained with several backgrounds drawn from
the log. What a large one says is taken for the truth.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

import apportion
from apportion.runs.atomic import write_json
from apportion.runs.explain import Explanation, Precision, Steps
from apportion.runs.explaining import Explainer
from apportion.runs.folder import versions

BEFORE = Precision(background=64, exact_up_to=8, rounds=2)
LARGE = Precision(background=2048, exact_up_to=1, rounds=2)
ACTIONS = 2


@dataclass(frozen=True)
class Background:
    """Explain fitted rewards with several backgrounds."""

    out: Path
    """JSON file to write."""
    logs: int = 6
    """How many."""
    draws: int = 6
    """Backgrounds of each log."""
    steps: int = 80
    """Steps of each log that are explained."""
    seed: int = 93_001
    """Of the logs."""


def main(args: Background) -> None:
    rows = []
    for number in range(args.logs):
        rng = np.random.default_rng([args.seed, number])
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "log.npz"
            np.savez(data, **draw(rng))
            run = apportion.fit(data, out=Path(folder) / "run", quiet=True)
            rows.append(measure(run, data, args, rng))
        print(rows[-1], flush=True)
    write_json(args.out, {"seed": args.seed, "versions": versions(), "logs": rows})


def draw(rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """A log as flat arrays: episodes differ by what is usual in them, and pay a sum with noise."""
    states, episodes = int(rng.integers(4, 9)), int(rng.integers(300, 700))
    units, weights = 10.0 ** rng.uniform(-3, 3, states), rng.uniform(0.4, 1.0, 3)
    single, pair, triple = (
        rng.choice(states, 2),
        rng.choice(states, 2, replace=False),
        rng.permutation(states)[:3],
    )
    seen, acted, paid, ends = [], [], [], []
    for _ in range(episodes):
        steps = int(rng.choice([1, 2, 3, 5, 8, 13, 21, 34]))
        x = rng.normal(0, 0.5, states) + rng.normal(0, 0.9, (steps, states))
        a = rng.uniform(-1, 1, (steps, ACTIONS))
        reward = np.tanh(x[:, single]).sum(axis=1) - 0.3 * a[:, 0] ** 2
        reward += weights[0] * x[:, pair].prod(axis=1) + weights[1] * x[:, triple].prod(axis=1)
        total = reward.sum() + 0.2 * np.sqrt(steps) * rng.normal()
        last = np.arange(steps) == steps - 1
        for column, values in zip(
            (seen, acted, paid, ends), (x * units, a, np.where(last, total, 0.0), last), strict=True
        ):
            column.append(values)
    return {
        "observations": np.concatenate(seen).astype(np.float32),
        "actions": np.concatenate(acted).astype(np.float32),
        "rewards": np.concatenate(paid).astype(np.float32),
        "terminals": np.zeros(sum(map(len, ends)), bool),
        "timeouts": np.concatenate(ends),
    }


def measure(run: apportion.Run, data: Path, args: Background, rng: np.random.Generator) -> dict[str, Any]:
    """Errors of contributions, and what their error bars say, as shares of the size of contributions."""
    with np.load(data) as log:
        x, a = log["observations"], log["actions"]
        inside = np.flatnonzero(~log["timeouts"])  # a step's successor is the next row
    explainer = Explainer(run.folder, Precision())

    def some(count: int) -> Steps:
        places = rng.choice(inside, min(count, len(inside)), replace=False)
        return Steps(x[places], a[places], x[places + 1])

    steps = some(args.steps)

    def explained(precision: Precision) -> tuple[Explanation, float]:
        explainer.precision = precision
        explainer.background[0] = some(precision.steps_behind())
        began = time.perf_counter()
        return explainer.explain(0, steps), time.perf_counter() - began

    truth = explained(LARGE)[0].contributions
    size = np.sqrt(np.mean(truth**2))
    found: dict[str, Any] = {"steps in the log": len(x), "players": 0}
    for name, precision in (("before", BEFORE), ("now", Precision())):
        draws = [explained(precision) for _ in range(args.draws)]
        errors = [np.sqrt(np.mean((each.contributions - truth) ** 2)) for each, _ in draws]
        told = [np.sqrt(np.mean(each.standard_errors**2)) for each, _ in draws]
        means = [
            np.sqrt(np.mean((each.contributions.mean(axis=0) - truth.mean(axis=0)) ** 2)) for each, _ in draws
        ]
        told_of_means = [np.sqrt(np.mean(each.mean_errors**2)) for each, _ in draws]
        found["players"] = int(draws[0][0].players.sum())
        found[name] = {
            "error": float(np.mean(errors) / size),
            "told": float(np.mean(told) / size),
            "error of the mean": float(np.mean(means) / size),
            "told of the mean": float(np.mean(told_of_means) / size),
            "seconds": float(np.median([seconds for _, seconds in draws])),
        }
    return found


if __name__ == "__main__":
    main(tyro.cli(Background))
