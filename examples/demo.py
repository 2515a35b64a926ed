"""Who grew the tomatoes? Train GRD on the greenhouse, beside the delayed reward as it is and the true reward.

    python examples/demo.py --seeds 3

The harvest is weighed only at the end of an episode. `observed` learns from that weight alone, `oracle` from
the true reward of every step, and `grd` from rewards that it works out itself.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import apportion
from apportion.cli.compare import Report
from apportion.cli.display import Output, number, remember_compilations
from apportion.runs.folder import default_path
from apportion.training.presets import GREENHOUSE

METHODS = ("grd", "observed", "oracle")


@dataclass(frozen=True)
class Demo:
    """Train grd, observed and oracle on the greenhouse and compare them."""

    seeds: int = 3
    """Seeds per method."""
    steps: int | None = None
    """Environment steps per seed; the task's own setting when not given."""
    out: Path | None = None
    """Folder for the three runs; runs/greenhouse-v0-demo-TIME when not given."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """No progress."""


def main(args: Demo) -> None:
    out = args.out or default_path(GREENHOUSE, "demo")
    console = Console()
    runs = {}
    for method in METHODS:
        if not args.quiet:
            console.print(f"Training [bold]{method}[/bold] on {GREENHOUSE}, {args.seeds} seed(s) ...")
        runs[method] = train(method, args, out / method)
    console.print(comparison(runs))
    console.print(edges(runs["grd"]))
    page = out / "report.html"
    Report(tuple(out / method for method in METHODS), out=page, output=Output(quiet=True))()
    console.print(f"Runs: {out}   (try: apportion explain {out / 'grd'})", soft_wrap=True)
    console.print(f"Who earned it? Open {page} in a browser.", soft_wrap=True)


def train(method: str, args: Demo, out: Path) -> dict[str, Any]:
    run = apportion.train(GREENHOUSE, method, steps=args.steps, seeds=args.seeds, out=out, quiet=args.quiet)
    return run.summary()


def comparison(runs: dict[str, dict[str, Any]]) -> Table:
    """Median over seeds of each method's last evaluation."""
    best = np.median(runs["oracle"]["final_return"])
    table = Table(title="Who learned to grow tomatoes? (median over seeds)", title_justify="left")
    for column in ("method", "harvest", "share of oracle's", "reward correlation"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, data in runs.items():
        harvest = np.median(data["final_return"])
        correlation = number(data["reward_correlation"])
        table.add_row(method, number(harvest), f"{harvest / best:.0%}", correlation)
    return table


def edges(data: dict[str, Any]) -> Table:
    """What GRD believes feeds the reward, beside the truth."""
    graph, truth = data["graph"], data["true_graph"]
    table = Table(title="Who grew them? Edges to the reward", title_justify="left")
    for column in ("dimension", "P(edge)", "found", "true"):
        table.add_column(column, justify="left" if column == "dimension" else "right")
    found = [*graph["state_to_reward"], *graph["action_to_reward"]]
    true = [*truth["state_to_reward"], *truth["action_to_reward"]]
    names = [*data["observation_names"], *data["action_names"]]
    for name, probability, real in zip(names, found, true, strict=True):
        table.add_row(name, number(probability), "yes" if probability >= 0.5 else "", "yes" if real else "")
    scores = ", ".join(f"{block.replace('_to_', '→')} {f1:.2f}" for block, f1 in data["structure"].items())
    table.caption = f"F1 of all edges: {scores}"
    return table


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(Demo))
