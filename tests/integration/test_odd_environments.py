"""Whatever Gymnasium allows is learned from: short episodes, odd scales and bounds, any delay."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver import EPISODE, Run, arrays, records, tiny, train

from apportion.graph.certificate import Doubt
from apportion.runs import logs
from apportion.runs.summary import summarise

pytestmark = pytest.mark.slow


def _train(env: str, out: Path, *flags: str) -> Run:
    run = train(out, f"odd_envs:{env}-v0", *tiny("grd", "--workers", "0", *flags))
    for line in logs.read(run.metrics):
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
