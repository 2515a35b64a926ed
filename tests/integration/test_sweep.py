"""A sweep that was stopped, was killed or failed goes on when it is called again."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeps import JOB, assert_same_numbers, closed_gate, owner, sweep_file

from apportion.front.sweep.folder import SweepFolder
from apportion.front.sweep.planning import read_plan
from driver import Answer, Run, apart, apportion
from waiting import gone, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    with closed_gate(tmp_path) as opening:
        yield opening


def test_a_sweep_that_was_stopped_and_killed_ends_as_if_nothing_had_happened(
    tmp_path: Path, gated_run: Run, gate: Path
) -> None:
    file, out = sweep_file(tmp_path / "one.toml"), tmp_path / "out"
    run = Run(out / JOB)

    process = apart("sweep", file, "--out", out)
    owner(run)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "Stopping" not in process.stderr.readline():  # the job has been told by then
        assert process.poll() is None
    gate.touch()
    _, said = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "0 of 1 jobs are finished. The same command goes on." in said
    [job] = apportion("sweep", file, "--out", out, "--dry-run", "--json").json["jobs"]
    assert job["status"] == "stopped"

    gate.unlink()
    process = apart("sweep", file, "--out", out, "--quiet")
    child = owner(run)
    process.kill()
    process.communicate()
    wait_until(lambda: gone(child))

    gate.touch()
    assert apportion("sweep", file, "--out", out, "--quiet") == Answer(0, "", "")
    assert_same_numbers(run, gated_run)

    shutil.rmtree(run.checkpoints)  # to make room: what is finished stays so
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    answer = apportion("sweep", file, "--out", out, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert [(job["status"], job["run"]) for job in answer.json["jobs"]] == [("finished", str(run.path))]
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_a_job_that_dies_goes_on_from_its_checkpoint(tmp_path: Path, gated_run: Run, gate: Path) -> None:
    file, out = sweep_file(tmp_path / "one.toml"), tmp_path / "out"
    process = apart("sweep", file, "--out", out)
    os.kill(owner(Run(out / JOB)), signal.SIGKILL)
    gate.touch()
    _, said = process.communicate()
    assert process.returncode == 0
    reason = "it was ended by SIGKILL, perhaps for lack of memory"
    assert f"{JOB}: {reason}. It goes on from its newest checkpoint.\n" in said
    assert_same_numbers(Run(out / JOB), gated_run)


def test_a_job_that_fails_is_named_and_the_others_go_on(tmp_path: Path, gated_run: Run, gate: Path) -> None:
    """The first has a checkpoint that nobody can read; the second ended before it could say so."""
    gate.touch()
    file, out = sweep_file(tmp_path / "two.toml", methods=["oracle", "observed"]), tmp_path / "out"
    bad = JOB.replace("observed", "oracle")
    SweepFolder.open(out, read_plan(file))
    (out / bad / "checkpoints").mkdir(parents=True)
    (out / bad / "checkpoints" / "step_000000000400.safetensors").touch()
    shutil.copytree(gated_run.path, out / JOB)
    (out / JOB / "status.json").unlink()
    answer = apportion("sweep", file, "--out", out, "--quiet", "--json")
    reason = (
        f"{out / bad} is not a run folder (it has no config.json): name a folder that `apportion train` wrote"
    )
    assert (answer.code, answer.err) == (1, f"error: job {bad} failed: {reason}\n")
    assert [(job["status"], job["reason"]) for job in answer.json["jobs"]] == [
        ("failed", reason),
        ("finished", None),
    ]
    assert reason in (out / "logs" / f"{bad}.log").read_text()
