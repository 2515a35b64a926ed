"""The numbers of a comparison: of each task, and of all on a scale from random actions to the oracle."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check, from_dict, one_line, read_json_of_others
from apportion.envs.faults import FAILURES
from apportion.envs.lane import Lane, play_one
from apportion.envs.make import EnvConfig
from apportion.report.curves import Curve, read_curves
from apportion.report.drawing import Line, Panel, Row, check_file, colour, draw_panels, shortened
from apportion.report.statistics import (
    FEW,
    Interval,
    area,
    band,
    improvement,
    interval,
    iqm,
    mean,
    profile,
    stratified,
)
from apportion.runs.atomic import plain
from apportion.runs.folder import RunFolder

ORACLE, OURS = "oracle", "grd"

Values = NDArray[np.float64]  # [L]


@dataclass(frozen=True)
class Compared:
    """Curves of all seeds, and where they are compared."""

    curves: list[Curve]
    metric: str  # return or success
    steps: dict[str, int]  # of each task: where its runs are compared
    random: dict[str, float]  # by task, where it is known
    notes: list[str]
    silent: list[Curve] = field(default_factory=list)  # seeds that have no number at any step

    def __repr__(self) -> str:
        return f"Compared({len(self.tasks)} tasks, {len(self.labels)} methods)"

    @property
    def tasks(self) -> list[str]:
        return list(self.steps)

    @cached_property
    def labels(self) -> list[str]:
        """Methods that have a number on some task."""
        known = [curve for curve in self.curves if curve.task in self.steps and self._counts(curve)]
        return list(dict.fromkeys(curve.label for curve in known))

    def of(self, task: str, label: str) -> list[Curve]:
        """The seeds of a task and a method that have a number where they are compared."""
        return [curve for curve in self._seeds(task, label) if self._counts(curve)]

    def _seeds(self, task: str, label: str) -> list[Curve]:
        return [curve for curve in self.curves if (curve.task, curve.label) == (task, label)]

    def _counts(self, curve: Curve) -> bool:
        return bool(np.isfinite(curve.at(self.steps[curve.task], self.metric)))

    def on(self, task: str) -> list[str]:
        """The methods that can be compared on a task."""
        return [label for label in self.labels if self.of(task, label)]

    def left_out(self, task: str, label: str) -> list[Curve]:
        """Its seeds that stood still or diverged: evaluated where they are compared, without a number."""
        mute = [curve for curve in self.silent if (curve.task, curve.label) == (task, label)]
        evaluated = [c for c in [*self._seeds(task, label), *mute] if self.steps[task] in c.steps]
        return [curve for curve in evaluated if not self._counts(curve)]

    def values(self, task: str, label: str) -> Values:
        return np.array([curve.at(self.steps[task], self.metric) for curve in self.of(task, label)])

    @cached_property
    def oracle(self) -> dict[str, float]:
        """By task: the interquartile mean of the oracle's seeds; of several oracles, the best one's."""
        labels = dict.fromkeys(curve.label for curve in self.curves if curve.method == ORACLE)
        found = {task: [self.values(task, label) for label in labels] for task in self.tasks}
        known = {task: [iqm(values) for values in lanes if len(values)] for task, lanes in found.items()}
        return {task: float(max(scores)) for task, scores in known.items() if scores}

    def scale(self, task: str) -> tuple[float, float] | None:
        """What is 0 and what is 1 on the common scale; None where nothing says. Success rates need none."""
        if self.metric == "success":
            return 0.0, 1.0
        low, high = self.random.get(task), self.oracle.get(task)
        return None if low is None or high is None or high <= low else (low, high)

    def normalised(self, task: str, values: Any) -> Any:
        low, high = self.scale(task) or (np.nan, np.nan)
        return (values - low) / (high - low)

    # --- Several tasks

    @cached_property
    def common(self) -> list[str]:
        """Tasks that every method has."""
        return [task for task in self.tasks if len(self.on(task)) == len(self.labels)]

    @cached_property
    def scaled(self) -> list[str]:
        """Those of them that have a scale."""
        return [task for task in self.common if self.scale(task) is not None]

    # --- As data

    def summary(self) -> dict[str, Any]:
        """What `apportion compare --json` prints."""
        return plain(
            {
                "metric": self.metric,
                "tasks": {task: self._task(task) for task in self.tasks},
                "aggregate": self.aggregate,
                "steps": self.steps,
                "random": self.random,
                "oracle": self.oracle,
                "runs": list(dict.fromkeys(str(curve.run.path) for curve in self.curves)),
                "notes": self.notes,
            }
        )

    def records(self) -> list[dict[str, Any]]:
        """A tidy table: one record for each task, method, backbone, seed and step. None: not known."""
        return [
            plain(
                {
                    "task": curve.task,
                    "method": curve.method,
                    "backbone": curve.backbone,
                    "seed": curve.seed,
                    "step": step,
                    **{name: values[k] for name, values in curve.scores.items()},
                    "normalised": self.normalised(curve.task, curve.scores[self.metric][k]),
                    "label": curve.label,
                    "run": str(curve.run.path),
                }
            )
            for curve in self.curves
            for k, step in enumerate(curve.steps.tolist())
        ]

    def frame(self) -> Any:
        """The same as a pandas.DataFrame; pandas is loaded when this is asked for."""
        return data_frame(self.records())

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """The same as a CSV file; what is not known is empty."""
        return write_table(Path(path), self.records())

    def figure(self, path: str | os.PathLike[str]) -> Path:
        """Curves of each task, and all tasks together, as an SVG, PNG or PDF file."""
        check_file(Path(path))
        panels = [self._curves(task) for task in self.tasks]
        panels += [self._overall(), self._profiles()] if self.scaled else []
        panels += [self._improvements()] if self.common and len(self.labels) > 1 else []
        return draw_panels(panels, Path(path))

    def _curves(self, task: str) -> Panel:
        """Interquartile means over the seeds, with 95% bands; a vertical line at the compared step."""
        lines = []
        for label in self.on(task):
            curves = self._seeds(task, label)
            steps = np.unique(np.concatenate([curve.steps for curve in curves]))
            values = np.array([[curve.at(step, self.metric) for curve in curves] for step in steps])  # [K, L]
            name = f"{shortened(label)} (n={len(curves)})"
            lines.append(Line(steps, band(values, iqm), name, self._colour(label)))
        last = max(curve.steps[-1] for curve in self.curves if curve.task == task)
        at = self.steps[task] if self.steps[task] < last else None
        score = "success rate" if self.metric == "success" else "return"
        return Panel(shortened(task, 40), "environment steps", score, lines, at=at)

    def _overall(self) -> Panel:
        """Interquartile means over tasks and seeds."""
        methods = self.aggregate["methods"].items()
        rows = [Row(label, each["iqm"], each["interval"], self._colour(label)) for label, each in methods]
        scale = "success rate" if self.metric == "success" else "0 random actions, 1 oracle"
        return Panel(f"IQM, {len(self.scaled)} task(s)", scale, rows=rows)

    def _profiles(self) -> Panel:
        lines = []
        for label in self.labels:
            told = self.aggregate["methods"][label]["profile"]
            curve = Interval(*(np.array(told[name], float) for name in ("share", "low", "high")))
            lines.append(Line(told["thresholds"], curve, shortened(label), self._colour(label)))
        return Panel("Performance profile", "score", "share of runs above it", lines, share_y=True)

    def _improvements(self) -> Panel:
        """How probably the first method, or GRD where it is there, beats each of the others."""
        ours = OURS if OURS in self.labels else self.labels[0]
        chances = self.aggregate["methods"][ours]["improvement_over"].items()
        rows = [
            Row(other, each["probability"], each["interval"], self._colour(other)) for other, each in chances
        ]
        return Panel(f"Probability that {shortened(ours)} beats it", "", rows=rows, at=0.5, share_x=True)

    def _colour(self, label: str) -> str:
        return colour(self.labels.index(label))

    def _task(self, task: str) -> dict[str, Any]:
        """One task, method by method."""
        values = {label: self.values(task, label) for label in self.on(task)}
        everything = np.concatenate([*values.values()])
        return {
            label: {
                **_scores([mine], everything, [mine], {k: [v] for k, v in values.items() if k != label}),
                "seeds": [curve.seed for curve in self.of(task, label)],
                "left_out": [curve.seed for curve in self.left_out(task, label)],
                "values": mine,
                **self._of_curves(task, label),
            }
            for label, mine in values.items()
        }

    def _of_curves(self, task: str, label: str) -> dict[str, Any]:
        """What values at the compared step do not tell by themselves."""
        curves, step = self.of(task, label), self.steps[task]
        # The first step by which all that are compared have been evaluated.
        first = max(int(curve.steps[0]) for label in self.on(task) for curve in self.of(task, label))
        areas = [_area(curve, self.metric, first, step) for curve in curves]
        scaled = self.normalised(task, self.values(task, label))
        rates = [curve.at(step, "success") for curve in curves]
        return {
            "auc": _told(interval(areas, iqm)),
            "normalised": None if self.scale(task) is None else _told(interval(scaled, iqm)),
            **({"success": _told(interval(rates, iqm))} if np.isfinite(rates).any() else {}),
        }

    @cached_property
    def aggregate(self) -> dict[str, Any]:
        """All tasks together, method by method."""
        strata = {
            label: [self.normalised(task, self.values(task, label)) for task in self.scaled]
            for label in self.labels
        }
        everything = np.concatenate([[0.0, 1.0], *(lanes for mine in strata.values() for lanes in mine)])
        # Who beats whom on a task needs no scale.
        raw = {label: [self.values(task, label) for task in self.common] for label in self.labels}
        methods = {
            label: _scores(mine, everything.clip(0), raw[label], {k: v for k, v in raw.items() if k != label})
            for label, mine in strata.items()
        }
        return {"tasks": self.common, "scaled_tasks": self.scaled, "methods": methods}


def write_table(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    """Records as a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    return path


