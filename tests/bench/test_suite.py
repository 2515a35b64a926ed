"""The suite of own tasks: sound environments, one task in two units, sweep files that train, scores."""

import json
import tomllib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import suite_tasks as tasks
from apportion.front.sweep.planning import check_jobs, plan
from scripts import load

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FORMS = [(name, scaled) for name in tasks.TASKS for scaled in (False, True)]
tables = load("benchmarks/tables.py")


def _make(name: str, scaled: bool) -> Any:
    return gymnasium.make(tasks.env_id(name, scaled), disable_env_checker=True)


def _played(name: str, scaled: bool, seed: int) -> tuple[Any, Any]:
    """Observations and rewards of one episode, scaled actions translated for the raw form."""
    env = _make(name, scaled)
    low, high = np.array(list(env.unwrapped.levers.values())).T
    observations, rewards = [env.reset(seed=seed)[0]], []
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (env.spec.max_episode_steps, len(low)))
    for action in actions:
        own = action if scaled else low + (action + 1) / 2 * (high - low)
        observation, reward, terminated, truncated, _ = env.step(own.astype(np.float32))
        observations.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            break
    return np.array(observations), np.array(rewards)


@pytest.mark.parametrize(("name", "scaled"), FORMS)
def test_a_task_is_small_stays_in_its_space_and_ends_in_time(name: str, scaled: bool) -> None:
    env = _make(name, scaled)
    assert len(env.unwrapped.observation_names) == env.observation_space.shape[0] <= 14
    assert len(env.unwrapped.action_names) == env.action_space.shape[0] <= 3
    assert 50 <= env.spec.max_episode_steps <= 120
    observations, rewards = _played(name, scaled, seed=3)
    assert all(env.observation_space.contains(observation) for observation in observations)
    assert len(rewards) <= env.spec.max_episode_steps
    assert np.isfinite(rewards).all()


@pytest.mark.parametrize("name", tasks.TASKS)
def test_a_seed_decides_an_episode_and_raw_and_scaled_are_the_same_task(name: str) -> None:
    (scaled, rewards), again, other = (_played(name, True, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(scaled, again[0])
    assert not np.array_equal(scaled[0], other[0][0])
    raw, raw_rewards = _played(name, False, 3)
    np.testing.assert_allclose(raw_rewards, rewards, rtol=1e-3, atol=1e-3)
    env = _make(name, False).unwrapped
    np.testing.assert_allclose(2 * (raw - env.low) / (env.high - env.low) - 1, scaled, atol=2e-3)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_the_hand_rule_beats_random_actions_in_either_form(name: str) -> None:
    random = np.mean(tasks.play(name, scaled=True, by_rule=False, episodes=20))
    rule = {scaled: np.mean(tasks.play(name, scaled, by_rule=True, episodes=20)) for scaled in (False, True)}
    assert rule[True] > random + 0.3 * abs(random)
    assert rule[False] == pytest.approx(rule[True], rel=0.1, abs=5.0)
    assert tasks.RANDOM[name] < rule[True]


def test_normalised_scores_stand_between_random_actions_and_the_better_oracle() -> None:
    """Here the scaled oracle earns 100 more than random actions, the raw one only 50 more."""
    gains = {("", "grd"): 20, ("", "oracle"): 50, ("Scaled", "oracle"): 100, ("Scaled", "rd"): 60}
    gains |= {("Scaled", "grd"): 90, ("Scaled", "published"): 75}
    runs = [
        _run(f"suite_tasks:{task}{form}-v0", name, random + gain)
        for task, random in tasks.RANDOM.items()
        for (form, name), gain in gains.items()
    ]
    first, *_, lowest = tables.suite_table({"runs": runs}).splitlines()[2:]
    expected = ["0.20", "0.90", "0.60", "0.75", "1.00"]
    assert [cell.split()[0] for cell in first.split("|")[2:-1]] == expected
    assert [cell.strip() for cell in lowest.split("|")[2:-1]] == expected


def _run(env_id: str, name: str, earned: float) -> dict[str, Any]:
    """As record.py writes it: a final return is the mean of the last two evaluations."""
    grd = {"name": "grd", "structure": "closed-form" if name == "grd" else "gradient", "base": True}
    method = grd if name in ("grd", "published") else {"name": name}
    returns = [[0.0] * 3, [earned - 1] * 3, [earned + 1] * 3]
    return {"config": {"env": {"id": env_id}, "method": method}, "curves": {"return": returns}}


@pytest.mark.parametrize("file", sorted(BENCHMARKS.glob("*.toml")), ids=lambda file: file.stem)
def test_sweep_files_can_be_trained(file: Path) -> None:
    jobs = plan(tomllib.loads(file.read_text()))
    check_jobs([job for job in jobs if "-v4" not in job.env][:6] or jobs[:1])
    assert json.dumps([job.to_dict() for job in jobs])
