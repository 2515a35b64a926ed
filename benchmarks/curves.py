"""A table and a figure of the runs that record.py has written down: returns and correlations over seeds.

    python benchmarks/curves.py results/mujoco-h200.json --at 100000 300000 --plot docs/images/mujoco-h200.svg

Interquartile means over seeds with 95% bootstrap intervals. Where a task was played by `grd` and by others,
each of these has the difference too: grd's interquartile mean less theirs, seeds of both sides drawn anew.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from apportion.report import drawing
from apportion.report.statistics import Interval, band, difference, interval, iqm, mean
from apportion.runs.folder import read_json

OURS = "grd"
USUAL_DISCOUNT = 0.99


@dataclass(frozen=True)
class Curves:
    """Print a table of recorded runs, as Markdown."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files that record.py wrote."""
    at: tuple[int, ...]
    """Steps to show; a run that did not come so far has a dash there."""
    plot: Path | None = None
    """Also draw the returns of each task into this file."""


class Run(NamedTuple):
    task: str
    label: str
    steps: NDArray[np.int64]  # [K]
    returns: NDArray[np.float64]  # [K, L]
    correlation: NDArray[np.float64]  # [K, L]


def main(args: Curves) -> None:
    runs = [as_run(data) for file in args.files for data in read_json(file)["runs"]]
    print("\n".join(table(runs, args.at)))
    if args.plot is not None:
        draw(runs, args.plot)


def as_run(data: dict[str, Any]) -> Run:
    curves = data["curves"]
    return Run(
        task=data["config"]["env"]["id"],
        label=", ".join(described(data["config"])),
        steps=np.array(data["steps"]),
        returns=np.array(curves["return"], float),
        correlation=np.array(curves["reward_correlation"], float),
    )


def described(config: dict[str, Any]) -> list[str]:
    """The method, and in which of its settings a run was unlike others of that method."""
    method, discount = config["method"], config["backbone"]["discount"]
    parts = [method["name"]]
    if method["name"] == OURS and method["structure"] == "gradient":
        parts.append("published")
    elif method["name"] == OURS and not method["base"]:
        parts.append("no additive reward")
    if share := config.get("imagine", {}).get("share"):
        parts.append(f"{share:.0%} imagined")
    if discount != USUAL_DISCOUNT:
        parts.append(f"discount {discount}")
    return parts


# --- Table


def table(runs: list[Run], moments: tuple[int, ...]) -> list[str]:
    last = max(moments)
    heads = [f"{name} at {step:,}" for step in moments for name in ("return", "correlation")]
    lines = [
        f"| task | method | {' | '.join(heads)} | `grd` less this at {last:,} |",
        f"|---|---|{'---:|' * (len(heads) + 1)}",
    ]
    for run in runs:
        cells = [cell for step in moments for cell in (_returns(run, step), _correlation(run, step))]
        ours = next((each for each in runs if (each.task, each.label) == (run.task, OURS)), None)
        cells.append("-" if ours is None or run is ours else _difference(ours, run, last))
        lines.append(f"| {run.task} | `{run.label}` | {' | '.join(cells)} |")
    return lines


def _returns(run: Run, step: int) -> str:
    return "-" if (row := _at(run, step)) is None else _formatted(interval(run.returns[row], iqm), ",.0f")


def _correlation(run: Run, step: int) -> str:
    return "-" if (row := _at(run, step)) is None else _formatted(interval(run.correlation[row], iqm), ".3f")


def _at(run: Run, step: int) -> int | None:
    found = np.flatnonzero(run.steps == step)
    return int(found[0]) if found.size else None


def _formatted(found: Interval, form: str) -> str:
    return f"{found.centre:{form}} [{found.low:{form}}, {found.high:{form}}]"


def _difference(ours: Run, other: Run, step: int) -> str:
    rows = _at(ours, step), _at(other, step)
    if rows[0] is None or rows[1] is None:
        return "-"
    return _formatted(difference(ours.returns[rows[0]], other.returns[rows[1]], iqm), "+,.0f")


# --- Figure


def draw(runs: list[Run], path: Path) -> None:
    """One panel for each task: means over seeds and their 95% intervals."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    labels = list(dict.fromkeys(run.label for run in runs))
    colours = dict(zip(labels, drawing.COLOURS, strict=False))
    with drawing.drawing():
        figure = drawing.new_figure(3.2 * len(tasks), 2.8)
        panels = figure.subplots(1, len(tasks), squeeze=False)[0]
        for panel, task in zip(panels, tasks, strict=True):
            for run in (run for run in runs if run.task == task):
                found, x = band(run.returns, mean), run.steps / 1000
                drawing.draw_band(panel, x, found, colours[run.label], run.label)
            panel.set(title=task, xlabel="thousand steps")
        panels[0].set_ylabel("return")
        panels[0].legend(fontsize=7)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.save(figure, path)


if __name__ == "__main__":
    main(tyro.cli(Curves))
