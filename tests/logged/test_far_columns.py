"""Columns far from zero beside their spread, such as seconds since 1970, are not lost to single precision."""

import tracemalloc
from pathlib import Path
from typing import Any

import logged_data as data
import numpy as np
import pytest

import apportion
from apportion.core.config import from_dict, to_dict
from apportion.data.columns import Columns
from apportion.data.encoding import Coded, Encoding
from apportion.data.reading import read_log
from apportion.data.rows import Rows
from apportion.runs.identifying import identify_log
from apportion.runs.logged import read_facts
from apportion.training.evaluate import pearson

EPISODES = data.episodes()
HIDDEN = np.concatenate([reward for *_, reward in EPISODES])
ORIGIN, UNIT = 1.7e9, 50.0


def far(row: dict[str, Any]) -> dict[str, Any]:
    """The first state as seconds since 1970, and the action about as far from zero."""
    return row | {"s_0": ORIGIN + UNIT * row["s_0"], "a_0": ORIGIN + row["a_0"]}


def test_numbers_far_from_zero_are_learned_as_well(tmp_path: Path) -> None:
    """By `identify`, `fit`, `relabel`, `explain` and the reward that others ask."""
    file = data.write_csv(tmp_path / "log.csv", [far(row) for row in data.table(EPISODES)])
    identified = identify_log(read_log(str(file), Columns(states="s_")).log, 0.01)
    assert identified["graph"]["state_to_reward"] == [True, True, False]
    assert identified["graph"]["action_to_reward"] == [True]
    run = apportion.fit(file, out=tmp_path / "run", settings=data.SMALL, quiet=True)
    assert run.summary()["data"]["unexplained"][0] < 0.1
    apportion.relabel(run, file, tmp_path / "new.csv")
    rewards = data.column(tmp_path / "new.csv")
    assert pearson(rewards, HIDDEN) >= 0.95
    seen, done, _ = EPISODES[0]
    asked = run.reward(seen * [UNIT, 1, 1] + [ORIGIN, 0, 0], done + ORIGIN)
    assert asked == pytest.approx(rewards[: len(done)], abs=1e-4)
    [first, *_] = run.explain(episode=file, precision=data.FEW)["lanes"][0]["episodes"]
    assert first["redistributed"] == pytest.approx(rewards[: len(done)], abs=1e-4)
    notes = read_facts(run.folder)["notes"]
    assert sum("far from zero beside its spread: it is counted from 1" in note for note in notes) == 2


def test_lags_and_marks_of_missing_numbers_have_their_origins(tmp_path: Path) -> None:
    rows = [far(row) for row in data.table(EPISODES[:12])]
    rows[3]["s_0"] = rows[5]["s_1"] = None
    read = read_log(str(data.write_csv(tmp_path / "log.csv", rows)), Columns(states="s_", lags=2))
    again = from_dict(Encoding, to_dict(read.encoding))
    seen, done = again.origins()
    named = dict(zip(read.log.observation_names, seen, strict=True))
    late = {f"{name} t-{lag}" for name in ("s_0", "a_0") for lag in (1, 2)}
    assert {name for name, origin in named.items() if origin} == {"s_0", *late}
    assert named["s_0"] == named["s_0 t-2"] == pytest.approx(ORIGIN, rel=1e-6)
    assert named["a_0 t-1"] == done[0] == pytest.approx(ORIGIN, rel=1e-6)
    assert np.abs(np.concatenate(read.log.observations)).max() < 10 * UNIT


@pytest.mark.parametrize(
    "values",
    [[2010.0, 2020.0], [7.0, 7.0], [0.1 + 0.2, 0.3], [0.0, 0.0], [-1.0, 1.0], [300.0, 300.1, np.nan]],
)
def test_ordinary_and_constant_columns_stay_as_they_are(values: list[float]) -> None:
    column = np.array(values)
    coded = Coded.of("log", "s", column)
    assert coded.origin == 0
    np.testing.assert_array_equal(coded.numbers("log", column), np.nan_to_num(column, nan=coded.fill))


def test_a_log_is_encoded_a_column_at_a_time() -> None:
    states = {f"s_{place}": np.random.default_rng(place).normal(size=1_000_000) for place in range(5)}
    rows = Rows("log", np.full(1_000, 1_000), states, {}, np.arange(1_000.0), None, None, True)
    tracemalloc.start()
    Encoding.of(rows, 0).apply(rows)
    assert tracemalloc.get_traced_memory()[1] < 1.6 * 5 * 8e6  # of the log itself
    tracemalloc.stop()


def test_runs_of_older_versions_count_from_zero() -> None:
    one = {"name": "s", "levels": [], "fill": 1.0, "marked": False}
    read = from_dict(Encoding, {"states": [one], "actions": [], "lags": 0, "followed": False, "ended": False})
    assert read.origins()[0].tolist() == [0.0]
