"""Boil run folders down to one small JSON file for results/: curves, settings, versions, and the graph's F1.

python benchmarks/record.py runs/a runs/sweep --out results/name.json
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from apportion.core.config import check
from apportion.report.curves import run_folders
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, read_json
from apportion.runs.summary import summarise
from lib import command

CURVES = ("return", "success", "reward_correlation", "episode_correlation", "return_error")


@dataclass(frozen=True)
class Record:
    """Write the curves of finished runs into one JSON file."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, or folders of them, such as those of sweeps."""
    out: Path
    """The file to write."""
    commit: str | None = None
    """Commit of the code, where the runs were made with an unpacked copy of it, not from its repository."""


def main(args: Record) -> None:
    folders = [folder for path in args.runs for folder in run_folders(path)]
    check(len(folders) > 0, f"{', '.join(map(str, args.runs))}: no run folder, nor any that holds one")
    write_json(args.out, {"runs": [record(RunFolder.open(folder), args.commit) for folder in folders]})


def record(run: RunFolder, commit: str | None) -> dict[str, Any]:
    evaluations = run.evaluations()
    unmade = {} if commit is None else {"commit": commit, "dirty": False}
    names = [name for name in CURVES if all(name in entry for entry in evaluations)]
    return {
        "config": run.read_config(),
        "versions": read_json(run.versions) | unmade,
        "status": read_json(run.status),
        "steps": [entry["step"] for entry in evaluations],
        "seconds": [round(entry["seconds"], 1) for entry in evaluations],
        "curves": {name: [rounded(entry[name]) for entry in evaluations] for name in names},  # [K][L]
        "structure": summarise(run)["structure"],
    }


def rounded(lanes: list[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.5g}") for value in lanes]


if __name__ == "__main__":
    command.start(main, Record)
