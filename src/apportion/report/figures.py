"""Static figures: those of the GRD paper from our runs, and what `apportion explain` and `credit` find.

Of the paper: learning curves (its Figures 3 and 5), causal structure over training (4), robustness to noise
(6), decomposed against true rewards (7).
"""

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check, read_json_of_others
from apportion.core.spec import BLOCKS, Spec
from apportion.report import drawing
from apportion.report.curves import Known, name_runs, name_tasks
from apportion.report.drawing import COLOURS, Line, Panel, shortened
from apportion.report.overview import per_lane
from apportion.report.statistics import band, mean, thinned
from apportion.report.structure import lane_mean, mostly_undecided
from apportion.runs.folder import RunFolder
from apportion.runs.summary import moment_in_words, step_rewards

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write_figures(
    runs: list[RunFolder], folder: Path, format: str, noise_results: Sequence[Path] = ()
) -> list[Path]:
    """Draw whatever the runs have data for; returns the files written, none if there was nothing to draw.

    `noise_results` are files of `apportion eval RUN --noise STD --out FILE`: points of the robustness curve.
    """
    check(format in drawing.FORMATS, f"no figures as {format!r}: choose one of {', '.join(drawing.FORMATS)}")
    drawing.need_matplotlib()
    labels = label_runs(runs)
    # Without signs that a file's name should not have; numbered where that makes them equal.
    names = [re.sub(r"[^\w.-]+", "-", label).strip(".-") or "run" for label in labels]
    names = [name if names.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(names, start=1)]
    noise: dict[Path, dict[float, Any]] = {}
    for path in noise_results:
        run, std, returns = _read_noise(path)
        noise.setdefault(run, {})[std] = returns
    folder.mkdir(parents=True, exist_ok=True)
    files = [_learning_curves(runs, labels, folder / f"learning-curves.{format}")]
    for each, label, name in zip(runs, labels, names, strict=True):
        files.append(draw_structure(each, label, folder / f"structure-{name}.{format}"))
        files.append(draw_rewards(each, folder / f"rewards-{name}.{format}"))
    known = {run.path.resolve(): label for run, label in zip(runs, labels, strict=True)}
    played = [(known.get(run, run.name), returns) for run, returns in noise.items()]
    files.append(draw_robustness(played, folder / f"robustness.{format}"))
    return [file for file in files if file is not None]


def label_runs(runs: Sequence[RunFolder]) -> list[str]:
    """The names that comparisons give them, with the task where there are several."""
    known = [Known(run, run.read_config(), run.path.resolve()) for run in runs]
    tasks = name_tasks(known)
    labels = name_runs(known, tasks)
    return labels if len(set(tasks)) == 1 else list(map(" · ".join, zip(tasks, labels, strict=True)))


def _learning_curves(runs: Sequence[RunFolder], labels: list[str], path: Path) -> Path | None:
    """Return over steps: mean over seeds with its 95% bootstrap band; a panel for each environment."""
    panels: dict[str, list[Line]] = {}
    for run, label in zip(runs, labels, strict=True):
        entries, env_id, lanes = run.evaluations(), run.read_spec().env_id, run.read_config()["lanes"]
        if not entries:
            continue
        lines = panels.setdefault(env_id, [])
        curve = band(per_lane(entries, "return", lanes), mean)
        name = f"{label.removeprefix(f'{env_id} · ')} (n={lanes})"
        lines.append(Line([entry["step"] for entry in entries], curve, name, drawing.colour(len(lines))))
    pairs = [(shortened(env_id, 40), lines) for env_id, lines in panels.items()]
    drawn = [Panel(title, "environment steps", "return", lines) for title, lines in pairs]
    return drawing.draw_panels(drawn, path) if drawn else None


def draw_structure(run: RunFolder, label: str, path: Path) -> Path | None:
    """P(edge), mean over seeds, at some moments of training, and the true graph where it is known."""
    spec = run.read_spec()
    steps = run.edge_steps()
    moments = {steps[place]: run.read_edges_at(steps[place]) for place in thinned(len(steps), 3)}
    if not moments or not all(name in edges for edges in moments.values() for name in BLOCKS):
        return None
    maps = {
        f"step {step:,}": {name: lane_mean(edges[name]) for name in BLOCKS} for step, edges in moments.items()
    }
    if spec.true_graph is not None:
        maps["true graph"] = {name: getattr(spec.true_graph, name) for name in BLOCKS}
    with drawing.drawing():
        figure = drawing.new_figure(3.6 * len(maps) + 1.5, 5.2)
        panels = figure.subplots(1, len(maps), squeeze=False, sharey=True)[0]
        for axes, (title, blocks) in zip(panels, maps.items(), strict=True):
            image = _map(axes, blocks, spec)
            axes.set_title(title)
        scale = "P(edge), mean over seeds"
        if all("doubts" in edges for edges in moments.values()):
            scale += "; ×: kept, as the data cannot tell"
            for axes, edges in zip(panels, moments.values(), strict=False):
                open_ = _table({name: mostly_undecided(edges, name) for name in BLOCKS})
                rows, columns = np.nonzero(open_)
                axes.plot(columns, rows, linestyle="", marker="x", markersize=3, color=COLOURS[1])
        figure.colorbar(image, ax=list(panels), label=scale, shrink=0.6)
        figure.suptitle(shortened(f"{spec.env_id}: {label}", 80))
        return drawing.save(figure, path)


