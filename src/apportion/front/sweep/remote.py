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
    variables: dict[str, str | None]  # of the environment, in place of the worker's own; None: not set


def carry(errand: Errand) -> str | None:
    """Carry out one job, or go on with it; why it failed, if it did."""
    if errand.stop.exists():
        return None
    variables = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    for name, value in errand.variables.items():
        variables.pop(name, None)
        variables |= {} if value is None else {name: value}
    with errand.task.log.open("a") as log:
        log.write(f"on {socket.gethostname()}\n")
    child = Child(errand.task, variables)
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


def sees(probe: Path, token: str) -> bool:
    """Whether the file that the driver wrote is here, too, and others may stand beside it."""
    try:
        return probe.read_text() == token and os.access(probe.parent, os.W_OK)
    except OSError:
        return False
