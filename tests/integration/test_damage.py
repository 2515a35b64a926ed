"""Full disks and memory, damaged checkpoints, edited settings, diverged lanes: what can be saved is."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.core.files import free_bytes
from apportion.envs.make import EnvConfig, make
from apportion.runs import checkpoint
from apportion.runs.atomic import read_arrays, read_json, write_arrays, write_json
from apportion.runs.settings import read_settings
from apportion.training import loop
from apportion.training.loop import Snapshot
from disks import small_files
from driver import (
    GREENHOUSE,
    Run,
    apportion,
    arrays,
    assert_same_arrays,
    assert_same_run,
    records,
    refused,
    remarks,
    resume,
    tiny,
)

pytestmark = pytest.mark.slow

NEWEST = "step_000000002000.safetensors"
TALKING = [flag for flag in tiny("grd") if flag != "--quiet"]


@pytest.fixture
def copy(greenhouse_run: Run, out: Path) -> Run:
    """A finished run, with checkpoints at 1,000 and 2,000 steps, that may be damaged."""
    shutil.copytree(greenhouse_run.path, out)
    return Run(out)


# --- Checkpoints


def _cut_short(file: Path) -> None:
    os.truncate(file, 1000)


def test_a_damaged_checkpoint_is_passed_over_and_made_again(copy: Run, greenhouse_run: Run) -> None:
    _cut_short(copy.checkpoints / NEWEST)
    answer = apportion("resume", copy.path)
    assert answer.code == 0
    skipped, kept = remarks(answer.err)
    assert skipped.startswith("checkpoint step_000000002000 skipped: its content is no array")
    aside = copy.checkpoints / f"damaged_{NEWEST}"
    assert kept == f"{NEWEST} is kept as {aside}: delete it when you do not need it"
    assert aside.is_file()
    assert_same_run(copy, greenhouse_run)


def test_eval_names_the_checkpoint_it_passed_over(copy: Run) -> None:
    _cut_short(copy.checkpoints / NEWEST)
    data = apportion("eval", copy.path, "--episodes", "1", "--json").json
    assert data["step"] == 1000
    assert data["skipped"] == ["checkpoint step_000000002000 skipped: its content is no array"]


# --- Settings


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("sede",), 5, "{config}: unknown setting sede (did you mean 'seed'?)"),
        (("method", "name"), "gdr", "{config}: unknown method 'gdr' (did you mean 'grd'?)"),
        (("schedule", "steps"), 0, "{config}: steps=0 must be at least 1"),
        (("schedule", "steps"), 800, "steps=800 in {config} is behind the run, which is at step 2000"),
        (("schedule", "steps"), "many", "{config} is damaged (schedule.steps='many' must be a whole number)"),
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
    refused(answer, 1, reason.format(config=copy.config))
    assert arrays(copy).keys() == state.keys()


def test_settings_that_may_change_take_effect_at_a_resume(copy: Run) -> None:
    config = copy.read_config()
    config["schedule"]["steps"] = 2400
    config["checkpoints"]["checkpoint_every"] = 200
    copy.config.write_text(json.dumps(config))
    changed = f"{copy.config} was changed after it was written: the run was trained with other settings"
    assert apportion("show", copy.path, "--json").json["notes"] == []  # no checksum: nobody can tell
    write_json(copy.config, config)
    copy.config.write_text(copy.config.read_text().replace("2400", "2200"))
    assert apportion("show", copy.path).err.splitlines() == [changed]
    answer = apportion("resume", copy.path)
    assert answer.code == 0
    assert remarks(answer.err) == [
        "schedule.steps is 2200 from here on (2000 before)",
        "checkpoints.checkpoint_every is 200 from here on (1000 before)",
    ]
    assert checkpoint.steps(copy.checkpoints) == [2000, 2200]
    assert apportion("show", copy.path).err == ""


# --- What was logged


@pytest.mark.parametrize("kept", [None, 7])
def test_a_log_that_is_gone_is_said_and_restored(kept: int | None, copy: Run, greenhouse_run: Run) -> None:
    lines = copy.metrics.read_bytes().splitlines(keepends=True)
    copy.metrics.unlink()
    if kept is not None:
        copy.metrics.write_bytes(b"".join(lines[:kept]))
    lost = f"{copy.metrics} has {kept or 0} of {len(lines)} lines"
    assert apportion("show", copy.path, "--json").json["notes"][0] == lost
    if kept is not None:  # else there is nothing to compare
        assert lost in apportion("compare", copy.path, "--no-env").err
    answer = apportion("resume", copy.path)
    had = (
        f"{copy.metrics} had {kept or 0} of {len(lines)} lines up to step 2000: restored from the checkpoint"
    )
    assert (answer.code, remarks(answer.err)) == (0, [had])
    assert_same_run(copy, greenhouse_run)


def test_one_bad_snapshot_leaves_the_report_standing(copy: Run) -> None:
    edges, episodes = (copy.path / name / "step_000000000400.safetensors" for name in ("edges", "episodes"))
    edges.write_bytes(b"")
    episodes.write_bytes(episodes.read_bytes()[:-1])
    (copy.edges / "step_000000000800.safetensors").unlink()
    answer = apportion("report", copy.path, "--extras", "none")
    assert answer.code == 0
    assert answer.err.splitlines()[1:] == [
        f"{edges} is left out: its content is no array",
        f"{episodes} is left out: its content is no array",
        f"{copy.edges / 'step_000000000800.safetensors'} is missing",
    ]
    assert copy.edge_steps() == [1200, 1600, 2000]


def _retyped(run: Run, name: str, dtype: Any) -> None:
    """The newest checkpoint with an array of another type, and checksums that fit."""
    loaded = checkpoint.load(run.checkpoints)
    loaded.tree[name] = loaded.tree[name].astype(dtype)
    checkpoint.save(run.checkpoints, 2000, loaded.tree, loaded.meta, 2)


@pytest.mark.parametrize("name", ["replay.observation", "pending.paid", "where.0.observation"])
def test_another_type_in_a_checkpoint_is_refused(name: str, copy: Run) -> None:
    _retyped(copy, name, np.float64)
    config, _ = read_settings(copy)
    found = checkpoint.read_training(copy.checkpoints, config, copy.read_spec())
    (skipped,) = found.skipped
    assert (found.step, skipped.split(",")[0].split("[")[0]) == (
        1000,
        f"checkpoint step_000000002000 skipped: {name} is float64",
    )


def test_a_run_that_learned_from_imagined_steps_is_read_but_not_resumed(copy: Run) -> None:
    """Once they were an option: to go on without them would be another training."""
    write_json(copy.config, copy.read_config() | {"imagine": {"share": 0.5, "after": 500}})
    loaded = checkpoint.load(copy.checkpoints)
    loaded.tree["agent.imagination.updates"] = np.int32(7)
    checkpoint.save(copy.checkpoints, 2000, loaded.tree, loaded.meta, 1)
    assert apportion("show", copy.path).code == 0
    refused(apportion("resume", copy.path), 1, "it learned from imagined steps")


def test_a_checkpoint_of_another_iteration_is_refused(copy: Run) -> None:
    for file in copy.checkpoints.iterdir():
        arrays, note = read_arrays(file)
        note["meta"]["iteration"] += 2
        write_arrays(file, arrays, note)
    reason = "checkpoint step_000000002000 skipped: iteration 12 ends at step 2400"
    refused(apportion("resume", copy.path), 1, reason)


# --- Folders of strangers


def test_nothing_that_a_stranger_s_folder_names_is_imported(copy: Run, tmp_path: Path) -> None:
    config = copy.read_config()
    config["env"]["id"] = "stranger:Env-v0"
    write_json(copy.config, config)
    for file in copy.checkpoints.iterdir():
        arrays, note = read_arrays(file)
        note["meta"]["settings"]["env"]["id"] = "stranger:Env-v0"
        write_arrays(file, arrays, note)
    touching = f"import pathlib\npathlib.Path({str(tmp_path / 'was_here')!r}).touch()"
    (tmp_path / "stranger.py").write_text(touching)
    words = ["report", copy.path, "--out", tmp_path / "page.html"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        answer = apportion(*words, "--no-env")
        assert (answer.code, (tmp_path / "was_here").exists()) == (0, False)
        reason = f"the environment of {copy.path} is not loaded: leave out --no-env if you trust it"
        assert answer.err.splitlines()[1:] == [f"{copy.path}: no pictures: {reason}"]
        answer = apportion("explain", copy.path, "--seed", "1", "--no-env")
        refused(answer, 1, reason)
        assert not (tmp_path / "was_here").exists()
        with pytest.raises(UserError, match="unknown environment"):
            make(EnvConfig("stranger:Env-v0"))
    assert (tmp_path / "was_here").exists()


# --- Full disk


@contextmanager
def _full_disk(first: int, last: int) -> Iterator[None]:
    """The system itself refuses: from one step to another no file grows beyond 1,500 bytes."""
    online = loop.online

    def watched(*arguments: Any) -> Iterator[Snapshot]:
        for snapshot in online(*arguments):
            with small_files(1500) if first <= snapshot.step < last else nullcontext():
                yield snapshot

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "online", watched)
        yield


def test_a_full_disk_is_said_and_survived(out: Path, greenhouse_run: Run) -> None:
    with _full_disk(500, 1500):
        answer = apportion("train", GREENHOUSE, "--out", out, *TALKING)
    assert answer.code == 0
    full, missed, again = remarks(answer.err)
    assert re.fullmatch(r"File too large \(.*\): training goes on, what it logs waits for room", full)
    assert missed.startswith("no checkpoint at step 1000: File too large")
    assert again == "there is room again: what waited has been written"
    assert checkpoint.steps(Run(out).checkpoints) == [2000]
    assert records(Run(out)) == records(greenhouse_run)  # nothing is missing
    assert_same_arrays(arrays(Run(out)), arrays(greenhouse_run))


def test_a_full_disk_at_the_end_leaves_the_earlier_checkpoint(out: Path, greenhouse_run: Run) -> None:
    with _full_disk(1500, 10_000):
        answer = apportion("train", GREENHOUSE, "--out", out, *tiny("grd"))
    refused(answer, 1, "error: no checkpoint at step 2000: File too large")
    assert answer.err.endswith(f"; make room, then `apportion resume {out}`\n")
    assert checkpoint.steps(Run(out).checkpoints) == [1000]
    resume(Run(out))
    assert_same_run(Run(out), greenhouse_run)


# --- Numbers


def test_a_diverged_lane_does_not_stop_the_others(copy: Run, greenhouse_run: Run) -> None:
    (copy.checkpoints / NEWEST).unlink()
    loaded = checkpoint.load(copy.checkpoints)
    for name, array in loaded.tree.items():
        if name.startswith("agent.backbone.actor."):
            array[0] = np.nan
    checkpoint.save(copy.checkpoints, 1000, loaded.tree, loaded.meta, 2)

    answer = apportion("resume", copy.path)
    assert answer.code == 0
    assert remarks(answer.err) == [
        "the newest checkpoint is of step 1000, but the run had come to step 2000",
        "warning: seed 0 is frozen from step 1,200 on: its losses are no numbers any more (NaN): "
        "a smaller --backbone.learning-rate may help",
    ]
    assert read_json(copy.status)["state"] == "finished"
    found, expected = arrays(copy), arrays(greenhouse_run)
    for name in expected:
        if name.startswith(("agent.", "best.")):
            np.testing.assert_array_equal(found[name][1], expected[name][1], err_msg=name)
    assert apportion("show", copy.path).code == 0


# --- Full memory


FULL = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7.05GiB"


def test_a_replay_that_does_not_fit_is_told_with_its_size_and_what_to_lower(out: Path) -> None:
    """Before it is allocated: more than this machine has, but not more than its system promises."""
    steps = free_bytes() // 20  # of at least 100 bytes each
    answer = apportion("train", GREENHOUSE, "--out", out, *tiny("observed"), "--replay-steps", str(steps))
    (line,) = remarks(answer.err)
    assert answer.code == 1
    assert line.startswith(f"error: not enough memory: replays of {steps:,} steps for 2 seeds take")
    assert line.endswith("GB are free. Lower --replay-steps or --seeds")
    assert not out.exists()


def test_a_resume_looks_for_room_too(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apportion("train", GREENHOUSE, "--out", out, *tiny("observed"), "--quiet").code == 0
    monkeypatch.setattr(loop, "free_bytes", lambda: 1000)
    answer = apportion("resume", out, "--steps", "10000")
    assert answer.code == 1
    assert "replays of 1,800 steps for 2 seeds take 0.0 GB, and 0.0 GB are free" in remarks(answer.err)[-1]


def _breaking_down(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """After the checkpoint of step 1,000."""
    online = loop.online

    def some(*arguments: Any) -> Iterator[loop.Snapshot]:
        for snapshot in online(*arguments):
            if snapshot.step > 1200:
                raise RuntimeError(message)
            yield snapshot

    monkeypatch.setattr(loop, "online", some)


def test_what_is_saved_is_said_and_goes_on(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _breaking_down(patch, FULL)
        answer = apportion("train", GREENHOUSE, "--out", out, *tiny("observed"))
    (line,) = remarks(answer.err)
    assert answer.code == 1
    assert line.startswith("error: no memory is left on cpu: replays of 1,800 steps for 2 seeds take 0.0 GB")
    assert line.endswith(f"`apportion resume {out}` goes on from step 1,000")
    assert apportion("resume", out, "--quiet").code == 0


def test_other_errors_of_programs_are_not_taken_for_it(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _breaking_down(monkeypatch, "INTERNAL: a fault of the device")
    with pytest.raises(RuntimeError, match="a fault of the device"):
        apportion("train", GREENHOUSE, "--out", out, *tiny("observed"))
