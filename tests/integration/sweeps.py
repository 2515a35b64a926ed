"""Sweeps of one small job, which can be held in the middle of its training."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from driver import Run, arrays, assert_same_arrays, records
from gated_env import GATE

import apportion

TASK = "gated_env:Gated-v0"
JOB = "gated_env-gated-v0-observed-sac"
SETTINGS: dict[str, Any] = {
    "steps_per_iteration": 200,
    "updates_per_iteration": 3,
    "warmup_steps": 400,
    "evaluate_every": 400,
    "evaluation_episodes": 3,
    "checkpoint_every": 400,
    "checkpoint_minutes": 1e9,
    "replay_steps": 1800,
    "workers": 0,
    "backbone.hidden": [8, 8],
    "backbone.batch_size": 16,
}
PATIENCE = 600.0  # seconds: only what hangs takes so long


def sweep_file(path: Path, **sweep: Any) -> Path:
    """One job, or as many as asked for."""
    head = {"tasks": [TASK], "methods": ["observed"], "seeds": 2, "steps": 1200, **sweep}
    lines = ["[sweep]", *(f"{name} = {json.dumps(value)}" for name, value in head.items())]
    lines += ["[set]", *(f'"{name}" = {json.dumps(value)}' for name, value in SETTINGS.items())]
    path.write_text("\n".join(lines))
    return path


def straight_run(out: Path) -> Run:
    """The same training in this process, without a break."""
    trained = apportion.train(
        TASK, "observed", seeds=2, steps=1200, settings=SETTINGS, out=out, quiet=True, backbone="sac"
    )
    return Run(trained.path)


def assert_same_numbers(found: Run, expected: Run) -> None:
    assert records(found) == records(expected)
    assert_same_arrays(arrays(found), arrays(expected))


@contextmanager
def closed_gate(folder: Path) -> Iterator[Path]:
    """Holds the jobs of sweeps in this folder that are started meanwhile, until the file is there."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv(GATE, str(folder / "open"))
        yield folder / "open"


def owner(run: Run) -> int:
    """The process that writes a run, once there is one, and a checkpoint."""
    lock = run.path / ".lock"

    def writer() -> int | None:
        text = lock.read_text() if any(run.checkpoints.glob("step_*")) else ""
        return int(text) if text and alive(int(text)) else None

    wait_until(lambda: writer() is not None)
    return int(lock.read_text())


def alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
