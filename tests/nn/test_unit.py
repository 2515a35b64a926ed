"""FlashSAC's network equals plain loops, keeps its lengths, and folds where statistics stand still."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.nn.renorm import Statistics
from apportion.nn.unit import UnitResidual
from builders import as_if_learned, assert_close, normal, numpy
from probes import plain_unit

SIZES = (3, 4, 4, 2)
BATCH = 2 * normal(np.random.default_rng(2), 6, 3) + 0.5


@pytest.fixture(scope="module")
def fresh() -> tuple[UnitResidual, Statistics]:
    return jax.jit(lambda key: UnitResidual.init(key, SIZES))(jax.random.key(0))


@pytest.fixture(scope="module")
def network(fresh: tuple[UnitResidual, Statistics]) -> UnitResidual:
    """As if it had learned, and had not been brought to its lengths since."""
    return as_if_learned(fresh[0])


@pytest.fixture(scope="module")
def statistics(fresh: tuple[UnitResidual, Statistics]) -> Statistics:
    rng = np.random.default_rng(1)
    means, variances, batches = fresh[1]
    return Statistics(
        [mean + 0.5 * normal(rng, *mean.shape) for mean in means],
        [variance * jnp.exp(0.5 * normal(rng, *variance.shape)) for variance in variances],
        batches,
    )


def test_a_batch_is_normalised_by_itself_and_moves_the_statistics(
    network: UnitResidual, statistics: Statistics
) -> None:
    outputs, after = jax.jit(UnitResidual.learn, static_argnums=3)(network, BATCH, statistics, 0.1)
    expected, means, variances = plain_unit(numpy(network), numpy(BATCH))
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    before = numpy(statistics)
    assert_close(after.means, [m + 0.1 * (new - m) for m, new in zip(before.means, means, strict=True)])
    moved = [v + 0.1 * (new - v) for v, new in zip(before.variances, variances, strict=True)]
    assert_close(after.variances, moved)
    assert after.batches == 1


def test_by_running_statistics_it_is_a_network_without_norms(
    network: UnitResidual, statistics: Statistics
) -> None:
    plain = numpy(statistics)
    expected, *_ = plain_unit(numpy(network), numpy(BATCH), (plain.means, plain.variances))
    found = jax.jit(lambda n, s: n.folded(s)(BATCH))(network, statistics)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


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
