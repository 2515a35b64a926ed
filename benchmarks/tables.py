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

import numpy as np
import tyro

import credit
import curves
import journeys
import speed
import structure
import suite_tasks
from apportion.report.statistics import Interval, interval, iqm, mean, median
from apportion.runs.folder import read_json
from lib.command import markdown, number
from lib.credit_problems import UNSEEN

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
        correlation = curves.cell(grd.correlation, curves.at_step(grd, STEP), ".3f", mean)
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
    return run.returns[curves.at_step(run, STEP)]


def returns(run: curves.Run | None) -> str:
    """Mean over seeds [95% bootstrap interval]."""
    if run is None or curves.at_step(run, STEP) is None:
        return "-"
    return curves.formatted(interval(centre(run), mean), ",.0f")


# --- Own tasks

GREENHOUSE, KEY_DOOR, LOTTERY = (
    f"apportion/{name}-v0" for name in ("Greenhouse", "KeyDoor", "KeyDoorLottery")
)
# Columns of the small tasks: environment, when it pays, what is shown, and in which form.
SMALL = {
    "Greenhouse, paid once: return": (GREENHOUSE, "episode", "return", ",.1f"),
    "reward correlation": (GREENHOUSE, "episode", "reward_correlation", ".3f"),
    "F1 s→r / a→r": (GREENHOUSE, "episode", "structure", ".2f"),
    "paid every 20 steps: return": (GREENHOUSE, "20", "return", ",.1f"),
    "KeyDoor: door opened": (KEY_DOOR, "episode", "success", ".2f"),
    "KeyDoorLottery: door opened": (LOTTERY, "episode", "success", ".2f"),
}
LAST = 2  # evaluations that make a final return of the suite


def small_table(data: Data) -> str:
    """Every method on the small tasks, best on the first of them first: medians at the last evaluation."""

    def key(run: Data) -> tuple[str, str, str]:
        return run["config"]["env"]["id"], run["config"]["env"]["delay"], curves.variant(run["config"])

    runs = {key(run): run for run in data["runs"]}
    names = [name for env, delay, name in runs if (env, delay) == (GREENHOUSE, "episode")]
    first = {name: np.median(runs[GREENHOUSE, "episode", name]["curves"]["return"][-1]) for name in names}
    rows = [
        (
            f"`{name}`",
            *(small_cell(runs.get((*at, name)), score, form) for *at, score, form in SMALL.values()),
        )
        for name in sorted(names, key=lambda name: -first[name])
    ]
    return markdown(("method", *SMALL), rows)


def small_cell(run: Data | None, score: str, form: str) -> str:
    if run is None or (score == "structure" and run["structure"] is None):
        return "-"
    if score == "structure":
        return " / ".join(f"{run[score][block]:{form}}" for block in ("state_to_reward", "action_to_reward"))
    return curves.formatted(interval(run["curves"][score][-1], median), form)


def suite_table(data: Data) -> str:
    """Normalised returns: random actions are 0, the better of the task's two oracles is 1."""
    runs = {
        (run["config"]["env"]["id"], curves.variant(run["config"])): interval(
            np.mean(np.array(run["curves"]["return"][-LAST:], float), axis=0), iqm
        )
        for run in data["runs"]
    }
    columns = {
        "`grd`, raw": (False, "grd"),
        "`grd`, scaled": (True, "grd"),
        "`rd`, scaled": (True, "rd"),
        "`--preset paper`, scaled": (True, "grd, published"),
        "`oracle`, scaled": (True, "oracle"),
    }
    rows, scores = [], []
    for task, random in suite_tasks.RANDOM.items():
        ids = {scaled: f"suite_tasks:{suite_tasks.env_id(task, scaled)}" for scaled in (False, True)}
        # An oracle that fails in raw units must not flatter the others.
        oracle = max(runs[env_id, "oracle"].centre for env_id in ids.values())
        found = [runs[ids[scaled], name] for scaled, name in columns.values()]
        shares = [Interval(*((x - random) / (oracle - random) for x in each)) for each in found]
        scores.append([share.centre for share in shares])
        rows.append((task, *(curves.formatted(share, ".2f") for share in shares)))
    lowest = [f"{min(column):.2f}" for column in zip(*scores, strict=True)]
    return markdown(("task", *columns), [*rows, ("lowest", *lowest)])


def credit_table(data: Data) -> str:
    """Means over the draws of each kind of log; those that nobody had looked at are marked."""
    methods, rows = ("grd", "rd", "rrd"), []
    forms = {"covered": ".0%", "determined": ".0%", "truly_determined": ".0%"}
    for kind in dict.fromkeys(each["kind"] for each in data["problems"] if each["method"] == "grd"):
        mine = {
            name: [each for each in data["problems"] if (each["kind"], each["method"]) == (kind, name)]
            for name in methods
        }
        cells = [f"{np.mean([each['correlation'] for each in mine[name]]):.3f}" for name in methods]
        cells += [f"{np.mean([each[name] for each in mine['grd']]):{form}}" for name, form in forms.items()]
        rows.append((f"{kind}*" if kind in UNSEEN else kind, *cells))
    names = (*(f"`{name}`" for name in methods), "covered", "determined", "truly")
    return markdown(("log", *names), rows)


def real_table(data: Data) -> str:
    """Public logs by the posterior alone, and how an even split of outcomes goes with the truth."""
    forms = {"covered": ".0%", "width": ".2f", "determined": ".0%", "truly_determined": ".0%"}
    found = {(each["kind"], each["method"]): each for each in data["problems"]}
    rows = []
    for kind in credit.REAL:
        cells = [f"{found[kind, name]['correlation']:.3f}" for name in (credit.CLOSED_FORM, credit.EVEN)]
        cells += [f"{found[kind, credit.CLOSED_FORM][name]:{form}}" for name, form in forms.items()]
        rows.append((kind, *cells))
    return markdown(("log", "correlation", "even split", "covered", "width", "determined", "truly"), rows)


def offline_table(data: Data) -> str:
    """Played returns of policies from logs of 300 episodes or more, over logs and seeds."""
    columns, rows = ("grd", "rd", "true"), []
    whole = [each for each in data["policies"] if each["episodes"] >= 300 and each["updates"] == 10_000]
    heads = {(each["task"], each["episodes"], each["learner"]) for each in whole if each["rewards"] == "true"}
    for task, episodes, learner in sorted(heads):
        head = (task, episodes, learner)
        mine = [each for each in whole if (each["task"], each["episodes"], each["learner"]) == head]
        played = [[each["played"] for each in mine if each["rewards"] == name] for name in columns]
        cells = [curves.formatted(interval(np.array(each), mean), ".1f") for each in played]
        behaviour = f"{np.mean([each['behaviour'] for each in mine]):.1f}"
        rows.append((task, f"`{learner}`", f"{episodes:,}", behaviour, *cells, str(len(played[0]))))
    names = ("what was done", "`grd`", "`rd`", "true rewards", "seeds")
    return markdown(("task", "learner", "episodes", *names), rows, texts=2)


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
    "methods": (("small-tasks",), small_table),
    "credit": (("credit",), credit_table),
    "credit-real": (("credit",), real_table),
    "offline": (("offline",), offline_table),
    "journeys": (("journeys",), journeys.shown),
    "calibration": (("structure-calibration",), structure.shown),
    "episodes": (("identification-episodes",), structure.shown),
}


if __name__ == "__main__":
    main(tyro.cli(Tables))
