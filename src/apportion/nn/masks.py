"""Masks over the edges of the causal graph: probabilities, samples, greedy choice, compact representation.

GRD paper, appendix "Detailed Generative Model". Each edge has one logit, the difference ψ0 - ψ1 of the
paper's two: P(edge) = sigmoid(logit).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def edge_probability(logits: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """P(edge) = exp(ψ0) / (exp(ψ0) + exp(ψ1)) = sigmoid(ψ0 - ψ1)."""
    return jax.nn.sigmoid(logits)


def sample_mask(
    key: PRNGKeyArray, logits: Float[Array, "*E"], temperature: float = 1.0
) -> Float[Array, "*E"]:
    """A hard 0/1 sample of each edge whose gradient is the soft sample's (straight-through Gumbel-softmax).

    The difference of two Gumbel noises is logistic: soft = sigmoid((logit + noise) / temperature).
    """
    noise = jax.random.logistic(key, logits.shape, logits.dtype)
    soft = jax.nn.sigmoid((logits + noise) / temperature)
    hard = (soft >= 0.5).astype(logits.dtype)
    return hard + (soft - jax.lax.stop_gradient(soft))


def greedy_mask(logits: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """1 where ψ0 >= ψ1, else 0."""
    return (logits >= 0).astype(logits.dtype)


def one_hop(state_to_reward: Float[Array, "S"], state_to_state: Float[Array, "S S"]) -> Float[Array, "S"]:
    """The dimensions in `state_to_reward`, and those with an edge to one of them (equation 7)."""
    return jnp.maximum(state_to_reward, (state_to_state @ state_to_reward > 0).astype(state_to_reward.dtype))


def closure(state_to_reward: Float[Array, "S"], state_to_state: Float[Array, "S S"]) -> Float[Array, "S"]:
    """Every dimension with a path to the reward: one hop, repeated until nothing is added."""

    def grows(masks: tuple[Array, Array]) -> Array:
        before, after = masks
        return jnp.any(before != after)

    def hop(masks: tuple[Array, Array]) -> tuple[Array, Array]:
        _, mask = masks
        return mask, one_hop(mask, state_to_state)

    _, mask = jax.lax.while_loop(grows, hop, (state_to_reward, one_hop(state_to_reward, state_to_state)))
    return mask
