"""The suite of own tasks: tasks x units x methods, seeds side by side; one JSON file, Markdown tables.

    python benchmarks/suite.py --part development --out results/suite-development.json
    python benchmarks/suite.py --collect runs/suite --out results/suite.json

Methods run as a new user gets them: only the number of steps is set and, with --small, networks of 64-64.
Started again, it skips what is finished and resumes what was interrupted. SIGTERM saves all runs and ends it
with the tables of what there is.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import suite_table
import tyro
from suite_tasks import DEVELOPMENT, HELD_OUT, LEVELS, TASKS, UNSEEN, env_id

from apportion.core.children import StopRequest
from apportion.core.config import UserError
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, read_json, versions

Part = Literal["development", "held-out", "unseen", "all"]
Method = Literal["grd", "rd", "published", "oracle", "observed", "crossq"]

PARTS: dict[Part, tuple[str, ...]] = {
    "development": DEVELOPMENT,
    "held-out": HELD_OUT,
    "unseen": UNSEEN,
    "all": TASKS,
}
FLAGS: dict[str, tuple[str, ...]] = {
    "grd": (),
    "rd": ("--method", "rd"),
    "published": ("--preset", "paper"),
    "oracle": ("--method", "oracle"),
    "observed": ("--method", "observed"),
    "crossq": ("--backbone", "crossq"),
}
WITHOUT_NETWORK = ("oracle", "observed")
SMALL = ("64", "64")


@dataclass(frozen=True)
class Suite:
    """Run the suite of own tasks and print its tables."""

    out: Path | None = None
    """JSON file to write."""
    runs: Path = Path("runs/suite")
    """Folder of the run folders."""
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


class Job(NamedTuple):
    """One training, and where it goes."""

    task: str
    units: str
    method: str
    path: Path


def main(args: Suite) -> int:
    code = 0 if args.collect is not None else run_all(args)
    found = suite_table.collect(args.collect or args.runs)
    if args.out is not None:
        write_json(args.out, as_data(found))
    print(suite_table.tables(found))
    return code


def as_data(found: suite_table.Runs) -> dict[str, Any]:
    names = ("task", "units", "method")
    return {
        "command": shlex.join(["python", "benchmarks/suite.py", *sys.argv[1:]]),
        "versions": versions(),
        "levels": {task: LEVELS[task]._asdict() for task in TASKS},
        "runs": [{**dict(zip(names, key, strict=True)), **run} for key, run in found.items()],
    }


def planned(args: Suite) -> list[Job]:
    """Every training that was asked for; those of one task stand together."""
    tasks = args.tasks or PARTS[args.part]
    unknown = [task for task in tasks if task not in TASKS]
    if unknown:
        raise UserError(f"no task {unknown[0]!r} in the suite: choose from {', '.join(TASKS)}")
    units = suite_table.UNITS if args.units == "both" else (args.units,)
    keys = [(task, unit, method) for task in tasks for unit in units for method in args.methods]
    return [Job(*key, args.runs.resolve() / suite_table.folder_name(*key)) for key in keys]


# --- One training


def command(args: Suite, job: Job) -> list[str] | None:
    """What brings a training to its end from where it is; None where it is there already."""
    apportion = [sys.executable, "-m", "apportion"]
    if not (job.path / "config.json").exists():
        return [*apportion, "train", *training_flags(args, job)]
    run = RunFolder.open(job.path)
    lanes = run.read_config()["lanes"]
    if lanes != args.seeds:
        raise UserError(f"{job.path} has {lanes} seeds, not {args.seeds}: choose another --runs")
    status = read_json(run.status) if run.status.exists() else {}
    if status.get("state") == "finished" and status["step"] >= args.steps:
        return None
    if any(run.checkpoints.glob("step_*")):
        return [*apportion, "resume", str(job.path), "--steps", str(args.steps)]
    return [*apportion, "train", *training_flags(args, job)]


def training_flags(args: Suite, job: Job) -> list[str]:
    flags = [f"suite_tasks:{env_id(job.task, job.units == 'scaled')}", *FLAGS[job.method]]
    flags += ["--seeds", str(args.seeds), "--steps", str(args.steps), "--out", str(job.path)]
    if args.small:
        flags += ["--backbone.hidden", *SMALL]
        flags += [] if job.method in WITHOUT_NETWORK else ["--method.hidden", *SMALL]
    return flags if args.workers is None else [*flags, "--workers", str(args.workers)]


def start(words: Sequence[str], job: Job) -> subprocess.Popen[bytes]:
    """The training as a process of its own group: Ctrl-C reaches it only through us."""
    if "train" in words and job.path.exists():
        shutil.rmtree(job.path)  # it was interrupted before its first checkpoint
    job.path.parent.mkdir(parents=True, exist_ok=True)
    modules = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Several trainings share one GPU only if none of them takes all of its memory at the start.
    environment = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(modules),
    }
    with log_of(job).open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)


def log_of(job: Job) -> Path:
    return job.path.parent / f"{job.path.name}.log"


# --- All of them


def run_all(args: Suite) -> int:
    """Run what is left to do, `jobs` at a time. 0 when everything is finished."""
    waiting = [(job, words) for job in planned(args) if (words := command(args, job)) is not None]
    total, failed = len(waiting), 0
    running: list[tuple[Job, subprocess.Popen[bytes], float]] = []
    with StopRequest() as stop:
        try:
            while (waiting and not stop.requested) or running:
                while waiting and len(running) < args.jobs and not stop.requested:
                    job, words = waiting.pop(0)
                    running.append((job, start(words, job), time.monotonic()))
                    print(f"{total - len(waiting)}/{total} {job.path.name} ...", flush=True)
                if stop.requested:
                    terminate(running)
                time.sleep(0.5)
                for entry in [each for each in running if each[1].poll() is not None]:
                    running.remove(entry)
                    failed += not stop.requested and not ended_well(*entry)
        finally:
            terminate(running)
    if stop.signal is not None:
        print("stopped: the same command goes on from here", file=sys.stderr)
        return 128 + stop.signal
    return 1 if failed else 0


def ended_well(job: Job, process: subprocess.Popen[bytes], began: float) -> bool:
    seconds = time.monotonic() - began
    if process.returncode == 0:
        print(f"{job.path.name}: finished after {seconds:.0f} s", flush=True)
        return True
    print(
        f"{job.path.name}: failed with {process.returncode}, see {log_of(job)}", file=sys.stderr, flush=True
    )
    return False


def terminate(running: list[tuple[Job, subprocess.Popen[bytes], float]]) -> None:
    """Asks each training to save and end, once."""
    for _, process, _ in running:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for _, process, _ in running:
        process.wait()


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Suite)))
    except UserError as error:
        sys.exit(str(error))
