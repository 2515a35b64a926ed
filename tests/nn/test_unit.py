"""FlashSAC's layers start orthogonal and keep their lengths; test_flashsac.py holds them against loops."""

from typing import Any

import jax
import numpy as np
import pytest

from apportion.nn.renorm import Statistics
from apportion.nn.unit import UnitResidual
from builders import as_if_learned, numpy

SIZES = (3, 4, 4, 2)


@pytest.fixture(scope="module")
def fresh() -> tuple[UnitResidual, Statistics]:
    return jax.jit(lambda key: UnitResidual.init(key, SIZES))(jax.random.key(0))


@pytest.fixture(scope="module")
def network(fresh: tuple[UnitResidual, Statistics]) -> UnitResidual:
    """As if it had learned, and had not been brought to its lengths since."""
    return as_if_learned(fresh[0])


def test_layers_start_orthogonal() -> None:
    weights = jax.jit(lambda key: UnitResidual.init(key, (119, 32, 5)))(jax.random.key(0))[0].weights
    for weight in numpy(weights):
        fewer = weight if weight.shape[0] < weight.shape[1] else weight.T
        products = fewer @ fewer.T
        # Those of fewer inputs than outputs were brought to the length of their columns after.
        np.testing.assert_allclose(products / np.diag(products).mean(), np.eye(len(fewer)), atol=0.35)
    np.testing.assert_allclose(numpy(weights[-1]).T @ numpy(weights[-1]), np.eye(5), atol=1e-5)


def assert_unit(network: Any) -> None:
    """Every length is what it is to be."""
    for weight in network.weights:
        np.testing.assert_allclose(np.sqrt((weight**2).sum(axis=0)), 1, rtol=1e-5)
    for scale, shift in zip(network.scales, network.shifts, strict=True):
        np.testing.assert_allclose((scale**2).sum() + (shift**2).sum(), len(scale), rtol=1e-5)
    np.testing.assert_allclose((network.rms_scale**2).sum(), len(network.rms_scale), rtol=1e-5)


def test_lengths_are_brought_back_and_directions_stay(
    fresh: tuple[UnitResidual, Statistics], network: UnitResidual
) -> None:
    assert_unit(numpy(fresh[0]))
    before, after = numpy((network, network.unit()))
    assert_unit(after)
    for old, new in zip(before.weights, after.weights, strict=True):
        np.testing.assert_allclose(new * np.sqrt((old**2).sum(axis=0)), old, rtol=1e-4, atol=1e-6)
    for name in ("scales", "shifts"):
        ratios = [new / old for new, old in zip(getattr(after, name), getattr(before, name), strict=True)]
        assert all(np.ptp(ratio) < 1e-4 for ratio in ratios)
    np.testing.assert_array_equal(after.bias, before.bias)
