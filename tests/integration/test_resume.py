"""A run that was killed, stopped or merely too short goes on as if nothing had happened: a seed says all."""

import json
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.runs import checkpoint
from apportion.runs.folder import read_json
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
from waiting import PATIENCE, wait_until

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
def test_resume_right_after_edges_were_found_in_closed_form(tmp_path: Path) -> None:
    """It looks at all data after 600 steps (180 windows), when its checkpoint is made."""
    flags = tiny("grd", "--env.delay", "4", "--evaluate-every", "200", "--checkpoint-every", "600")
    straight = train_run(tmp_path / "straight", GREENHOUSE, *flags, "--steps", "1000")
    parts = train_run(tmp_path / "parts", GREENHOUSE, *flags, "--steps", "600")
    resume(parts, "--steps", "1000")
    assert_same_run(parts, straight)
    assert parts.read_config() == straight.read_config()
    _, edges = straight.read_edges()
    before, after = edges["state_to_reward"][1], edges["state_to_reward"][2]
    assert (before == 0.5).all()  # nothing is known yet
    assert (after == 1).any()


@pytest.mark.slow
def test_a_signal_saves_and_says_how_to_go_on(out: Path) -> None:
    flags = [flag for flag in tiny("grd", "--steps", "4e5") if flag != "--quiet"]
    process = apart("train", GREENHOUSE, "--out", out, "--json", *flags)
    run = Run(out)
    wait_until(lambda: run.metrics.exists() or process.poll() is not None)
    assert process.poll() is None
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


def test_resuming_a_finished_run_changes_nothing(out: Path) -> None:
    """But that the oldest checkpoint goes, where the run was killed before it removed that."""
    run = train_run(out, GREENHOUSE, *tiny("oracle", "--steps", "600"))
    state, lines = arrays(run), records(run)
    for step in (200, 400):
        shutil.copy(checkpoint.place(run.checkpoints, 600), checkpoint.place(run.checkpoints, step))
    resume(run)
    assert checkpoint.steps(run.checkpoints) == [400, 600]
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


# --- A seed says all: the same one gives the same numbers, another one does not


def test_the_same_seed_gives_the_same_run_with_more_workers(greenhouse_run: Run, out: Path) -> None:
    assert_same_run(train_run(out, GREENHOUSE, *tiny("grd", "--workers", "2")), greenhouse_run)


def test_lanes_are_seeds_and_do_not_touch_each_other(greenhouse_run: Run, out: Path) -> None:
    """Two lanes from seed 1 on are the seeds 1 and 2: the first of them is the second lane of before."""
    other = train_run(out, GREENHOUSE, *tiny("grd", "--seed", "1"))
    found, expected = _lane(other, 0), _lane(greenhouse_run, 1)
    assert found.keys() == expected.keys()
    for name, array in expected.items():  # the last digit may depend on a lane's place
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
    first, second = _returns(greenhouse_run)
    seed_1, seed_2 = _returns(other)
    assert seed_1 == pytest.approx(second, rel=1e-3)
    assert len({*map(tuple, (first, second, seed_2))}) == 3


def _lane(run: Run, lane: int) -> dict[str, Any]:
    """One lane's arrays of the newest checkpoint: of those stacked over lanes, and its own."""
    state, own = arrays(run), f"where.{lane}."
    stacked = {name: array[lane] for name, array in state.items() if not name.startswith("where.")}
    return stacked | {name.removeprefix(own): array for name, array in state.items() if name.startswith(own)}


def _returns(run: Run) -> list[list[float]]:
    evaluations = [line["return"] for line in records(run) if line["kind"] == "eval"]
    return [list(lane) for lane in zip(*evaluations, strict=True)]


def test_overlap_is_another_training_than_strict_alternation(greenhouse_run: Run, out: Path) -> None:
    """With overlap the policy that acts is one iteration old, from the first learned one on."""
    alternating = train_run(out, GREENHOUSE, *tiny("grd", "--no-overlap"))
    ours, theirs = records(alternating), records(greenhouse_run)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    differing = [line["step"] for line, other in zip(ours, theirs, strict=True) if line != other]
    # Random steps until 400, where the first updates are; the chunk from 400 to 600 is the first to differ.
    assert min(differing) == 600
