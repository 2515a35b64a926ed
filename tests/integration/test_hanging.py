"""An environment that hangs keeps nobody from stopping a training, and no worker outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from driver import Run, apart, tiny

import faulty_envs
from apportion.runs import checkpoint
from apportion.runs.folder import read_json
from faulty_envs import episode_seed

PATIENCE = 600.0  # seconds: only what hangs takes so long, not what runs on a busy machine
BEFORE = f"""
from apportion.envs import supervisor
supervisor.PATIENCE = 1.0
sys.path.append({str(Path(faulty_envs.__file__).parent)!r})
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


def _hanging(how: str, folder: Path) -> "tuple[subprocess.Popen[str], list[int]]":
    """A training whose second seed hangs in its first chunk, and its workers."""
    mark = folder / "hangs"
    kwargs = json.dumps({"how": how, "seeds": [episode_seed(1, 3)], "mark": str(mark)})
    flags = tiny("oracle", "--workers", "1", "--env.kwargs", kwargs)
    process = apart("train", "faulty_envs:Faulty-v0", "--out", folder / "run", *flags, before=BEFORE)
    _wait(lambda: mark.exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    workers = [
        int(word)
        for task in Path(f"/proc/{process.pid}/task").glob("*/children")
        for word in task.read_text().split()
    ]
    assert workers
    return process, workers


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def _gone(process: int) -> bool:
    """Ended: at most a zombie, which whoever adopted it has not looked at yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(("number", "how"), [(signal.SIGTERM, "spins"), (signal.SIGINT, "hangs")])
def test_one_signal_saves_though_an_environment_hangs(number: int, how: str, tmp_path: Path) -> None:
    process, workers = _hanging(how, tmp_path)
    os.kill(process.pid, number)
    process.communicate(timeout=PATIENCE)
    run = Run(tmp_path / "run")
    assert process.returncode == 128 + number
    assert checkpoint.steps(run.checkpoints) == [read_json(run.status)["step"]] == [200]
    assert "did not answer within 1 s" in read_json(run.status)["faults"][0]["reason"]
    assert all(map(_gone, workers))


def test_a_second_interrupt_ends_everything_at_once(tmp_path: Path) -> None:
    process, workers = _hanging("spins", tmp_path)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (130, "error: interrupted\n")
    assert all(map(_gone, workers))


def test_a_killed_training_takes_its_workers_along_also_those_that_hang(tmp_path: Path) -> None:
    process, workers = _hanging("spins", tmp_path)
    process.kill()
    process.communicate(timeout=PATIENCE)
    _wait(lambda: all(map(_gone, workers)))
