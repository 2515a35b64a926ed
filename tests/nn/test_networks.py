"""Plain and normed layers equal plain NumPy, and start as they should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.nn.networks import MLP, NORM_EPSILON, NormedMLP, init_dense
from builders import numpy
from probes import plain_outputs


@pytest.mark.parametrize("shape", [(), (5,), (4, 5)])
def test_mlp_equals_numpy_over_any_leading_axes(shape: tuple[int, ...]) -> None:
    network = MLP.init(jax.random.key(0), (3, 8, 7, 2))
    x = np.random.default_rng(0).normal(size=(*shape, 3))
    plain = numpy(network)
    found = network(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, plain_outputs(plain, x), rtol=1e-4, atol=1e-6)


def plain_normed(weights: list[np.ndarray], biases: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        hidden = np.zeros((len(x), weight.shape[1]))
        for row, inputs in enumerate(x):
            sums = inputs @ weight
            variance = np.mean((sums - np.mean(sums)) ** 2)
            hidden[row] = np.maximum((sums - np.mean(sums)) / np.sqrt(variance + NORM_EPSILON) + bias, 0)
        x = hidden
    return x @ weights[-1] + biases[-1]


def test_normed_layers_equal_a_plain_loop() -> None:
    network = NormedMLP.init(jax.random.key(0), (3, 8, 7, 2))
    x = np.random.default_rng(0).normal(size=(5, 3))
    plain = numpy(network)
    found = network(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, plain_normed(plain.weights, plain.biases, x), rtol=1e-4, atol=1e-5)


def test_layers_start_small_and_apart() -> None:
    """Uniform in ±1/sqrt(inputs), every number drawn by itself."""
    layers = init_dense(jax.random.key(1), (16, 64, 4))
    assert [(w.shape, b.shape) for w, b in layers] == [((16, 64), (64,)), ((64, 4), (4,))]
    for (weight, bias), bound in zip(layers, (0.25, 0.125), strict=True):
        numbers = np.concatenate([np.ravel(weight), bias]) / bound
        assert np.abs(numbers).max() <= 1
        assert abs(np.mean(numbers)) < 5 / np.sqrt(3 * numbers.size)
        assert np.std(numbers) == pytest.approx(1 / np.sqrt(3), abs=0.06)
    everything = np.concatenate([np.ravel(array) for layer in layers for array in layer])
    assert len(np.unique(everything)) == everything.size
