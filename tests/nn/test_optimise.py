"""Adam equals its formula, and every lane may have a learning rate of its own."""

import jax
import jax.numpy as jnp
import numpy as np

from apportion.nn import optimise
from builders import assert_equal


def test_adam_equals_its_formula() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(size=4)
    params = jnp.asarray(expected, jnp.float32)
    optimiser = optimise.start(params, 0.01)
    first, second = np.zeros(4), np.zeros(4)
    for count in range(1, 6):
        gradient = rng.normal(size=4)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        expected = expected - 0.01 * (first / (1 - 0.9**count)) / (
            np.sqrt(second / (1 - 0.999**count)) + 1e-8
        )
        params, optimiser = optimise.step(optimiser, params, jnp.asarray(gradient, jnp.float32))
        np.testing.assert_allclose(params, expected, rtol=1e-4)


def test_weight_decay_shortens_weights_beside_the_step() -> None:
    """θ ← θ - rate (direction + decay θ), with the moments of a step without it."""
    before, gradients = jnp.asarray([3.0, -1.0]), jnp.asarray([0.5, 2.0])
    plain, plainly = optimise.step(optimise.start(before, 0.01), before, gradients)
    decayed, decaying = optimise.step(optimise.start(before, 0.01, 0.1), before, gradients)
    np.testing.assert_allclose(decayed, plain - 0.01 * 0.1 * before, rtol=1e-6)
    assert_equal(decaying.moments, plainly.moments)


def test_lanes_step_at_their_own_rates() -> None:
    params = jnp.zeros((2, 3))
    optimisers = jax.vmap(lambda p: optimise.start(p, 1.0))(params)
    optimisers = optimisers._replace(learning_rate=jnp.asarray([0.1, 0.001]))
    moved, _ = jax.vmap(optimise.step)(optimisers, params, jnp.ones((2, 3)))
    np.testing.assert_allclose(moved, [[-0.1] * 3, [-0.001] * 3], rtol=1e-4)