def data_frame(records: list[dict[str, Any]]) -> Any:
    """Records as a pandas.DataFrame."""
    try:
        import pandas
    except ImportError as error:
        raise UserError("a frame needs pandas: pip install pandas, or use the records") from error
    return pandas.DataFrame(records)


def _area(curve: Curve, metric: str, first: int, last: int) -> float:
    """Between the same two steps for all that are compared. Where a curve was not evaluated at the first of
    them, on the line between its neighbours."""
    known = np.isfinite(curve.scores[metric])
    steps, values = curve.steps[known], curve.scores[metric][known]
    within = np.unique([max(first, int(steps[0])), *steps[(steps >= first) & (steps <= last)]])
    return area(within, np.interp(within, steps, values))


def _scores(
    strata: list[Values], everything: Values, raw: list[Values], rivals: dict[str, list[Values]]
) -> dict[str, Any]:
    """Statistics on the scale of `strata` and `everything`, and who beats whom, which needs none."""
    middle, average = stratified(strata, iqm), stratified(strata, mean)
    thresholds = np.linspace(everything.min(), everything.max(), 51)
    above = profile(strata, thresholds)
    return {
        **_told(middle),
        "mean": average.centre,
        "mean_interval": [average.low, average.high],
        "profile": {"thresholds": thresholds, "share": above.centre, "low": above.low, "high": above.high},
        "improvement_over": {
            other: _told(improvement(raw, lanes), "probability") for other, lanes in rivals.items()
        },
    }


