"""The structure benchmark: problems that are what they claim to be, verdicts that are counted right."""

from typing import Any, get_args

import numpy as np
import pytest

import structure
from apportion.core.config import UserError
from lib import kinds, noisy
from structure import Outcome, Structure


def _assert_sound(problem: noisy.Problem, again: noisy.Problem) -> None:
    """A log with causes, the same each time, in which parents are worth something and nobody else is."""
    dims = problem.observations[0].shape[1] + problem.actions[0].shape[1]
    assert len(problem.observations) == len(problem.actions) == len(problem.totals)
    assert len(problem.parents) == len(problem.proxies) == len(problem.worth) == dims
    assert all(len(o) == len(a) + 1 for o, a in zip(problem.observations, problem.actions, strict=True))
    assert all(np.isfinite(each).all() for each in (*problem.observations, problem.totals))
    assert problem.parents.any()
    assert not np.any(problem.parents & problem.proxies)
    assert np.all(problem.worth[~problem.parents] == 0)
    assert np.array_equal(problem.totals, again.totals)


@pytest.mark.parametrize("family", get_args(noisy.Family))
@pytest.mark.parametrize("seed", range(4))
def test_a_noisy_problem_has_the_worth_it_claims(seed: int, family: noisy.Family) -> None:
    problem = noisy.draw(seed, family)
    _assert_sound(problem, noisy.draw(seed, family))
    assert noisy.EPISODES[0] <= len(problem.totals) <= noisy.EPISODES[1]
    assert problem.worth.max() > 0.05
    assert problem.terminated is not None
    assert problem.terminated.any() == (family != "open")
    assert len(noisy.draw(seed, family, 30).totals) == 30


@pytest.mark.parametrize("name", kinds.KINDS)
def test_every_kind_is_a_log_with_causes(name: str) -> None:
    _assert_sound(kinds.draw(3, name), kinds.draw(3, name))


def test_kinds_are_what_they_are_called() -> None:
    assert set(kinds.draw(0, "success or not").totals) == {0.0, 1.0}
    assert kinds.draw(0, "a hidden cause").proxies.tolist()[:2] == [True, True]
    terms, rng = np.arange(12.0).reshape(2, 2, 3), np.random.default_rng(0)
    assert kinds.sums(rng, terms).tolist() == [[3.0, 12.0], [21.0, 30.0]]
    assert kinds.for_the_last_step(rng, terms).tolist() == [[2.0, 5.0], [8.0, 11.0]]
    assert kinds.another_later(rng, terms)[:, 0].tolist() == [3.0, 21.0]


def _outcome(confidence: list[float], edges: list[bool], parents: list[bool], **more: Any) -> Outcome:
    sure, none = np.array(confidence), np.zeros(len(edges), np.bool_)
    found = (np.array(edges), sure, sure < 0.8, np.array(parents), np.array(parents), none)
    return Outcome(0, "open", *found, certified=True, noise=0.0, cpu_seconds=0.1)._replace(**more)


def test_calibration_counts_what_is_right_and_what_is_surely_denied() -> None:
    said = _outcome([0.99, 0.97, 0.96, 0.5], [True, False, False, False], [True, True, False, True])
    data = structure.calibration([said])
    assert data["right_at_95"] == pytest.approx(2 / 3)
    assert data["right_at_99"] == 1.0
    assert data["parents"] == 3
    assert data["parents_found"] == data["parents_surely_denied"] == pytest.approx(1 / 3)
    assert data["certified_that_deny"] == 1.0
    assert data["undecided"] == 0.25
    assert data["brier"] == pytest.approx((0.01**2 + 0.97**2 + 0.04**2 + 0.5**2) / 4)
    small = _outcome([0.97], [False], [True], matter=np.array([False]))
    assert structure.calibration([small])["right_at_95"] == 1.0  # worth too little to count


def test_what_is_sure_and_wrong_is_counted_by_what_it_is() -> None:
    edges, parents = [False, True, True, False, True], [True, False, False, True, True]
    proxies = np.array([False, False, True, False, False])
    said = _outcome([0.99, 0.96, 0.97, 0.5, 1.0], edges, parents, proxies=proxies)
    row = structure.summary([said])
    assert (row["sure"], row["right"], row["surest"], row["right_of_surest"]) == (4, 0.25, 2, 0.5)
    assert (row["denied"], row["bystanders"], row["proxies"], row["undecided"]) == (1, 1, 1, 0.2)


@pytest.mark.slow
def test_confidences_hold_on_noisy_problems() -> None:
    """A few of those that the search was developed on; what is reported is held out."""
    data = structure.run(Structure(problems=9))
    found = data["calibration"]
    assert found["right_at_95"] >= 0.95
    assert found["parents_surely_denied"] <= 0.02
    assert found["parents_found"] >= 0.7
    assert all(word in structure.shown(data) for word in ("denied", "steered", "crooked"))


def test_nobody_tunes_on_what_is_reported_and_bad_flags_name_the_fix() -> None:
    parts = [set(seeds) for seeds in structure.SEEDS.values()]
    assert len(set().union(*parts)) == sum(map(len, parts))
    with pytest.raises(UserError, match="between 1 and 1000"):
        Structure(problems=0)
