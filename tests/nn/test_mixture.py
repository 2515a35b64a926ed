"""Mixtures of Gaussians: what is drawn from one has its moments."""

import jax
import jax.numpy as jnp
import numpy as np

from apportion.nn import losses
from apportion.nn.losses import Mixture

RNG = np.random.default_rng(0)
MIXTURE = Mixture(*(jnp.asarray(RNG.normal(size=(5, 3)), jnp.float32) for _ in range(3)))  # [N, K]


def test_what_is_drawn_has_the_mean_and_the_spread_of_the_mixture() -> None:
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: losses.draw(MIXTURE, key)))(keys))
    weights = np.asarray(jax.nn.softmax(MIXTURE.logits, axis=-1))
    mean = (weights * MIXTURE.means).sum(axis=-1)
    squares = np.exp(2 * MIXTURE.log_stds) + (MIXTURE.means - mean[:, None]) ** 2
    spread = np.sqrt((weights * squares).sum(axis=-1))
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.05 * spread.max())
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=0.05)