def _told(found: Interval, centre: str = "iqm") -> dict[str, Any]:
    return {centre: found.centre, "interval": [found.low, found.high]}


# --- Which steps are compared, and with what


Metric = Literal["return", "success"]
TOGETHER = "all tasks together"  # how notes on the aggregate begin


def compare_runs(
    paths: Sequence[Path],
    metric: Metric = "return",
    at: int | None = None,
    random: dict[str, float] | None = None,
    trusted: bool = True,
) -> Compared:
    """The runs in these folders, at a step or at the last one that all runs of a task have.

    `random` is what random actions earn, by task. Where that is not given but an oracle is there to set the
    other end of the scale, a few episodes are played, unless the folders are not trusted."""
    curves, notes = read_curves(paths, trusted)
    return compare_curves(curves, metric, at, random, trusted, notes)


def compare_curves(
    curves: list[Curve],
    metric: Metric = "return",
    at: int | None = None,
    random: dict[str, float] | None = None,
    trusted: bool = True,
    notes: Sequence[str] = (),
) -> Compared:
    """The same of curves that have been read, and may have labels of one's own."""
    unknown = [curve for curve in curves if not curve.known(metric)]
    said = [*notes, *_per_run(unknown, f"has no {metric} that is a number")]
    curves = [curve for curve in curves if curve.known(metric)]
    check(len(curves) > 0, f"no run has a {metric} that is a number: there is nothing to compare")
    steps: dict[str, int] = {}
    for task in dict.fromkeys(curve.task for curve in curves):
        of_task = [curve for curve in curves if curve.task == task]
        step, lines = _meeting_point(task, of_task, at)
        said += lines
        if step is not None:
            steps[task] = step
            still = [c for c in of_task if step in c.steps and not np.isfinite(c.at(step, metric))]
            said += _per_run(still, f"stood still or diverged by step {step:,}")
    nowhere = "no task has a step at which all its runs were evaluated: give --at STEP"
    lost = nowhere if at is None else f"no run was evaluated at step {at:,}: choose another --at"
    check(len(steps) > 0, lost)
    given = {task: value for task, value in (random or {}).items() if task in steps}
    found = Compared(curves, metric, steps, given, said, unknown)
    if metric == "return" and trusted:
        measured, lines = _measured(found)
        found = replace(found, random={**measured, **given}, notes=[*said, *lines])
    return replace(found, notes=[*found.notes, *_on_numbers(found)])


