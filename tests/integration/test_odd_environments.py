"""Whatever Gymnasium allows is learned from: short episodes, odd scales and bounds, any delay."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apportion as door
from apportion.envs.lane import _success
from apportion.graph.certificate import Doubt
from apportion.runs.summary import summarise
from driver import EPISODE, Run, apportion, arrays, records, remarks, tiny, train

pytestmark = pytest.mark.slow


def _train(env: str, out: Path, *flags: str) -> Run:
    run = train(out, f"odd_envs:{env}-v0", *tiny("grd", "--workers", "0", *flags))
    for line in run.read_metrics():
        if line["kind"] == "train":
            assert None not in [value for lanes in list(line.values())[2:] for value in lanes], line
    assert all(np.isfinite(array).all() for array in arrays(run).values())
    certificates = summarise(run)["certificates"]
    assert all(Doubt.NOT_SEARCHED not in lane["doubts"] for lane in certificates)  # edges were looked for
    return run


def _last(run: Run) -> dict[str, Any]:
    return records(run)[-1]


def test_episodes_of_one_step(out: Path) -> None:
    run = _train("OneStep", out)
    assert _last(run)["length"] == [1.0, 1.0]
    state = arrays(run)
    # 2,000 steps took two rows each, and the replay has fewer: the oldest were dropped.
    assert state["replay.rows"].tolist() == [4000, 4000]
    assert state["replay.segments"].tolist() == [2000, 2000]
    assert (state["replay.oldest"] > 1000).all()


def test_episodes_that_end_at_random(out: Path) -> None:
    run = _train("EndsAtRandom", out)
    assert all(1 <= length < EPISODE for length in _last(run)["length"])
    lengths = arrays(run)["replay.segment_length"]
    assert lengths.max() <= EPISODE
    assert len(np.unique(lengths)) > 5


@pytest.mark.parametrize("env", ["Constants", "Doubles", "Rich"])
def test_columns_and_rewards_of_any_size_and_kind(env: str, out: Path) -> None:
    """Some that never change, double precision, rewards of a million."""
    run = _train(env, out)
    assert run.read_episodes(2000)[0][0]["observations"].dtype == np.float32
    assert all(value is not None and np.isfinite(value) for value in _last(run)["return_error"])


@pytest.mark.parametrize("method", ["grd", "rd"])
def test_discrete_actions(out: Path, method: str) -> None:
    """One-hot to every learner and in the graph; the environment hears its own numbers, from -1 on."""
    flags = tiny(method, "--workers", "0", "--backbone", "dqn")
    run = train(out, "odd_envs:Buttons-v0", *flags)
    assert run.read_spec().discrete
    assert run.read_spec().action_names == ("left", "stay", "right")
    for episode in run.read_episodes(2000)[0]:
        assert (np.sort(episode["actions"]) == [0, 0, 1]).all()
        np.testing.assert_array_equal(episode["observations"][1:, 0], episode["actions"] @ [-1, 0, 1])
    replay = arrays(run)
    [stored] = [array[0] for name, array in replay.items() if name == "replay.action"]
    taken = stored[stored.any(axis=1)]  # beside one row for each episode's last observation, and free rows
    assert (np.sort(taken) == [0, 0, 1]).all()
    assert (taken.mean(axis=0) > 0.2).all()
    if method == "grd":
        assert run.read_last_edges()["action_to_reward"].shape == (2, 3)


def test_without_delay_the_observed_reward_is_the_true_one(tmp_path: Path) -> None:
    """On Pendulum: `observed` and `oracle` are then the same training, number by number."""
    flags = ("--steps", "800", "--env.delay", "none", "--env.max-episode-steps", "200")
    observed = train(tmp_path / "observed", "Pendulum-v1", *tiny("observed", *flags))
    oracle = train(tmp_path / "oracle", "Pendulum-v1", *tiny("oracle", *flags))
    assert records(observed) == records(oracle)
    assert set(arrays(observed)["replay.segment_length"][0].tolist()) == {1}


# --- Paid only at the end, of its own accord: nothing pretends to know its steps' rewards


@pytest.fixture(scope="module", params=["rd", "observed"])
def late(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """A tiny run, and what was said while it trained."""
    out = tmp_path_factory.mktemp("late") / "run"
    flags = tiny(request.param, "--workers", "0", "--steps", "800")
    flags.remove("--quiet")
    answer = apportion("train", "odd_envs:Late-v0", "--out", out, *flags)
    assert (answer.code, remarks(answer.err)) == (0, [])
    return Run(out), answer.err


def test_there_is_no_correlation_and_the_return_error_leads(late: tuple[Run, str]) -> None:
    run, said = late
    data = apportion("show", run.path, "--json").json
    assert data["step_rewards"] is False
    assert data["reward_correlation"] is None
    assert data["reward_correlation_per_lane"] == [None, None]
    assert all(np.isfinite(data["return_error_per_lane"]))
    evaluations = run.evaluations()
    assert all(line["episode_correlation"] == [None, None] for line in evaluations)
    table = apportion("show", run.path).out
    assert table.index("return error") < table.index("reward correlation")
    assert " - " in table.split("Last evaluation")[1]
    assert "return error" in said
    assert "correlation" not in said
    played = apportion("eval", run.path, "--episodes", "2", "--json").json
    assert (played["step_rewards"], played["episode_correlation"]) == ([False] * 2, [None] * 2)


# --- The success rate, wherever an environment reports `info["success"]`, and nowhere else


SHORT = ("--workers", "0", "--steps", "800")


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("goal") / "run", "odd_envs:Goal-v0", *tiny("oracle", *SHORT))


def test_an_episode_succeeds_when_any_of_its_steps_does(reached: Run) -> None:
    for lane in door.load(reached.path).episodes():
        for episode in lane:
            assert bool(episode["success"]) == (episode["observations"][0, 0] > 0)


def test_it_is_in_metrics_show_frame_eval_and_report(reached: Run) -> None:
    evaluations = [line for line in reached.read_metrics() if line["kind"] == "eval"]
    rates = [line["success"] for line in evaluations]
    assert all(rate in (0, 1 / 3, 2 / 3, 1) for lanes in rates for rate in lanes)  # of three episodes
    assert len({tuple(lanes) for lanes in rates}) > 1
    shown = apportion("show", reached.path, "--json").json
    assert shown["success_per_lane"] == rates[-1]
    assert shown["success"] == pytest.approx(np.median(rates[-1]))
    frame = door.load(reached.path).frame()
    assert frame[frame.kind == "eval"].success.tolist() == [rate for lanes in rates for rate in lanes]
    played = apportion("eval", reached.path, "--episodes", "4", "--json").json
    assert played["success"] == door.load(reached.path).evaluate(4)["success"]
    assert all(rate in (0, 0.25, 0.5, 0.75, 1) for rate in played["success"])
    for words in (("show", reached.path), ("eval", reached.path, "--episodes", "1")):
        assert "success" in apportion(*words).out
    assert apportion("report", reached.path, "--extras", "none", "--quiet").code == 0


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
