"""Which methods see through the lottery of KeyDoorLottery? Fresh episodes of finished runs, in one table.

    apportion train apportion/KeyDoorLottery-v0 --method rudder --seeds 5 --out runs/lottery/rudder
    python benchmarks/lottery.py --runs runs/lottery --out results/key-door-lottery-shares.json

What policies earn is given without the lottery, whose luck would hide it. Of the lottery itself: how much the
learned reward rises with each unit that it pays, in the two steps at which the second coin comes and is seen,
and summed over the episode. Who explains nothing has 0 in both. A method that makes sums exact by sharing out
what it did not foresee always has 1 in the sum, and 2/40 in the two steps as long as it foresees nothing.
Medians over seeds, with 95% bootstrap intervals.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apportion.cli.output import remember_compilations
from apportion.envs.key_door import COINS_AT, STAKE
from apportion.envs.wire import Arrays
from apportion.runs.atomic import write_json
from apportion.runs.evaluation import EvaluationSettings, evaluate_run
from apportion.runs.folder import RunFolder, versions
from methods import cell, interval


@dataclass(frozen=True)
class Lottery:
    """Play fresh episodes with the policies of finished runs: do learned rewards follow the lottery?"""

    out: Path
    """JSON file to write."""
    runs: Path
    """Where the run folders are, each named after its method."""
    episodes: int = 200
    """Episodes for each seed."""


def main(args: Lottery) -> None:
    methods = {path.name: scores(path, args.episodes) for path in sorted(args.runs.iterdir())}
    rows = {name: {score: interval(lanes) for score, lanes in each.items()} for name, each in methods.items()}
    command = f"python benchmarks/lottery.py --runs {args.runs} --episodes {args.episodes} --out {args.out}"
    write_json(args.out, {"command": command, "versions": versions(), "rows": rows, "lanes": methods})
    printed = Table("method", *next(iter(rows.values())))
    for name, row in rows.items():
        printed.add_row(name, *("-" if each is None else cell(*each) for each in row.values()))
    Console().print(printed)


def scores(path: Path, episodes: int) -> dict[str, list[float]]:
    """Of one run: a list over seeds for each score."""
    found = evaluate_run(RunFolder.open(path), EvaluationSettings(episodes))
    lanes = [of_seed(lane) for lane in found.episodes]
    return {name: [lane[name] for lane in lanes] for name in lanes[0]}


def of_seed(episodes: list[Arrays]) -> dict[str, float]:
    true = np.stack([each["true_rewards"] for each in episodes])
    learned = np.stack([each["redistributed"] for each in episodes])
    won = STAKE * np.array([each["observations"][list(COINS_AT), -1].prod() for each in episodes])
    second = COINS_AT[1]
    return {
        "door opened": float(np.mean([each["success"] for each in episodes])),
        "return without lottery": float(np.mean(true.sum(axis=1) - won)),
        "lottery at the second coin": slope(learned[:, second - 1 : second + 1].sum(axis=1), won),
        "lottery in the sum": slope(learned.sum(axis=1), won),
    }


def slope(learned: NDArray[np.float32], won: NDArray[np.float32]) -> float:
    """Of the line by least squares through the learned rewards over what the lottery paid."""
    return float(np.polyfit(won, learned, 1)[0])


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(Lottery))
