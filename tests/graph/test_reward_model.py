"""The reward function in closed form: what it predicts, and what it is made of."""

import numpy as np
import pytest

from apportion.graph import identify
from apportion.graph.dictionary import Dictionary
from apportion.graph.features import Scale
from apportion.graph.refine import RewardModel
from apportion.graph.ridge import Offsets, ridge


def log(episodes: int = 300, steps: int = 15):
    """Two of four states and one of two actions earn the reward; state 3 never changes."""
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(steps + 1, 4)) * [1, 100, 1e-3, 0] for _ in range(episodes)]
    actions = [rng.uniform(-1, 1, size=(steps, 2)) for _ in range(episodes)]
    rows = [np.concatenate([o[:-1], a], axis=1) for o, a in zip(observations, actions, strict=True)]
    rewards = [np.abs(x[:, 0]) + x[:, 1] / 100 * x[:, 4] - 0.5 for x in rows]
    return observations, actions, rows, rewards


@pytest.fixture(scope="module")
def found() -> tuple[RewardModel, np.ndarray, np.ndarray]:
    observations, actions, rows, rewards = log()
    model = identify(observations, actions, np.array([r.sum() for r in rewards])).reward_model
    return model, np.concatenate(rows), np.concatenate(rewards)


def test_the_reward_of_each_step_comes_from_totals(found: tuple[RewardModel, np.ndarray, np.ndarray]) -> None:
    model, x, rewards = found
    assert np.corrcoef(model.predict(x), rewards)[0, 1] > 0.999
    assert np.mean(model.predict(x)) == pytest.approx(np.mean(rewards), abs=0.01)


def test_only_parents_matter(found: tuple[RewardModel, np.ndarray, np.ndarray]) -> None:
    model, x, _ = found
    moved = x.copy()
    moved[:, [2, 3, 5]] += 17.0
    np.testing.assert_allclose(model.predict(moved), model.predict(x), rtol=1e-9, atol=1e-9)


def test_far_beyond_the_data_the_reward_stays_bounded(
    found: tuple[RewardModel, np.ndarray, np.ndarray],
) -> None:
    model, x, rewards = found
    assert np.all(np.abs(model.predict(1e9 * x)) < 100 * np.abs(rewards).max())


def test_a_model_is_as_large_as_its_parents_ask_for() -> None:
    """No room is kept for dimensions that are no parents."""
    x = np.random.default_rng(0).normal(size=(100, 300))
    for dims, products in ([], 0), ([3], 0), ([0, 8], 1), ([0, 5, 7, 8], 10):
        basis = Dictionary.rich(Scale.over([x]), np.array(dims, np.int64), 50, np.random.default_rng(0))
        size = 10 * len(dims) + products + 50 * bool(dims)
        assert (basis.size, basis.owners.shape) == (size, (300, size))
        assert basis.sums(np.split(x, 20)).shape == (20, size)


def test_totals_are_the_sums_of_what_is_predicted() -> None:
    """The weights are put where the formula reads them: all kinds of features together."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 5))
    basis = Dictionary.rich(Scale.over([x]), np.array([0, 2, 4]), 40, rng)
    segments = np.split(x, 60)
    fit = ridge(basis.sums(segments), rng.normal(size=60), Offsets.of(np.full(60, 10)))
    model = RewardModel(basis, fit.weights, fit.per_step, fit.per_segment, fit.per_end)
    predicted = [model.predict(segment).sum() for segment in segments]
    plain = basis.sums(segments) @ fit.weights + 10 * fit.per_step
    np.testing.assert_allclose(predicted, plain, atol=1e-3)


@pytest.mark.parametrize("dims", [4, 8])  # with products of three, and with too many dimensions for them
def test_the_features_of_one_dimension_are_those_of_all(dims: int) -> None:
    rng = np.random.default_rng(0)
    segments = list(rng.normal(size=(5, 20, 9)))
    noted = [np.array([0, 1, 2, 3])]
    basis = Dictionary.rich(Scale.over(segments), np.arange(dims), 30, rng, noted)
    for some in [np.array([place]) for place in range(dims)] + [np.array([0, 2])]:
        mine = basis.touching(some)
        np.testing.assert_array_equal(basis.restricted(some).sums(segments), basis.sums(segments)[:, mine])
