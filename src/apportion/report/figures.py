"""Static figures: those of the GRD paper from our runs, comparisons, and what `apportion explain` finds.

Of the paper: learning curves (its Figures 3 and 5), causal structure over training (4), robustness to noise
(6), decomposed against true rewards (7).
"""

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check, parse_json
from apportion.core.files import read_bytes
from apportion.core.spec import BLOCKS, Spec
from apportion.report import drawing
from apportion.report.comparison import Compared
from apportion.report.curves import Curve
from apportion.report.drawing import COLOURS, shortened
from apportion.report.overview import per_lane
from apportion.report.statistics import Band, band, iqm, mean, thinned
from apportion.report.structure import mostly_undecided
from apportion.runs.folder import RunFolder
from apportion.runs.summary import step_rewards
from apportion.runs.words import moment_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOMENTS = 3  # of training, at which structure is shown
NAMED = 40  # dimensions on an axis; with more they are numbered by matplotlib


class Labelled(NamedTuple):
    """A run, and what it is called in legends and file names."""

    run: RunFolder
    label: str
    spec: Spec
    config: dict[str, Any]


def write_figures(
    runs: list[RunFolder], folder: Path, format: str, noise_results: Sequence[Path] = ()
) -> list[Path]:
    """Draw whatever the runs have data for; returns the files written, none if there was nothing to draw.

    `noise_results` are files of `apportion eval RUN --noise STD --out FILE`: points of the robustness curve.
    """
    check(
        format in drawing.FORMATS,
        f"no figures as {format!r}: choose one of {', '.join(drawing.FORMATS)}",
    )
    labelled = label_runs(runs)
    noise = [_read_noise(path) for path in noise_results]
    folder.mkdir(parents=True, exist_ok=True)
    with drawing.drawing():
        files = [_learning_curves(labelled, folder / f"learning-curves.{format}")]
        for each, name in zip(labelled, _file_names(labelled), strict=True):
            files.append(draw_structure(each, folder / f"structure-{name}.{format}"))
            files.append(draw_rewards(each, folder / f"rewards-{name}.{format}"))
        files.append(draw_robustness(labelled, noise, folder / f"robustness.{format}"))
    return [file for file in files if file is not None]


def label_runs(runs: list[RunFolder]) -> list[Labelled]:
    """By environment and method; then by backbone, folder or number, where these do not tell runs apart."""
    facts = [(run, run.read_spec(), run.read_config()) for run in runs]
    options: list[list[str]] = [[], [], [], []]
    for number, (run, spec, config) in enumerate(facts, start=1):
        details = ("", config["backbone"]["name"], run.path.resolve().name, str(number))
        for option, detail in zip(options, details, strict=True):
            option.append(" · ".join(filter(None, (spec.env_id, config["method"]["name"], detail))))
    labels = next(option for option in options if len(set(option)) == len(runs))
    if len({spec.env_id for _, spec, _ in facts}) == 1:
        labels = [label.removeprefix(f"{facts[0][1].env_id} · ") for label in labels]
    return [
        Labelled(run, label, spec, config) for (run, spec, config), label in zip(facts, labels, strict=True)
    ]


def _file_names(runs: list[Labelled]) -> list[str]:
    """The labels without signs that a file's name should not have; numbered where that makes them equal."""
    names = [re.sub(r"[^\w.-]+", "-", each.label).strip(".-") or "run" for each in runs]
    return [name if names.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(names, start=1)]


