"""From folders to a comparison: where runs are compared, what is left out, and what is said about that."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from apportion.core.config import UserError, check, from_dict
from apportion.envs.faults import FAILURES
from apportion.envs.lane import Lane, play_one
from apportion.envs.make import EnvConfig
from apportion.report.comparison.reading import Curve, read_curves
from apportion.report.comparison.results import Comparison
from apportion.report.statistics import FEW
from apportion.runs.folder import RunFolder

Metric = Literal["return", "success"]
TOGETHER = "all tasks together"  # how notes on the aggregate begin


def compare_runs(
    paths: Sequence[Path],
    metric: Metric = "return",
    at: int | None = None,
    random: dict[str, float] | None = None,
    trusted: bool = True,
) -> Comparison:
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
) -> Comparison:
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
    check(len(steps) > 0, _nowhere(at))
    given = {task: value for task, value in (random or {}).items() if task in steps}
    found = Comparison(curves, metric, steps, given, said, unknown)
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


def _measured(found: Comparison) -> tuple[dict[str, float], list[str]]:
    """What random actions earn on tasks that have an oracle, and a line where they cannot be played."""
    measured: dict[str, float] = {}
    lines = []
    for task in found.oracle:
        if task in found.random:
            continue
        try:
            measured[task] = random_return(next(curve.run for curve in found.curves if curve.task == task))
        except FAILURES as error:
            reason = " ".join(str(error).split())
            lines.append(f"{task}: random actions could not be played ({reason}): give --random FILE")
    return measured, lines


def _on_numbers(found: Comparison) -> list[str]:
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


def _nowhere(at: int | None) -> str:
    if at is None:
        return "no task has a step at which all its runs were evaluated: give --at STEP"
    return f"no run was evaluated at step {at:,}: choose another --at"


def _runs(curves: Iterable[Curve]) -> list[str]:
    """Their folders, each once."""
    return list(dict.fromkeys(str(curve.run.path) for curve in curves))


# --- What random actions earn


STEPS = 10_000  # to play at the least; random episodes of short tasks differ much
EPISODES = 10  # the same
SEED = 0


def random_return(run: RunFolder) -> float:
    """Mean true return of some episodes of random actions in a run's environment."""
    run.need_trust("the environment")
    config = from_dict(EnvConfig, run.read_config()["env"])
    lane = Lane(config, SEED, head="", start=False)
    returns: list[float] = []
    steps = 0
    try:
        while steps < STEPS or len(returns) < EPISODES:
            rewards = play_one(lane, None, (0, len(returns)))["true_rewards"]
            returns.append(float(np.sum(rewards, dtype=np.float64)))
            steps += len(rewards)
    finally:
        lane.close()
    return float(np.mean(returns))


def read_random(path: Path) -> dict[str, float]:
    """Returns of random actions by task, from a JSON object, or from what `apportion compare --json` said."""
    try:
        data: Any = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"no file {path}: --random takes a JSON file") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): correct it") from error
    known = data.get("random", data) if isinstance(data, dict) else None
    good = isinstance(known, dict) and all(type(each) in (int, float, type(None)) for each in known.values())
    check(good, f'{path} has no numbers by task: write {{"HalfCheetah-v4": -280.2}}')
    return {str(task): float(each) for task, each in dict(known or {}).items() if each is not None}
