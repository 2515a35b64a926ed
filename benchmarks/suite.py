"""The suite of own tasks: tasks x units x methods, seeds side by side; one JSON file, Markdown tables.

    python benchmarks/suite.py --part development --out results/suite-development.json
    python benchmarks/suite.py --collect runs/suite-all --out results/suite.json

Methods run as a new user gets them: only the number of steps is set and, with --small, networks of 64-64.
It is a sweep: started again, it skips what is finished and resumes what was interrupted, and SIGTERM saves
all runs and ends it with the tables of what there is. Another selection needs other --runs.

Normalised, 0 is a policy of random actions and 1 the oracle. Raw and scaled are the same task, so the better
of its two oracles is the measure of both: an oracle that fails in raw units must not flatter the others.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from apportion.core.config import UserError
from apportion.front.choosing import Job
from apportion.front.sweep.carrying import How, carry_out
from apportion.report.statistics import Interval, interval, iqm
from apportion.runs import logs
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, read_json, versions
from lib import command
from suite_tasks import DEVELOPMENT, HELD_OUT, LEVELS, TASKS, UNSEEN, env_id

Part = Literal["development", "held-out", "unseen", "all"]
Method = Literal["grd", "rd", "published", "oracle", "observed", "crossq"]

PARTS: dict[Part, tuple[str, ...]] = {
    "development": DEVELOPMENT,
    "held-out": HELD_OUT,
    "unseen": UNSEEN,
    "all": TASKS,
}
CHOICES: dict[str, dict[str, Any]] = {
    "grd": {},
    "rd": {"method": "rd"},
    "published": {"preset": "paper"},
    "oracle": {"method": "oracle"},
    "observed": {"method": "observed"},
    "crossq": {"backbone": "crossq"},
}
WITHOUT_NETWORK = ("oracle", "observed")
SMALL = (64, 64)
TITLES = {
    "grd": "`grd`",
    "rd": "`rd`",
    "published": "`grd --preset paper`",
    "oracle": "`oracle`",
    "observed": "`observed`",
    "crossq": "`grd`, CrossQ",
}
RIVALS = ("rd", "published")
UNITS = ("raw", "scaled")
SEPARATOR = "--"
LAST = 2  # evaluations that make a final return

Runs = dict[tuple[str, str, str], dict[str, Any]]  # by task, units and method


@dataclass(frozen=True)
class Suite:
    """Run the suite of own tasks and print its tables."""

    out: Path | None = None
    """JSON file to write."""
    runs: Path | None = None
    """Folder of the run folders; runs/suite-PART, or runs/suite-TASKS, when not given."""
    collect: Path | None = None
    """Run nothing: make the tables from the run folders in here."""
    part: Part = "development"
    """Which five of the tasks, or all; `unseen` is for one run at the end."""
    tasks: tuple[str, ...] = ()
    """Only these tasks, of any part."""
    methods: tuple[Method, ...] = ("grd", "rd", "published", "oracle")
    """Which methods; `published` is `grd --preset paper`, `crossq` is `grd` with that backbone."""
    units: Literal["raw", "scaled", "both"] = "both"
    """Which form of the tasks."""
    seeds: int = 5
    """Seeds per training."""
    steps: int = 60_000
    """Environment steps per seed."""
    jobs: int = 1
    """How many trainings at once."""
    workers: int | None = None
    """Environment processes of each training, as in `apportion train`; results do not depend on it."""
    small: bool = True
    """Networks of 64-64; otherwise their sizes are left at the default, too."""


def main(args: Suite) -> int:
    code = 0 if args.collect is not None else run_all(args)
    found = collect(args.collect or folder_of(args))
    if args.out is not None:
        write_json(args.out, as_data(found))
    print(tables(found))
    return code


def as_data(found: Runs) -> dict[str, Any]:
    names = ("task", "units", "method")
    return {
        "command": command.given(),
        "versions": versions(),
        "levels": {task: LEVELS[task]._asdict() for task in TASKS},
        "runs": [{**dict(zip(names, key, strict=True)), **run} for key, run in found.items()],
    }


def folder_of(args: Suite) -> Path:
    return args.runs or Path("runs") / "-".join(["suite", *(args.tasks or [args.part])])


def planned(args: Suite) -> list[Job]:
    """Every training that was asked for; those of one task stand together."""
    tasks = args.tasks or PARTS[args.part]
    unknown = [task for task in tasks if task not in TASKS]
    if unknown:
        raise UserError(f"no task {unknown[0]!r} in the suite: choose from {', '.join(TASKS)}")
    units = UNITS if args.units == "both" else (args.units,)
    keys = [(task, unit, method) for task in tasks for unit in units for method in args.methods]
    return [_job(args, *key) for key in keys]


def _job(args: Suite, task: str, units: str, method: str) -> Job:
    settings: dict[str, Any] = {} if args.workers is None else {"workers": args.workers}
    if args.small:
        settings["backbone.hidden"] = SMALL
        settings |= {} if method in WITHOUT_NETWORK else {"method.hidden": SMALL}
    return Job(
        name=folder_name(task, units, method),
        env=f"suite_tasks:{env_id(task, units == 'scaled')}",
        seeds=args.seeds,
        steps=args.steps,
        settings=settings,
        **CHOICES[method],
    )


def run_all(args: Suite) -> int:
    """Run what is left to do, `jobs` at a time. 0 when everything is finished."""
    modules = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(modules)  # trainings find the tasks there
    carried = carry_out(planned(args), folder_of(args), How(jobs=args.jobs))
    for each in carried.failed:
        print(f"{each.job.name} failed: {each.reason}", file=sys.stderr)
    if carried.signal is not None:
        print("stopped: the same command goes on from here", file=sys.stderr)
        return 128 + carried.signal
    return 0 if carried.done else 1


# --- What run folders say


def folder_name(task: str, units: str, method: str) -> str:
    """The run folder of one training."""
    return f"{env_id(task, units == 'scaled')}{SEPARATOR}{method}"


def collect(folder: Path) -> Runs:
    """All runs of the suite in a folder that have been evaluated at least once."""
    keys = [(task, units, method) for task in TASKS for units in UNITS for method in TITLES]
    paths = {key: folder / folder_name(*key) for key in keys}
    found = {
        key: record(RunFolder.open(path)) for key, path in paths.items() if (path / "config.json").exists()
    }
    runs = {key: run for key, run in found.items() if run["steps"]}
    if not runs:
        raise UserError(
            f"{folder} holds no run of the suite with an evaluation: name the folder given as --runs"
        )
    return runs


def record(run: RunFolder) -> dict[str, Any]:
    """What is kept of one run: all returns and, per seed, the mean of the last and the last scores."""
    evaluations = [entry for entry in logs.read(run.metrics) if entry["kind"] == "eval"]
    returns = np.array([entry["return"] for entry in evaluations], float)  # [K, L]
    last = evaluations[-1] if evaluations else {}
    return {
        "config": run.read_config(),
        "versions": read_json(run.versions),
        "status": read_json(run.status) if run.status.exists() else {},
        "steps": [entry["step"] for entry in evaluations],
        "returns": [[_rounded(value) for value in entry["return"]] for entry in evaluations],
        "final_return": [_rounded(value) for value in returns[-LAST:].mean(axis=0)] if evaluations else [],
        "reward_correlation": [_rounded(value) for value in last.get("reward_correlation", [])],
        "return_error": [_rounded(value) for value in last.get("return_error", [])],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.5g}")


# --- Scores


def final(run: dict[str, Any]) -> Interval:
    return interval(_known(run["final_return"]), iqm)


def oracle_level(runs: Runs, task: str) -> float | None:
    """The better of the oracle's interquartile means on a task, raw or scaled."""
    levels = [final(runs[key]).centre for units in UNITS if (key := (task, units, "oracle")) in runs]
    return max((level for level in levels if np.isfinite(level)), default=None)