def _map(axes: "Axes", blocks: dict[str, NDArray[Any]], spec: Spec) -> Any:
    """All edges: rows are states and actions, columns next states and the reward. Darker: more probable."""
    image = axes.imshow(_table(blocks), cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.spines[:].set_visible(True)
    axes.axhline(spec.observation_size - 0.5, color=COLOURS[1], linewidth=0.8)
    axes.axvline(spec.observation_size - 0.5, color=COLOURS[1], linewidth=0.8)
    axes.tick_params(labelsize=6)
    sources = [shortened(name) for name in (*spec.observation_names, *spec.action_names)]
    targets = [*sources[: spec.observation_size], "reward"]
    if len(sources) <= 40:  # of more there is no room for names: matplotlib numbers them
        axes.set_yticks(range(len(sources)), sources)
        axes.set_xticks(range(len(targets)), targets, rotation=90)
    else:
        axes.set_ylabel("state, then action (below the line)")
        axes.set_xlabel("next state, then reward (right of the line)")
    return image


def _table(blocks: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """All four blocks as one: rows are states and actions, columns next states and the reward."""
    edges = {name: np.asarray(block, np.float64) for name, block in blocks.items()}
    return np.block(
        [
            [edges["state_to_state"], edges["state_to_reward"][:, None]],
            [edges["action_to_state"], edges["action_to_reward"][:, None]],
        ]
    )


def draw_rewards(run: RunFolder, path: Path) -> Path | None:
    """Decomposed and true reward (or what was paid, where no step has one) along the last stored episode of
    the first seed."""
    stored, config = run.episode_steps(), run.read_config()
    if not stored:
        return None
    first = run.read_episodes(stored[-1])[0]
    if not first:  # it was frozen by then
        return None
    episode = first[0]
    steps = range(len(episode["redistributed"]))
    label = "true" if step_rewards(run.evaluations()) else "paid"
    decomposed = f"decomposed ({config['method']['name']})"
    lines = [
        Line(steps, episode["redistributed"], decomposed, COLOURS[0]),
        Line(steps, episode["true_rewards"], label, COLOURS[1], ":"),
    ]
    title = shortened(f"{run.read_spec().env_id}, seed {config['seed']}, at step {stored[-1]:,}", 70)
    return drawing.draw_panels([Panel(title, "step of the episode", "reward", lines)], path, 7, 2.8)


def draw_robustness(runs: Sequence[tuple[str, Mapping[float, Any]]], path: Path) -> Path | None:
    """Return against the standard deviation of noise on what the policy sees: mean over seeds, 95% band. Of
    each run its label, and the returns of its seeds by that deviation."""
    if not runs:
        return None
    lines: list[Line] = []
    for label, returns in runs:
        stds = sorted(returns)
        curve = band(np.array([returns[std] for std in stds], np.float64), mean)
        lines.append(Line(stds, curve, label, drawing.colour(len(lines)), marker="o"))
    return drawing.draw_panels([Panel("", "standard deviation of the noise", "return", lines)], path)


def _read_noise(path: Path) -> tuple[Path, float, list[float | None]]:
    """Which run it is of, the standard deviation, and the returns."""
    way = "write it with `apportion eval RUN --out`"
    data = read_json_of_others(path, mend=way)
    good = isinstance(data, dict) and {"run", "noise", "returns"} <= set(data)
    check(good, f"{path} is no result of an evaluation: {way}")
    return Path(data["run"]).resolve(), float(data["noise"]["std"]) if data["noise"] else 0.0, data["returns"]


# --- The picture of apportion explain: what the agents are paid for, and one episode step by step


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
    rows = data["dimensions"][:ROWS]
    with drawing.drawing():
        figure = drawing.new_figure(11, 1.8 + 0.24 * len(rows))
        bars, steps = figure.subplots(1, 2, width_ratios=(2, 3))
        _draw_bars(bars, rows, len(data["lanes"]))
        _draw_steps(steps, data, rows)
        figure.suptitle(shortened(f"{data['method']} on {data['env']}, {moment_in_words(data)}", 80))
        return _saved(figure, path, f"What {data['method']} pays for in {data['env']}")


def plot_kinds(data: dict[str, Any], path: Path) -> Path:
    """Draw what `credit_by` found into a file: bars with intervals."""
    rows = data["kinds"][:ROWS]
    with drawing.drawing():
        figure = drawing.new_figure(7, 1.4 + 0.3 * len(rows))
        axes = figure.subplots()
        middle, low, high = (_numbers(rows, key) for key in ("credit", "low", "high"))
        axes.barh(range(len(rows)), middle, xerr=[middle - low, high - middle], capsize=3)
        axes.set_yticks(range(len(rows)), [shortened(row["value"]) for row in rows])
        axes.invert_yaxis()
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_xlabel(
            "credit, in episodes of yes" if data["unit"] == "yes" else "credit, in the outcome's unit"
        )
        axes.set_title(shortened(f"Credit by {data['by']} of {Path(data['data']).name}", 80))
        return _saved(figure, path, f"Credit by {data['by']}")


def _saved(figure: "Figure", path: Path, title: str) -> Path:
    if path.suffix != ".html":
        return drawing.save(figure, path)
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None})
    svg = picture.getvalue()
    path.write_text(_PAGE.format(title=escape(title), picture=svg[svg.index("<svg") :]))
    return path


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