def _meeting_point(task: str, curves: list[Curve], at: int | None) -> tuple[int | None, list[str]]:
    """The step at which a task's runs are compared, and what is to be said about it."""
    if at is not None:
        absent = _runs(curve for curve in curves if at not in curve.steps)
        present = [curve for curve in curves if at in curve.steps]
        lines = [f"{task}: {run} was not evaluated at step {at:,}, and is left out" for run in absent]
        return (at, lines) if present else (None, lines)
    common = set.intersection(*(set(curve.steps.tolist()) for curve in curves))
    if not common:
        return None, [f"{task}: its runs have no step in common: give --at STEP, which leaves others out"]
    step = max(common)
    short = [curve for curve in curves if curve.steps[-1] == step < curve.wanted]
    longest = max(int(curve.steps[-1]) for curve in curves)
    lines = []
    if longest > step and short:
        who = ", ".join(_runs(short))
        lines.append(f"{task}: compared at step {step:,}, since {who} stopped there (--at {longest})")
    elif longest > step:
        lines.append(f"{task}: compared at step {step:,}, the last that all have (others go to {longest:,})")
    elif short:
        wanted = max(curve.wanted for curve in short)
        lines.append(f"{task}: compared at step {step:,}: its runs are not finished ({wanted:,} steps)")
    return step, lines


def _per_run(curves: list[Curve], why: str) -> list[str]:
    """A line for each run whose seeds are left out."""
    lines = []
    for run in _runs(curves):
        seeds = ", ".join(str(curve.seed) for curve in curves if str(curve.run.path) == run)
        lines.append(f"{run}: seed {seeds} {why}, and is left out")
    return lines


def _measured(found: Compared) -> tuple[dict[str, float], list[str]]:
    """What random actions earn on tasks that have an oracle, and a line where they cannot be played."""
    measured: dict[str, float] = {}
    lines = []
    for task in [task for task in found.oracle if task not in found.random]:
        try:
            measured[task] = random_return(next(curve.run for curve in found.curves if curve.task == task))
        except FAILURES as error:
            failed = f"random actions could not be played ({one_line(error)})"
            lines.append(f"{task}: {failed}: give --random FILE")
    return measured, lines


def _on_numbers(found: Compared) -> list[str]:
    """What only the numbers tell: tasks without a scale, methods without a task, methods of few seeds."""
    lines = []
    for task in found.tasks:
        rivals = found.on(task)
        if len(rivals) == 1:
            lines.append(f"{task}: there is only {rivals[0]}, nothing to compare it with")
        if task in found.oracle and task in found.random and found.scale(task) is None:
            lines.append(f"{task}: the oracle is not above random actions, so that there is no scale")
        alone = [label for label in rivals if len(found.of(task, label)) == 1]
        if alone:
            lines.append(f"{task}: one seed of {', '.join(alone)}, so no interval")
        few = [label for label in rivals if 1 < len(found.of(task, label)) < FEW]
        if few:
            lines.append(f"{task}: fewer than {FEW} seeds of {', '.join(few)}, so intervals are too narrow")
    some = [task for task in found.tasks if task not in found.common]
    bare = [task for task in found.common if task not in found.scaled]
    if bare and len(found.tasks) > 1:
        missing = ", ".join(bare)
        lines.append(f"{TOGETHER}: no scale on {missing}, for want of an oracle or random actions")
    if some and len(found.tasks) > 1:
        said = f"{len(found.common)} of {len(found.tasks)} tasks" if found.common else "no task"
        lines.append(f"{TOGETHER}: {said}, since not every method is on {', '.join(some)}")
    return lines


def _runs(curves: Iterable[Curve]) -> list[str]:
    """Their folders, each once."""
    return list(dict.fromkeys(str(curve.run.path) for curve in curves))


# --- What random actions earn


def random_return(run: RunFolder, least_steps: int = 10_000, least_episodes: int = 10) -> float:
    """Mean true return of random actions in a run's environment: random episodes of short tasks differ."""
    run.need_trust("the environment")
    config = from_dict(EnvConfig, run.read_config()["env"])
    lane = Lane(config, 0, head="")
    returns: list[float] = []
    steps = 0
    try:
        while steps < least_steps or len(returns) < least_episodes:
            rewards = play_one(lane, None, (0, len(returns)))["true_rewards"]
            returns.append(float(np.sum(rewards, dtype=np.float64)))
            steps += len(rewards)
    finally:
        lane.close()
    return float(np.mean(returns))


def read_random(path: Path) -> dict[str, float]:
    """Returns of random actions by task, from a JSON object, or from what `apportion compare --json` said."""
    data = read_json_of_others(path, ": --random takes a JSON file")
    known = data.get("random", data) if isinstance(data, dict) else None
    good = isinstance(known, dict) and all(type(each) in (int, float, type(None)) for each in known.values())
    check(good, f'{path} has no numbers by task: write {{"HalfCheetah-v4": -280.2}}')
    return {str(task): float(each) for task, each in dict(known or {}).items() if each is not None}
