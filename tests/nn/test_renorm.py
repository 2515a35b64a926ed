"""Batch renormalisation equals plain loops, slopes included, and folds away where statistics stand still."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.nn.renorm import RenormMLP, Statistics
from builders import as_if_learned, assert_close, normal, numpy
from probes import plain_outputs, plain_renorm

SIZES = (3, 5, 2)
RATE, WARMUP = 0.1, 4


@pytest.fixture(scope="module")
def network() -> RenormMLP:
    """With scales and shifts as if it had learned."""
    return as_if_learned(RenormMLP.init(jax.random.key(0), SIZES)[0])


def _statistics(batches: int, spread: float = 0.3) -> Statistics:
    """Of data that the batches below resemble, unless the spread is small."""
    rng = np.random.default_rng(1)
    means = [0.5 * normal(rng, size) for size in SIZES[:-1]]
    variances = [spread * jnp.exp(0.1 * normal(rng, size)) for size in SIZES[:-1]]
    return Statistics(means, variances, jnp.asarray(batches, jnp.int32))


def _learn(network: Any, x: Any, statistics: Any) -> Any:
    return network.learn(x, statistics, RATE, WARMUP)


LEARN = jax.jit(_learn)
BATCH = normal(np.random.default_rng(2), 6, 3) + 0.5


@pytest.mark.parametrize("batches", [WARMUP - 1, WARMUP])
@pytest.mark.parametrize("spread", [0.3, 1e-6])
def test_a_batch_is_brought_near_the_running_statistics_after_the_warm_up(
    network: RenormMLP, batches: int, spread: float
) -> None:
    """With the small spread all clips hold."""
    before = _statistics(batches, spread)
    outputs, after = LEARN(network, BATCH, before)
    expected, means, variances = plain_renorm(
        numpy(network), numpy(BATCH), numpy(before), RATE, batches >= WARMUP
    )
    np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-4)
    assert_close(after.means, means)
    assert_close(after.variances, variances)
    assert after.batches == batches + 1


@pytest.mark.parametrize("batches", [0, WARMUP])
def test_slopes_pass_through_the_batch_and_take_ratio_and_shift_as_given(
    network: RenormMLP, batches: int
) -> None:
    """By finite differences, in double precision; the ratio and the shift of the unmoved network stay."""
    statistics, weights = _statistics(batches), np.random.default_rng(4).normal(size=(6, 2))

    def loss(network: RenormMLP, x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.asarray(weights, jnp.float32) * _learn(network, x, statistics)[0])

    slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))(network, BATCH)
    plain, x, given = numpy(network), numpy(BATCH), []
    plain_renorm(plain, x, numpy(statistics), RATE, batches >= WARMUP, given)

    def moved(leaf: np.ndarray, place: tuple[int, ...], by: float) -> float:
        kept, leaf[place] = leaf[place], leaf[place] + by
        outputs, _, _ = plain_renorm(plain, x, numpy(statistics), RATE, batches >= WARMUP, list(given))
        leaf[place] = kept
        return float((weights * outputs).sum())

    for leaf, slope in zip(jax.tree.leaves((plain, x)), jax.tree.leaves(slopes), strict=True):
        for place in np.ndindex(leaf.shape):
            expected = (moved(leaf, place, 1e-5) - moved(leaf, place, -1e-5)) / 2e-5
            np.testing.assert_allclose(slope[place], expected, rtol=2e-3, atol=2e-3)


def test_where_statistics_stand_still_it_folds_into_plain_layers(network: RenormMLP) -> None:
    statistics = _statistics(WARMUP)
    plain, running, x = numpy(network), numpy(statistics), numpy(BATCH)
    for layer in range(2):
        x = np.maximum(x, 0) if layer else x
        x = (x - running.means[layer]) / np.sqrt(running.variances[layer] + 1e-3)
        x = x * plain.scales[layer] + plain.shifts[layer]
        x = x @ plain.layers.weights[layer] + plain.layers.biases[layer]
    folded = network.folded(statistics)
    np.testing.assert_allclose(folded(BATCH), x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(plain_outputs(numpy(folded), numpy(BATCH)), x, rtol=1e-4, atol=1e-5)


def test_a_dimension_that_never_varies_does_no_harm(network: RenormMLP) -> None:
    """A policy mask makes such ones."""
    still, statistics = BATCH.at[:, 1].set(0.0), _statistics(WARMUP, 0.0)

    def loss(network: RenormMLP) -> tuple[jax.Array, Statistics]:
        outputs, after = _learn(network, still, statistics)
        return jnp.sum(outputs), after

    (total, after), slopes = jax.jit(jax.value_and_grad(loss, has_aux=True))(network)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((total, after, slopes)))
    assert np.isfinite(network.folded(after)(still)).all()