def normalised(runs: Runs, key: tuple[str, str, str]) -> Interval | None:
    """Random actions are 0, the oracle is 1; None without an oracle that beats random actions."""
    oracle, random = oracle_level(runs, key[0]), LEVELS[key[0]].random
    if key not in runs or oracle is None or oracle <= random:
        return None
    return Interval(*((value - random) / (oracle - random) for value in final(runs[key])))


def share_of_best(runs: Runs, task: str, units: str) -> float | None:
    """The normalised score of `grd`, as a share of the best of its rivals."""
    ours = normalised(runs, (task, units, "grd"))
    rivals = [normalised(runs, (task, units, method)) for method in RIVALS]
    best = max((rival.centre for rival in rivals if rival is not None), default=0.0)
    return None if ours is None or best <= 0 else ours.centre / best


def _known(lanes: Iterable[float | None]) -> list[float]:
    return [np.nan if value is None else value for value in lanes]


# --- Markdown


def tables(runs: Runs) -> str:
    methods = [method for method in TITLES if any(key[2] == method for key in runs)]
    rows = list(dict.fromkeys((task, units) for task, units, _ in runs))
    parts = [
        "Returns: interquartile mean over seeds [95% interval]",
        *returns_table(runs, rows, methods),
        "Normalised: random actions are 0, the oracle is 1",
        *normalised_table(runs, rows, methods),
        "Reward correlation / return error: medians over seeds",
        *scores_table(runs, rows, methods),
    ]
    late = [
        f"{folder_name(*key)} ({run['status'].get('state', 'unknown')}, step {run['steps'][-1]:,})"
        for key, run in runs.items()
        if run["status"].get("state") != "finished"
    ]
    return "\n\n".join([*parts, *([f"Not finished: {', '.join(late)}"] if late else [])])


