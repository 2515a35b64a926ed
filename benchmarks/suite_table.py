"""Tables of the suite: what its run folders say, as plain data and as Markdown.

Normalised: 0 is a policy of random actions, 1 the oracle. Raw and scaled are the same task, so the better of
its two oracles is the measure of both: an oracle that fails in raw units must not flatter the others.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from suite_tasks import LEVELS, TASKS, env_id

from apportion.core.config import UserError
from apportion.report.statistics import Interval, interval, iqm
from apportion.runs import logs
from apportion.runs.folder import RunFolder, read_json

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
