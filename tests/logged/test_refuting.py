"""What stays of credit where nothing can be earned, a column earns nothing, or there is less to learn."""

import json
from pathlib import Path

import numpy as np
import pytest
from logged_data import SMALL, write_csv

import apportion
from apportion import cli
from apportion.core.config import UserError
from apportion.runs.logged import read_for
from apportion.runs.refuting import RANDOM, _shuffled, _with_random


def rows(told: float, count: int = 120) -> list[dict[str, float]]:
    """An outcome that s_0 tells, as much as that, among noise."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        seen = rng.normal(size=(5, 2))
        outcome = told * seen[:, 0].sum() + rng.normal()
        found += [{"episode": number, "s_0": a, "s_1": b, "outcome": outcome} for a, b in seen.tolist()]
    return found


def fitted(folder: Path, told: float) -> apportion.Run:
    data = write_csv(folder / "log.csv", rows(told))
    return apportion.fit(data, out=folder / "run", settings=SMALL, quiet=True)


@pytest.fixture(scope="module")
def earned(tmp_path_factory: pytest.TempPathFactory) -> apportion.Run:
    return fitted(tmp_path_factory.mktemp("earned"), 1.0)


def test_credit_that_is_told_stands(earned: apportion.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["refute", str(earned.path), "--draws", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    cases = found["cases"]
    assert found["refuted"] == []
    assert found["sentence"].startswith("The credit stands")
    assert max(cases["outcomes shuffled"]["found"]) < 0.3
    assert max(cases["outcomes shuffled"]["explained"]) < 0.3
    assert min(cases["a random column"]["kept"]) > 0.9
    assert max(cases["a random column"]["random_share"]) < 0.1
    assert min(cases["half of the episodes"]["kept"]) > 0.8
    assert all(len(values) == 2 for case in cases.values() for values in case.values())


def test_credit_of_outcomes_that_nothing_tells_is_refuted(tmp_path: Path) -> None:
    found = fitted(tmp_path, 0.0).refute(draws=3)
    assert "outcomes shuffled" in found["refuted"]
    assert "do not rely on it" in found["sentence"]


def test_a_log_is_changed_in_one_thing_alone(earned: apportion.Run) -> None:
    log = read_for(earned.folder, str(earned.path.parent / "log.csv"))[1]
    rng = np.random.default_rng(0)
    shuffled, _ = _shuffled(log, rng)
    assert sorted(shuffled.totals) == sorted(log.totals)
    assert (shuffled.totals != log.totals).any()
    more, _ = _with_random(log, rng)
    assert more.observation_names == (*log.observation_names, RANDOM)
    np.testing.assert_array_equal(more.observations[0][:, :-1], log.observations[0])


def test_outcomes_are_needed(earned: apportion.Run, tmp_path: Path) -> None:
    data = write_csv(tmp_path / "new.csv", [{**row, "outcome": None} for row in rows(1.0)])
    with pytest.raises(UserError, match="outcomes are missing"):
        earned.refute(data)
