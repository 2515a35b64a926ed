"""Edges to next states: another library agrees, and of two sensors of one thing neither is surely denied."""

import numpy as np
import pytest

from apportion.graph.dictionary import Dictionary
from apportion.graph.dynamics import DynamicsEdges, Moments, _losses, _without, dynamics_edges, told_by_others
from apportion.graph.features import MAX_PAIRED, Scale
from apportion.graph.verdict import words


def moments(x: np.ndarray, following: np.ndarray) -> Moments:
    return Moments.of(Dictionary.over(Scale.over([x])), x, following)


def linear_gaussian(seed: int, rows: int = 3000, dims: int = 6, targets: int = 4):
    """x has correlated columns; each target adds up two or three of them, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, dims)) @ (np.eye(dims) + 0.3 * rng.normal(size=(dims, dims)))
    x /= x.std(axis=0)
    edges = np.zeros((dims, targets), np.bool_)
    for target in range(targets):
        edges[rng.choice(dims, rng.integers(2, 4), replace=False), target] = True
    weights = edges * rng.choice([-1.0, 1.0], edges.shape) * rng.uniform(0.4, 1.0, edges.shape)
    return x, x @ weights + 0.5 * rng.normal(size=(rows, targets)), edges


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_causal_learn_agrees_on_linear_gaussian_problems(seed: int) -> None:
    """Fisher's z: is the next value independent of a source, given all other sources?"""
    cit = pytest.importorskip("causallearn.utils.cit")
    x, following, true = linear_gaussian(seed)
    found = dynamics_edges(moments(x, following)).edges
    test = cit.CIT(np.concatenate([x, following], axis=1), "fisherz")
    sources, targets = range(x.shape[1]), x.shape[1] + np.arange(following.shape[1])
    others = {i: [k for k in sources if k != i] for i in sources}
    dependent = [[test(i, j, others[i]) < 1e-4 for j in targets] for i in sources]
    assert np.array_equal(found, dependent)
    assert np.array_equal(found, true)


def test_correlated_sources_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=(5000, 1))
    x = 0.45 * rng.normal(size=(5000, 5)) + 0.9 * common  # correlation 0.8 between any two
    following = np.stack([0.9 * x[:, 0] + 0.2 * x[:, 3], np.tanh(x[:, 1]), x[:, 2] * x[:, 4]], axis=1)
    following += 0.1 * rng.normal(size=following.shape)
    parents = [np.flatnonzero(column).tolist() for column in dynamics_edges(moments(x, following)).edges.T]
    assert parents == [[0, 3], [1], [2, 4]]


def test_leaving_features_out_by_the_inverse_equals_fitting_without_them() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 8)), rng.normal(size=100)
    gram, cross = x.T @ x, x.T @ y
    inverse = np.linalg.inv(gram)
    out, rest = np.array([1, 2, 6]), np.array([0, 3, 4, 5, 7])
    smaller, weights, left = _without(inverse, inverse @ cross, out)
    assert left.tolist() == rest.tolist()
    np.testing.assert_allclose(smaller, np.linalg.inv(gram[np.ix_(rest, rest)]), atol=1e-10)
    np.testing.assert_allclose(weights, np.linalg.lstsq(x[:, rest], y, rcond=None)[0], atol=1e-10)
    errors = [np.linalg.lstsq(x[:, columns], y, rcond=None)[1][0] for columns in (rest, np.arange(8))]
    loss = _losses(inverse, (inverse @ cross)[:, None], np.isin(np.arange(8), out)[None])[0, 0]
    assert loss == pytest.approx(errors[0] - errors[1])


def test_constant_targets_have_no_parents_and_copies_have_those_of_the_original() -> None:
    x, following, true = linear_gaussian(4)
    following = np.concatenate([following, np.full((len(x), 1), 3.0), -60.0 * following[:, :1]], axis=1)
    found = dynamics_edges(moments(x, following))
    assert np.array_equal(found.edges, np.concatenate([true, np.zeros((6, 1), bool), true[:, :1]], axis=1))
    assert found.explained[4] == 0.0


def two_sensors(noise: float, rows: int = 8_000) -> DynamicsEdges:
    """Heat, a second thermometer, the oven that heat warms, a bystander; and a valve of the oven."""
    rng = np.random.default_rng(0)
    heat, oven, valve = np.zeros(rows + 1), np.zeros(rows + 1), rng.uniform(-1, 1, rows + 1)
    for now in range(rows):
        heat[now + 1] = 0.9 * heat[now] + 0.43 * rng.normal()
        oven[now + 1] = 0.7 * oven[now] + 0.4 * heat[now] + 0.5 * valve[now] + 0.2 * rng.normal()
    second = heat + noise * rng.normal(size=rows + 1)
    states = np.stack([heat, second, oven, rng.normal(size=rows + 1)], axis=1)
    return dynamics_edges(moments(np.concatenate([states, valve[:, None]], axis=1)[:-1], states[1:]))


@pytest.mark.parametrize(
    ("noise", "of_pair"),
    [
        (0.0003, ("undecided", "undecided")),  # which of the two it is stays open until the data tell
        (0.003, None),
        (0.03, ("present", "absent")),
        (0.3, None),
    ],
)
def test_what_two_sensors_move_is_never_said_to_be_moved_by_neither(
    noise: float, of_pair: tuple[str, str] | None
) -> None:
    found = two_sensors(noise)
    verdicts = words(found.edges, found.confidence)
    assert found.edges[:2, :3].any(axis=0).all()
    assert not np.any(np.all(verdicts[:2, :3] == "absent", axis=0))
    assert found.edges[2:, 2].tolist() == [True, False, True]
    assert not found.edges[:, 3].any()
    assert np.all(verdicts[:, 3] == "absent")
    if of_pair is not None:
        assert verdicts[:2, :3].T.tolist() == [list(of_pair)] * 3
        assert found.confidence[:2, :3].max() <= 0.9


def test_who_is_told_by_others() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000, 8))
    x[:, 1] = x[:, 0] + 0.01 * x[:, 1]
    x[:, 4:7] = np.eye(3)[rng.integers(3, size=2_000)]
    assert told_by_others(moments(x, x)).tolist() == [0, 1]  # and no entry of the one-hot vector
    assert told_by_others(moments(x[:, 2:], x)).tolist() == []
    assert told_by_others(moments(x[:, :1], x)).tolist() == []
    many = np.concatenate([x, rng.normal(size=(2_000, MAX_PAIRED))], axis=1)
    assert told_by_others(moments(many, x)).tolist() == []
