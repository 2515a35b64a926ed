"""Reward edges from totals: exact where the truth is known, cautious where the data cannot tell."""

from collections.abc import Callable

import numpy as np
import pytest

from apportion.graph.features import Dictionary, Scale
from apportion.graph.reward import RewardEdges, RewardEvidence, reward_edges
from apportion.graph.select import explained

DIMS = 6


def segments(reward: Callable[[np.ndarray], np.ndarray], episodes: int, noise: float = 0.0, seed: int = 0):
    """Independent rows in segments of different lengths, and the sums of a reward over them."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(rng.integers(5, 30), DIMS)) + rng.normal(size=DIMS) for _ in range(episodes)]
    totals = np.array([reward(r).sum() for r in rows])
    return rows, totals + noise * totals.std() * rng.normal(size=episodes)


def find(rows: list[np.ndarray], totals: np.ndarray) -> RewardEdges:
    evidence = RewardEvidence(Dictionary.over(Scale.fit(np.concatenate(rows))))
    evidence.add(rows, totals)
    return reward_edges(evidence)


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
    found = find(*segments(reward, 400))
    assert np.flatnonzero(found.edges).tolist() == parents
    assert np.all(found.strength[found.edges] > 0)
    assert np.all(found.strength[~found.edges] == 0)
    assert np.all(found.confidence > 0.9)


def test_noise_as_large_as_the_signal_does_not_hide_the_parents() -> None:
    found = find(*segments(lambda x: x[:, 0] - 0.7 * x[:, 3], 600, noise=1.0))
    assert np.flatnonzero(found.edges).tolist() == [0, 3]
    assert 0.3 < found.explained < 0.7


def test_totals_of_pure_noise_have_no_parents() -> None:
    rows, _ = segments(lambda x: x[:, 0], 300)
    found = find(rows, np.random.default_rng(1).normal(size=300))
    assert not found.edges.any()


def test_explained_variance_equals_least_squares() -> None:
    rows, totals = segments(lambda x: x[:, 0] ** 3, 200)
    dictionary = Dictionary.over(Scale.fit(np.concatenate(rows)))
    evidence = RewardEvidence(dictionary)
    evidence.add(rows, totals)
    columns = np.arange(12)
    sums = np.array([dictionary.features(r).sum(axis=0) for r in rows])
    offsets = np.array([[1.0, len(r)] for r in rows])
    base = totals - offsets @ np.linalg.lstsq(offsets, totals, rcond=None)[0]
    design = np.concatenate([offsets, sums[:, columns]], axis=1)
    left = totals - design @ np.linalg.lstsq(design, totals, rcond=None)[0]
    plain = 1 - np.sum(left**2) / np.sum(base**2)
    assert explained(evidence.regression(), columns) == pytest.approx(plain, abs=1e-4)


def test_evidence_adds_up_over_workers() -> None:
    rows, totals = segments(lambda x: x[:, 0], 60)
    dictionary = Dictionary.over(Scale.fit(np.concatenate(rows)))
    whole, first, second = (RewardEvidence(dictionary) for _ in range(3))
    whole.add(rows, totals)
    first.add(rows[:25], totals[:25])
    second.add(rows[25:], totals[25:])
    first.merge(second)
    assert first.segments == whole.segments == 60
    np.testing.assert_allclose(first.moments.sum(axis=0), whole.moments.sum(axis=0), rtol=1e-9, atol=1e-9)


def test_evidence_grows_by_one_episode_at_a_time() -> None:
    rows, totals = segments(lambda x: x[:, 0] - x[:, 4] ** 2, 200)
    dictionary = Dictionary.over(Scale.fit(np.concatenate(rows)))
    whole, stream = RewardEvidence(dictionary), RewardEvidence(dictionary)
    whole.add(rows, totals)
    for episode, total in zip(rows, totals, strict=True):
        stream.add([episode], np.array([total]))
    assert np.array_equal(stream.counts, whole.counts)
    np.testing.assert_allclose(stream.moments, whole.moments, rtol=1e-9, atol=1e-6)
    assert np.flatnonzero(reward_edges(stream).edges).tolist() == [0, 4]


def test_evidence_of_many_dimensions_stays_small() -> None:
    """376 + 17 dimensions: moments in four parts, 180 MB, however many episodes come."""
    dictionary = Dictionary.over(Scale.fit(np.random.default_rng(0).normal(size=(50, 393))))
    assert RewardEvidence(dictionary).moments.nbytes < 200e6
