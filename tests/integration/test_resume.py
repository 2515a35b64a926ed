"""A run that was killed, stopped or merely too short goes on as if nothing had happened."""

import json
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from driver import (
    GREENHOUSE,
    Answer,
    Run,
    apart,
    apportion,
    arrays,
    assert_same_run,
    records,
    remarks,
    resume,
    tiny,
)
from driver import train as train_run

from apportion.runs import checkpoint
from apportion.runs.folder import read_json

PATIENCE = 1800.0  # seconds: only what hangs takes so long, not what runs on a busy machine

# Python for the doomed process: SIGKILL leaves it no moment to tidy up.
DIES_AFTER_LOGGING = """
import os, signal
from apportion.runs.logs import MetricsLog
write = MetricsLog.write
def write_and_die(self, step, kind, values):
    write(self, step, kind, values)
    if step == 1600 and kind == "eval":
        self.path.open("a").write('{"step": 1800, "ki')
        os.kill(os.getpid(), signal.SIGKILL)
MetricsLog.write = write_and_die
"""
DIES_WHILE_SAVING = """
import os, signal
replace = os.replace
def replace_or_die(temp, final):
    if final.parent.name == "checkpoints" and final.stem.endswith("2000"):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(temp, final)
os.replace = replace_or_die
"""


_slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("method", "flags", "death", "logged"),
    [
        ("grd", [], DIES_AFTER_LOGGING, 1600),
        _slow(
            "observed", ["--backbone", "flashsac", "--backbone.critic-hidden", "8"], DIES_AFTER_LOGGING, 1600
        ),
        _slow("published", ["--no-overlap", "--env.delay", "3-8"], DIES_WHILE_SAVING, 2000),
    ],
    ids=["overlap-logging", "flashsac", "published-no-overlap-windows-saving"],
)
def test_a_killed_run_resumes_bit_for_bit(
    method: str, flags: list[str], death: str, logged: int, greenhouse_run: Run, tmp_path: Path
) -> None:
    """Between the checkpoint and the end GRD looks for its edges."""
    settings = tiny(method, *flags)
    straight = train_run(tmp_path / "straight", GREENHOUSE, *settings) if flags else greenhouse_run

    killed = Run(tmp_path / "killed")
    process = apart("train", GREENHOUSE, "--out", killed.path, *settings, before=death)
    # Its worker processes hold the pipes too: this returns only when they have gone as well.
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == -signal.SIGKILL
    assert checkpoint.steps(killed.checkpoints) == [1000]
    evaluated = [line["step"] for line in records(killed) if line["kind"] == "eval"]
    assert evaluated[-1] == logged  # later than the checkpoint: the resume does it again

    resume(killed)
    assert_same_run(killed, straight)


@pytest.mark.slow
def test_resume_in_the_middle_of_a_mujoco_episode(tmp_path: Path) -> None:
    """The environment has no way to save its state: it is brought back by repeating the episode's actions."""
    flags = tiny("observed", "--seeds", "1", "--steps-per-iteration", "100", "--warmup-steps", "200")
    flags += ["--evaluate-every", "200", "--evaluation-episodes", "1", "--replay-steps", "700"]
    flags += ["--checkpoint-every", "400", "--env.max-episode-steps", "300"]
    straight = train_run(tmp_path / "straight", "HalfCheetah-v4", *flags, "--steps", "800")
    parts = train_run(tmp_path / "parts", "HalfCheetah-v4", *flags, "--steps", "400")
    assert arrays(parts)["where.0.actions"].shape == (200, 6)  # 400 steps and a chunk ahead, of 300 each
    resume(parts, "--steps", "800")
    assert_same_run(parts, straight)
    assert parts.read_config() == straight.read_config()


@pytest.fixture(scope="module")
def straight_and_resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A training that looks at all data after 600 steps (180 windows) and imagines from then on, and the same
    one stopped there."""
    folder = tmp_path_factory.mktemp("imagines")
    flags = tiny("grd", "--imagine.share", "0.5", "--imagine.after", "4")
    flags += ["--env.delay", "4", "--evaluate-every", "200", "--checkpoint-every", "600"]
    straight = train_run(folder / "straight", GREENHOUSE, *flags, "--steps", "1000")
    parts = train_run(folder / "parts", GREENHOUSE, *flags, "--steps", "600")
    resume(parts, "--steps", "1000")
    return straight, parts


@pytest.mark.slow
def test_resume_right_after_edges_were_found_in_closed_form(straight_and_resumed: tuple[Run, Run]) -> None:
    straight, parts = straight_and_resumed
    assert_same_run(parts, straight)
    _, edges = straight.read_edges()
    before, after = edges["state_to_reward"][1], edges["state_to_reward"][2]
    assert (before == 0.5).all()  # nothing is known yet
    assert (after == 1).any()


@pytest.mark.slow
def test_resume_of_a_run_that_imagines(straight_and_resumed: tuple[Run, Run]) -> None:
    """The checkpoint has the model in it, and is made after its first steps were used."""
    straight, parts = straight_and_resumed
    assert_same_run(parts, straight)
    shares = [line["imagined_share"] for line in records(straight) if line["kind"] == "train"]
    assert shares[0] == [0, 0]
    assert min(shares[-1]) > 0.25


@pytest.mark.slow
def test_a_signal_saves_and_says_how_to_go_on(out: Path) -> None:
    flags = [flag for flag in tiny("grd", "--steps", "4e5") if flag != "--quiet"]
    process = apart("train", GREENHOUSE, "--out", out, "--json", *flags)
    run = Run(out)
    _wait_for(run.metrics, process)
    process.terminate()
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM

    step = read_json(run.status)["step"]
    assert read_json(run.status)["state"] == "stopped"
    assert checkpoint.steps(run.checkpoints)[-1] == step
    assert remarks(stderr) == [f"Stopped at step {step:,} and saved. Continue: apportion resume {out}"]
    assert json.loads(stdout)["status"]["step"] == step

    resume(run, "--steps", str(step + 400))
    assert [read_json(run.status)[key] for key in ("state", "step")] == ["finished", step + 400]
    steps = [line["step"] for line in records(run) if line["kind"] == "train"]
    assert steps == list(range(400, step + 401, 200))


def _wait_for(file: Path, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert process.poll() is None, "the process ended early"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_resuming_a_finished_run_changes_nothing(out: Path) -> None:
    run = train_run(out, GREENHOUSE, *tiny("oracle", "--steps", "600"))
    state, lines = arrays(run), records(run)
    resume(run)
    assert read_json(run.status)["state"] == "finished"
    assert records(run) == lines
    for name, array in arrays(run).items():
        np.testing.assert_array_equal(array, state[name])


def test_a_run_cannot_be_resumed_to_before_where_it_is(out: Path) -> None:
    run = train_run(out, GREENHOUSE, *tiny("oracle", "--steps", "600"))
    config = run.read_config()
    answer = apportion("resume", out, "--steps", "400")
    expected = "error: --steps 400 is behind the run, which is at step 600: raise it\n"
    assert answer == Answer(1, "", expected)
    assert run.read_config() == config
