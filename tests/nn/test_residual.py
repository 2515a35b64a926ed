"""Residual networks start as published; test_simba.py holds them against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.nn.residual import ResidualMLP
from builders import assert_equal


@pytest.fixture(scope="module")
def fresh() -> ResidualMLP:
    """With three inputs, two blocks of 16 and two outputs."""
    return jax.jit(lambda key: ResidualMLP.init(key, (3, 16, 16, 2)))(jax.random.key(0))


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
