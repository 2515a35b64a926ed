"""What the first selection cannot see: products of three, sums inside a sine; and proxies that go again."""

from collections.abc import Callable

import numpy as np
import pytest

from apportion.graph.features import Scale
from apportion.graph.refine import Refined, refine
from apportion.graph.screen import Segments, best_addition, best_product

DIMS = 7


def problem(reward: Callable[[np.ndarray], np.ndarray], episodes: int = 400, dims: int = DIMS) -> Segments:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(20, dims)) for _ in range(episodes)]
    totals = np.array([reward(x).sum() for x in rows])
    return Segments(rows, totals, Scale.fit(np.concatenate(rows)))


def refined(segments: Segments, candidates: list[int]) -> Refined:
    return refine(segments, dict.fromkeys(candidates, np.inf), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("reward", "candidates", "parents"),
    [
        (lambda x: x[:, 0] * x[:, 3] * x[:, 5], [], [0, 3, 5]),
        (lambda x: np.sin(x[:, 0] + x[:, 2]), [0], [0, 2]),
        (lambda x: np.abs(x[:, 1]), [1, 2, 6], [1]),
        (lambda x: np.sign(x[:, 4]) * (x[:, 0] > 0.5), [4], [0, 4]),
    ],
)
def test_candidates_become_parents(
    reward: Callable[[np.ndarray], np.ndarray], candidates: list[int], parents: list[int]
) -> None:
    result = refined(problem(reward), candidates)
    assert result.parents.tolist() == parents
    assert set(result.strength) == set(parents)
    assert all(result.probability[dim] > 0.95 for dim in parents)
    assert all(p <= 0.5 for dim, p in result.probability.items() if dim not in parents)


def test_noise_stays_without_parents() -> None:
    segments = problem(lambda x: x[:, 0])
    noise = np.random.default_rng(1).normal(size=segments.count)
    result = refined(Segments(segments.rows, noise, segments.scale), [0, 1])
    assert not len(result.parents)
    assert 0.9 < result.error < 1.1
    assert np.all(result.model.predict(segments.rows[0]) == result.model.per_step)


def test_the_best_product_is_found_among_triples_and_among_many_dimensions_in_pairs() -> None:
    few = problem(lambda x: x[:, 1] * x[:, 2] * x[:, 6])
    dims, share, rivals = best_product(few, few.totals, 3)
    assert dims.tolist() == [1, 2, 6]
    assert share > 0.99
    assert rivals == DIMS * (DIMS - 1) * (DIMS - 2) // 6
    many = problem(lambda x: x[:, 7] * x[:, 41], dims=45)
    dims, share, rivals = best_product(many, many.totals, 2)
    assert dims.tolist() == [7, 41]
    assert share > 0.99
    assert rivals == 45 * 44 // 2


def test_the_best_addition_works_together_with_what_was_found() -> None:
    segments = problem(lambda x: x[:, 0] * np.cos(x[:, 3]) * x[:, 5])
    dim, cut, z = best_addition(segments, np.array([0, 3]), segments.totals, np.random.default_rng(0))
    assert dim == 5
    assert cut > 0.5
    assert z > 3
