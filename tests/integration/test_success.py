"""The success rate, wherever an environment reports `info["success"]`, and nowhere else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver import Run, apportion, tiny, train

import apportion as door
from apportion.envs.lane import _success

pytestmark = pytest.mark.slow

SHORT = ("--workers", "0", "--steps", "800")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("goal") / "run", "odd_envs:Goal-v0", *tiny("oracle", *SHORT))


def test_an_episode_succeeds_when_any_of_its_steps_does(run: Run) -> None:
    for lane in door.load(run.path).episodes():
        for episode in lane:
            assert bool(episode["success"]) == (episode["observations"][0, 0] > 0)


def test_it_is_in_metrics_show_frame_eval_and_report(run: Run) -> None:
    evaluations = [line for line in run.read_metrics() if line["kind"] == "eval"]
    rates = [line["success"] for line in evaluations]
    assert all(rate in (0, 1 / 3, 2 / 3, 1) for lanes in rates for rate in lanes)  # of three episodes
    assert len({tuple(lanes) for lanes in rates}) > 1
    shown = apportion("show", run.path, "--json").json
    assert shown["success_per_lane"] == rates[-1]
    assert shown["success"] == pytest.approx(np.median(rates[-1]))
    frame = door.load(run.path).frame()
    assert frame[frame.kind == "eval"].success.tolist() == [rate for lanes in rates for rate in lanes]
    played = apportion("eval", run.path, "--episodes", "4", "--json").json
    assert played["success"] == door.load(run.path).evaluate(4)["success"]
    assert all(rate in (0, 0.25, 0.5, 0.75, 1) for rate in played["success"])
    for words in (("show", run.path), ("eval", run.path, "--episodes", "1")):
        assert "success" in apportion(*words).out
    assert apportion("report", run.path, "--extras", "none", "--quiet").code == 0


def test_without_a_report_it_is_absent(greenhouse_run: Run) -> None:
    assert all("success" not in line for line in greenhouse_run.read_metrics())
    shown = apportion("show", greenhouse_run.path, "--json").json
    assert (shown["success"], shown["success_per_lane"]) == (None, [None, None])
    assert "success" not in apportion("show", greenhouse_run.path).out


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (True, {True}),
        (0.0, {False}),
        (np.array([1]), {True}),
        (np.bool_(False), {False}),
        (None, set()),
        ("yes", set()),
        (np.nan, set()),
        ([0, 1], set()),
    ],
)
def test_what_counts_as_a_report(value: Any, meant: set[bool]) -> None:
    assert _success({"success": value}) == meant


def test_a_task_of_metaworld_trains_and_has_a_success_rate(out: Path) -> None:
    pytest.importorskip("metaworld")
    run = train(out, "Meta-World/door-lock-v3", *tiny("oracle", *SHORT, "--seeds", "1"))
    assert run.read_spec().observation_names[3] == "gripper opening"
    assert [line["success"] for line in run.read_metrics() if line["kind"] == "eval"] == [[0.0], [0.0]]
