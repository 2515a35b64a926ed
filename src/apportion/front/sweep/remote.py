"""What Ray's workers do for a sweep; light, for they import it anew on every machine."""

import os
import socket
from pathlib import Path
from typing import NamedTuple

from apportion.front.sweep.process import Child, Task

SECONDS_BETWEEN_LOOKS = 0.5


class Errand(NamedTuple):
    task: Task
    stop: Path  # there when it should save and end
    modules: str | None  # PYTHONPATH where the sweep was called
    threads: str | None  # OMP_NUM_THREADS there


def carry(errand: Errand) -> str | None:
    """Carry out one job, or go on with it; why it failed, if it did."""
    if errand.stop.exists():
        return None
    with errand.task.log.open("a") as log:
        log.write(f"on {socket.gethostname()}\n")
    child = Child(errand.task, _variables(errand))
    try:
        asked = False
        while not child.ended(SECONDS_BETWEEN_LOOKS):
            if errand.stop.exists() and not asked:
                child.stop()
                asked = True
    except BaseException:
        child.kill()
        raise
    return child.problem()


def _variables(errand: Errand) -> dict[str, str]:
    """Of this machine, but for two. Modules of one's own are found as where the sweep was called. And Ray
    limits the threads of its workers, which would change the last digits of sums."""
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    paths = [path for path in (errand.modules, os.environ.get("PYTHONPATH")) if path]
    variables |= {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
    variables.pop("OMP_NUM_THREADS", None)
    return variables if errand.threads is None else {**variables, "OMP_NUM_THREADS": errand.threads}


def sees(probe: Path, token: str) -> bool:
    """Whether the file that the driver wrote is here, too, and others may stand beside it."""
    try:
        return probe.read_text() == token and os.access(probe.parent, os.W_OK)
    except OSError:
        return False
