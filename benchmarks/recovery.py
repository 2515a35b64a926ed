"""Does training find the reward's exact parents? GRD in closed form on drawn tasks whose graph is known.

    python benchmarks/recovery.py --out results/factored-recovery.json

Each row is one task of apportion/Factored-v0 with as many seeds; beside it the oracle, for the return.
"""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from apportion.bench import drawn
from apportion.cli.output import remember_compilations
from apportion.runs import recording
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, versions
from apportion.runs.recording import Checkpoints
from apportion.runs.summary import summarise


@dataclass(frozen=True)
class Recovery:
    """Train GRD and the oracle on drawn tasks and compare the graphs found with the true ones."""

    out: Path
    """JSON file to write."""
    problems: int = 3
    """Drawn tasks."""
    seeds: int = 5
    """Seeds per task."""
    steps: int = drawn.STEPS
    """Environment steps per seed."""
    reward: str = "nonlinear"
    """Kind of reward: linear or nonlinear."""


def main(args: Recovery) -> None:
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for problem in range(args.problems):
            runs = {
                method: recording.train(
                    drawn.training(problem, method, args.seeds, args.steps, args.reward),
                    Checkpoints(),
                    Path(folder) / f"{problem}-{method}",
                    quiet=True,
                ).run
                for method in ("grd", "oracle")
            }
            rows[str(problem)] = scores(runs)
    write_json(
        args.out, {"config": {**asdict(args), "out": str(args.out)}, "versions": versions(), "rows": rows}
    )
    table = Table(title="Reward parents found exactly, and return beside the oracle's", title_justify="left")
    for column in ("task", "exact", "return", "oracle's", "reward correlation"):
        table.add_column(column)
    for problem, row in rows.items():
        returns = [f"{np.median(row[name]):.2f}" for name in ("return", "oracle_return")]
        exact = f"{sum(row['exact'])} of {args.seeds}"
        table.add_row(problem, exact, *returns, f"{row['reward_correlation']:.3f}")
    Console().print(table)


def scores(runs: dict[str, RunFolder]) -> dict[str, Any]:
    grd, oracle = (summarise(runs[method]) for method in ("grd", "oracle"))
    return {
        "exact": exact_parents(runs["grd"]),
        "structure": grd["structure"],
        "return": grd["final_return"],
        "oracle_return": oracle["final_return"],
        "reward_correlation": grd["reward_correlation"],
    }


def exact_parents(run: RunFolder) -> list[bool]:
    """For each seed: are the reward's parents exactly the true ones at the end?"""
    truth = run.read_spec().true_graph
    assert truth is not None
    edges = run.read_edges()[1]
    blocks = ("state_to_reward", "action_to_reward")
    last = {name: np.asarray(edges[name][-1]) >= 0.5 for name in blocks}
    lanes = range(len(last["state_to_reward"]))
    return [all(np.array_equal(last[n][lane], getattr(truth, n)) for n in blocks) for lane in lanes]


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(Recovery))
