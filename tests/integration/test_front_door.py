"""`apportion.train` and `apportion.load`: what a script gets is what the command line says."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from odd_envs import Plain, make_plain

import apportion as door
from apportion.core.config import to_dict
from apportion.core.spec import BLOCKS
from apportion.envs.factories import name_factory
from apportion.envs.make import EnvConfig, make
from apportion.front.choosing import Job
from apportion.runs import checkpoint
from apportion.runs.folder import RunFolder
from apportion.training import loop
from driver import GREENHOUSE, TINY, Answer, Run, apportion, assert_same_run


@pytest.fixture(scope="module")
def run(greenhouse_run: Run) -> door.Run:
    return door.load(greenhouse_run.path)


# --- Training


def test_a_script_trains_the_same_run_as_the_command(greenhouse_run: Run, out: Path) -> None:
    """And whether workers play or this process does."""
    settings = TINY | {"method.hidden": (8, 8), "workers": 0}
    found = door.train(GREENHOUSE, "grd", steps=2000, seeds=2, out=out, settings=settings, quiet=True)
    assert found.path == out
    expected = greenhouse_run.read_config()
    assert found.config == expected | {"schedule": expected["schedule"] | {"workers": 0}}
    assert_same_run(found.folder, greenhouse_run)


def test_ctrl_c_saves_and_raises(out: Path) -> None:
    def press() -> None:
        while not (out / "metrics.jsonl").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(door.Stopped) as stopped:
        door.train(GREENHOUSE, "oracle", steps=400_000, seeds=2, out=out, settings=TINY, quiet=True)
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert stopped.value.signal == signal.SIGINT
    step = stopped.value.run.summary()["status"]["step"]
    assert str(stopped.value) == f"stopped at step {step:,} and saved in {out}: load it and call resume()"


# --- Reading


def test_curves_and_metrics_are_those_of_the_summary_and_the_log(run: door.Run) -> None:
    answer = apportion("show", run.path, "--json").json
    assert run.summary() == answer
    assert (run.steps.tolist(), run.returns.tolist()) == (answer["steps"], answer["returns"])
    assert run.seeds == [0, 1]
    lines, records = run.folder.read_metrics(), run.metrics()
    assert [(each["lane"], each["seed"]) for each in records] == [(0, 0), (1, 1)] * len(lines)
    for line, record in zip([line for line in lines for _ in (0, 1)], records, strict=True):
        assert (record["step"], record["kind"]) == (line["step"], line["kind"])
        assert all(isinstance(value, int | float | str) for value in record.values())
    assert records[-1]["return"] == lines[-1]["return"][1]


def test_the_graph_is_the_mean_of_the_lanes(run: door.Run) -> None:
    lanes = [run.lane_graph(0), run.lane_graph(1)]
    for block in BLOCKS:
        both = [getattr(graph, block) for graph in lanes]
        np.testing.assert_allclose(getattr(run.graph, block), np.mean(both, axis=0))
    with pytest.raises(door.UserError, match=r"no lane 2: .* has lanes 0 to 1"):
        run.lane_graph(2)


# --- What was learned


def test_policies_and_rewards_are_those_of_the_stored_episodes(run: door.Run) -> None:
    for lane in (0, 1):
        policy, episode = run.policy(lane), run.episodes()[lane][0]
        observations, actions = episode["observations"], episode["actions"]
        found = np.array([policy(observation) for observation in observations[:-1]])
        np.testing.assert_allclose(found, actions, atol=1e-6)
        rewards = run.reward(observations, actions, lane)
        np.testing.assert_allclose(rewards, episode["redistributed"], atol=1e-5)
        with pytest.raises(door.UserError, match="also looks at where a step leads"):
            run.reward(observations[:-1], actions, lane)
    observation = observations[0].copy()
    observation[2] = np.nan
    with pytest.raises(door.UserError, match=r"an observation with nan in dimension 2 \(light\) was given"):
        run.policy()(observation)


@pytest.mark.parametrize(
    ("observations", "actions", "reason"),
    [
        ((5, 10), (3, 3), "5 observations and 3 actions: give one observation for each action"),
        ((3, 9), (3, 3), r"observations have shape \(3, 9\): give \[T, 10\] or \[T\+1, 10\]"),
        ((3, 10), (3, 2), r"actions have shape \(3, 2\): give \[T, 3\], one row per step"),
    ],
)
def test_steps_that_do_not_fit_are_refused(
    run: door.Run, observations: tuple[int, ...], actions: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(door.UserError, match=reason):
        run.reward(np.zeros(observations), np.zeros(actions))


def test_scores_and_explanations_are_those_of_the_commands(run: door.Run) -> None:
    assert (
        run.evaluate(2, seed=5)
        == apportion("eval", run.path, "--json", "--episodes", "2", "--seed", "5").json
    )
    found = run.explain(lanes=[1], steps=[0, 3])
    assert found == apportion("explain", run.path, "--json", "--lane", "1", "--step", "0", "3").json


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("oracle", "oracle takes its rewards from the episode"),
        ("rrd", r"rrd also looks at where a step leads: give observations \[T\+1, S\]"),
        ("rudder", "the credit of rudder depends on the whole segment"),
    ],
)
def test_methods_say_what_their_rewards_need(method: str, reason: str, out: Path) -> None:
    untrained = _untrained(method, out)
    with pytest.raises(door.UserError, match=reason):
        untrained.reward(np.zeros((3, 3)), np.zeros((3, 2)))
    if method == "rrd":
        assert untrained.reward(np.zeros((4, 3)), np.zeros((3, 2))).shape == (3,)


def _untrained(method: str, out: Path) -> door.Run:
    """A run that was saved before its first step."""
    config, checkpoints = Job("", name_factory(make_plain), method).chosen()
    env, spec = make(config.env)
    env.close()
    folder = RunFolder.create(out, {**config.to_dict(), "checkpoints": to_dict(checkpoints)}, spec)
    checkpoint.save(folder.checkpoints, 0, {"agent": loop.start(config, spec)[0]}, {}, 1)
    return door.Run(folder)


# --- Environments from functions


@pytest.mark.slow
def test_an_importable_function_works_everywhere(out: Path) -> None:
    found = door.train(make_plain, "oracle", steps=400, seeds=2, out=out, settings=TINY, quiet=True)
    assert found.config["env"]["id"] == "odd_envs:make_plain"
    assert door.load(out).resume(steps=800, quiet=True).steps.tolist() == [400, 800]
    assert apportion("eval", out, "--episodes", "1", "--quiet") == Answer(0, "", "")


def test_a_lambda_trains_here_and_must_be_given_again(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = door.train(lambda: make_plain(), "oracle", steps=400, seeds=2, out=out, settings=TINY)
    assert "must give it again: apportion.load(run, env=...)" in capsys.readouterr().err
    scores = trained.evaluate(2)

    monkeypatch.setattr("apportion.envs.factories._HERE", {})  # as in another process
    answer = apportion("eval", out, "--episodes", "2")
    assert (answer.code, answer.out) == (1, "")
    assert re.search(r"made by <lambda>( \d+)? of a script: give it again from Python", answer.err)
    again = door.load(out, env=lambda: make_plain())
    assert again.evaluate(2) == scores
    assert again.resume(steps=800, quiet=True).steps.tolist() == [400, 800]


@pytest.mark.slow
def test_the_action_range_is_the_environment_s_own(out: Path) -> None:
    """Actions from 2 to 6."""

    class Wide(Plain):
        action_space = gymnasium.spaces.Box(2.0, 6.0, (2,), np.float32)

    trained = door.train(
        lambda: gymnasium.wrappers.TimeLimit(Wide(), 10), "rd", steps=400, out=out, settings=TINY, quiet=True
    )
    episode, policy = trained.episodes()[0][0], trained.policy()
    own = np.array([policy(observation) for observation in episode["observations"][:-1]])
    np.testing.assert_allclose(own, 4 + 2 * episode["actions"], atol=1e-5)
    rewards = trained.reward(episode["observations"], own)
    np.testing.assert_allclose(rewards, episode["redistributed"], atol=1e-4)


def test_observations_of_the_paper_s_tasks_are_the_environment_s_own(out: Path) -> None:
    """The Ant sees 84 zeros more than its environment gives; a policy adds them itself."""
    settings = TINY | {"warmup_steps": 1000, "evaluate_every": 200, "env.max_episode_steps": 20}
    settings |= {"replay_steps": 800, "evaluation_episodes": 1}
    trained = door.train("Ant-v4", "rd", steps=200, out=out, settings=settings, quiet=True)
    episode = trained.episodes()[0][0]
    env, spec = make(EnvConfig("Ant-v4"))
    own = env.unwrapped.observation_space.shape[0]
    assert (own, spec.observation_size) == (27, 111)
    action = trained.policy()(episode["observations"][0][:own])
    np.testing.assert_allclose(action, episode["actions"][0], atol=1e-5)
    rewards = trained.reward(episode["observations"][:, :own], episode["actions"])
    np.testing.assert_allclose(rewards, episode["redistributed"], atol=1e-4)
