"""Earlier steps as dimensions: what they hold, and what stands where there was none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import logged_data as data
import numpy as np
import polars
import pytest

import apportion
from apportion.data.columns import Columns
from apportion.data.reading import read_log
from apportion.data.rows import Log
from apportion.runs.identifying import identify_log
from apportion.training.evaluate import pearson

EPISODES = data.episodes(12)


def read(path: Path, lags: int) -> Log:
    return read_log(str(path), Columns(states="s_", lags=lags)).log


def test_lags_bring_earlier_steps(tmp_path: Path) -> None:
    log = read(data.write_csv(tmp_path / "log.csv", data.table(EPISODES)), 2)
    late = [[*(f"{name} t-{lag}" for name in (*data.STATES, "a_0")), f"no t-{lag}"] for lag in (1, 2)]
    assert log.observation_names == (*data.STATES, *late[0], *late[1])
    seen, done = log.observations[0], log.actions[0]
    np.testing.assert_array_equal(seen[2:, 8:11], seen[:-2, :3])
    np.testing.assert_array_equal(seen[1:, 6], done[:-1, 0])
    np.testing.assert_array_equal(seen[:, 7], np.arange(len(seen)) < 1)
    np.testing.assert_array_equal(seen[:, 12], np.arange(len(seen)) < 2)


def test_before_the_first_step_nothing_tells_episodes_apart(tmp_path: Path) -> None:
    """Means and commonest categories, far from zero or not."""
    rows = data.table(EPISODES)
    rows = [row | {"s_1": 1.7e9 + row["s_1"], "s_2": "babc"[place % 4]} for place, row in enumerate(rows)]
    log = read(data.write_csv(tmp_path / "log.csv", rows), 1)
    assert log.levels == (0, 0, 3, 0, 0, 3, 0, 0, 0)
    first = np.stack([each[0, 3:] for each in log.observations])
    means = np.mean([row["s_0"] for row in rows]), 0.0, 1.0, np.mean([row["a_0"] for row in rows]), 1.0
    np.testing.assert_allclose(first, np.tile(means, (len(first), 1)), atol=1e-6)


def log_of(path: Path, count: int, reward: Callable[[Any, Any], Any], mean: float) -> tuple[Path, Any]:
    """Episodes of 4 to 11 steps, and what each step earned by what was seen then and before."""
    rng, rows, hidden = np.random.default_rng(count), list[dict[str, Any]](), []
    for episode in range(count):
        seen = rng.normal(size=(int(rng.integers(4, 12)), 3)) + np.array([mean, 0, 0])
        hidden.append(reward(seen, np.concatenate([np.zeros((1, 3)), seen[:-1]])))
        for step, values in enumerate(seen.tolist()):
            named = dict(zip(data.STATES, values, strict=True))
            rows.append({"episode": episode, "step": step, **named, "outcome": hidden[-1].sum()})
    return data.write_csv(path, rows), np.concatenate(hidden)


@pytest.mark.parametrize(("count", "mean"), [(50, 5.0), (300, 0.0)])
@pytest.mark.parametrize(
    ("reward", "parents"),
    [
        (lambda now, before: before[:, 0], {"s_0 t-1"}),
        (lambda now, before: now[:, 1] + before[:, 0] ** 2, {"s_1", "s_0 t-1"}),
        (lambda now, before: now[:, 1] * before[:, 0], {"s_1", "s_0 t-1"}),
        (lambda now, before: now[:, 0], {"s_0"}),
    ],
)
def test_a_reward_for_the_step_before_is_found_though_the_first_has_none(
    tmp_path: Path, count: int, mean: float, reward: Callable[[Any, Any], Any], parents: set[str]
) -> None:
    file, _ = log_of(tmp_path / "log.csv", count, reward, mean)
    found = identify_log(read(file, 1), 0.01)
    told = zip(found["observation_names"], found["verdict"]["state_to_reward"], strict=True)
    verdicts = {name: verdict for name, verdict in told if name != "no t-1"}
    assert verdicts == {name: "present" if name in parents else "absent" for name in verdicts}


def test_fit_treats_the_first_step_so_as_well(tmp_path: Path) -> None:
    file, hidden = log_of(tmp_path / "log.csv", 200, lambda now, before: before[:, 0], 5.0)
    run = apportion.fit(file, out=tmp_path / "run", lags=1, settings=data.SMALL, quiet=True)
    apportion.relabel(run, file, tmp_path / "new.csv")
    found = polars.read_csv(tmp_path / "new.csv")
    # What every episode has once, a first step, may be a level of its outcome as well: nobody can tell.
    later = found["step"].to_numpy() > 0
    assert pearson(found["reward"].to_numpy()[later], hidden[later]) >= 0.95
