"""Whole trainings in which environments fail: other seeds' numbers are those of a run without failures."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import faulty_envs
from apportion.runs import checkpoint
from apportion.runs.folder import read_json
from driver import Run, apart, apportion, arrays, assert_same_run, records, resume, tiny, train
from faulty_envs import episode_seed, evaluation_seed
from waiting import PATIENCE, gone, wait_until

pytestmark = pytest.mark.slow

FAULTY = "faulty_envs:Faulty-v0"
FLAGS = tiny("oracle", "--workers", "1", "--steps", "1200", "--checkpoint-every", "400")
FROZEN_SINCE = 800


def _kwargs(how: str, seeds: list[int]) -> list[str]:
    return ["--env.kwargs", json.dumps({"how": how, "seeds": seeds}), "--env.restarts", "2"]


def _lane(run: Run, lane: int) -> list[dict[str, Any]]:
    """What was logged of one lane."""
    lines = [{k: v for k, v in line.items() if k != "frozen"} for line in records(run)]
    return [{k: v[lane] if isinstance(v, list) else v for k, v in line.items()} for line in lines]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("calm") / "run", FAULTY, *FLAGS)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[str]]:
    """The second seed dies in an early evaluation and in all episodes from the 65th on, after 640 steps."""
    seeds = [episode_seed(1, episode, restarts) for episode in range(64, 130) for restarts in range(4)]
    flags = _kwargs("dies", [*seeds, evaluation_seed(1, 1, 0)])
    return train(tmp_path_factory.mktemp("failing") / "run", FAULTY, *FLAGS, *flags), flags


def test_the_other_seed_does_not_notice(calm: Run, failing: tuple[Run, list[str]]) -> None:
    run, _ = failing
    assert _lane(run, 0) == _lane(calm, 0)
    found, expected = arrays(run), arrays(calm)
    for name, array in expected.items():
        if not name.startswith("where.1."):
            lane = ... if name.startswith("where.0.") else 0
            np.testing.assert_array_equal(found[name][lane], array[lane], err_msg=name)


def test_the_log_show_and_report_say_who_is_frozen_since_when_and_why(
    failing: tuple[Run, list[str]], tmp_path: Path
) -> None:
    run, _ = failing
    frozen = [line for line in run.read_metrics() if "frozen" in line]
    assert {line["step"] for line in frozen} == set(range(FROZEN_SINCE, 1201, 200))
    for line in frozen:
        assert line["frozen"] == [0.0, 1.0]
        assert line["critic_loss" if line["kind"] == "train" else "return"][1] is None
    shown = apportion("show", run.path, "--json").json
    [fault] = shown["faults"]
    assert (fault["seed"], fault["frozen_since"], fault["restarts"]) == (1, FROZEN_SINCE, 2)
    assert "died (exit code 7)" in fault["reason"]
    sentence = f"Seed 1 is frozen since step {FROZEN_SINCE}: an environment worker died (exit code 7)"
    assert sentence in " ".join(apportion("show", run.path).out.split())
    assert apportion("report", run.path, "--out", tmp_path / "page.html", "--extras", "none").code == 0
    assert shown["best"][1]["step"] < FROZEN_SINCE


def test_a_resumed_run_keeps_it_frozen_and_stays_bit_for_bit(
    failing: tuple[Run, list[str]], tmp_path: Path
) -> None:
    straight, flags = failing
    run = train(tmp_path / "run", FAULTY, *FLAGS, *flags, "--steps", str(FROZEN_SINCE))
    resume(run, "--steps", "1200")
    assert_same_run(run, straight)


def test_when_no_seed_is_left_the_run_ends_with_one_line(tmp_path: Path) -> None:
    seeds = [episode_seed(*each) for each in itertools.product((0, 1), range(40, 130), range(4))]
    out = tmp_path / "run"
    answer = apportion("train", FAULTY, "--out", out, *FLAGS, *_kwargs("nonsense", seeds))
    assert answer.code == 1
    [line] = answer.err.splitlines()
    assert line.startswith(f"error: no seed is left to train in {out}. Seed 0 is frozen since step 600: ")
    reason = line.partition(". ")[2]
    assert apportion("resume", out).err == f"error: every seed of {out} is frozen: {reason} Start a new run\n"


# --- An environment that hangs keeps nobody from stopping, and no worker outlives the training


BEFORE = f"""
from apportion.envs import supervisor
supervisor.PATIENCE = 1.0
sys.path.append({str(Path(faulty_envs.__file__).parent)!r})
"""

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def _hanging(how: str, folder: Path) -> "tuple[subprocess.Popen[str], list[int]]":
    """A training whose second seed hangs in its first chunk, and its workers."""
    mark = folder / "hangs"
    kwargs = json.dumps({"how": how, "seeds": [episode_seed(1, 3)], "mark": str(mark)})
    flags = tiny("oracle", "--workers", "1", "--env.kwargs", kwargs)
    process = apart("train", "faulty_envs:Faulty-v0", "--out", folder / "run", *flags, before=BEFORE)
    wait_until(lambda: mark.exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    workers = [
        int(word)
        for task in Path(f"/proc/{process.pid}/task").glob("*/children")
        for word in task.read_text().split()
    ]
    assert workers
    return process, workers


@LINUX
@pytest.mark.parametrize(("number", "how"), [(signal.SIGTERM, "spins"), (signal.SIGINT, "hangs")])
def test_one_signal_saves_though_an_environment_hangs(number: int, how: str, tmp_path: Path) -> None:
    process, workers = _hanging(how, tmp_path)
    os.kill(process.pid, number)
    process.communicate(timeout=PATIENCE)
    run = Run(tmp_path / "run")
    assert process.returncode == 128 + number
    assert checkpoint.steps(run.checkpoints) == [read_json(run.status)["step"]] == [200]
    assert "did not answer within 1 s" in read_json(run.status)["faults"][0]["reason"]
    assert all(map(gone, workers))


@LINUX
def test_a_second_interrupt_ends_everything_at_once(tmp_path: Path) -> None:
    process, workers = _hanging("spins", tmp_path)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (130, "error: interrupted\n")
    assert all(map(gone, workers))


@LINUX
def test_a_killed_training_takes_its_workers_along_also_those_that_hang(tmp_path: Path) -> None:
    process, workers = _hanging("spins", tmp_path)
    process.kill()
    process.communicate(timeout=PATIENCE)
    wait_until(lambda: all(map(gone, workers)))
