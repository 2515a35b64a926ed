"""Problems of odd kinds: what is drawn is what it says, and what was said of it is counted right."""

import json
from pathlib import Path

import numpy as np
import pytest

from apportion.core.config import UserError
from scripts import load

kinds = load("benchmarks/stranger_kinds.py")
strangers = load("benchmarks/strangers.py")


@pytest.mark.parametrize("name", kinds.KINDS)
def test_every_kind_is_a_log_with_causes(name: str) -> None:
    problem, again = kinds.draw(3, name), kinds.draw(3, name)
    dims = problem.observations[0].shape[1] + problem.actions[0].shape[1]
    assert len(problem.observations) == len(problem.actions) == len(problem.totals)
    assert len(problem.cause) == len(problem.proxy) == len(problem.worth) == dims
    assert all(len(o) == len(a) + 1 for o, a in zip(problem.observations, problem.actions, strict=True))
    assert all(np.isfinite(each).all() for each in (*problem.observations, problem.totals))
    assert problem.cause.any()
    assert not np.any(problem.cause & problem.proxy)
    assert np.all(problem.worth[~problem.cause] == 0)
    assert np.array_equal(problem.totals, again.totals)


def test_kinds_are_what_they_are_called() -> None:
    assert set(kinds.draw(0, "success or not").totals) == {0.0, 1.0}
    assert kinds.draw(0, "a hidden cause").proxy.tolist()[:2] == [True, True]
    terms = np.arange(12.0).reshape(2, 2, 3)
    rng = np.random.default_rng(0)
    assert kinds.sums(rng, terms).tolist() == [[3.0, 12.0], [21.0, 30.0]]
    assert kinds.for_the_last_step(rng, terms).tolist() == [[2.0, 5.0], [8.0, 11.0]]
    assert kinds.another_later(rng, terms)[:, 0].tolist() == [3.0, 21.0]


def test_what_is_sure_and_wrong_is_counted() -> None:
    said = {
        "confidence": np.array([0.99, 0.96, 0.97, 0.5, 1.0]),
        "undecided": np.array([False, False, False, True, False]),
        "denied": np.array([True, False, False, True, False]),
        "bystander": np.array([False, True, False, False, False]),
        "proxy": np.array([False, False, True, False, False]),
        "certified": np.array([True]),
    }
    row = strangers.summary(said)
    assert (row["sure"], row["right"], row["surest"], row["right_of_surest"]) == (4, 0.25, 2, 0.5)
    assert (row["denied"], row["bystanders"], row["proxies"], row["undecided"]) == (1, 1, 1, 0.2)


def test_a_table_of_one_kind(tmp_path: Path) -> None:
    out = tmp_path / "strangers.json"
    strangers.main(strangers.Strangers(out, problems=2, first=5, kinds=("plain",)))
    found = json.loads(out.read_text())
    assert found["config"]["kinds"] == ["plain"]
    assert found["kinds"]["plain"]["sure"] > 0
    with pytest.raises(UserError, match="no kind 'plane': choose from plain, "):
        strangers.main(strangers.Strangers(kinds=("plane",)))
