"""The dictionary of features: what each one is, and that units do not matter."""

import numpy as np
import pytest

from apportion.graph import identify
from apportion.graph.dictionary import UNIVARIATE, Dictionary
from apportion.graph.features import Scale


def samples(rows: int = 200, dims: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, dims)).astype(np.float32)


def test_features_equal_a_plain_loop() -> None:
    x = samples()
    scale = Scale.over([x])
    features = Dictionary.over(scale).features(x)
    for row in (0, 17, 199):
        plain = []
        z = [np.clip((x[row, d] - x[:, d].mean()) / x[:, d].std(), -5, 5) for d in range(4)]
        for d in range(4):
            rank = np.interp(x[row, d], np.quantile(x[:, d], np.linspace(0, 1, 33)), np.linspace(0, 1, 33))
            plain += [z[d], z[d] ** 2 - 1, *(np.cos(np.pi * k * rank) for k in range(1, 5))]
        plain += [z[i] * z[j] for i in range(4) for j in range(i + 1, 4)]
        np.testing.assert_allclose(features[row], plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e6, -3e-7])
def test_constant_dimensions_have_no_features(value: float) -> None:
    x = samples()
    x[:, 2] = value
    dictionary = Dictionary.over(Scale.over([x]))
    assert dictionary.scale.dims.tolist() == [0, 1, 3]
    assert dictionary.size == 3 * UNIVARIATE + 3
    assert not dictionary.owners[2].any()
    assert dictionary.features(x).shape == (200, dictionary.size)


def test_every_feature_changes_with_its_dimensions_only() -> None:
    dictionary = Dictionary.over(Scale.over([samples()]))
    assert len(dictionary.touching(np.array([1]))) == UNIVARIATE + 3
    assert len(dictionary.within(np.array([0, 2]))) == 2 * UNIVARIATE + 1
    x = samples()
    moved = x.copy()
    moved[:, 1] += 0.5
    changed = np.any(dictionary.features(x) != dictionary.features(moved), axis=0)
    assert np.array_equal(np.flatnonzero(changed), np.sort(dictionary.touching(np.array([1]))))


def test_many_dimensions_are_not_paired() -> None:
    dictionary = Dictionary.over(Scale.over([samples(100, 60)]))
    assert not dictionary.products
    assert dictionary.size == 60 * UNIVARIATE


def test_sums_are_those_of_the_rows_however_they_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    x = samples(600)
    dictionary, segments = Dictionary.over(Scale.over([x])), np.split(x, [1, 40, 400])
    plain = [dictionary.features(segment).sum(axis=0) for segment in segments]
    np.testing.assert_allclose(dictionary.sums(segments), plain, rtol=1e-6, atol=1e-4)
    whole = dictionary.sums(segments)
    monkeypatch.setattr("apportion.graph.dictionary.NUMBERS_AT_ONCE", 70)
    np.testing.assert_allclose(dictionary.sums(segments), whole, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(("unit", "shift"), [(1.0, 0.0), (-3.6, 7.0), (1e6, 1e6), (-1e-6, 0.0)])
def test_the_first_of_equal_dimensions_stands_for_all(unit: float, shift: float) -> None:
    x = samples(3000)
    x = np.concatenate([x, unit * x[:, 1:2] + shift, unit * x[:, 1:2]], axis=1).astype(np.float32)
    scale = Scale.over([x])
    assert scale.copies == {4: 1, 5: 1}
    assert scale.dims.tolist() == [0, 1, 2, 3]
    assert scale.live.all()
    x[:, 4:] += 0.01 * np.abs(unit) * x[:, 2:4]
    assert Scale.over([x]).copies == {}  # nearly equal is not equal


def test_every_one_hot_vector_is_a_team_and_flags_are_in_none() -> None:
    """Columns are shuffled, one vector is in another unit, and a flag is never on with an entry of one."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(3, size=500), rng.integers(4, size=500)
    flag = (first == 1) & (rng.random(500) < 0.2)
    columns = [*np.eye(3)[first].T, *(7.0 * np.eye(4)[second] - 1.0).T, flag, rng.random(500) < 0.3]
    order = rng.permutation(len(columns))
    teams = Scale.over([np.stack(columns, axis=1).astype(np.float64)[:, order]]).teams
    found = sorted(sorted(int(order[dim]) for dim in team) for team in teams)
    assert found == [[0, 1, 2], [3, 4, 5, 6], [7], [8]]


def test_a_scale_in_parts_is_the_scale_of_the_whole() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 3)) * [1.0, 1e-6, 1e6]
    whole, parts = Scale.over([x]), Scale.over(np.split(x, [7, 300, 301]))
    for name in ("mean", "std", "quantiles"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12)


def test_a_thousand_dimensions_are_searched() -> None:
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(6, 990)).astype(np.float32) for _ in range(160)]
    actions = [rng.uniform(-1, 1, (5, 10)).astype(np.float32) for _ in range(160)]
    result = identify(observations, actions, np.array([o[:-1, 500].sum() for o in observations]))
    assert np.flatnonzero(result.graph.state_to_reward).tolist() == [500]
    assert not result.certificate.dynamics
