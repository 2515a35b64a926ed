"""A comparison as one figure: a panel of learning curves for each task, then all tasks together."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.report import drawing
from apportion.report.comparison.reading import Curve
from apportion.report.comparison.results import Comparison
from apportion.report.drawing import shortened
from apportion.report.statistics import Band, band, iqm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 4
OURS = "grd"


def check_file(path: Path) -> None:
    """Complain of a figure that cannot be written, before any work."""
    endings = ", ".join(f".{each}" for each in drawing.FORMATS)
    check(path.suffix[1:] in drawing.FORMATS, f"no figure as {path.name!r}: let its name end in {endings}")
    drawing.need_matplotlib()


def draw_comparison(found: Comparison, path: Path) -> Path:
    """Curves of every task; where several tasks have a scale, their scores and profiles; who beats whom."""
    check_file(path)
    together = [_scores, _profiles] if found.scaled else []
    together += [_improvements] if found.common and len(found.labels) > 1 else []
    panels = len(found.tasks) + len(together)
    columns = min(COLUMNS, panels)
    lines = -(-panels // columns)
    with drawing.drawing():
        figure = drawing.new_figure(4.0 * columns, 3.0 * lines)
        places = list(figure.subplots(lines, columns, squeeze=False).ravel())
        for axes, task in zip(places, found.tasks, strict=False):
            _curves(axes, found, task)
        for axes, draw in zip(places[len(found.tasks) :], together, strict=False):
            draw(axes, found, found.aggregate)
        for axes in places[panels:]:
            axes.set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        return drawing.save(figure, path)


def _curves(axes: "Axes", found: Comparison, task: str) -> None:
    """Interquartile means over the seeds that have a number, with 95% bands; a line at the compared step."""
    for label in found.on(task):
        curves = [curve for curve in found.curves if (curve.task, curve.label) == (task, label)]
        steps, values = _together(curves, found.metric)
        marker = "o" if len(steps) == 1 else None
        name = f"{shortened(label)} (n={len(curves)})"
        drawing.draw_band(axes, steps, band(values, iqm), _colour(found, label), name, marker)
    if found.steps[task] < max(curve.steps[-1] for curve in found.curves if curve.task == task):
        axes.axvline(found.steps[task], color="grey", linewidth=0.8, linestyle=":")
    axes.set_title(shortened(task, 40))
    axes.set_xlabel("environment steps")
    axes.set_ylabel("success rate" if found.metric == "success" else "return")
    axes.legend(fontsize=7)


def _together(curves: list[Curve], metric: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All steps [K] of some seeds, and their values then [K, L]; NaN where one has none."""
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    values = np.full((len(steps), len(curves)), np.nan)
    for lane, curve in enumerate(curves):
        values[np.searchsorted(steps, curve.steps), lane] = curve.scores[metric]
    return steps, values


def _scores(axes: "Axes", found: Comparison, data: dict[str, Any]) -> None:
    """Interquartile means over tasks and seeds."""
    _bars(axes, found, [(label, each["iqm"], each["interval"]) for label, each in data["methods"].items()])
    axes.set_title(f"IQM, {len(found.scaled)} task(s)")
    axes.set_xlabel("success rate" if found.metric == "success" else "0 random actions, 1 oracle")


def _profiles(axes: "Axes", found: Comparison, data: dict[str, Any]) -> None:
    for label in found.labels:
        told = data["methods"][label]["profile"]
        thresholds, *curve = (np.array(told[name], float) for name in ("thresholds", "share", "low", "high"))
        drawing.draw_band(axes, thresholds, Band(*curve), _colour(found, label), shortened(label))
    axes.set_title("Performance profile")
    axes.set_xlabel("score")
    axes.set_ylabel("share of runs above it")
    axes.set_ylim(-0.02, 1.02)


def _improvements(axes: "Axes", found: Comparison, data: dict[str, Any]) -> None:
    """How probably the first method, or GRD where it is there, beats each of the others."""
    ours = OURS if OURS in found.labels else found.labels[0]
    chances = data["methods"][ours]["improvement_over"]
    _bars(axes, found, [(other, each["probability"], each["interval"]) for other, each in chances.items()])
    axes.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlim(-0.02, 1.02)
    axes.set_title(f"Probability that {shortened(ours)} beats it")


def _bars(axes: "Axes", found: Comparison, rows: list[tuple[str, float | None, list[float | None]]]) -> None:
    """A dot for each method, with its interval, from top to bottom."""
    for place, (label, centre, bounds) in enumerate(rows):
        colour = _colour(found, label)
        axes.plot(np.array(bounds, float), [place, place], color=colour, linewidth=4, alpha=0.4)
        axes.plot(np.array([centre], float), [place], color=colour, marker="o")
    axes.set_yticks(range(len(rows)), [shortened(label) for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _colour(found: Comparison, label: str) -> str:
    return drawing.colour(found.labels.index(label))
