"""Boil run folders down to one small JSON file for results/: curves, speed, config, versions, commit.

python benchmarks/record.py runs/a runs/b --out results/name.json
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from apportion.runs import logs
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, read_json

CURVES = ("return", "reward_correlation", "episode_correlation", "return_error")


@dataclass(frozen=True)
class Record:
    """Write the curves and the speed of finished runs into one JSON file."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders."""
    out: Path
    """The file to write."""
    commit: str | None = None
    """Commit of the code, where the runs were made with an unpacked copy of it, not from its repository."""


def main(args: Record) -> None:
    write_json(args.out, {"runs": [record(RunFolder.open(path), args.commit) for path in args.runs]})


def record(run: RunFolder, commit: str | None) -> dict[str, Any]:
    evaluations = [entry for entry in logs.read(run.metrics) if entry["kind"] == "eval"]
    versions = read_json(run.versions)
    if commit is not None:
        versions |= {"commit": commit, "dirty": False}
    return {
        "config": run.read_config(),
        "versions": versions,
        "status": read_json(run.status),
        "speed": speed(run.read_config(), evaluations),
        "steps": [entry["step"] for entry in evaluations],
        "seconds": [round(entry["seconds"], 1) for entry in evaluations],
        "curves": {name: [rounded(entry[name]) for entry in evaluations] for name in CURVES},  # [K][L]
    }


def speed(config: dict[str, Any], evaluations: list[dict[str, Any]]) -> dict[str, float] | None:
    """From the first evaluation after warm-up to the last: without compilation, evaluations included."""
    schedule = config["schedule"]
    timed = [entry for entry in evaluations if entry["step"] > schedule["warmup_steps"]]
    if len(timed) < 2:
        return None
    steps = timed[-1]["step"] - timed[0]["step"]
    seconds = timed[-1]["seconds"] - timed[0]["seconds"]
    updates = steps * schedule["updates_per_iteration"] / schedule["steps_per_iteration"]
    return {
        "steps_per_second_per_lane": round(steps / seconds, 1),
        "updates_per_second_per_lane": round(updates / seconds, 1),
        "lane_updates_per_second": round(updates * config["lanes"] / seconds, 1),
    }


def rounded(lanes: list[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.5g}") for value in lanes]


if __name__ == "__main__":
    main(tyro.cli(Record))
