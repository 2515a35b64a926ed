"""Residual networks equal plain loops, and start as published."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.nn.residual import ResidualMLP
from builders import as_if_learned, assert_equal, normal, numpy
from probes import plain_residual


@pytest.fixture(scope="module")
def fresh() -> ResidualMLP:
    """With three inputs, two blocks of 16 and two outputs."""
    return jax.jit(lambda key: ResidualMLP.init(key, (3, 16, 16, 2)))(jax.random.key(0))


def test_blocks_add_to_a_straight_path(fresh: ResidualMLP) -> None:
    network, inputs = as_if_learned(fresh), normal(np.random.default_rng(1), 5, 3)
    expected = plain_residual(numpy(network), numpy(inputs))
    np.testing.assert_allclose(network(inputs), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(network(inputs[0]), expected[0], rtol=1e-4, atol=1e-5)


def test_embedding_and_reading_start_orthogonal_and_blocks_as_he_et_al(fresh: ResidualMLP) -> None:
    [embed], [read] = fresh.embed.weights, fresh.read.weights
    np.testing.assert_allclose(embed @ embed.T, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(read.T @ read, np.eye(2), atol=1e-5)
    for block in fresh.blocks:
        assert [weight.shape for weight in block.weights] == [(16, 64), (64, 16)]
        for weight in block.weights:
            assert np.std(weight) == pytest.approx(np.sqrt(2 / len(weight)), rel=0.08)
    assert not np.allclose(fresh.blocks[0].weights[0], fresh.blocks[1].weights[0])
    assert_equal(fresh.layers().biases, [jnp.zeros(size) for size in (16, 64, 16, 64, 16, 2)])
