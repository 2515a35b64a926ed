"""The process that carries a job out: how it is started, and what it says when it fails.

Ray's workers import this file, so it needs neither JAX nor the rest of the package.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


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
        command = [sys.executable, "-m", "apportion.front.sweep.child", str(os.getpid()), str(task.run)]
        with task.log.open("ab") as log:
            self._since = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                [*command, *task.words],
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
        with self._task.log.open("rb") as log:
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
