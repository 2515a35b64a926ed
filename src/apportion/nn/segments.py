"""What methods compute of whole segments, padding left out."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from apportion.core.types import Segments


def tokens_of(segments: Segments) -> Float[Array, "M T I"]:
    """[s, a] of each step; 0 on padding, where even a NaN then has no say."""
    tokens = jnp.concatenate([segments.observations[:, :-1], segments.actions], axis=-1)
    return jnp.where(segments.mask[:, :, None], tokens, 0.0)


def sum_exactly(rewards: Float[Array, "M T"], segments: Segments) -> Float[Array, "M T"]:
    """r̂_t + (total - Σ r̂) / T: moved evenly, so that they sum to what the segment paid; 0 on padding."""
    length = jnp.maximum(segments.length, 1).astype(rewards.dtype)
    lacking = (segments.total - jnp.sum(jnp.where(segments.mask, rewards, 0.0), axis=1)) / length
    return jnp.where(segments.mask, rewards + lacking[:, None], 0.0)


def masked_mean(values: Float[Array, "*B T"], mask: Bool[Array, "*B T"]) -> Float[Array, "*B"]:
    """Over the last axis, where the mask is on; 0 where it never is."""
    count = jnp.maximum(jnp.sum(mask, axis=-1), 1).astype(values.dtype)
    return jnp.sum(jnp.where(mask, values, 0.0), axis=-1) / count