def _learning_curves(runs: list[Labelled], path: Path) -> Path | None:
    """Return over steps: mean over seeds with its 95% bootstrap band; a panel for each environment."""
    known = [(each, evaluations(each.run)) for each in runs]
    known = [(each, entries) for each, entries in known if entries]
    environments = list(dict.fromkeys(each.spec.env_id for each, _ in known))
    if not known:
        return None
    columns = min(4, len(environments))
    lines = -(-len(environments) // columns)
    figure = drawing.new_figure(4.2 * columns, 3.0 * lines)
    panels = np.atleast_1d(figure.subplots(lines, columns, squeeze=False)).ravel()
    for axes in panels[len(environments) :]:
        axes.set_visible(False)
    for axes, env_id in zip(panels, environments, strict=False):
        curves = [(each, entries) for each, entries in known if each.spec.env_id == env_id]
        for colour, (each, entries) in enumerate(curves):
            _curve(axes, each, entries, drawing.colour(colour))
        axes.set_title(shortened(env_id, 40))
        axes.set_xlabel("environment steps")
        axes.set_ylabel("return")
        axes.legend(fontsize=8)
    return drawing.save(figure, path)


def _curve(axes: "Axes", each: Labelled, entries: list[dict[str, Any]], colour: str) -> None:
    lanes = each.config["lanes"]
    curve = band(per_lane(entries, "return", lanes), mean)
    steps = [entry["step"] for entry in entries]
    label = f"{each.label.removeprefix(f'{each.spec.env_id} · ')} (n={lanes})"
    drawing.draw_band(axes, steps, curve, colour, label, marker="o" if len(steps) == 1 else None)


def draw_structure(each: Labelled, path: Path) -> Path | None:
    """P(edge), mean over seeds, at some moments of training, and the true graph where it is known."""
    steps, edges = each.run.read_edges()
    if not all(name in edges for name in BLOCKS):
        return None
    chosen = thinned(len(steps), MOMENTS)
    maps = {
        f"step {steps[place]:,}": {name: _lane_mean(edges[name][place]) for name in BLOCKS}
        for place in chosen
    }
    if each.spec.true_graph is not None:
        maps["true graph"] = {name: getattr(each.spec.true_graph, name) for name in BLOCKS}
    figure = drawing.new_figure(3.6 * len(maps) + 1.5, 5.2)
    panels = figure.subplots(1, len(maps), squeeze=False, sharey=True)[0]
    for axes, (title, blocks) in zip(panels, maps.items(), strict=True):
        image = _map(axes, blocks, each.spec)
        axes.set_title(title)
    label = "P(edge), mean over seeds"
    if "doubts" in edges:
        label += "; ×: kept, as the data cannot tell"
        for axes, place in zip(panels, chosen, strict=False):
            moment = {name: block[place] for name, block in edges.items()}
            open_ = _table({name: mostly_undecided(moment, name) for name in BLOCKS})
            rows, columns = np.nonzero(open_)
            axes.plot(columns, rows, linestyle="", marker="x", markersize=3, color=COLOURS[1])
    figure.colorbar(image, ax=list(panels), label=label, shrink=0.6)
    figure.suptitle(shortened(f"{each.spec.env_id}: {each.label}", 80))
    return drawing.save(figure, path)


def _lane_mean(block: NDArray[Any]) -> NDArray[Any]:
    """Over the lanes [L, ...] that have not diverged; over none, NaN."""
    finite = block[np.isfinite(block.reshape(len(block), -1)).all(axis=1)]
    return finite.mean(axis=0) if len(finite) else np.full(block.shape[1:], np.nan)


def _map(axes: "Axes", blocks: dict[str, NDArray[Any]], spec: Spec) -> Any:
    """All edges: rows are states and actions, columns next states and the reward. Darker: more probable."""
    image = axes.imshow(_table(blocks), cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.spines[:].set_visible(True)
    axes.axhline(spec.observation_size - 0.5, color=COLOURS[1], linewidth=0.8)
    axes.axvline(spec.observation_size - 0.5, color=COLOURS[1], linewidth=0.8)
    axes.tick_params(labelsize=6)
    sources = [shortened(name) for name in (*spec.observation_names, *spec.action_names)]
    targets = [*sources[: spec.observation_size], "reward"]
    if len(sources) <= NAMED:
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


def draw_rewards(each: Labelled, path: Path) -> Path | None:
    """Decomposed and true reward (or what was paid, where no step has one) along the last stored episode of
    the first seed."""
    stored = each.run.episode_steps()
    if not stored:
        return None
    first = each.run.read_episodes(stored[-1])[0]
    if not first:  # it was frozen by then
        return None
    episode = first[0]
    figure = drawing.new_figure(7, 2.8)
    axes = figure.subplots()
    axes.plot(
        episode["redistributed"], color=COLOURS[0], label=f"decomposed ({each.config['method']['name']})"
    )
    label = "true" if step_rewards(evaluations(each.run)) else "paid"
    axes.plot(episode["true_rewards"], color=COLOURS[1], linestyle=":", label=label)
    axes.set_xlabel("step of the episode")
    axes.set_ylabel("reward")
    axes.set_title(shortened(f"{each.spec.env_id}, seed {each.config['seed']}, at step {stored[-1]:,}", 70))
    axes.legend(loc="best", fontsize=8)
    return drawing.save(figure, path)


def draw_robustness(runs: list[Labelled], noise: list[dict[str, Any]], path: Path) -> Path | None:
    """Return against the standard deviation of noise on what the policy sees: mean over seeds, 95% band."""
    if not noise:
        return None
    labels = {each.run.path.resolve(): each.label for each in runs}
    figure = drawing.new_figure(4.2, 3.0)
    axes = figure.subplots()
    of_run: dict[Path, list[dict[str, Any]]] = {}
    for result in noise:
        of_run.setdefault(Path(result["run"]).resolve(), []).append(result)
    for colour, (run, results) in enumerate(of_run.items()):
        results.sort(key=_std)
        curve = band(np.array([result["returns"] for result in results], np.float64), mean)
        stds, label = [_std(result) for result in results], labels.get(run, run.name)
        drawing.draw_band(axes, stds, curve, drawing.colour(colour), label, marker="o")
    axes.set_xlabel("standard deviation of the noise")
    axes.set_ylabel("return")
    axes.legend(fontsize=8)
    return drawing.save(figure, path)


def _std(result: dict[str, Any]) -> float:
    return float(result["noise"]["std"]) if result["noise"] else 0.0


def _read_noise(path: Path) -> dict[str, Any]:
    try:
        data = parse_json(read_bytes(path, linked=True))
    except FileNotFoundError as error:
        raise UserError(f"no file {path}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): write it with `apportion eval RUN --out`") from error
    good = isinstance(data, dict) and {"run", "noise", "returns"} <= set(data)
    check(good, f"{path} is no result of an evaluation: write it with `apportion eval RUN --out`")
    return dict(data)


def evaluations(run: RunFolder) -> list[dict[str, Any]]:
    return [entry for entry in run.read_metrics() if entry["kind"] == "eval"]


# --- A comparison: a panel of learning curves for each task, then all tasks together


COLUMNS = 4
OURS = "grd"


def check_file(path: Path) -> None:
    """Complain of a figure that cannot be written, before any work."""
    endings = ", ".join(f".{each}" for each in drawing.FORMATS)
    check(path.suffix[1:] in drawing.FORMATS, f"no figure as {path.name!r}: let its name end in {endings}")
    drawing.need_matplotlib()


def draw_comparison(found: Compared, path: Path) -> Path:
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


def _curves(axes: "Axes", found: Compared, task: str) -> None:
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


def _scores(axes: "Axes", found: Compared, data: dict[str, Any]) -> None:
    """Interquartile means over tasks and seeds."""
    _bars(axes, found, [(label, each["iqm"], each["interval"]) for label, each in data["methods"].items()])
    axes.set_title(f"IQM, {len(found.scaled)} task(s)")
    axes.set_xlabel("success rate" if found.metric == "success" else "0 random actions, 1 oracle")


def _profiles(axes: "Axes", found: Compared, data: dict[str, Any]) -> None:
    for label in found.labels:
        told = data["methods"][label]["profile"]
        thresholds, *curve = (np.array(told[name], float) for name in ("thresholds", "share", "low", "high"))
        drawing.draw_band(axes, thresholds, Band(*curve), _colour(found, label), shortened(label))
    axes.set_title("Performance profile")
    axes.set_xlabel("score")
    axes.set_ylabel("share of runs above it")
    axes.set_ylim(-0.02, 1.02)


def _improvements(axes: "Axes", found: Compared, data: dict[str, Any]) -> None:
    """How probably the first method, or GRD where it is there, beats each of the others."""
    ours = OURS if OURS in found.labels else found.labels[0]
    chances = data["methods"][ours]["improvement_over"]
    _bars(axes, found, [(other, each["probability"], each["interval"]) for other, each in chances.items()])
    axes.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlim(-0.02, 1.02)
    axes.set_title(f"Probability that {shortened(ours)} beats it")


def _bars(axes: "Axes", found: Compared, rows: list[tuple[str, float | None, list[float | None]]]) -> None:
    """A dot for each method, with its interval, from top to bottom."""
    for place, (label, centre, bounds) in enumerate(rows):
        colour = _colour(found, label)
        axes.plot(np.array(bounds, float), [place, place], color=colour, linewidth=4, alpha=0.4)
        axes.plot(np.array([centre], float), [place], color=colour, marker="o")
    axes.set_yticks(range(len(rows)), [shortened(label) for label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _colour(found: Compared, label: str) -> str:
    return drawing.colour(found.labels.index(label))


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
