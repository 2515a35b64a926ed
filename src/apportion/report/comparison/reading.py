"""From folders to curves: the runs in them, and what each of their seeds scored at each evaluation."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.errors import UserError
from apportion.report.comparison.labels import Known, name_runs, name_tasks
from apportion.report.curves import per_lane
from apportion.runs import logs
from apportion.runs.folder import RunFolder

SCORES = ("return", "success")


class Curve(NamedTuple):
    """One seed of a run."""

    run: RunFolder
    task: str
    label: str  # the method, and what tells it apart where that is not enough
    method: str
    backbone: str
    seed: int
    wanted: int  # steps that the run was made for
    steps: NDArray[np.int64]  # [K] of its evaluations
    scores: dict[str, NDArray[np.float64]]  # [K] each; NaN where it had none

    def at(self, step: int, score: str) -> float:
        """The score at a step; NaN where it was not evaluated then, or stood still."""
        found = np.flatnonzero(self.steps == step)
        return float(self.scores[score][found[0]]) if found.size else float("nan")

    def known(self, score: str) -> bool:
        return bool(np.isfinite(self.scores[score]).any())


class Read(NamedTuple):
    curves: list[Curve]
    notes: list[str]  # a line on each thing that is left out


def read_curves(paths: Sequence[Path], trusted: bool = True) -> Read:
    """Every seed of every run in these folders, each a run's or one that holds runs at any depth."""
    check(len(paths) > 0, "no run folder given: name at least one")
    found, notes = _find(paths, trusted)
    runs: list[tuple[Known, list[dict[str, Any]]]] = []
    for each in found:
        examined = logs.examine(each.run.metrics, each.config["lanes"])
        notes += examined.notes
        evaluations = [entry for entry in examined.entries if entry["kind"] == "eval"]
        if evaluations:
            runs.append((each, evaluations))
        else:
            notes.append(f"{each.run.path} is left out: it has no evaluation yet")
    where = ", ".join(map(str, paths))
    check(len(runs) > 0, f"nothing to compare in {where}: no run there has an evaluation")
    tasks = name_tasks([each for each, _ in runs])
    labels = name_runs([each for each, _ in runs], tasks)
    curves = [
        curve
        for (each, evaluations), task, label in zip(runs, tasks, labels, strict=True)
        for curve in curves_of(each.run, each.config, evaluations, task, label)
    ]
    return _with_failures(Read(curves, notes))


def _with_failures(read: Read) -> Read:
    """A run that never reports a success, while others of its task do, never succeeded."""
    reported = {curve.task for curve in read.curves if curve.known("success")}
    silent = [curve for curve in read.curves if curve.task in reported and not curve.known("success")]
    for curve in silent:
        curve.scores["success"] = np.where(np.isfinite(curve.scores["return"]), 0.0, np.nan)
    said = "reports no success, while others of its task do: its success rate counts as 0"
    runs = dict.fromkeys(str(curve.run.path) for curve in silent if curve.known("success"))
    return Read(read.curves, [*read.notes, *(f"{run}: {said}" for run in runs)])


def _find(paths: Sequence[Path], trusted: bool) -> tuple[list[Known], list[str]]:
    """The runs, each once. What is asked for by name must be one; what lies in a folder may be left out."""
    found: dict[Path, Known] = {}
    notes: list[str] = []
    for path in paths:
        inside = _run_folders(path)
        check(len(inside) > 0, f"{path} is no run folder and holds none: name what `apportion train` wrote")
        for folder in inside:
            if folder.resolve() in found:
                continue
            try:
                run = RunFolder.open(folder, trusted=trusted)
                known = Known(run, run.read_config(), path)
                run.read_spec()
            except UserError as error:
                if folder == path:
                    raise
                notes.append(f"{folder} is left out: {error}")
                continue
            if run.data.is_file():
                notes.append(f"{folder} is left out: it was fitted to logged episodes, and has no policy")
            else:
                found[folder.resolve()] = known
    return list(found.values()), notes


def _run_folders(path: Path) -> list[Path]:
    """The folder itself, or those below it; nothing inside a run is one."""
    found = []
    for place, below, files in os.walk(path):
        if {"config.json", "spec.json"} <= set(files):
            found.append(Path(place))
            below.clear()
        below.sort()
    return found


def curves_of(
    run: RunFolder, config: dict[str, Any], evaluations: list[dict[str, Any]], task: str, label: str
) -> list[Curve]:
    """The seeds of one run, under names that somebody has chosen."""
    steps = np.array([entry["step"] for entry in evaluations], np.int64)
    scores = {name: per_lane(evaluations, name, config["lanes"]) for name in SCORES}
    return [
        Curve(
            run=run,
            task=task,
            label=label,
            method=config["method"]["name"],
            backbone=config["backbone"]["name"],
            seed=config["seed"] + lane,
            wanted=config["schedule"]["steps"],
            steps=steps,
            scores={name: values[:, lane] for name, values in scores.items()},
        )
        for lane in range(config["lanes"])
    ]
