"""Processes that tests wait for."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 1800.0  # seconds: only what hangs takes so long, not what runs on a busy machine


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def gone(process: int) -> bool:
    """Ended: at most a zombie, which whoever adopted it has not looked at yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
