"""A table and a figure of the runs that record.py has written down: returns and correlations over seeds.

    python benchmarks/curves.py results/main-h200.json --at 100000 300000 --plot main.svg

Interquartile means (or means) over seeds with 95% bootstrap intervals. Where a task was played by `grd` and
by others on the same backbone, each of these has the difference too: grd's less theirs, seeds of both sides
drawn anew.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from apportion.backbones import BACKBONES
from apportion.core.config import to_dict
from apportion.report import drawing
from apportion.report.statistics import Interval, Statistic, band, difference, interval, iqm, mean
from apportion.runs.folder import read_json
from apportion.training.settings import Schedule

OURS = "grd"
MOST_COLUMNS = 4  # panels beside each other in a figure


@dataclass(frozen=True)
class Curves:
    """Print a table of recorded runs, as Markdown."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files that record.py wrote."""
    at: tuple[int, ...]
    """Steps to show; a run that did not come so far has a dash there."""
    centre: Literal["iqm", "mean"] = "iqm"
    """What stands for all seeds: their interquartile mean, or their mean."""
    plot: Path | None = None
    """Also draw the returns of each task into this file."""


class Run(NamedTuple):
    task: str
    label: str
    ours: str  # the label of grd with the same settings of all else
    steps: NDArray[np.int64]  # [K]
    returns: NDArray[np.float64]  # [K, L]
    correlation: NDArray[np.float64]  # [K, L]


def main(args: Curves) -> None:
    runs = [as_run(data) for file in args.files for data in read_json(file)["runs"]]
    print("\n".join(table(runs, args.at, mean if args.centre == "mean" else iqm)))
    if args.plot is not None:
        draw(runs, args.plot)


def as_run(data: dict[str, Any]) -> Run:
    curves = data["curves"]
    return Run(
        task=data["config"]["env"]["id"],
        label=", ".join([variant(data["config"]), *unlike_others(data["config"])]),
        ours=", ".join([OURS, *unlike_others(data["config"])]),
        steps=np.array(data["steps"]),
        returns=np.array(curves["return"], float),
        correlation=np.array(curves["reward_correlation"], float),
    )


def variant(config: dict[str, Any]) -> str:
    """The method, and in which of its settings a run was unlike others of that method."""
    method = config["method"]
    parts = [method["name"]]
    if method["name"] == OURS and method["structure"] == "gradient":
        parts.append("published")
    elif method["name"] == OURS and not method["base"]:
        parts.append("no additive reward")
    if method["name"] == OURS and method.get("compact") == "none":
        parts.append("without compact state")
    return ", ".join(parts)


def unlike_others(config: dict[str, Any]) -> list[str]:
    """Settings of anything but the method that are not the usual ones. Old runs lack some, and had those."""
    backbone, schedule = config["backbone"], config["schedule"]
    usual = json.loads(json.dumps(to_dict(BACKBONES[backbone["name"]].config())))
    parts = [] if backbone["name"] == "sac" else [backbone["name"]]
    parts += [
        f"{name.replace('_', ' ')} {value}"
        for name, value in backbone.items()
        if name in usual and value != usual[name]
    ]
    if not config.get("normalise", True):
        parts.append("raw observations")
    if config["env"]["delay"] == "none":
        parts.append("learning at once")
    if not schedule.get("overlap", True):
        parts.append("newest policy acts")
    if (steps := schedule["steps_per_iteration"]) != Schedule().steps_per_iteration:
        parts.append(f"{steps} steps an iteration")
    return parts


# --- Table


def table(runs: list[Run], moments: tuple[int, ...], centre: Statistic = iqm) -> list[str]:
    last = max(moments)
    heads = [f"{name} at {step:,}" for step in moments for name in ("return", "correlation")]
    lines = [
        f"| task | method | {' | '.join(heads)} | `grd` less this at {last:,} |",
        f"|---|---|{'---:|' * (len(heads) + 1)}",
    ]
    for run in runs:
        cells = [
            cell(values, at_step(run, step), form, centre)
            for step in moments
            for values, form in ((run.returns, ",.0f"), (run.correlation, ".3f"))
        ]
        ours = next((each for each in runs if (each.task, each.label) == (run.task, run.ours)), None)
        cells.append("-" if ours is None or run is ours else _difference(ours, run, last, centre))
        lines.append(f"| {run.task} | `{run.label}` | {' | '.join(cells)} |")
    return lines


def cell(values: NDArray[np.float64], row: int | None, form: str, centre: Statistic) -> str:
    return "-" if row is None else formatted(interval(values[row], centre), form)


def at_step(run: Run, step: int) -> int | None:
    found = np.flatnonzero(run.steps == step)
    return int(found[0]) if found.size else None


def formatted(found: Interval, form: str) -> str:
    return f"{found.centre:{form}} [{found.low:{form}}, {found.high:{form}}]"


def _difference(ours: Run, other: Run, step: int, centre: Statistic) -> str:
    rows = at_step(ours, step), at_step(other, step)
    if rows[0] is None or rows[1] is None:
        return "-"
    return formatted(difference(ours.returns[rows[0]], other.returns[rows[1]], centre), "+,.0f")


# --- Figure


def draw(runs: list[Run], path: Path) -> None:
    """One panel for each task: means over seeds and their 95% intervals."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    labels = list(dict.fromkeys(run.label for run in runs))
    colours = dict(zip(labels, drawing.COLOURS, strict=False))
    with drawing.drawing():
        columns = min(len(tasks), MOST_COLUMNS)
        rows = -(-len(tasks) // columns)
        figure = drawing.new_figure(3.2 * columns, 2.8 * rows)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel in panels[len(tasks) :]:
            panel.set_axis_off()
        for panel, task in zip(panels, tasks, strict=False):
            for run in (run for run in runs if run.task == task):
                found, x = band(run.returns, mean), run.steps / 1000
                drawing.draw_band(panel, x, found, colours[run.label], run.label)
            panel.set(title=task, xlabel="thousand steps")
            lines, names = panel.get_legend_handles_labels()
            fresh = [(line, name) for line, name in zip(lines, names, strict=True) if name in labels]
            if fresh:  # each name once, where it is first seen
                panel.legend(*zip(*fresh, strict=True), fontsize=7)
                labels = [label for label in labels if label not in names]
        panels[0].set_ylabel("return")
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.save(figure, path)


if __name__ == "__main__":
    main(tyro.cli(Curves))
