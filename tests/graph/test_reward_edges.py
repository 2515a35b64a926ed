"""Reward edges from totals: exact where the truth is known, cautious where the data cannot tell."""

from collections.abc import Callable

import numpy as np
import pytest

from apportion.graph.features import Dictionary, Scale
from apportion.graph.reward import first_edges, regression
from apportion.graph.select import Groups, explained, select

DIMS = 6


def segments(reward: Callable[[np.ndarray], np.ndarray], episodes: int, noise: float = 0.0, seed: int = 0):
    """Independent rows in segments of different lengths, and the sums of a reward over them."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(rng.integers(5, 30), DIMS)) + rng.normal(size=DIMS) for _ in range(episodes)]
    totals = np.array([reward(r).sum() for r in rows])
    return rows, totals + noise * totals.std() * rng.normal(size=episodes)


def summed(rows: list[np.ndarray]) -> tuple[Dictionary, np.ndarray, np.ndarray]:
    """Features, their sums over each segment, and how long it is."""
    dictionary = Dictionary.over(Scale.fit(np.concatenate(rows)))
    return dictionary, dictionary.sums(rows), np.array([len(each) for each in rows])


@pytest.mark.parametrize(
    ("reward", "parents"),
    [
        (lambda x: 2 * x[:, 0] - x[:, 3], [0, 3]),
        (lambda x: 3.0 - (x[:, 1] - 0.5) ** 2, [1]),
        (lambda x: x[:, 0] * x[:, 2] + 0.5 * x[:, 4], [0, 2, 4]),
        (lambda x: 1.0 + np.abs(x[:, 5]) + np.tanh(2 * x[:, 1]), [1, 5]),
        (lambda x: np.full(len(x), 2.0), []),
    ],
)
def test_the_parents_are_found(reward: Callable[[np.ndarray], np.ndarray], parents: list[int]) -> None:
    rows, totals = segments(reward, 400)
    edges, strength = first_edges(*summed(rows), totals)
    assert np.flatnonzero(edges).tolist() == parents
    assert np.all(strength[edges] > 0)
    assert np.all(strength[~edges] == 0)


def test_noise_as_large_as_the_signal_does_not_hide_the_parents() -> None:
    rows, totals = segments(lambda x: x[:, 0] - 0.7 * x[:, 3], 600, noise=1.0)
    dictionary, sums, lengths = summed(rows)
    edges, _ = first_edges(dictionary, sums, lengths, totals)
    assert np.flatnonzero(edges).tolist() == [0, 3]
    everything = regression(sums, lengths, totals)
    assert 0.3 < explained(everything, select(everything, Groups.of(dictionary))) < 0.7


def test_totals_of_pure_noise_have_no_parents() -> None:
    rows, _ = segments(lambda x: x[:, 0], 300)
    edges, _ = first_edges(*summed(rows), np.random.default_rng(1).normal(size=300))
    assert not edges.any()


def test_explained_variance_equals_least_squares() -> None:
    rows, totals = segments(lambda x: x[:, 0] ** 3, 200)
    dictionary, seen, lengths = summed(rows)
    columns = np.arange(12)
    sums = np.array([dictionary.features(r).sum(axis=0) for r in rows])
    offsets = np.array([[1.0, len(r)] for r in rows])
    base = totals - offsets @ np.linalg.lstsq(offsets, totals, rcond=None)[0]
    design = np.concatenate([offsets, sums[:, columns]], axis=1)
    left = totals - design @ np.linalg.lstsq(design, totals, rcond=None)[0]
    plain = 1 - np.sum(left**2) / np.sum(base**2)
    assert explained(regression(seen, lengths, totals), columns) == pytest.approx(plain, abs=1e-4)
