"""Whatever Gymnasium allows is learned from: short episodes, odd scales and bounds, any delay."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver import EPISODE, Run, arrays, assert_same_arrays, records, resume, tiny, train
from odd_envs import Bounds

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
    assert state["raw.replay/rows"].tolist() == [4000, 4000]
    assert state["raw.replay/segments"].tolist() == [2000, 2000]
    assert (state["raw.replay/oldest"] > 1000).all()


def test_episodes_that_end_at_random(out: Path) -> None:
    run = _train("EndsAtRandom", out)
    assert all(1 <= length < EPISODE for length in _last(run)["length"])
    lengths = arrays(run)["raw.replay/segment_length"]
    assert lengths.max() <= EPISODE
    assert len(np.unique(lengths)) > 5


def test_double_precision_constant_columns_and_rewards_of_a_million(out: Path) -> None:
    run = _train("Extremes", out)
    seen = run.read_episodes(2000)[0][0]["observations"]
    assert seen.dtype == np.float32
    assert np.ptp(seen, axis=0)[1:].tolist() == [0.0, 0.0]
    assert all(value is not None and value > 1e6 for value in _last(run)["return"])
    assert all(value is not None and np.isfinite(value) for value in _last(run)["return_error"])


def test_asymmetric_action_bounds(out: Path) -> None:
    """The policy speaks of -1 to 1, the environment hears its own bounds."""
    run = _train("Bounds", out)
    for episode in run.read_episodes(2000)[0]:
        heard = episode["observations"][1:, :2]
        meant = Bounds.low + (episode["actions"] + 1) / 2 * (Bounds.high - Bounds.low)
        np.testing.assert_allclose(heard, meant, rtol=1e-6, atol=1e-6)
    explored = arrays(run)["raw.replay/action"]
    assert explored.min() < -0.9
    assert explored.max() > 0.9


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
    [stored] = [array[0] for name, array in replay.items() if name == "raw.replay/action"]
    taken = stored[stored.any(axis=1)]  # beside one row for each episode's last observation, and free rows
    assert (np.sort(taken) == [0, 0, 1]).all()
    assert (taken.mean(axis=0) > 0.2).all()
    if method == "grd":
        assert run.read_last_edges()["action_to_reward"].shape == (2, 3)


def test_discrete_actions_after_a_resume(tmp_path: Path) -> None:
    """An episode is put back by repeating its one-hot actions."""
    flags = tiny("observed", "--workers", "0", "--backbone", "dqn", "--steps-per-iteration", "210")
    straight = train(tmp_path / "straight", "odd_envs:Buttons-v0", *flags)
    run = train(tmp_path / "resumed", "odd_envs:Buttons-v0", *flags, "--steps", "1000")
    resume(run, "--steps", "2000")
    assert_same_arrays(arrays(run), arrays(straight))


def test_a_module_on_the_path_of_this_process_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is importable here is importable in the worker processes, too."""
    registration = "gymnasium.register('Mine-v0', odd_envs.Plain, max_episode_steps=20)"
    (tmp_path / "my_envs.py").write_text(f"import gymnasium, odd_envs\n{registration}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    run = train(tmp_path / "run", "my_envs:Mine-v0", *tiny("grd", "--steps", "600", "--workers", "2"))
    assert _last(run)["length"] == [EPISODE, EPISODE]


@pytest.mark.parametrize(
    ("delay", "method", "lengths"),
    [("20", "observed", {20}), ("10-30", "grd", set(range(10, 31)))],
)
def test_pendulum_with_windows(delay: str, method: str, lengths: set[int], out: Path) -> None:
    long = ("--env.max-episode-steps", "200")
    run = train(out, "Pendulum-v1", *tiny(method, "--steps", "800", "--env.delay", delay, *long))
    state = arrays(run)
    found = set(np.unique(state["raw.replay/segment_length"][0]).tolist())
    if delay == "20":
        assert found == lengths
    else:  # the last window of an episode is cut short by its end
        assert len(found & lengths) > 10
        assert max(found) <= 30
    assert all(-2000 < value < 0 for value in _last(run)["return"])


def test_without_delay_the_observed_reward_is_the_true_one(tmp_path: Path) -> None:
    """On Pendulum: `observed` and `oracle` are then the same training, number by number."""
    flags = ("--steps", "800", "--env.delay", "none", "--env.max-episode-steps", "200")
    observed = train(tmp_path / "observed", "Pendulum-v1", *tiny("observed", *flags))
    oracle = train(tmp_path / "oracle", "Pendulum-v1", *tiny("oracle", *flags))
    assert records(observed) == records(oracle)
    assert set(arrays(observed)["raw.replay/segment_length"][0].tolist()) == {1}
