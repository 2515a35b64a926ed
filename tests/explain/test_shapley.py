"""Shapley values: the axioms, functions with a known answer, and sampling that knows its own error."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.runs import shapley
from apportion.runs.shapley import Shapley

Values = NDArray[np.float64]


def data(columns: int, seed: int = 0, rows: int = 5, background: int = 7) -> tuple[Values, Values]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)), rng.normal(size=(background, columns))


def tangled(rows: Values) -> Values:
    """Every column works together with every other."""
    return np.sin(rows @ np.arange(1, rows.shape[1] + 1)) + np.prod(rows[:, :3], axis=1)


def both(function: Any, columns: int, rounds: int = 2) -> list[Shapley]:
    """The exact answer and the sampled one."""
    rows, background = data(columns)
    players = np.arange(columns)
    rng = np.random.default_rng(1)
    return [
        shapley.exact(function, rows, background, players),
        shapley.sampled(function, rows, background, players, rounds, rng),
    ]


def test_they_are_what_shapley_defined() -> None:
    """The mean over all orders of what a player adds when it joins, written out."""
    rows, background = data(4, rows=1)

    def worth(coalition: set[int]) -> float:
        mixed = np.where([i in coalition for i in range(4)], rows[0], background)
        return float(tangled(mixed).mean())

    expected = np.zeros(4)
    for order in itertools.permutations(range(4)):
        for place, player in enumerate(order):
            before = set(order[:place])
            expected[player] += (worth(before | {player}) - worth(before)) / math.factorial(4)
    found = shapley.exact(tangled, rows, background, np.arange(4))
    np.testing.assert_allclose(found.contributions[0], expected, atol=1e-12)


@pytest.mark.parametrize("found", both(lambda x: tangled(x[:, :4]), 6), ids=["exact", "sampled"])
def test_who_changes_nothing_earns_nothing(found: Shapley) -> None:
    np.testing.assert_allclose(found.contributions[:, 4:], 0, atol=1e-12)
    assert (found.contributions[:, :4] != 0).all()


def _of_backgrounds(sample: bool, count: int) -> tuple[list[Shapley], Values]:
    """What many draws of the background find, and what a large one does."""
    rows, pool = data(5, rows=40, background=3000)
    truth = shapley.exact(tangled, rows, pool[:1000], np.arange(5)).contributions
    found = []
    for draw in range(30):
        rng = np.random.default_rng(draw)
        drawn = pool[1000 + rng.choice(2000, count, replace=False)]
        if sample:
            found.append(shapley.sampled(tangled, rows, drawn, np.arange(5), 1, rng))
        else:
            found.append(shapley.exact(tangled, rows, drawn, np.arange(5)))
    return found, truth


@pytest.mark.parametrize("sample", [False, True], ids=["exact", "sampled"])
def test_error_bars_are_true(sample: bool) -> None:
    """Over many draws, the mean squared distance from what a large background says is the mean squared
    standard error, of single steps and of their mean."""
    found, truth = _of_backgrounds(sample, 32)
    single = np.mean([(each.contributions - truth) ** 2 for each in found])
    assert single == pytest.approx(np.mean([each.standard_errors**2 for each in found]), rel=0.15)
    mean = np.mean([(each.contributions.mean(axis=0) - truth.mean(axis=0)) ** 2 for each in found])
    assert mean == pytest.approx(np.mean([each.mean_errors**2 for each in found]), rel=0.3)


def test_sampling_orders_is_unbiased_and_more_rounds_come_nearer() -> None:
    rows, background = data(5, rows=400, background=16)
    exact = shapley.exact(tangled, rows, background, np.arange(5)).contributions
    few, many = (
        shapley.sampled(tangled, rows, background, np.arange(5), rounds, np.random.default_rng(rounds))
        for rounds in (1, 9)
    )
    squares = [np.mean((each.contributions - exact) ** 2) for each in (few, many)]
    assert abs((few.contributions - exact).mean()) < 1e-12  # each row's add up to the same
    assert squares[0] == pytest.approx(9 * squares[1], rel=0.15)


def test_one_background_row_has_no_error_bar() -> None:
    rows, background = data(3, background=1)
    found = shapley.exact(tangled, rows, background, np.arange(3))
    assert np.isfinite(found.contributions).all()
    assert np.isnan(found.standard_errors).all()
    assert np.isnan(found.mean_errors).all()


def test_columns_of_one_player_come_together_a_single_one_earns_everything_and_nobody_nothing() -> None:
    """Two columns as one player earn what both earn in a function that adds them to the third."""
    rows, background = data(3)
    players = np.array([0, 1, 0])
    found = shapley.exact(lambda x: x[:, 0] * x[:, 2] + x[:, 1], rows, background, players)
    own = rows[:, 0] * rows[:, 2] - (background[:, 0] * background[:, 2]).mean()
    np.testing.assert_allclose(found.contributions[:, 0], own, atol=1e-12)
    rows, background = data(2)
    alone = shapley.exact(lambda x: x[:, 1] ** 2, rows, background, np.array([-1, 0]))
    np.testing.assert_allclose(alone.contributions[:, 0], alone.values - alone.baseline)
    nobody = shapley.exact(lambda x: np.ones(len(x)), rows, background, np.array([-1, -1]))
    assert nobody.contributions.shape == (5, 0)
    assert (nobody.values == nobody.baseline).all()


def test_a_row_without_a_value_has_no_contributions_and_spoils_no_other() -> None:
    rows, background = data(3)
    players, rng = np.arange(3), np.random.default_rng(0)
    whole = shapley.exact(tangled, rows, background, players).contributions
    rows[2, 1] = np.nan
    exact = shapley.exact(tangled, rows, background, players).contributions
    np.testing.assert_allclose(np.delete(exact, 2, 0), np.delete(whole, 2, 0), atol=1e-12)
    for found in (exact, shapley.sampled(tangled, rows, background, players, 2, rng).contributions):
        assert np.isnan(found[2]).all()
        assert np.isfinite(np.delete(found, 2, axis=0)).all()


def test_memory_is_bounded_by_the_rows_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, background = data(5, rows=30)
    seen: list[int] = []

    def watched(x: Values) -> Values:
        seen.append(len(x))
        return tangled(x)

    whole = shapley.exact(tangled, rows, background, np.arange(5))
    monkeypatch.setattr(shapley, "_ROWS", 500)
    parts = shapley.exact(watched, rows, background, np.arange(5))
    np.testing.assert_allclose(parts.contributions, whole.contributions, atol=1e-12)
    shapley.sampled(watched, rows, background, np.arange(5), 2, np.random.default_rng(0))
    assert max(seen) <= 500
