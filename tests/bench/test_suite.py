"""The suite of own tasks: sound environments, one task in two units, a table of what was recorded."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import suite
import suite_tasks as tasks
from apportion.core.config import UserError
from apportion.front.sweep.carrying import Carried
from apportion.front.sweep.folder import Standing
from apportion.front.sweep.planning import check_jobs

FORMS = [(name, scaled) for name in tasks.TASKS for scaled in (False, True)]


def _make(name: str, scaled: bool) -> Any:
    return gymnasium.make(tasks.env_id(name, scaled), disable_env_checker=True)


def _actions(count: int, size: int) -> Any:
    return np.random.default_rng(0).uniform(-1.0, 1.0, (count, size)).astype(np.float32)


def _played(name: str, scaled: bool, seed: int) -> tuple[Any, Any]:
    """Observations and rewards of one episode, scaled actions translated for the raw form."""
    env = _make(name, scaled)
    low, high = np.array(list(env.unwrapped.levers.values())).T
    observations, rewards = [env.reset(seed=seed)[0]], []
    for action in _actions(env.spec.max_episode_steps, len(low)):
        if not scaled:
            action = np.asarray(low + (action.astype(np.float64) + 1) / 2 * (high - low), np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            break
    return np.array(observations), np.array(rewards)


# --- Tasks


def test_five_tasks_are_for_development_five_were_held_out_and_five_are_unseen() -> None:
    assert len(tasks.DEVELOPMENT) == len(tasks.HELD_OUT) == len(tasks.UNSEEN) == 5
    assert len(set(tasks.TASKS)) == 15 == len(tasks.LEVELS)


@pytest.mark.parametrize(("name", "scaled"), FORMS)
def test_observations_stay_in_their_space_and_episodes_end_in_time(name: str, scaled: bool) -> None:
    env = _make(name, scaled)
    assert len(env.unwrapped.observation_names) == env.observation_space.shape[0] <= 14
    assert len(env.unwrapped.action_names) == env.action_space.shape[0] <= 3
    assert 50 <= env.spec.max_episode_steps <= 120
    observations, rewards = _played(name, scaled, seed=3)
    assert all(env.observation_space.contains(observation) for observation in observations)
    assert len(rewards) <= env.spec.max_episode_steps
    assert np.isfinite(rewards).all()


@pytest.mark.parametrize("name", tasks.TASKS)
def test_a_seed_decides_an_episode(name: str) -> None:
    first, again, other = (_played(name, True, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0][0], other[0][0])


@pytest.mark.parametrize("name", tasks.TASKS)
def test_raw_and_scaled_are_the_same_task(name: str) -> None:
    (raw, raw_rewards), (scaled, scaled_rewards) = _played(name, False, 5), _played(name, True, 5)
    np.testing.assert_allclose(raw_rewards, scaled_rewards, rtol=1e-3, atol=1e-3)
    env = _make(name, False).unwrapped
    np.testing.assert_allclose(2 * (raw - env.low) / (env.high - env.low) - 1, scaled, atol=2e-3)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_the_hand_rule_beats_random_actions_in_either_form(name: str) -> None:
    random = np.mean(tasks.play(name, scaled=True, by_rule=False, episodes=20))
    rule = {scaled: np.mean(tasks.play(name, scaled, by_rule=True, episodes=20)) for scaled in (False, True)}
    assert rule[True] > random + 0.3 * abs(random)
    assert rule[False] == pytest.approx(rule[True], rel=0.1, abs=5.0)
    assert tasks.LEVELS[name].rule > tasks.LEVELS[name].random


# --- Table


def _run(returns: list[float], state: str = "finished") -> dict[str, Any]:
    return {
        "status": {"state": state},
        "steps": [60_000],
        "final_return": returns,
        "reward_correlation": [0.5, 0.7, None],
        "return_error": [0.1, 0.2, 0.3],
    }


def _cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def _recorded() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Random actions earn what LEVELS says; the scaled oracle 100 more, the raw one only 50 more."""
    random = tasks.LEVELS["Battery"].random
    gains = {
        ("scaled", "grd"): 90,
        ("scaled", "rd"): 60,
        ("scaled", "published"): 75,
        ("scaled", "oracle"): 100,
    }
    gains |= {("raw", "grd"): 20, ("raw", "oracle"): 50}
    return {("Battery", *key): _run([random + gain] * 3) for key, gain in gains.items()}


