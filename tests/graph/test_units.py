"""Units do not matter: any column may be measured in another one, and from another zero."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS
from apportion.graph import Identification, identify

Log = tuple[list[NDArray[Any]], list[NDArray[Any]], NDArray[np.float64]]


def log(episodes: int = 200, steps: int = 15) -> Log:
    """Two of five states and one of two actions earn the reward, with noise; one state is a flag."""
    rng = np.random.default_rng(0)
    observations, actions, totals = [], [], []
    for _ in range(episodes):
        x, moves = rng.normal(size=(steps + 1, 5)), rng.uniform(-1, 1, size=(steps, 2))
        x[1:, 0] = 0.7 * x[:-1, 0] + moves[:, 0] + 0.3 * x[1:, 0]
        x[:, 4] = x[:, 4] > 1.0
        observations.append(x)
        actions.append(moves)
        rewards = np.abs(x[:-1, 0]) + x[:-1, 1] * moves[:, 1]
        totals.append(rewards.sum() + rng.normal())
    return observations, actions, np.array(totals)


def assert_alike(result: Identification, plain: Identification) -> None:
    for name in BLOCKS:
        assert np.array_equal(getattr(result.graph, name), getattr(plain.graph, name))
        assert np.array_equal(getattr(result.verdict, name), getattr(plain.verdict, name))
        for part in ("confidence", "strength"):
            values = (getattr(getattr(each, part), name) for each in (result, plain))
            np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-4)
    assert result.explained == pytest.approx(plain.explained, abs=1e-5)
    assert result.certificate.reward == plain.certificate.reward


@pytest.fixture(scope="module")
def plain() -> Identification:
    return identify(*log())


@pytest.mark.parametrize(
    ("unit", "zero"), [(1e4, 0.0), (1e-6, 0.0), (1.0, 1e5), (1e-3, 1e5), (1e4, -1e9)], ids=str
)
def test_columns_in_other_units_give_the_same_result(plain: Identification, unit: float, zero: float) -> None:
    observations, actions, totals = log()
    moved = [unit * o + zero for o in observations], [unit * a + zero for a in actions]
    assert_alike(identify(*moved, totals), plain)


def test_totals_in_another_unit_and_from_another_zero_give_the_same_result(plain: Identification) -> None:
    observations, actions, totals = log()
    assert_alike(identify(observations, actions, 1e-6 * totals), plain)
    assert_alike(identify(observations, actions, 1e7 + totals), plain)


def test_every_column_may_have_a_unit_of_its_own(plain: Identification) -> None:
    observations, actions, totals = log()
    units = np.logspace(-6, 4, 7)
    moved = [o * units[:5] for o in observations], [a * units[5:] for a in actions]
    assert_alike(identify(*moved, totals), plain)
