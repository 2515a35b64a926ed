"""The process that carries a job out: how it is started, and what it says when it fails.

Ray's workers import this file, so it needs neither JAX nor the rest of the package.
"""

import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from apportion.core.children import die_with_parent
from apportion.core.config import UserError
from apportion.core.files import LOG_BYTES, opened, own
from apportion.core.terminal import say


class Task(NamedTuple):
    """A job, ready to start; all in it are words that another machine understands."""

    name: str
    words: list[str]  # of `apportion train`
    run: Path
    log: Path  # is added to
    folder: Path  # where the command was given: modules of one's own lie there


class Child:
    """A running job. It ends with the process that started it, however that ends."""

    def __init__(self, task: Task, variables: Mapping[str, str]) -> None:
        self._task = task
        program = [sys.executable, "-P", "-m", "apportion.front.sweep.process"]
        with os.fdopen(own(task.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            self._since = log.seek(0, os.SEEK_END)
            self.process = subprocess.Popen(
                [*program, str(os.getpid()), str(task.run), *task.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Several processes may share a card, so none may take all of its memory at once.
                env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **variables},
                cwd=task.folder if task.folder.is_dir() else None,
                process_group=0,  # Ctrl-C is for the sweep, which then asks each job to save
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def problem(self) -> str | None:
        """Why it failed; None if it did not."""
        code = self.process.returncode
        if code == 0:
            return None
        with opened(self._task.log, LOG_BYTES) as log:
            log.seek(self._since)
            lines = log.read().decode(errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if errors:
            return errors[-1]
        if code < 0:
            memory = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
            return f"it was ended by {signal.Signals(-code).name}{memory}"
        said = [line.strip() for line in lines if line.strip()]
        after = f", after saying {said[-1]!r}" if said else ""
        return f"it ended with exit code {code}{after} (see {self._task.log})"


# --- What that process does: `apportion train`, or `apportion resume` where there is a checkpoint


def main(parent: str, run: str, *train: str) -> None:
    die_with_parent(int(parent))
    sys.argv = ["apportion", *command(Path(run), list(train))]
    runpy.run_module("apportion", run_name="__main__", alter_sys=True)


def command(run: Path, train: list[str]) -> list[str]:
    """The words after `apportion`. A run that was killed before its first checkpoint begins anew."""
    from apportion.front.sweep.folder import has_checkpoint
    from apportion.runs.folder import RunFolder

    # An earlier process of the same job, on a machine that was lost, may need a while to be gone.
    end, free = time.monotonic() + 60, not run.exists()
    while not free and time.monotonic() < end:
        try:
            with RunFolder(run).lock():
                free = True
        except UserError:
            time.sleep(0.2)
    if has_checkpoint(run):
        return ["resume", str(run)]
    if free and run.exists():
        clear_way(run)
    return train


def clear_way(run: Path) -> None:
    """Removes a run that had learned nothing yet. One that had, or that somebody has put something beside, is
    set aside: its checkpoints may only be elsewhere."""
    from apportion.runs.folder import RunFolder

    folder = RunFolder(run)
    foreign = {path.name for path in run.iterdir()} - folder.names
    if not foreign and not (folder.metrics.exists() and folder.read_metrics()):
        shutil.rmtree(run)
        return
    aside, number = run.with_name(f"{run.name}.without-checkpoints"), 1
    while aside.exists():
        number += 1
        aside = run.with_name(f"{run.name}.without-checkpoints-{number}")
    run.rename(aside)
    say(f"{run} has no checkpoint any more: it is kept as {aside}, and begins anew")


# --- What Ray's workers do


def carry(task: Task, stop: Path, modules: str | None, threads: str | None) -> str | None:
    """Carry out one job, or go on with it, until `stop` is there; why it failed, if it did.

    `modules` and `threads` are PYTHONPATH and OMP_NUM_THREADS where the sweep was called: modules of one's
    own are found as there, and the threads that Ray gives its workers would change the last digits of sums.
    """
    if stop.exists():
        return None
    with task.log.open("a") as log:
        log.write(f"on {socket.gethostname()}\n")
    paths = [path for path in (modules, os.environ.get("PYTHONPATH")) if path]
    given = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": threads}
    others = {name: value for name, value in os.environ.items() if name not in given}
    child = Child(task, others | {name: value for name, value in given.items() if value})
    try:
        asked = False
        while child.process.poll() is None:
            if stop.exists() and not asked:
                child.process.terminate()
                asked = True
            time.sleep(0.2)
    except BaseException:
        child.kill()
        raise
    return child.problem()


def sees(probe: Path, token: str) -> bool:
    """Whether the file that the driver wrote is here, too, and others may stand beside it."""
    try:
        return probe.read_text() == token and os.access(probe.parent, os.W_OK)
    except OSError:
        return False


# --- Processes of this machine, each with its share of the GPUs


CORES_PER_JOB = 4  # that one training keeps busy where it computes on them


class Local:
    """An engine: starts processes, and ends those that are left when it is closed."""

    def __init__(self, jobs: int | None, per_gpu: int) -> None:
        self._free = places(_gpus(), os.cpu_count() or 1, jobs, per_gpu)
        self.room = len(self._free)
        self._running: dict[str, tuple[Child, str | None]] = {}

    def start(self, task: Task) -> None:
        place = self._free.pop(0)
        gpus = {} if place is None else {"CUDA_VISIBLE_DEVICES": place}
        self._running[task.name] = (Child(task, {**os.environ, **gpus}), place)

    def working(self, name: str) -> bool:
        return name in self._running

    def ended(self) -> dict[str, str | None]:
        """Jobs that have ended since, and why those failed that did."""
        problems = {}
        for name, (child, place) in list(self._running.items()):
            if child.process.poll() is not None:
                del self._running[name]
                self._free.append(place)
                problems[name] = child.problem()
        return problems

    def stop(self) -> None:
        for child, _ in self._running.values():
            child.process.terminate()

    def close(self) -> None:
        for child, _ in self._running.values():
            child.kill()


def places(gpus: list[str], cores: int, jobs: int | None, per_gpu: int) -> list[str | None]:
    """For each job that may run at a time, the GPUs that it sees; None where there are none.

    More jobs than GPUs take turns on them, fewer get several each: a training splits its seeds over those.
    """
    count = jobs or (len(gpus) * per_gpu if gpus else max(1, cores // CORES_PER_JOB))
    if not gpus:
        return [None] * count
    shares = [gpus[first::count] for first in range(min(count, len(gpus)))]
    return [",".join(shares[job % len(shares)]) for job in range(count)]


def _gpus() -> list[str]:
    """Those that a training would find here. JAX is not asked: it would keep them for this process."""
    wanted = os.environ.get("JAX_PLATFORMS") or "cuda"
    if wanted.split(",")[0] not in ("cuda", "gpu"):
        return []
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    question = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.split()


if __name__ == "__main__":
    main(*sys.argv[1:])
