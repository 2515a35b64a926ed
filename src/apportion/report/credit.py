"""The picture of `apportion explain`: what the agents are paid for, and one episode step by step."""

import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.report import drawing
from apportion.runs.learned import moment_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = 20  # dimensions shown, most important first
ENDINGS = (*drawing.FORMATS, "html")

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>body{{margin:1rem;background:#fff}}svg{{width:100%;height:auto}}</style>
</head><body>
{picture}
</body></html>
"""


def check_plot(path: Path) -> None:
    """Before the work begins: can this file be drawn?"""
    endings = ", ".join(f".{ending}" for ending in ENDINGS)
    check(path.suffix[1:] in ENDINGS, f"--plot {path}: the file's name must end in one of {endings}")
    check(path.parent.is_dir(), f"--plot {path}: there is no folder {path.parent}")
    drawing.need_matplotlib()


def plot_credit(data: dict[str, Any], path: Path) -> Path:
    """Draw what `explain_run` found into a file."""
    with drawing.drawing():
        return _saved(_draw(data), path, f"What {data['method']} pays for in {data['env']}")


def plot_kinds(data: dict[str, Any], path: Path) -> Path:
    """Draw what `credit_by` found into a file: bars with intervals."""
    rows = data["kinds"][:ROWS]
    with drawing.drawing():
        figure = drawing.new_figure(7, 1.4 + 0.3 * len(rows))
        axes = figure.subplots()
        middle, low, high = (_numbers(rows, key) for key in ("credit", "low", "high"))
        axes.barh(range(len(rows)), middle, xerr=[middle - low, high - middle], capsize=3)
        axes.set_yticks(range(len(rows)), [drawing.shortened(row["value"]) for row in rows])
        axes.invert_yaxis()
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_xlabel(
            "credit, in episodes of yes" if data["unit"] == "yes" else "credit, in the outcome's unit"
        )
        axes.set_title(drawing.shortened(f"Credit by {data['by']} of {Path(data['data']).name}", 80))
        return _saved(figure, path, f"Credit by {data['by']}")


def _saved(figure: "Figure", path: Path, title: str) -> Path:
    if path.suffix != ".html":
        return drawing.save(figure, path)
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None})
    svg = picture.getvalue()
    path.write_text(_PAGE.format(title=escape(title), picture=svg[svg.index("<svg") :]))
    return path


def _draw(data: dict[str, Any]) -> "Figure":
    rows = data["dimensions"][:ROWS]
    figure = drawing.new_figure(11, 1.8 + 0.24 * len(rows))
    bars, steps = figure.subplots(1, 2, width_ratios=(2, 3))
    _draw_bars(bars, rows, len(data["lanes"]))
    _draw_steps(steps, data, rows)
    figure.suptitle(drawing.shortened(f"{data['method']} on {data['env']}, {moment_in_words(data)}", 80))
    return figure


def _draw_bars(axes: "Axes", rows: list[dict[str, Any]], lanes: int) -> None:
    """Bars for the mean size of contributions, a dot for their mean with its error between lanes."""
    places = np.arange(len(rows))
    sizes, means, errors = (_numbers(rows, key) for key in ("mean_absolute", "mean", "between_lanes"))
    axes.barh(places, sizes, color=drawing.COLOURS[4], label="mean |contribution|")
    label = "mean contribution" + (f" ± s.e. of {lanes} seeds" if lanes > 1 else "")
    axes.errorbar(
        means, places, xerr=np.nan_to_num(errors), fmt="o", markersize=4, color="black", label=label
    )
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(places, [drawing.shortened(row["name"]) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)  # in line with the other panel
    axes.set_xlabel("learned reward per step")
    axes.set_title("What the agent is paid for")
    axes.legend(loc="lower right", fontsize=8)


def _draw_steps(axes: "Axes", data: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Contributions along the first explained episode, as colours."""
    lane = data["lanes"][0]
    episode = next(each for each in lane["episodes"] if each["steps"])
    values = np.array(episode["contributions"], np.float64)[:, [row["index"] for row in rows]]
    limit = np.nanmax(np.abs(values), initial=0) or 1.0
    image = axes.imshow(values.T, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="none")
    axes.set_yticks([])
    steps = episode["steps"]
    shown = np.unique(np.linspace(0, len(steps) - 1, min(6, len(steps))).astype(int))
    axes.set_xticks(shown, [str(steps[place]) for place in shown])
    axes.set_xlabel("step")
    axes.set_title(f"Contributions in one episode of seed {lane['seed']}")
    axes.figure.colorbar(image, ax=axes, label="contribution", pad=0.01)


def _numbers(rows: list[dict[str, Any]], key: str) -> NDArray[np.float64]:
    return np.array([row[key] for row in rows], np.float64)  # None becomes NaN
