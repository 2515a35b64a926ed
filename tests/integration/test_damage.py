"""Full disks, damaged checkpoints, edited settings, diverged lanes: what can be saved is."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver import GREENHOUSE, Answer, Run, apportion, arrays, assert_same_run, remarks, resume, tiny

from apportion.runs import checkpoint
from apportion.runs.folder import read_json

TALKING = [flag for flag in tiny("grd") if flag != "--quiet"]


@pytest.fixture
def copy(greenhouse_run: Run, out: Path) -> Run:
    """A finished run, with checkpoints at 1,000 and 2,000 steps, that may be damaged."""
    shutil.copytree(greenhouse_run.path, out)
    return Run(out)


# --- Checkpoints


def _flip_a_byte(folder: Path) -> None:
    content = bytearray((folder / "state.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "state.safetensors").write_bytes(content)


def _cut_short(folder: Path) -> None:
    os.truncate(folder / "state.safetensors", 1000)


def _lose_meta(folder: Path) -> None:
    (folder / "meta.json").unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_flip_a_byte, "state.safetensors is damaged (its checksum differs)"),
        (_cut_short, "state.safetensors has 1000 bytes of "),
        (_lose_meta, "meta.json is missing"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_made_again(
    damage: Callable[[Path], None], reason: str, copy: Run, greenhouse_run: Run
) -> None:
    damage(copy.checkpoints / "step_000000002000")
    answer = apportion("resume", copy.path)
    assert answer.code == 0
    skipped, kept = remarks(answer.err)
    assert skipped.startswith(f"checkpoint step_000000002000 skipped: {reason}")
    aside = copy.checkpoints / "damaged_step_000000002000"
    assert kept == f"step_000000002000 is kept as {aside}: delete it when you do not need it"
    assert aside.is_dir()
    assert_same_run(copy, greenhouse_run)


def test_eval_names_the_checkpoint_it_passed_over(copy: Run) -> None:
    _lose_meta(copy.checkpoints / "step_000000002000")
    data = apportion("eval", copy.path, "--episodes", "1", "--json").json
    assert data["step"] == 1000
    assert data["skipped"] == ["checkpoint step_000000002000 skipped: meta.json is missing"]


@pytest.mark.parametrize("verb", ["resume", "eval"])
def test_no_checkpoint_can_be_read(verb: str, copy: Run) -> None:
    for folder in copy.checkpoints.iterdir():
        _flip_a_byte(folder)
    _assert_one_line(
        apportion(verb, copy.path), f"no valid checkpoint in {copy.checkpoints}, start a new run"
    )


@pytest.mark.parametrize("verb", ["resume", "eval"])
def test_there_is_no_checkpoint(verb: str, copy: Run) -> None:
    shutil.rmtree(copy.checkpoints)
    _assert_one_line(apportion(verb, copy.path), f"no checkpoint in {copy.checkpoints}: start a new run")


# --- Settings


def _assert_one_line(answer: Answer, reason: str) -> None:
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"error: {reason}")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("schedule", "stepz"), 5, "{config}: unknown setting schedule.stepz (did you mean 'steps'?)"),
        (("method", "lambda"), 5, "{config}: unknown setting method.lambda"),
        (("sede",), 5, "{config}: unknown setting sede (did you mean 'seed'?)"),
        (("method", "name"), "gdr", "{config}: unknown method 'gdr' (did you mean 'grd'?)"),
        (("schedule", "steps"), 0, "{config}: steps=0 must be at least 1"),
        (("schedule", "steps"), 800, "steps=800 in {config} is behind the run, which is at step 2000"),
        (
            ("method", "sparsity"),
            [-1.0, 0.0, 0.0, 0.0, 0.0],
            "{config}: method.sparsity=(-1.0, 0.0, 0.0, 0.0, 0.0) must",
        ),
        (("method", "structure"), "closed", "{config}: method.structure='closed' must be one of"),
        (("schedule", "steps"), "many", "{config} is damaged (schedule.steps='many' must be a whole number)"),
        (("lanes",), "two", "{config} is damaged (lanes='two' must be a whole number)"),
        (("lanes",), True, "{config} is damaged (lanes=True must be a whole number)"),
        (("method",), ["grd"], "{config} is damaged (method=['grd'] must be an object)"),
        # Right, but not what the checkpoints were made with.
        (("method", "hidden"), [9, 9], "{config} has method.hidden=[9, 9], but the run was"),
        (("backbone", "learning_rate"), 0.1, "{config} has backbone.learning_rate=0.1, but the run was"),
        (("schedule", "steps_per_iteration"), 100, "{config} has schedule.steps_per_iteration=100, but"),
        (("seed",), 1, "{config} has seed=1, but the run was trained with 0"),
    ],
)
def test_an_edited_config(path: tuple[str, ...], value: Any, reason: str, copy: Run) -> None:
    config = copy.read_config()
    section = config
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    copy.config.write_text(json.dumps(config))
    state = arrays(copy)
    answer = apportion("resume", copy.path)
    _assert_one_line(answer, reason.format(config=copy.config))
    assert arrays(copy).keys() == state.keys()


@pytest.mark.parametrize("verb", ["resume", "eval", "show"])
def test_a_config_that_is_not_json(verb: str, copy: Run) -> None:
    copy.config.write_text('{"env": ')
    _assert_one_line(apportion(verb, copy.path), f"{copy.config} is damaged (")


# --- Full disk


def _disk_is_full_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    save = checkpoint.save_tensors

    def failing(path: Path, tensors: Any) -> None:
        save(path, tensors)
        if path.parent.name.endswith(f"step_{step:012d}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(checkpoint, "save_tensors", failing)


def test_a_full_disk_in_between_is_reported_and_survived(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _disk_is_full_at(1000, monkeypatch)
    answer = apportion("train", GREENHOUSE, "--out", out, *TALKING)
    assert answer.code == 0
    assert remarks(answer.err) == ["no checkpoint at step 1000: No space left on device"]
    assert [folder.name for folder in Run(out).checkpoints.iterdir()] == ["step_000000002000"]


def test_a_full_disk_at_the_end_leaves_the_earlier_checkpoint(
    out: Path, monkeypatch: pytest.MonkeyPatch, greenhouse_run: Run
) -> None:
    with monkeypatch.context() as patch:
        _disk_is_full_at(2000, patch)
        answer = apportion("train", GREENHOUSE, "--out", out, *tiny("grd"))
    reason = f"no checkpoint at step 2000: No space left on device; make room, then `apportion resume {out}`"
    assert answer == Answer(1, "", f"error: {reason}\n")
    assert [folder.name for folder in Run(out).checkpoints.iterdir()] == ["step_000000001000"]
    resume(Run(out))
    assert_same_run(Run(out), greenhouse_run)


# --- Numbers


def test_a_diverged_lane_does_not_stop_the_others(copy: Run, greenhouse_run: Run) -> None:
    shutil.rmtree(copy.checkpoints / "step_000000002000")
    loaded = checkpoint.load_arrays(copy.checkpoints)
    for name, array in loaded.tree.items():
        if name.startswith("backbone.actor."):
            array[0] = np.nan
    files = {"metrics.jsonl": (copy.checkpoints / "step_000000001000" / "metrics.jsonl").read_bytes()}
    checkpoint.save(copy.checkpoints, 1000, loaded.tree, loaded.meta, 2, loaded.raw, files)

    answer = apportion("resume", copy.path)
    assert answer.code == 0
    assert remarks(answer.err) == [
        "the newest checkpoint is of step 1000, but the run had come to step 2000",
        "seed 0 diverged (NaN) by step 1200; the other lanes go on",
    ]
    assert read_json(copy.status)["state"] == "finished"
    found, expected = arrays(copy), arrays(greenhouse_run)
    for name in expected:
        if name.startswith("tree."):
            np.testing.assert_array_equal(found[name][1], expected[name][1], err_msg=name)
    assert apportion("show", copy.path).code == 0
