"""Units do not matter: any column may be measured in another one, and from another zero."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS
from apportion.graph import Identification, identify
from apportion.graph.features import Floats

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
    ("units", "zero", "paid"),
    [
        *[(np.full(7, unit), zero, (1.0, 0.0)) for unit, zero in ((1e-6, 0.0), (1.0, 1e5), (1e4, -1e9))],
        (np.logspace(-6, 4, 7), 0.0, (1.0, 0.0)),
        (np.ones(7), 0.0, (1e-6, 0.0)),
        (np.ones(7), 0.0, (1.0, 1e7)),
    ],
)
def test_other_units_and_zeros_give_the_same_result(
    plain: Identification, units: Floats, zero: float, paid: tuple[float, float]
) -> None:
    """Of all columns, of each column, or of totals."""
    observations, actions, totals = log()
    moved = [o * units[:5] + zero for o in observations], [a * units[5:] + zero for a in actions]
    assert_alike(identify(*moved, paid[0] * totals + paid[1]), plain)
