"""Mixtures of Gaussians, one for each number that is predicted: drawn from, joined, and how wide they are."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Mixture(NamedTuple):
    """K components for each of some numbers. Its loss is `losses.mixture_nll`."""

    means: Float[Array, "*N K"]
    log_stds: Float[Array, "*N K"]
    logits: Float[Array, "*N K"]


def joined(members: Mixture) -> Mixture:
    """[E, *N, K] of E equal members → [*N, E K]: that of a member drawn at random is a mixture, too."""

    def beside(x: Float[Array, "E *N K"]) -> Float[Array, "*N L"]:
        moved = jnp.moveaxis(x, 0, -2)
        return moved.reshape(*moved.shape[:-2], -1)

    return Mixture(
        beside(members.means), beside(members.log_stds), beside(jax.nn.log_softmax(members.logits, axis=-1))
    )


def draw(mixture: Mixture, key: PRNGKeyArray) -> Float[Array, "*N"]:
    """A number from each."""
    component_key, noise_key = jax.random.split(key)
    chosen = jnp.expand_dims(jax.random.categorical(component_key, mixture.logits), -1)
    mean, log_std = (
        jnp.squeeze(jnp.take_along_axis(part, chosen, axis=-1), -1)
        for part in (mixture.means, mixture.log_stds)
    )
    return mean + jnp.exp(log_std) * jax.random.normal(noise_key, mean.shape)


def log_spread(mixture: Mixture) -> Float[Array, "*N"]:
    """log of the standard deviation: Var = Σ_k w_k (σ_k² + (μ_k - μ)²), also where components disagree."""
    weights = jax.nn.softmax(mixture.logits, axis=-1)
    mean = jnp.sum(weights * mixture.means, axis=-1, keepdims=True)
    squares = jnp.exp(2 * mixture.log_stds) + (mixture.means - mean) ** 2
    return 0.5 * jnp.log(jnp.sum(weights * squares, axis=-1))