def test_normalised_scores_stand_between_random_actions_and_the_better_oracle() -> None:
    runs = _recorded()
    rows, methods = [("Battery", "scaled"), ("Battery", "raw")], ["grd", "rd", "published", "oracle"]
    (text,) = suite.normalised_table(runs, rows, methods)
    scaled, raw, lowest = _cells(text)
    assert [cell.split()[0] for cell in scaled[2:]] == ["0.90", "0.60", "0.75", "1.00", "1.20"]
    assert [cell.split()[0] for cell in raw[2:]] == ["0.20", "-", "-", "0.50", "-"]
    assert lowest[2:] == ["0.20", "0.60", "0.75", "0.50", "1.20"]


def test_tables_name_units_levels_scores_and_what_is_not_finished() -> None:
    runs = {("Pump", "raw", "rd"): _run([1.0, 2.0, 3.0], state="stopped")}
    text = suite.tables(runs)
    level = tasks.LEVELS["Pump"]
    assert "| task | units | `rd` | random | hand rule |" in text
    assert "| Pump | raw | 2.0 [" in text
    assert f"| {level.random:,.1f} | {level.rule:,.1f} |" in text
    assert "0.60 / 0.20" in text
    assert "Not finished: Pump-v0--rd (stopped, step 60,000)" in text


# What a run folder says of itself, at the least.
CONFIG = {
    "env": {"id": "suite_tasks:Pump-v0"},
    "method": {"name": "grd"},
    "backbone": {"name": "sac"},
    "schedule": {"steps": 400},
    "seed": 0,
    "lanes": 2,
}


def test_a_final_return_is_the_mean_of_the_last_two_evaluations(tmp_path: Path) -> None:
    run = tmp_path / "PumpScaled-v0--grd"
    run.mkdir()
    for name in ("spec", "versions", "status"):
        (run / f"{name}.json").write_text("{}")
    (run / "config.json").write_text(json.dumps(CONFIG))
    lines = [
        {
            "step": step,
            "kind": "eval",
            "return": returns,
            "reward_correlation": [0.5, 0.6],
            "return_error": [1, 2],
        }
        for step, returns in ((10, [0.0, 9.0]), (20, [1.0, 2.0]), (30, [3.0, None]))
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = suite.collect(tmp_path)["Pump", "scaled", "grd"]
    assert found["final_return"] == [2.0, None]  # the second seed has diverged
    assert (found["steps"], found["return_error"]) == ([10, 20, 30], [1.0, 2.0])


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run of the suite"):
        suite.collect(tmp_path)


# --- Jobs


def _args(folder: Path, **changes: Any) -> Any:
    return suite.Suite(runs=folder, tasks=("Pump",), units="raw", seeds=2, steps=400, **changes)


def test_settings_stay_at_their_defaults_but_for_the_sizes_of_networks(tmp_path: Path) -> None:
    jobs = suite.planned(_args(tmp_path, methods=("grd", "published", "oracle", "crossq")))
    check_jobs(jobs)
    networks = {"backbone.hidden": (64, 64), "method.hidden": (64, 64)}
    common = {"env": "suite_tasks:Pump-v0", "seeds": 2, "steps": 400}
    for job in jobs:
        assert {name: getattr(job, name) for name in common} == common
    assert [job.name for job in jobs[:3]] == ["Pump-v0--grd", "Pump-v0--published", "Pump-v0--oracle"]
    assert [job.settings for job in jobs[:3]] == [networks, networks, {"backbone.hidden": (64, 64)}]
    assert [job.method for job in jobs] == ["grd", "grd", "oracle", "grd"]
    assert [job.preset for job in jobs[:2]] == ["default", "paper"]
    assert [job.backbone for job in jobs] == [None, None, None, "crossq"]


def test_a_failed_training_is_told_and_a_stop_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = suite.planned(_args(tmp_path, methods=("grd", "rd")))
    ended = [Standing(job, tmp_path, "failed", 0, 400, reason="no luck") for job in jobs[:1]]
    monkeypatch.setenv("PYTHONPATH", "")
    for signal, code in ((None, 1), (15, 143)):
        monkeypatch.setattr(suite, "carry_out", lambda *_, signal=signal: Carried(ended, signal))
        assert suite.run_all(_args(tmp_path)) == code
    assert "Pump-v0--grd failed: no luck" in capfd.readouterr().err


def test_each_part_plans_its_own_tasks_and_all_plans_every_one(tmp_path: Path) -> None:
    parts = {part: suite.planned(suite.Suite(runs=tmp_path, part=part)) for part in suite.PARTS}
    assert {job.env for job in parts["unseen"]} == {
        f"suite_tasks:{tasks.env_id(name, scaled)}" for name in tasks.UNSEEN for scaled in (False, True)
    }
    assert parts["all"] == [*parts["development"], *parts["held-out"], *parts["unseen"]]


def test_an_unknown_task_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task 'Boat'"):
        suite.planned(suite.Suite(runs=tmp_path, tasks=("Boat",)))
