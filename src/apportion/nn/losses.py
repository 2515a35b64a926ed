"""Losses as pure functions of arrays: the generative model's (GRD paper, equations 4 to 6), and RRD's, which
looks at a few random steps of each segment (Ren et al., ICLR 2022)."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from apportion.core.types import Edges, Segments


def return_loss(rewards: Float[Array, "M T"], segments: Segments) -> Float[Array, ""]:
    """mean_m ((Σ_t r̂_t - total) / T)²: equation 4, divided by the segment's length; twice the mean cross
    entropy where totals are yes or no, and rewards log odds.

    The paper leaves the sum as it is; dividing gives λ and the learning rate one scale for all lengths.
    """
    errors = segment_errors(rewards, segments)
    if segments.base is not None:
        errors = errors * segments.length.astype(errors.dtype)
    return jnp.mean(errors**2)


def segment_errors(rewards: Float[Array, "M T"], segments: Segments) -> Float[Array, "M"]:
    """(Σ_t r̂_t - total) / T of each segment; where totals are yes (1) or no (0), base + Σ_t r̂_t is the log
    odds of yes, and deviance residuals stand for the differences: their squares are twice the cross entropy.
    """
    predicted, total = jnp.sum(jnp.where(segments.mask, rewards, 0.0), axis=1), segments.total
    length = segments.length.astype(total.dtype)
    if segments.base is None:
        return (predicted - total) / length
    towards_no = 1.0 - 2.0 * total
    surprise = jax.nn.softplus(towards_no * (segments.base + predicted))
    # Of what is certain the cross entropy is 1e-30: the square root of 0 has no slope.
    return towards_no * jnp.sqrt(2.0 * jnp.maximum(surprise, 1e-30)) / length


def reward_variance(rewards: Float[Array, "M T"], segments: Segments) -> Float[Array, ""]:
    """mean_m var_t(r̂_t) / T: how unevenly rewards lie within segments; 0 where T = 1.

    Divided by T as the variance of a mean is: beside the return loss it weighs the same for all lengths.
    """
    steps = segments.length.astype(rewards.dtype)
    mean = jnp.sum(jnp.where(segments.mask, rewards, 0.0), axis=1) / steps
    above = jnp.where(segments.mask, rewards - mean[:, None], 0.0)
    return jnp.mean(jnp.sum(above**2, axis=1) / steps**2)


def randomized_return_loss(rewards: Float[Array, "M K"], segments: Segments) -> Float[Array, ""]:
    """mean_m (mean_k r̂_k - total / T)²: the return loss, guessed from K random steps of each segment.

    Its expectation is the return loss plus `sampling_variance`, so it also asks for rewards that vary little.
    """
    wanted = segments.total / segments.length.astype(segments.total.dtype)
    return jnp.mean((jnp.mean(rewards, axis=1) - wanted) ** 2)


def sampling_variance(rewards: Float[Array, "M K"], length: Int[Array, "M"]) -> Float[Array, ""]:
    """mean_m var_K(r̂) (1 - K/T) / K, with K - 1 in var's denominator: the bias of `randomized_return_loss`.

    The factor is 1 / K where K > T, for these steps were drawn with replacement, and 0 where T = 1.
    """
    count = rewards.shape[1]
    left_out = 1.0 - count / length.astype(rewards.dtype)
    left_out = jnp.where(count > length, 1.0, left_out)
    left_out = jnp.where(length == 1, 0.0, left_out)
    return jnp.mean(jnp.var(rewards, axis=1, ddof=1) * left_out / count)


def mixture_nll(
    target: Float[Array, "*N"],
    means: Float[Array, "*N K"],
    log_stds: Float[Array, "*N K"],
    mixture_logits: Float[Array, "*N K"],
) -> Float[Array, ""]:
    """-mean log Σ_k w_k N(target; μ_k, σ_k): equation 5, averaged over batch and dimensions."""
    standardised = (jnp.expand_dims(target, -1) - means) * jnp.exp(-log_stds)
    log_densities = -0.5 * standardised**2 - log_stds - 0.5 * math.log(2 * math.pi)
    log_weights = jax.nn.log_softmax(mixture_logits, axis=-1)
    return -jnp.mean(jax.nn.logsumexp(log_weights + log_densities, axis=-1))


def sparsity_loss(logits: Edges, weights: Float[Array, "5"]) -> Float[Array, ""]:
    """λ1 Σ log P(s→r) + λ2 Σ log P(a→r) + λ3 Σ_{i≠j} log P(s_i→s_j) + λ4 Σ_i log P(s_i→s_i)
    + λ5 Σ log P(a→s): equation 6."""
    state_to_state = jax.nn.log_sigmoid(logits.state_to_state)
    self_edges = jnp.trace(state_to_state)
    sums = jnp.stack(
        [
            jnp.sum(jax.nn.log_sigmoid(logits.state_to_reward)),
            jnp.sum(jax.nn.log_sigmoid(logits.action_to_reward)),
            jnp.sum(state_to_state) - self_edges,
            self_edges,
            jnp.sum(jax.nn.log_sigmoid(logits.action_to_state)),
        ]
    )
    return jnp.sum(weights * sums)


# --- Whole segments, padding left out


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
