"""Write the tables of the pages from the JSON files in results/.

    python benchmarks/tables.py

Between `<!-- NAME -->` and `<!-- end -->` a page of docs/ has what this script makes of the data; the rest is
prose.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

import curves
import methods
import speed
import suite
from apportion.report.statistics import interval, mean
from apportion.runs.folder import read_json
from speed import markdown, number

ROOT = Path(__file__).parents[1]
STEP = 300_000  # of the MuJoCo tables
RIVALS = ("rd", "rrd", "rrd-unbiased", "ircr", "observed", "oracle")
# Dense rewards at 300,000 steps in the results folder of the SimBaV2 repository: SAC, CrossQ.
PUBLIC = {
    "HalfCheetah-v4": (8593, 10012),
    "Ant-v4": (3532, 5712),
    "Walker2d-v4": (2470, 5941),
    "Hopper-v4": (2160, 2644),
    "Humanoid-v4": (3015, 9039),
}

Data = dict[str, Any]


@dataclass(frozen=True)
class Tables:
    """Bring the tables of all pages up to date."""

    docs: Path = ROOT / "docs"
    """Where the pages are."""
    results: Path = ROOT / "results"
    """Where the JSON files are."""


def main(args: Tables) -> None:
    for page in sorted(args.docs.rglob("*.md")):
        text = page.read_text()
        if (new := filled(text, args.results)) != text:
            page.write_text(new)
            print(page)


def filled(page: str, results: Path) -> str:
    """The page with every table made anew."""

    def block(match: re.Match[str]) -> str:
        files, make = TABLES[match[1]]
        text = make(*(read_json(results / f"{file}.json") for file in files))
        return f"<!-- {match[1]} -->\n\n{text}\n\n<!-- end -->"

    return re.sub(r"<!-- ([a-z\-0-9]+) -->\n.*?<!-- end -->", block, page, flags=re.DOTALL)


# --- Speed


def on_machine(make: Callable[[Data], str]) -> Callable[[Data], str]:
    """The table, below what it was measured on."""

    def made(data: Data) -> str:
        versions = data["versions"]
        devices = ", ".join(sorted(set(versions["devices"])))
        cores = f", {data['cores']} cores" if "cores" in data else ""
        machine = f"{versions['platform']} ({devices}{cores}), JAX {versions['jax']}"
        return f"{machine}, Python {versions['python']}.\n\n{make(data)}"

    return made


def updates_of_methods(data: Data) -> str:
    """One row for each method, of one lane: milliseconds at each size."""
    rows = [row for row in data["updates"] if row["lanes"] == 1 and row["method"] != "grd (hybrid)"]
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    found = {(row["method"], row["size"]): row for row in rows}
    body = [
        (
            f"`{method}`",
            *(number(found[method, size].get("milliseconds")) for size in sizes),
            number(found[method, sizes[0]]["gflop_per_lane_update"]),
        )
        for method in dict.fromkeys(row["method"] for row in rows)
    ]
    return markdown(("method", *(f"{size} ms" for size in sizes), f"GFLOP ({sizes[0]})"), body)


# --- MuJoCo


def main_table(data: Data) -> str:
    """Mean returns over seeds at the last step: tasks and methods."""
    found = by_method(data)
    names = ("grd", *RIVALS)
    rows = [(task, *(returns(found.get((task, name))) for name in names)) for task in tasks_of(data)]
    return markdown(("task", *(f"`{name}`" for name in names)), rows)


def crossq_table(data: Data) -> str:
    """GRD, paid once an episode, beside the oracle and what others have with every reward."""
    found = by_method(data)
    rows = []
    for task in PUBLIC:
        grd, oracle = found[task, "grd"], found[task, "oracle"]
        share = centre(grd).mean() / centre(oracle).mean()
        public = [f"{value:,}" for value in PUBLIC[task]]
        correlation = curves._cell(grd.correlation, curves._at(grd, STEP), ".3f", mean)
        rows.append((task, returns(grd), returns(oracle), f"{share:.2f}", *public, correlation))
    heads = ("task", "`grd`", "`oracle`", "`grd` / `oracle`", "public SAC", "public CrossQ")
    return markdown((*heads, "correlation of `grd`"), rows)


def by_method(data: Data) -> dict[tuple[str, str], curves.Run]:
    """The runs of a file by task and method; those without a compact state are left out."""
    usual = [run for run in data["runs"] if run["config"]["method"].get("compact") != "none"]
    return {
        (run["config"]["env"]["id"], run["config"]["method"]["name"]): curves.as_run(run) for run in usual
    }


def tasks_of(data: Data) -> list[str]:
    return list(dict.fromkeys(run["config"]["env"]["id"] for run in data["runs"]))


def centre(run: curves.Run) -> Any:
    return run.returns[curves._at(run, STEP)]


def returns(run: curves.Run | None) -> str:
    """Mean over seeds [95% bootstrap interval]."""
    if run is None or curves._at(run, STEP) is None:
        return "-"
    return curves._formatted(interval(centre(run), mean), ",.0f")


# --- Own tasks


def methods_table(greenhouse: Data, often: Data, key_door: Data, lottery: Data) -> str:
    """Every method on four tasks, best return on the first of them first."""
    columns: dict[str, tuple[Data, str]] = {
        "Greenhouse, paid once: return": (greenhouse, "return"),
        "reward correlation": (greenhouse, "reward_correlation"),
        "F1 s→r / a→r": (greenhouse, "edges"),
        "paid every 20 steps: return": (often, "return"),
        "KeyDoor: door opened": (key_door, "success"),
        "KeyDoorLottery: door opened": (lottery, "success"),
    }

    def cell(data: Data, name: str, score: str) -> str:
        if name not in data["rows"]:
            return "-"
        if score == "edges":
            return methods.edges(data["lanes"][name]["structure"])
        return methods.cell(data["rows"][name].get(score), score)

    names = sorted(greenhouse["rows"], key=lambda name: -greenhouse["rows"][name]["return"][0])
    rows = [(f"`{name}`", *(cell(data, name, score) for data, score in columns.values())) for name in names]
    return markdown(("method", *columns), rows)


def suite_table(data: Data) -> str:
    """Normalised returns: random actions are 0, the better of the task's two oracles is 1."""
    keys = ("task", "units", "method")
    runs: suite.Runs = {tuple(run[key] for key in keys): run for run in data["runs"]}
    columns = {
        "`grd`, raw": ("raw", "grd"),
        "`grd`, scaled": ("scaled", "grd"),
        "`rd`, scaled": ("scaled", "rd"),
        "`--preset paper`, scaled": ("scaled", "published"),
        "`oracle`, scaled": ("scaled", "oracle"),
    }
    tasks = [task for task in suite.TASKS if any(key[0] == task for key in runs)]
    scores = {
        task: [suite.normalised(runs, (task, *column)) for column in columns.values()] for task in tasks
    }
    rows = [
        (task, *("-" if score is None else suite._cell(score, "{:.2f}") for score in scores[task]))
        for task in tasks
    ]
    lowest = [min(score.centre for score in column if score) for column in zip(*scores.values(), strict=True)]
    return markdown(("task", *columns), [*rows, ("lowest", *(f"{value:.2f}" for value in lowest))])


TABLES: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "peers-cpu": (("speed-cpu",), on_machine(speed.peers_table)),
    "updates-cpu": (("speed-cpu",), on_machine(updates_of_methods)),
    "trainings-cpu": (("speed-cpu",), on_machine(speed.trainings_table)),
    "memory": (("speed-cpu",), on_machine(speed.memory_table)),
    "peers-h200": (("speed-h200",), on_machine(speed.peers_table)),
    "trainings-h200": (("speed-h200",), on_machine(speed.trainings_table)),
    "main": (("main-h200",), main_table),
    "crossq": (("crossq-h200",), crossq_table),
    "suite": (("suite-h200",), suite_table),
    "methods": (
        ("greenhouse-all", "greenhouse-20-all", "key-door-all", "key-door-lottery-all"),
        methods_table,
    ),
}


if __name__ == "__main__":
    main(tyro.cli(Tables))
