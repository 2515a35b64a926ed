"""Sweeps of one small job, which can be held in the middle of its training."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gated_env import GATE

import apportion
from driver import SCHEDULE, Run, arrays, assert_same_arrays, records
from waiting import gone, wait_until

TASK = "gated_env:Gated-v0"
JOB = "gated_env-gated-v0-observed-sac"
SETTINGS = SCHEDULE | {"checkpoint_every": 400, "workers": 0}
SETTINGS |= {"backbone.hidden": [8, 8], "backbone.batch_size": 16}


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
        return int(text) if text and not gone(int(text)) else None

    wait_until(lambda: writer() is not None)
    return int(lock.read_text())
