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
from types import TracebackType
from typing import NamedTuple, Self

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
            self._process = subprocess.Popen(
                [*program, str(os.getpid()), str(task.run), *task.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(variables),
                cwd=task.folder if task.folder.is_dir() else None,
                process_group=0,  # Ctrl-C is for the sweep, which then asks each job to save
            )

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, after waiting so long at the most."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Ask it to save and end."""
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def problem(self) -> str | None:
        """Why it failed; None if it did not."""
        code = self._process.returncode
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


PATIENCE = 60.0  # seconds for an earlier process of the same job to be gone, on a machine that was lost


def command(run: Path, train: list[str]) -> list[str]:
    """The words after `apportion`. A run that was killed before its first checkpoint begins anew."""
    from apportion.front.sweep.folder import has_checkpoint

    if not run.exists():
        return train
    free = _is_free(run)
    if has_checkpoint(run):
        return ["resume", str(run)]
    if free:
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


def _is_free(run: Path) -> bool:
    """Whether nobody writes the run, now or soon."""
    from apportion.runs.folder import RunFolder

    end = time.monotonic() + PATIENCE
    while True:
        try:
            with RunFolder(run).lock():
                return True
        except UserError:
            if time.monotonic() > end:
                return False
        time.sleep(0.2)


def main(parent: str, run: str, *train: str) -> None:
    die_with_parent(int(parent))
    sys.argv = ["apportion", *command(Path(run), list(train))]
    runpy.run_module("apportion", run_name="__main__", alter_sys=True)


# --- What Ray's workers do


class RemoteJob(NamedTuple):
    task: Task
    stop: Path  # there when it should save and end
    modules: str | None  # PYTHONPATH where the sweep was called
    threads: str | None  # OMP_NUM_THREADS there


def carry(job: RemoteJob) -> str | None:
    """Carry out one job, or go on with it; why it failed, if it did."""
    if job.stop.exists():
        return None
    with job.task.log.open("a") as log:
        log.write(f"on {socket.gethostname()}\n")
    child = Child(job.task, _variables(job))
    try:
        asked = False
        while not child.ended(0.5):
            if job.stop.exists() and not asked:
                child.stop()
                asked = True
    except BaseException:
        child.kill()
        raise
    return child.problem()


def _variables(job: RemoteJob) -> dict[str, str]:
    """Of this machine, but for two. Modules of one's own are found as where the sweep was called. And Ray
    limits the threads of its workers, which would change the last digits of sums."""
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    paths = [path for path in (job.modules, os.environ.get("PYTHONPATH")) if path]
    variables |= {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
    variables.pop("OMP_NUM_THREADS", None)
    return variables if job.threads is None else {**variables, "OMP_NUM_THREADS": job.threads}


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
        # Several processes may share a card, so none may take all of its memory at once.
        variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
        if place is not None:
            variables["CUDA_VISIBLE_DEVICES"] = place
        self._running[task.name] = (Child(task, variables), place)

    def working(self, name: str) -> bool:
        return True

    def ended(self) -> dict[str, str | None]:
        """Jobs that have ended since, and why those failed that did."""
        gone = [name for name, (child, _) in self._running.items() if child.ended()]
        problems = {}
        for name in gone:
            child, place = self._running.pop(name)
            self._free.append(place)
            problems[name] = child.problem()
        return problems

    def stop(self) -> None:
        for child, _ in self._running.values():
            child.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
