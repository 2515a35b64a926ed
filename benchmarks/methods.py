"""All methods on one task with a known graph: one table, side by side in one run, kept as JSON.

    python benchmarks/methods.py --seeds 5 --out results/greenhouse-all.json
    python benchmarks/methods.py --env apportion/KeyDoor-v0 --runs runs/key-door --out key-door.json
    python benchmarks/methods.py --env apportion/KeyDoor-v0 --collect runs/key-door --out key-door.json

With --runs the run folders are kept: the trainings may be shared out among machines by --methods, and started
again it skips those that are finished. Each row: median over seeds of the last evaluation, with a 95%
bootstrap interval of that median.
"""

import re
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from apportion.cli.display import remember_compilations
from apportion.methods import METHODS
from apportion.report import statistics
from apportion.runs import recording
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, read_json, versions
from apportion.runs.settings import Checkpoints
from apportion.runs.summary import summarise
from apportion.training.presets import GREENHOUSE, paper, preset
from apportion.training.settings import Config

FORMATS = {
    "return": ",.1f",
    "success": ".2f",
    "share_of_oracle": ".3f",
    "reward_correlation": ".3f",
    "return_error": ".4f",
}
SCORES = tuple(FORMATS)


@dataclass(frozen=True)
class Methods:
    """Train every method on one task and compare them with the oracle."""

    out: Path
    """JSON file to write."""
    env: str = GREENHOUSE
    """Environment id."""
    delay: str = "episode"
    """When reward is paid, as in `apportion train --env.delay`."""
    methods: tuple[str, ...] = ()
    """Which methods, the oracle among them; all when not given."""
    seeds: int = 5
    """Seeds per method."""
    steps: int | None = None
    """Environment steps per seed; the task's own setting when not given."""
    runs: Path | None = None
    """Where run folders are kept; nowhere when not given."""
    collect: Path | None = None
    """Train nothing: make the table from the run folders in here."""


def main(args: Methods) -> None:
    made_with = versions()
    with tempfile.TemporaryDirectory() as nowhere:
        folder = args.collect or args.runs or Path(nowhere)
        for name, config in variants(args).items() if args.collect is None else ():
            if not finished(folder / slug(name), config):
                print(f"{name} ...", file=sys.stderr)
                recording.train(config, Checkpoints(), folder / slug(name), quiet=True)
        found = {name: folder / slug(name) for name in variants(args)}
        results = {name: lanes(RunFolder.open(path)) for name, path in found.items() if path.exists()}
    if "oracle" not in results:
        sys.exit(f"no run of the oracle in {folder}: add it to --methods")
    oracle = np.median(results["oracle"]["return"])
    for result in results.values():
        result["share_of_oracle"] = [value / oracle for value in result["return"]]
    rows = {name: {score: interval(result[score]) for score in SCORES} for name, result in results.items()}
    write_json(args.out, {"command": command(args), "versions": made_with, "rows": rows, "lanes": results})
    print(table(rows, results))


def slug(name: str) -> str:
    """The name of its run folder."""
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def finished(path: Path, config: Config) -> bool:
    """Whether the training is there to its end; what was interrupted before makes room."""
    if not path.exists():
        return False
    run = RunFolder.open(path)
    status = read_json(run.status) if run.status.exists() else {}
    if status.get("state") == "finished" and status["step"] >= config.schedule.steps:
        return True
    shutil.rmtree(path)
    return False


def variants(args: Methods) -> dict[str, Config]:
    """Every registered method, GRD as published, and GRD whose policy sees everything."""
    configs = {name: settings(args, name) for name in args.methods or METHODS}
    if "grd" in configs:
        published = paper(configs["grd"])
        # From the default logit of 5, masks hide more of the input than so small a network can bear.
        gently = replace(published.method_config, initial_edge_logit=8.0)
        everything = replace(configs["grd"].method_config, compact="none")
        configs["grd (as published)"] = replace(published, method_config=gently)
        configs["grd (w/o compact representation)"] = replace(configs["grd"], method_config=everything)
    return configs


def settings(args: Methods, method: str) -> Config:
    config = preset(args.env, method, "sac")
    config = replace(config, lanes=args.seeds, env=replace(config.env, delay=args.delay))
    if args.steps is not None:
        config = replace(config, schedule=replace(config.schedule, steps=args.steps))
    return config


def lanes(run: RunFolder) -> dict[str, Any]:
    """What one method reached, by seed."""
    data = summarise(run)
    return {
        "config": data["config"],
        "seconds": data["status"]["seconds"],
        "return": data["final_return"],
        "success": data["success_per_lane"],  # None each where the task reports none
        "reward_correlation": data["reward_correlation_per_lane"],
        "return_error": data["return_error_per_lane"],
        "structure": data["structure"],
    }


def interval(values: list[float | None]) -> list[float] | None:
    """Median over seeds, and where there are two of them the 95% bootstrap interval of it."""
    known = [value for value in values if value is not None]
    found = statistics.interval(known, statistics.median).known()
    return [float(f"{number:.4g}") for number in found] or None


def command(args: Methods) -> str:
    steps = "" if args.steps is None else f" --steps {args.steps}"
    methods = f" --methods {' '.join(args.methods)}" if args.methods else ""
    return (
        f"python benchmarks/methods.py --env {args.env} --delay {args.delay}{methods} "
        f"--seeds {args.seeds}{steps} --out {args.out}"  # wherever the run folders lay
    )


def table(rows: dict[str, dict[str, list[float] | None]], results: dict[str, Any]) -> str:
    """Markdown: medians over seeds [95% interval]; scores that no method has are left out."""
    scores = [score for score in SCORES if any(row[score] is not None for row in rows.values())]
    heads = ["method", *(score.replace("_", " ") for score in scores), "F1 s→r / a→r", "seconds"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for name, row in rows.items():
        cells = [name, *(cell(row[score], score) for score in scores)]
        cells += [edges(results[name]["structure"]), f"{results[name]['seconds']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(found: list[float] | None, score: str) -> str:
    """Centre and interval, as exact as the score deserves."""
    if found is None:
        return "-"
    centre, *rest = (f"{value:{FORMATS[score]}}" for value in found)
    return f"{centre} [{', '.join(rest)}]" if rest else centre


def edges(structure: dict[str, float] | None) -> str:
    names = ("state_to_reward", "action_to_reward")
    return "-" if structure is None else " / ".join(f"{structure[name]:.2f}" for name in names)


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(Methods))
