"""Each lane's best policy: kept with the newest, found by --best, honest where there is none."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from driver import Run, apportion, assert_same_run

import apportion as door
from apportion.runs.learned import read_learned

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(greenhouse_run: Run) -> door.Run:
    return door.load(greenhouse_run.path)


def test_show_says_when_each_lane_was_best(run: door.Run) -> None:
    best = run.summary()["best"]
    assert [lane["return"] for lane in best] == run.returns.max(axis=1).tolist()
    assert [lane["step"] for lane in best] == run.steps[run.returns.argmax(axis=1)].tolist()


def test_the_best_policy_is_the_one_of_that_evaluation(run: door.Run) -> None:
    for lane, best in enumerate(run.summary()["best"]):
        episode = run.folder.read_episodes(best["step"])[lane][0]
        policy = run.policy(lane, best=True)
        found = np.array([policy(observation) for observation in episode["observations"][:-1]])
        np.testing.assert_allclose(found, episode["actions"], atol=1e-6)
        rewards = run.reward(episode["observations"], episode["actions"], lane, best=True)
        np.testing.assert_allclose(rewards, episode["redistributed"], atol=1e-5)


def test_verbs_take_the_best(run: door.Run) -> None:
    steps = [lane["step"] for lane in run.summary()["best"]]
    assert steps != [2000, 2000]  # or nothing is shown here
    scores = apportion("eval", run.path, "--best", "--episodes", "2", "--json").json
    assert (scores["step"], scores["best_steps"]) == (None, steps)
    assert scores == run.evaluate(2, best=True)
    assert scores["returns"] != run.evaluate(2)["returns"]
    credit = apportion("explain", run.path, "--best", "--step", "0", "--json").json
    assert credit["best_steps"] == steps
    for verb in ("eval", "explain"):
        assert "at each seed's best step" in apportion(verb, run.path, "--best").out


def test_without_its_checkpoint_the_best_is_that_of_the_one_before(tmp_path: Path, run: door.Run) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    back = Run(tmp_path / "run")
    (back.checkpoints / "step_000000002000.safetensors").unlink()
    assert max(read_learned(back, best=True).best_steps or [2000]) <= 1000
    door.load(back.path).resume(quiet=True)
    assert_same_run(back, run.folder)
