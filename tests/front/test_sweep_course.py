"""Where the jobs of a sweep run, and what is shown meanwhile."""

import os
import pty
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from apportion.front.choosing import Job
from apportion.front.sweep import carrying
from apportion.front.sweep.carrying import Board, carry_out
from apportion.front.sweep.folder import Standing
from apportion.front.sweep.on_ray import demand
from apportion.front.sweep.process import Child, Task, places
from apportion.runs.atomic import write_json
from apportion.training.presets import GREENHOUSE
from disks import ReaderGone

WAITS = Standing(Job("a", GREENHOUSE), Path("a"), "waiting", 0, 800)
RUNS = replace(WAITS, state="running", step=200)


@pytest.mark.parametrize(
    ("gpus", "cores", "jobs", "per_gpu", "expected"),
    [
        ([], 2, None, 1, [None]),
        ([], 16, None, 1, [None] * 4),
        ([], 2, 3, 1, [None] * 3),
        (["0", "1"], 16, None, 1, ["0", "1"]),
        (["0", "1"], 16, None, 2, ["0", "1", "0", "1"]),
        (["0", "1"], 16, 3, 1, ["0", "1", "0"]),
        (["0", "1", "2", "3"], 16, 2, 1, ["0,2", "1,3"]),
    ],
)
def test_jobs_share_cores_and_gpus(
    gpus: list[str], cores: int, jobs: int | None, per_gpu: int, expected: list[str | None]
) -> None:
    assert places(gpus, cores, jobs, per_gpu) == expected


@pytest.mark.parametrize(
    ("machines", "per_gpu", "expected"),
    [
        ([{"CPU": 1.0}], 1, (1, 0.0)),
        ([{"CPU": 2.0}, {"CPU": 64.0}], 1, (4, 0.0)),
        ([{"CPU": 64.0}, {"CPU": 16.0, "GPU": 8.0}], 1, (2, 1.0)),
        ([{"CPU": 16.0, "GPU": 8.0}], 3, (1, 0.3333)),
    ],
)
def test_jobs_of_a_cluster_ask_for_cores_and_gpus_that_are_there(
    machines: list[dict[str, float]], per_gpu: int, expected: tuple[int, float]
) -> None:
    assert demand(machines, per_gpu) == expected


def test_elsewhere_than_on_a_terminal_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with closing(Board(quiet=False, clock=lambda: now[0])) as board:
        for standing in (WAITS, RUNS, replace(RUNS, step=400)):
            board.show([standing])
        now[0] = 61.0
        board.show([replace(RUNS, step=600, score="3.1 4.2")])
        board.show([replace(RUNS, state="failed", reason="no room")])
    with closing(Board(quiet=True)) as silent:
        silent.show([RUNS])
    assert capsys.readouterr().err.splitlines() == [
        "a: running, step 200/800",
        "a: running, step 600/800, return 3.1 4.2",
        "a: failed: no room",
    ]


def test_a_terminal_gets_a_table_of_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    other = replace(WAITS, job=Job("b", GREENHOUSE), state="failed", reason="no [room]")
    with os.fdopen(slave, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        with closing(Board(quiet=False)) as board:
            board.show([WAITS, other])
            board.message("Stopping")
        shown = os.read(master, 100_000).decode()
    os.close(master)
    assert all(text in shown for text in ("waiting", "0/800", "no [room]", "2 jobs: 1 failed, 1 waiting"))
    assert "Stopping" in shown


def test_a_sweep_goes_on_when_nobody_reads_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", ReaderGone())
    with closing(Board(quiet=False)) as board:
        board.show([RUNS])
        board.message("Stopping")


class _Dying:
    """An engine whose jobs all die, each after it has written the next of these checkpoints."""

    room = 1

    def __init__(self, checkpoints: list[int | None], state: str = "running") -> None:
        self.checkpoints = checkpoints
        self.status = {"state": state, "seconds": 1.0, "lines": 0, "faults": []}
        self.dead: list[str] = []

    def start(self, task: Task) -> None:
        self.dead.append(task.name)
        if (step := self.checkpoints.pop(0)) is not None:
            (task.run / "checkpoints").mkdir(parents=True, exist_ok=True)
            (task.run / "checkpoints" / f"step_{step:012d}.safetensors").touch()
            write_json(task.run / "status.json", {**self.status, "step": step})

    def ended(self) -> dict[str, str | None]:
        ended, self.dead = self.dead, []
        return dict.fromkeys(ended, "no room")

    def working(self, name: str) -> bool:
        return False

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("checkpoints", "state", "left", "again"),
    [([100, 200, None, 300], "running", [300], 2), ([100, None], "frozen", [None], 0)],
    ids=["while it comes further", "not without a seed left to train"],
)
def test_a_job_that_dies_is_started_again(
    checkpoints: list[int | None],
    state: str,
    left: list[int | None],
    again: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a frozen run the first attempt knows the reason; a second could only say that it cannot go on."""
    engine = _Dying(checkpoints, state)
    monkeypatch.setattr(carrying, "_engine", lambda *_: engine)
    monkeypatch.setattr(carrying, "SECONDS_BETWEEN_LOOKS", 0.0)
    [standing] = carry_out([Job("a", GREENHOUSE)], tmp_path).standings
    assert (standing.state, standing.reason, engine.checkpoints) == ("failed", "no room", left)
    assert capsys.readouterr().err.count("a: no room. It goes on from its newest checkpoint.") == again


def test_a_job_that_leaves_without_an_error_is_not_blamed_on_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho Writing\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    child = Child(Task("a", [], tmp_path / "a", tmp_path / "a.log", tmp_path), os.environ)
    assert child.process.wait(60) == 3
    said = "it ended with exit code 3, after saying 'Writing'"
    assert child.problem() == f"{said} (see {tmp_path / 'a.log'})"
