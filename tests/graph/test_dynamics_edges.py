"""Dynamics edges: the fast elimination equals the slow one, evidence streams, and another library agrees."""

import numpy as np
import pytest

from apportion.graph.dynamics import DynamicsEvidence, _loss, _without, dynamics_edges
from apportion.graph.features import Dictionary, Scale


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


def evidence_of(x: np.ndarray, following: np.ndarray) -> DynamicsEvidence:
    return DynamicsEvidence(Dictionary.over(Scale.fit(x)), Scale.fit(following))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_causal_learn_agrees_on_linear_gaussian_problems(seed: int) -> None:
    """Fisher's z: is the next value independent of a source, given all other sources?"""
    cit = pytest.importorskip("causallearn.utils.cit")
    x, following, true = linear_gaussian(seed)
    evidence = evidence_of(x, following)
    evidence.add(x, following)
    found = dynamics_edges(evidence).edges
    test = cit.CIT(np.concatenate([x, following], axis=1), "fisherz")
    sources, targets = range(x.shape[1]), x.shape[1] + np.arange(following.shape[1])
    others = {i: [k for k in sources if k != i] for i in sources}
    dependent = [[test(i, j, others[i]) < 1e-4 for j in targets] for i in sources]
    assert np.array_equal(found, dependent)
    assert np.array_equal(found, true)


def test_evidence_streams_and_merges() -> None:
    x, following, _ = linear_gaussian(3)
    whole, stream, other = (evidence_of(x, following) for _ in range(3))
    whole.add(x, following)
    for episode in range(0, 1500, 100):
        stream.add(x[episode : episode + 100], following[episode : episode + 100])
    other.add(x[1500:], following[1500:])
    stream.merge(other)
    assert stream.count == whole.count == len(x)
    np.testing.assert_allclose(stream.gram, whole.gram, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(stream.cross, whole.cross, rtol=1e-9, atol=1e-9)
    assert np.array_equal(dynamics_edges(stream).edges, dynamics_edges(whole).edges)


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
    loss = _loss(inverse, (inverse @ cross)[:, None], out)[0]
    assert loss == pytest.approx(errors[0] - errors[1])


def test_constant_targets_have_no_parents_and_copies_have_those_of_the_original() -> None:
    x, following, true = linear_gaussian(4)
    following = np.concatenate([following, np.full((len(x), 1), 3.0), -60.0 * following[:, :1]], axis=1)
    evidence = evidence_of(x, following)
    evidence.add(x, following)
    found = dynamics_edges(evidence)
    assert np.array_equal(found.edges, np.concatenate([true, np.zeros((6, 1), bool), true[:, :1]], axis=1))
    assert found.explained[4] == 0.0
