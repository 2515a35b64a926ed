"""A sweep that fails, is stopped or killed in any way, and is called again, ends as if nothing had happened."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver import Answer, Run, apart, apportion
from gated_env import GATE
from sweeps import JOB, TASK, alive, assert_same_numbers, gate, owner, straight_run, sweep_file, wait_until

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return straight_run(tmp_path_factory.mktemp("straight") / "run")


@pytest.fixture(autouse=True)
def closed_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For processes that are started here: this one has none."""
    monkeypatch.setenv(GATE, str(tmp_path / "open"))
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *before.split(os.pathsep)]))
    yield
    gate().touch()


def test_a_sweep_that_was_stopped_and_killed_ends_as_if_nothing_had_happened(
    tmp_path: Path, straight: Run
) -> None:
    file, out = sweep_file(tmp_path / "one.toml"), tmp_path / "out"
    run = Run(out / JOB)

    process = apart("sweep", file, "--out", out)
    owner(run)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "Stopping" not in process.stderr.readline():  # the job has been told by then
        assert process.poll() is None
    gate().touch()
    _, said = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert f"0 of 1 jobs are finished. Continue: apportion sweep {file} --out {out}" in said
    assert (
        apportion("sweep", file, "--out", out, "--dry-run", "--json").json["jobs"][0]["status"] == "stopped"
    )

    gate().unlink()
    process = apart("sweep", file, "--out", out, "--quiet")
    child = owner(run)
    process.kill()
    process.communicate()
    wait_until(lambda: not alive(child))

    gate().touch()
    assert apportion("sweep", file, "--out", out, "--quiet") == Answer(0, "", "")
    assert_same_numbers(run, straight)

    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    answer = apportion("sweep", file, "--out", out, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert [(job["status"], job["run"]) for job in answer.json["jobs"]] == [("finished", str(run.path))]
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_a_job_that_fails_is_named_and_the_others_go_on(tmp_path: Path, straight: Run) -> None:
    """The first has a checkpoint that nobody can read; the second ended before it could say so."""
    file, out = sweep_file(tmp_path / "two.toml", methods=["oracle", "observed"]), tmp_path / "out"
    assert apportion("sweep", file, "--out", out, "--dry-run").code == 0
    assert not out.exists()
    bad = JOB.replace("observed", "oracle")
    (out / bad / "checkpoints" / "step_000000000400").mkdir(parents=True)
    shutil.copytree(straight.path, out / JOB)
    (out / JOB / "status.json").unlink()
    (out / "sweep.json").write_text("")
    print(apportion("sweep", file, "--out", out))
