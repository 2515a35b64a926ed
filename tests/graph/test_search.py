"""The parts of the search for parents: first candidates, products, what is dropped, who takes a place."""

from collections.abc import Callable

import numpy as np
import pytest

from apportion.graph import identify
from apportion.graph.features import Scale
from apportion.graph.places import Place
from apportion.graph.refine import Fit, _swapped, best_product, candidates, gaussian_ratio, refine
from apportion.graph.ridge import Ridge
from apportion.graph.segments import Segments

DIMS = 7
Reward = Callable[[np.ndarray], np.ndarray]


def problem(reward: Reward, episodes: int = 400, dims: int = DIMS, noise: float = 0.0) -> Segments:
    """Independent rows, in segments of different lengths."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(rng.integers(10, 25), dims)) for _ in range(episodes)]
    totals = np.array([reward(x).sum() for x in rows])
    totals += noise * totals.std() * rng.normal(size=episodes)
    return Segments(rows, totals, Scale.over(rows))


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
def test_candidates(reward: Reward, parents: list[int]) -> None:
    assert sorted(candidates(problem(reward))) == parents


def test_noise_as_large_as_the_signal_hides_no_candidate_and_is_none() -> None:
    assert candidates(problem(lambda x: x[:, 0] - 0.7 * x[:, 3], noise=1.0)).keys() == {0, 3}
    assert candidates(problem(lambda x: 1e-9 * x[:, 0], noise=1e9)) == {}


@pytest.mark.parametrize(
    ("reward", "first", "parents"),
    [(lambda x: x[:, 0] * x[:, 3] * x[:, 5], [], [0, 3, 5]), (lambda x: np.abs(x[:, 1]), [1, 2, 6], [1])],
)
def test_candidates_become_parents(reward: Reward, first: list[int], parents: list[int]) -> None:
    """Products of three, which the first selection cannot see, come in; and who is not missed goes."""
    segments = problem(reward)
    fit = refine(segments, dict.fromkeys(first, np.inf), np.random.default_rng(0))
    assert fit.basis.dims.tolist() == parents
    assert all(share > 0 and error < share / 2 for share, error in fit.worths(segments).values())


def test_noise_stays_without_parents() -> None:
    segments = problem(lambda x: x[:, 0])
    noise = np.random.default_rng(1).normal(size=segments.count)
    fit = refine(Segments(segments.rows, noise, segments.scale), {0: 1.0, 1: 1.0}, np.random.default_rng(0))
    assert not fit.parents
    assert 0.9 < fit.unexplained < 1.1
    assert np.all(fit.model.predict(segments.rows[0]) == fit.model.per_step)


@pytest.mark.parametrize(
    ("dims", "parents", "rivals"),
    [(DIMS, [1, 2, 6], DIMS * (DIMS - 1) * (DIMS - 2) // 6), (45, [7, 41], 45 * 44 // 2)],
)
def test_the_best_product_is_found(dims: int, parents: list[int], rivals: int) -> None:
    """Among triples, and among many dimensions in pairs."""
    data = problem(lambda x: np.prod(x[:, parents], axis=1), dims=dims)
    found, share, count = best_product(data, data.totals, len(parents))
    assert found.tolist() == parents
    assert share > 0.99
    assert count == rivals


@pytest.mark.parametrize(
    ("reward", "parents"),
    [
        (lambda x: np.sin(x[:, 0] + x[:, 2]), [0, 2]),
        (lambda x: np.sign(x[:, 4]) * (x[:, 0] > 0.5), [0, 4]),
        (lambda x: x[:, 0] * np.cos(x[:, 3]) * x[:, 5], [0, 3, 5]),
    ],
)
def test_what_works_only_together_with_others_is_found(reward: Reward, parents: list[int]) -> None:
    segments = problem(reward)
    result = identify(segments.rows, [np.zeros((len(x), 1)) for x in segments.rows], segments.totals)
    assert np.flatnonzero(result.graph.state_to_reward).tolist() == parents


def predictions(errors: np.ndarray) -> Ridge:
    return Ridge(np.zeros(0), 0.0, 0.0, 0.0, errors, 0.0)


def plain_ratio(without: Ridge, whole: Ridge) -> float:
    return len(whole.errors) / 2 * float(np.log(without.error / whole.error))


def test_gaussian_errors_have_the_plain_ratio_and_a_few_large_ones_have_little_to_say() -> None:
    """σ² grows to σ² + τ², so that n/2 log(1 + τ²/σ²) is n τ²/2σ²; the squares differ by τ², with a standard
    error of 2στ/√n, so that 2z² is the same."""
    rng = np.random.default_rng(0)
    errors = rng.normal(size=200_000)
    without, whole = predictions(errors + 0.1 * rng.normal(size=errors.shape)), predictions(errors)
    assert gaussian_ratio(without, whole) == pytest.approx(plain_ratio(without, whole), rel=0.1)
    few, worse = predictions(errors[:400]), errors[:400].copy()
    worse[:2] += 30.0
    assert plain_ratio(predictions(worse), few) > 300
    assert gaussian_ratio(predictions(worse), few) < 10


@pytest.mark.parametrize(
    ("some", "share", "leaves"), [(0.99, [0.45, 0.55], False), (0.99, [0.1, 0.9], True), (0.4, [1.0], True)]
)
def test_a_place_changes_hands_only_where_it_is_clearly_anothers(
    some: float, share: list[float], leaves: bool
) -> None:
    rivals = [np.array([1])] * (len(share) - 1)
    assert Place(np.array([0]), 0.0, some, np.array(share), rivals).leaves == leaves


def test_a_reading_gives_way_to_the_factor_that_it_is_of() -> None:
    """No product of two tells which of them is in a product of three, so that either may come in."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(20, 4)) + rng.normal(size=4) for _ in range(200)]
    rows = [np.column_stack([each, each[:, 0] + 0.4 * rng.normal(size=20)]) for each in rows]
    segments = Segments(
        rows, np.array([np.prod(each[:, :3], axis=1).sum() for each in rows]), Scale.over(rows)
    )
    assert _swapped(segments, Fit.of(segments, [1, 2, 4], rng), rng).parents == {0, 1, 2}
