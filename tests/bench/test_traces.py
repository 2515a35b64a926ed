"""Traces with known effects: what a benchmark of credit calls right, and how well anybody could do."""

import numpy as np
import pytest
from scipy.special import expit

from lib import traces


def test_solved_traces_are_as_common_as_asked_and_flips_change_as_many() -> None:
    plain, flipped = (traces.draw(0, count=600, flipped=share) for share in (0.0, 0.2))
    sums = np.array([each.sum() for each in plain.effects])
    assert abs(expit(plain.base + sums).mean() - 0.35) < 0.01
    assert abs(np.mean(plain.solved != flipped.solved) - 0.2) < 0.05
    assert {len(each["turns"]) for each in plain.episodes} == set(range(4, 21))


def test_true_effects_are_right_and_their_opposite_is_not() -> None:
    problem = traces.draw(0, count=100)
    assert traces.judged(problem, problem.effects) == pytest.approx({"correlation": 1.0, "named": 1.0})
    assert traces.judged(problem, [-each for each in problem.effects])["named"] < 0.1


def test_the_ceiling_is_near_the_truth() -> None:
    problem = traces.draw(0)
    found = traces.judged(problem, traces.ceiling(problem.known, problem.solved, np.arange(1200)))
    assert found["correlation"] > 0.98
    assert found["named"] > 0.9
