"""An experiment whose trainings are done beside what the paper prints: table, figures, page, results.json."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.core.spec import BLOCKS
from apportion.front.paper.experiments import Experiment, Planned, Request, Settings, find, plan
from apportion.front.sweep.carrying import Carried, How, carry_out
from apportion.front.sweep.folder import SweepFolder
from apportion.report.comparison import TOGETHER, Compared, compare_curves
from apportion.report.curves import curves_of
from apportion.report.drawing import need_matplotlib
from apportion.report.figures import draw_rewards, draw_robustness, draw_structure
from apportion.report.overview import per_lane
from apportion.report.statistics import interval, mean
from apportion.runs.atomic import plain, read_json, write_json
from apportion.runs.folder import RunFolder, versions
from apportion.runs.policy import EvaluationSettings, evaluate_run
from apportion.training.evaluate import pearson

RUNS, PAGE, RESULTS = "runs", "README.md", "results.json"  # within an experiment's folder
EPISODES = 10  # under each noise, of each seed
DEAD = tuple(range(27, 111))  # of Ant's 111 dimensions; the paper counts from one, and says 28 to 111
_ARROWS = dict(zip(("s→r", "a→r", "s→s", "a→s"), BLOCKS, strict=True))
_SMOKE_NOTE = (
    "Scale smoke: tiny networks, episodes of 50 steps, updates so few that methods may end alike. It shows "
    "that it works, no more."
)
_SPREAD = "± standard deviation over seeds [95% interval of the mean]"
_CAPTIONS = {
    "curves": f"Mean {{metric}} {_SPREAD}, at steps.",
    "noise": f"Mean return {_SPREAD}, by the standard deviation of the noise on dimensions {DEAD[0]} to "
    f"{DEAD[-1]}, counted from 0.",
    "edges": "Share of edges that are off (P < 0.5), mean over seeds.",
    "rewards": f"The last stored evaluation episode of each seed: mean {_SPREAD}.",
}

Values = dict[str, NDArray[np.float64]]  # [L] of each column


class Done(NamedTuple):
    """A run of an experiment."""

    planned: Planned
    run: RunFolder


class Row(NamedTuple):
    """A row of the table: values by seed for each column."""

    task: str
    name: str
    settings: Settings
    values: Values
    beside: dict[str, float] = {}  # noqa: RUF012 - a second number of a cell, in brackets


def present(experiment: Experiment, request: Request, done: Sequence[Done], folder: Path) -> dict[str, Any]:
    """Table, figures, page and results.json of an experiment whose trainings are done."""
    kept, seeds = request.of(experiment)
    folder.mkdir(parents=True, exist_ok=True)
    moments = _moments(experiment, kept.steps)
    if experiment.shows == "curves":  # where a training was evaluated
        at = np.array([entry["step"] for entry in done[0].run.evaluations()])
        moments = {step: int(at[_nearest(at, moment)]) for step, moment in moments.items()}
    rows = _rows(experiment, moments, done, folder, request.scale == "smoke")
    kinds = request.settings if experiment.shows == "curves" else ()
    compared = {name: _compared(experiment, done, name) for name in kinds}
    notes = dict.fromkeys(line for each in compared.values() for line in each.notes)
    alone = [line for line in notes if not line.startswith(TOGETHER)]  # nothing here is over all tasks
    data: dict[str, Any] = plain(
        {
            "experiment": experiment.name,
            "title": experiment.title,
            "source": experiment.source,
            "command": request.words(experiment.name),
            "scale": request.scale,
            "settings": request.settings,
            "steps": kept.steps,
            "seeds": seeds,
            "out": str(folder),
            "page": str(folder / PAGE),
            "figures": [str(figure) for figure in _figures(experiment, compared, done, rows, folder)],
            "ours": [row._asdict() for row in rows],
            "compared": {name: each.summary() for name, each in compared.items()},
            "paper": [vars(printed) for printed in experiment.printed],
            "differs": [*_differs(experiment, kept, request), *alone],
            "jobs": [each.planned.job.to_dict() for each in done],
            "configs": {each.planned.job.name: each.run.read_config() for each in done},
            "versions": versions(),
        }
    )
    write_json(folder / RESULTS, data)
    table = _table(experiment, moments, rows)
    (folder / PAGE).write_text(_page(experiment, data, table), encoding="utf-8")
    return data


def _moments(experiment: Experiment, steps: int) -> dict[int, int]:
    """Where to look beside each of the paper's steps: at the same one, as far as the training goes; at a
    part of it that corresponds, where it is too short for any."""
    reached = {step: step for step in experiment.moments if step <= steps}
    return reached or {step: round(step * steps / experiment.steps) for step in experiment.moments}


def _rows(
    experiment: Experiment, moments: dict[int, int], done: Sequence[Done], folder: Path, smoke: bool
) -> list[Row]:
    rows = []
    for planned, run in done:
        head = (planned.panel, planned.variant.name, planned.settings)
        if experiment.shows == "noise":
            stds = experiment.noise[:: len(experiment.noise) - 1] if smoke else experiment.noise
            rows.append(Row(*head, _under_noise(planned, run, stds, 1 if smoke else EPISODES, folder)))
        elif experiment.shows == "rewards":
            rows.append(Row(*head, _agreement(run)))
        elif experiment.shows == "edges":
            steps, edges = run.read_edges()
            for place in (_nearest(steps, moment) for moment in moments.values()):
                off = {arrow: np.array([_off(edges[block][place])]) for arrow, block in _ARROWS.items()}
                rows.append(Row(head[0], f"{head[1]} at {steps[place]:,}", head[2], off))
        else:
            entries = run.evaluations()
            scores = per_lane(entries, experiment.metric, planned.job.seeds)
            at = np.array([entry["step"] for entry in entries])
            places = {f"{step:,}": _nearest(at, moment) for step, moment in moments.items()}
            beside = {}
            if experiment.sparsity:  # the paper's S, the share of s→r edges that are on
                steps, edges = run.read_edges()
                blocks = {
                    k: edges["state_to_reward"][_nearest(steps, at[place])] for k, place in places.items()
                }
                beside = {column: 1 - _off(block) for column, block in blocks.items()}
            rows.append(Row(*head, {column: scores[place] for column, place in places.items()}, beside))
    return rows


def _under_noise(
    planned: Planned, run: RunFolder, stds: Sequence[float], episodes: int, folder: Path
) -> Values:
    """Mean returns [L] of fresh episodes by the standard deviation of the noise; those of an earlier call,
    where they are of the same policy."""
    values = {}
    for std in stds:
        file = folder / "noise" / f"{planned.job.name}-{std:g}.json"
        wanted = {"step": run.evaluations()[-1]["step"], "episodes": episodes}
        data: dict[str, Any] = {}
        with suppress(OSError, UserError):
            data = read_json(file)
        if any(data.get(name) != value for name, value in wanted.items()):
            dims = tuple(str(dim) for dim in DEAD) if std else ()
            data, _ = evaluate_run(run, EvaluationSettings(episodes, noise=std, noise_dims=dims))
            file.parent.mkdir(exist_ok=True)
            write_json(file, data)
        values[f"{std:g}"] = np.asarray(data["returns"], np.float64)
    return values


def _off(block: NDArray[Any]) -> float:
    """The share of edges [L, ...] that are off, of those that have a number."""
    known = block[np.isfinite(block)]
    return float(np.mean(known < 0.5)) if known.size else float("nan")


def _agreement(run: RunFolder) -> Values:
    """Of redistributed and true rewards [L] in the last stored episode; a seed that was frozen by then has
    none."""
    lanes = run.read_episodes(run.episode_steps()[-1])
    pairs = [(lane[0]["redistributed"], lane[0]["true_rewards"]) for lane in lanes if lane]
    return {
        "correlation over steps": np.array([pearson(ours, true) for ours, true in pairs]),
        "sum of redistributed": np.array([np.sum(ours, dtype=np.float64) for ours, _ in pairs]),
        "sum of true": np.array([np.sum(true, dtype=np.float64) for _, true in pairs]),
    }


def _nearest(steps: NDArray[Any], moment: int) -> int:
    return int(np.argmin(np.abs(np.asarray(steps) - moment)))


def _figures(
    experiment: Experiment,
    compared: dict[Settings, Compared],
    done: Sequence[Done],
    rows: list[Row],
    folder: Path,
) -> list[Path]:
    files = {each.planned.job.name: folder / f"{each.planned.job.name}.svg" for each in done}
    found: list[Path | None] = [each.figure(folder / f"curves-{name}.svg") for name, each in compared.items()]
    if experiment.shows == "noise":
        played = [{float(std): returns for std, returns in row.values.items()} for row in rows]
        labels = [each.planned.label for each in done]
        found.append(draw_robustness(list(zip(labels, played, strict=True)), folder / "robustness.svg"))
    elif experiment.shows == "edges":
        found += [draw_structure(run, planned.label, files[planned.job.name]) for planned, run in done]
    elif experiment.shows == "rewards":
        found += [draw_rewards(run, files[planned.job.name]) for planned, run in done]
    return [file for file in found if file is not None]


def _compared(experiment: Experiment, done: Sequence[Done], settings: Settings) -> Compared:
    curves = [
        curve
        for planned, run in done
        if planned.settings == settings
        for curve in curves_of(run, run.read_config(), run.evaluations(), planned.panel, planned.variant.name)
    ]
    return compare_curves(curves, experiment.metric, trusted=False)


def _differs(experiment: Experiment, kept: Experiment, request: Request) -> list[str]:
    """From the paper, and what the scale leaves out."""
    lines = [*experiment.differs, *(experiment.differs_ours if "ours" in request.settings else ())]
    if kept.steps != experiment.steps:
        lines.append(f"{kept.steps:,} steps of training instead of {experiment.steps:,}.")
    if request.scale == "smoke":
        lines.append(_SMOKE_NOTE)
    for what, ours, theirs in (
        ("tasks", kept.tasks, experiment.tasks),
        ("methods", [each.name for each in kept.variants], experiment.variants),
    ):
        if len(ours) < len(theirs):
            lines.append(f"{len(ours)} of {len(theirs)} {what}: {', '.join(ours)}.")
    return lines


# --- The page


def _table(experiment: Experiment, moments: dict[int, int], rows: list[Row]) -> list[str]:
    """Ours row by row, and below those of a task what the paper prints of it."""
    columns = list(rows[0].values)
    curves = experiment.shows == "curves"
    heads = [f"{moment:,}" for moment in moments.values()] if curves else columns
    lines = []
    for task in dict.fromkeys(row.task for row in rows):
        mine = [row for row in rows if row.task == task]
        theirs = [printed for printed in experiment.printed if printed.task == task]
        for row in mine:
            cells = (_cell(experiment, row, column) for column in columns)
            lines.append([task, row.name, row.settings, *cells])
        for printed in theirs:
            reached = [step in moments for step in experiment.moments] if curves else [True] * len(columns)
            cells = (cell for cell, shown in zip(printed.cells, reached, strict=True) if shown)
            lines.append([task, printed.row, "paper", *cells])
    rule = f"|---|---|---|{'---:|' * len(heads)}"
    table = [f"| {' | '.join(line)} |" for line in (["task", "method", "settings", *heads], *lines)]
    aside = f"The paper's columns are at {', '.join(f'{step:,}' for step in moments)} steps."
    scaled = curves and list(moments) != list(moments.values())
    return [table[0], rule, *table[1:], "", *([aside, ""] if scaled else [])]


def _cell(experiment: Experiment, row: Row, column: str) -> str:
    """Mean ± standard deviation over seeds, as the paper has it, and the interval of the mean; what is no
    number is left out."""
    known = row.values[column][np.isfinite(row.values[column])]
    if not known.size:
        return "-"
    if experiment.shows == "edges":
        return f"{known.mean():.0%}"
    form = ",.0f" if np.abs(known).max() >= 100 else ".3f" if experiment.shows == "rewards" else ".2f"
    found = interval(known, mean)
    around = "" if np.isnan(found.low) else f" [{found.low:{form}}, {found.high:{form}}]"
    beside = f" ({row.beside[column]:.2f})" if np.isfinite(row.beside.get(column, np.nan)) else ""
    return f"{known.mean():{form}} ± {known.std():{form}}{beside}{around}"


def _page(experiment: Experiment, data: dict[str, Any], table: list[str]) -> str:
    made = data["versions"]
    commit = (made["commit"] or "unknown")[:12] + (" with changes" if made["dirty"] else "")
    packages = ", ".join(f"{name} {made[name]}" for name in ("jax", "mujoco"))
    caption = _CAPTIONS[experiment.shows].replace("{metric}", experiment.metric)
    aside = " In brackets the share of s→r edges that are on." if experiment.sparsity else ""
    figures = [f"![{Path(figure).stem}]({Path(figure).name})" for figure in data["figures"]]
    lines = [
        f"# {experiment.title}",
        "",
        f"{experiment.source} of the paper, by `{data['command']}`: {data['steps']:,} steps, {data['seeds']} "
        f"seed(s). apportion {made['apportion']} (commit {commit}), {packages}, on "
        f"{', '.join(dict.fromkeys(made['devices']))}.",
        "",
        caption + aside,
        "",
        *table,
        *(line for figure in figures for line in (figure, "")),
        "## What differs from the paper",
        "",
        *(f"- {line}" for line in data["differs"]),
        "",
    ]
    return "\n".join(lines)


# --- Running an experiment


def run_experiment(
    name: str, request: Request, out: Path | None = None, how: How | None = None, quiet: bool = False
) -> tuple[Carried, dict[str, Any] | None]:
    """Train what the experiment needs, or go on with it, and present it: how the trainings ended and, where
    all of them are done, the result. What is trained stays as it is."""
    experiment = find(name)
    need_matplotlib()  # before hours of training
    planned = plan(experiment, request)
    folder = out or request.folder(name)
    # Nobody's README.md is written over: the folder is new, or an experiment has been begun there.
    if folder.is_dir() and not SweepFolder(folder / RUNS).manifest.exists():
        others = [path.name for path in folder.iterdir() if path.name != RUNS]
        check(not others, f"{folder} holds no experiment, but other files: choose another --out")
    if request.scale == "smoke":  # trainings that compute next to nothing wait for no program that is fast
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    carried = carry_out([each.job for each in planned], folder / RUNS, how, quiet)
    if not carried.done:
        return carried, None
    runs = {standing.job.name: RunFolder.open(standing.run) for standing in carried.standings}
    return carried, present(
        experiment, request, [Done(each, runs[each.job.name]) for each in planned], folder
    )
