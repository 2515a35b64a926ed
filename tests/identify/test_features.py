"""The dictionary of features: what each one is, and that units do not matter."""

import numpy as np
import pytest

from apportion.identify.features import UNIVARIATE, Dictionary, Scale


def samples(rows: int = 200, dims: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, dims)).astype(np.float32)


def test_features_equal_a_plain_loop() -> None:
    x = samples()
    scale = Scale.fit(x)
    features = Dictionary.over(scale).features(x)
    for row in (0, 17, 199):
        plain = []
        z = [np.clip((x[row, d] - x[:, d].mean()) / x[:, d].std(), -5, 5) for d in range(4)]
        for d in range(4):
            rank = np.interp(x[row, d], np.quantile(x[:, d], np.linspace(0, 1, 33)), np.linspace(0, 1, 33))
            plain += [z[d], z[d] ** 2 - 1, *(np.cos(np.pi * k * rank) for k in range(1, 5))]
        plain += [z[i] * z[j] for i in range(4) for j in range(i + 1, 4)]
        np.testing.assert_allclose(features[row], plain, rtol=1e-4, atol=1e-5)


def test_units_do_not_matter() -> None:
    x = samples().astype(np.float64)
    units = np.array([1e-6, 1.0, 1e3, 1e6])
    plain = Dictionary.over(Scale.fit(x)).features(x)
    scaled = Dictionary.over(Scale.fit(x * units)).features(x * units)
    np.testing.assert_allclose(plain, scaled, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e6, -3e-7])
def test_constant_dimensions_have_no_features(value: float) -> None:
    x = samples()
    x[:, 2] = value
    dictionary = Dictionary.over(Scale.fit(x))
    assert dictionary.scale.dims.tolist() == [0, 1, 3]
    assert dictionary.size == 3 * UNIVARIATE + 3
    assert all(2 not in members for members in dictionary.members)
    assert dictionary.features(x).shape == (200, dictionary.size)


def test_every_feature_belongs_to_one_group_and_touches_its_dimensions() -> None:
    dictionary = Dictionary.over(Scale.fit(samples()))
    assert np.array_equal(np.sort(np.concatenate(dictionary.groups)), np.arange(dictionary.size))
    assert len(dictionary.touching(1)) == UNIVARIATE + 3
    x = samples()
    moved = x.copy()
    moved[:, 1] += 0.5
    changed = np.any(dictionary.features(x) != dictionary.features(moved), axis=0)
    assert np.array_equal(np.flatnonzero(changed), np.sort(dictionary.touching(1)))


def test_many_dimensions_are_not_paired() -> None:
    dictionary = Dictionary.over(Scale.fit(samples(100, 60)))
    assert len(dictionary.pairs) == 0
    assert dictionary.size == 60 * UNIVARIATE
