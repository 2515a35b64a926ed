"""From folders to curves: the runs in them, and what each of their seeds scored at each evaluation."""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.report.overview import per_lane
from apportion.runs.folder import RunFolder
from apportion.runs.settings import dotted

SCORES = ("return", "success")


# --- What runs are called


# What does not make another method of a method: how long, how often looked at, and with how many hands.
_BESIDE_THE_POINT = ("steps", "evaluate_every", "evaluation_episodes", "overlap", "workers", "strict")
SECTIONS = ("method", "backbone", "schedule", "normalise")  # beside `env`
_ENV_IN_PRACTICE = ("timeout", "restarts")


class Known(NamedTuple):
    """A run before it has a name."""

    run: RunFolder
    config: dict[str, Any]
    given: Path  # the folder of the command line in which it lies

    @property
    def seeds(self) -> set[int]:
        return set(range(self.config["seed"], self.config["seed"] + self.config["lanes"]))

    @property
    def settings(self) -> dict[str, str]:
        """All that may tell two runs of a task and method apart, by the names of their flags."""
        data = {name: self.config[name] for name in SECTIONS if name in self.config}
        flat = {name.removeprefix("schedule."): value for name, value in _flat(data).items()}
        named = ("method.name", "backbone.name", *_BESIDE_THE_POINT)
        return {name: value for name, value in flat.items() if name not in named}


def name_tasks(runs: Sequence[Known]) -> list[str]:
    """The environment's id; with its settings, where runs of one id differ in these."""
    names = [run.config["env"]["id"] for run in runs]
    facts = [_flat({k: v for k, v in run.config["env"].items() if k not in _ENV_IN_PRACTICE}) for run in runs]
    result = []
    for name, own in zip(names, facts, strict=True):
        same_id = [each for each, other in zip(facts, names, strict=True) if other == name]
        result.append(_with(name, [f"env.{key}={own.get(key, '-')}" for key in _differing(same_id)]))
    return result


def name_runs(runs: Sequence[Known], tasks: Sequence[str]) -> list[str]:
    """The method; with its backbone, settings or folder, where runs of one task differ in these."""
    methods = [run.config["method"]["name"] for run in runs]
    backbones = [run.config["backbone"]["name"] for run in runs]
    pairs = list(zip(methods, tasks, backbones, strict=True))
    several = {m for m, t, b in pairs if any((m, t) == pair[:2] and b != pair[2] for pair in pairs)}
    labels = [_with(m, [b] if m in several else []) for m, b in zip(methods, backbones, strict=True)]
    result = list(labels)
    for label in dict.fromkeys(labels):
        places = [place for place, each in enumerate(labels) if each == label]
        told = _told_apart([runs[place] for place in places], [tasks[place] for place in places])
        for place, more in zip(places, told, strict=True):
            result[place] = _with(label, more)
    return result


def _told_apart(runs: list[Known], tasks: list[str]) -> list[list[str]]:
    """What to add to the name that these runs share, so that only equal ones of a task have the same."""
    grouped = [[run for run, task in zip(runs, tasks, strict=True) if task == one] for one in set(tasks)]
    keys = sorted({key for group in grouped for key in _differing([run.settings for run in group])})
    by_settings = keys if len(keys) <= 2 else []  # more are better named by their folder
    options: list[Callable[[Known], list[str]]] = [
        lambda run: [f"{key}={run.settings.get(key, '-')}" for key in by_settings],
        lambda run: [run.given.name or str(run.given)],
        lambda run: [run.run.path.name],
    ]
    for option in options:
        if all(_one_each(group, option) for group in grouped):
            return [option(run) for run in runs]
    return [[str(run.run.path)] for run in runs]


def _one_each(group: list[Known], name: Callable[[Known], list[str]]) -> bool:
    """Whether runs with the same name have the same settings, and no seed twice."""
    for one in {tuple(name(run)) for run in group}:
        same = [run for run in group if tuple(name(run)) == one]
        seeds = [seed for run in same for seed in run.seeds]
        if _differing([run.settings for run in same]) or len(seeds) > len(set(seeds)):
            return False
    return True


def _differing(facts: Sequence[dict[str, str]]) -> list[str]:
    """Names under which not all have the same."""
    names = dict.fromkeys(name for each in facts for name in each)
    return [name for name in names if len({each.get(name) for each in facts}) > 1]


def _flat(data: dict[str, Any]) -> dict[str, str]:
    """Settings by dotted names; lists and numbers as text."""
    items = dotted(data).items()
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in items}


def _with(name: str, more: Iterable[str]) -> str:
    return " · ".join([name, *more])


# --- Curves


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


def read_curves(paths: Sequence[Path], trusted: bool = True) -> tuple[list[Curve], list[str]]:
    """Every seed of every run in these folders, each a run's or one that holds runs at any depth; and a line
    on each thing that is left out."""
    check(len(paths) > 0, "no run folder given: name at least one")
    found, notes = _find(paths, trusted)
    runs: list[tuple[Known, list[dict[str, Any]]]] = []
    for each in found:
        examined = each.run.examine_metrics()
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
    # A run that never reports a success, while others of its task do, never succeeded.
    reported = {curve.task for curve in curves if curve.known("success")}
    for curve in curves:
        if curve.task in reported and not curve.known("success"):
            curve.scores["success"] = np.where(np.isfinite(curve.scores["return"]), 0.0, np.nan)
            said = "reports no success, while others of its task do: its success rate counts as 0"
            notes += [f"{curve.run.path}: {said}"] if curve.known("success") else []
    return curves, list(dict.fromkeys(notes))


def _find(paths: Sequence[Path], trusted: bool) -> tuple[list[Known], list[str]]:
    """The runs, each once. What is asked for by name must be one; what lies in a folder may be left out."""
    found: dict[Path, Known] = {}
    notes: list[str] = []
    for path in paths:
        inside = run_folders(path)
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
            if run.data.exists():
                notes.append(f"{folder} is left out: it was fitted to logged episodes, and has no policy")
            else:
                found[folder.resolve()] = known
    return list(found.values()), notes


def run_folders(path: Path) -> list[Path]:
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
