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


SECONDS_BETWEEN_LOOKS = 0.5


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
        while not child.ended(SECONDS_BETWEEN_LOOKS):
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


if __name__ == "__main__":
    main(*sys.argv[1:])
