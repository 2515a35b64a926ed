"""Mixtures of Gaussians, one for each number that is predicted."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Mixture(NamedTuple):
    """K components for each of some numbers. Its loss is `losses.mixture_nll`."""

    means: Float[Array, "*N K"]
    log_stds: Float[Array, "*N K"]
    logits: Float[Array, "*N K"]


def draw(mixture: Mixture, key: PRNGKeyArray) -> Float[Array, "*N"]:
    """A number from each."""
    component_key, noise_key = jax.random.split(key)
    chosen = jnp.expand_dims(jax.random.categorical(component_key, mixture.logits), -1)
    mean, log_std = (
        jnp.squeeze(jnp.take_along_axis(part, chosen, axis=-1), -1)
        for part in (mixture.means, mixture.log_stds)
    )
    return mean + jnp.exp(log_std) * jax.random.normal(noise_key, mean.shape)