def returns_table(runs: Runs, rows: list[tuple[str, str]], methods: list[str]) -> list[str]:
    body = []
    for row in rows:
        level = LEVELS[row[0]]
        cells = [
            _cell(final(runs[*row, method]), "{:,.1f}") if (*row, method) in runs else "-"
            for method in methods
        ]
        body.append([*row, *cells, f"{level.random:,.1f}", f"{level.rule:,.1f}"])
    return [_markdown([*_heads(methods), "random", "hand rule"], body)]


def normalised_table(runs: Runs, rows: list[tuple[str, str]], methods: list[str]) -> list[str]:
    body, shares = [], []
    for row in rows:
        scores = [normalised(runs, (*row, method)) for method in methods]
        share = share_of_best(runs, *row)
        shares.append(share)
        cells = ["-" if score is None else _cell(score, "{:.2f}") for score in scores]
        body.append([*row, *cells, "-" if share is None else f"{share:.2f}"])
    columns = [[normalised(runs, (*row, method)) for row in rows] for method in methods]
    lowest = [min((score.centre for score in column if score), default=None) for column in columns]
    lowest.append(min((share for share in shares if share is not None), default=None))
    body.append(["lowest", "", *("-" if value is None else f"{value:.2f}" for value in lowest)])
    return [_markdown([*_heads(methods), "`grd` / best of `rd`, `--preset paper`"], body)]


def scores_table(runs: Runs, rows: list[tuple[str, str]], methods: list[str]) -> list[str]:
    def cell(run: dict[str, Any] | None) -> str:
        names = ("reward_correlation", "return_error")
        return "-" if run is None else " / ".join(_median(run[name]) for name in names)

    body = [[*row, *(cell(runs.get((*row, method))) for method in methods)] for row in rows]
    return [_markdown(_heads(methods), body)]


def _heads(methods: list[str]) -> list[str]:
    return ["task", "units", *(TITLES[method] for method in methods)]


def _median(lanes: list[float | None]) -> str:
    known = [value for value in lanes if value is not None]
    return f"{np.median(known):.2f}" if known else "-"


def _cell(found: Interval, form: str) -> str:
    numbers = [form.format(number) for number in found.known()]
    return (
        "-"
        if not numbers
        else numbers[0]
        if len(numbers) < 3
        else f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"
    )


def _markdown(heads: list[str], body: list[list[str]]) -> str:
    rule = f"|---|---|{'---:|' * (len(heads) - 2)}"
    return "\n".join([f"| {' | '.join(heads)} |", rule, *(f"| {' | '.join(row)} |" for row in body)])


if __name__ == "__main__":
    command.start(main, Suite)
