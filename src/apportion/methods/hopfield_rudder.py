"""Hopfield-RUDDER (Widrich et al., Deep RL Workshop at NeurIPS 2021): RUDDER without an LSTM.

Some episodes are stored. After each step a continuous modern Hopfield network (Ramsauer et al., ICLR 2021)
retrieves those that began alike, and with them what they paid: the expectation of the total. As in RUDDER,
what a step changes in that expectation is its reward, and what was not foreseen is shared equally.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from apportion.core.config import at_least
from apportion.core.types import Method, Metrics, Segments
from apportion.data import memory as memories
from apportion.methods import foresight
from apportion.methods.foresight import (
    ForesightConfig,
    State,
    Statistics,
    inputs_of,
    squared_errors,
    target_of,
)
from apportion.nn import optimise
from apportion.nn.networks import MLP


@dataclass(frozen=True)
class Config(ForesightConfig):
    """Hopfield-RUDDER: stored episodes that began alike tell the total; what a step changes is its reward."""

    stored: int = 32
    """Segments that are stored: a fair sample of all that updates have seen."""
    width: int = 32
    """Numbers that stand for the steps so far."""
    prefix_weight: float = 0.5
    """Weight of the loss at every step beside that at the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "method.", stored=1, width=2, prefix_weight=0)


class Hopfield(NamedTuple):
    encoder: MLP  # from a step to what it leaves in the history
    log_sharpness: Float[Array, ""]  # log β: how much more alike the retrieved are than others


def make(config: Config) -> Method:
    def network(key: PRNGKeyArray, inputs: int) -> Hopfield:
        return Hopfield(MLP.init(key, (inputs, config.width, config.width)), jnp.zeros(()))

    def learn(state: State, segments: Segments, key: PRNGKeyArray) -> tuple[State, Metrics]:
        # Each has the same chance to stay, however early it came: the highest of random scores do.
        stored = memories.offer(state.memory, segments, jax.random.uniform(key, segments.total.shape))
        state = state._replace(memory=stored)

        def loss(network: Hopfield) -> tuple[Float[Array, ""], Metrics]:
            foreseen = foresee(state._replace(network=network), segments)
            last, prefix = (jnp.mean(x) for x in squared_errors(foreseen, segments, state.statistics))
            return last + config.prefix_weight * prefix, {"last_loss": last, "prefix_loss": prefix}

        fitted, optimiser, metrics = optimise.descend_with(state.optimiser, state.network, loss)
        return state._replace(network=fitted, optimiser=optimiser), metrics

    return foresight.build(config, network, config.stored, learn, foresee)


def foresee(state: State, segments: Segments) -> Float[Array, "M T"]:
    """y_t: what the stored segments that began like the first t + 1 steps paid, in the targets' unit."""
    network, statistics, stored = state.network, state.statistics, state.memory
    known = memories.all_segments(stored)
    values = target_of(statistics, known)
    # Nobody is asked about himself: he would know the total from the first step on.
    useful = memories.filled(stored)[None, :] & (segments.number[:, None] != stored.number[None, :])
    keys = histories(network.encoder, statistics, known)
    queries = histories(network.encoder, statistics, segments)
    return retrieve(queries, keys, values, useful, jnp.exp(network.log_sharpness))


def histories(encoder: MLP, statistics: Statistics, segments: Segments) -> Float[Array, "M T W"]:
    """What all steps so far have left: for half of the numbers their sum / √T, for half the highest."""
    each = jnp.tanh(encoder(inputs_of(statistics, segments)))
    summed, highest = jnp.split(jnp.where(segments.mask[:, :, None], each, 0.0), [each.shape[-1] // 2], -1)
    summed = jnp.cumsum(summed, axis=1) / each.shape[1] ** 0.5
    return jnp.concatenate([summed, jax.lax.cummax(highest, axis=1)], axis=-1)


def retrieve(
    queries: Float[Array, "M T W"],
    keys: Float[Array, "K T W"],
    values: Float[Array, "K"],
    useful: Bool[Array, "M K"],
    sharpness: Float[Array, ""],
) -> Float[Array, "M T"]:
    """Σ_k softmax_k(-β |q_t - k_t|² / 2) v_k: histories at the same step are compared; 0 with none stored."""
    products = jnp.einsum("mtw,ktw->mtk", queries, keys)
    # |q|² is the same for all that are stored, and a softmax does not see it.
    logits = sharpness * (products - 0.5 * jnp.sum(keys**2, axis=-1).T[None, :, :])
    known = useful[:, None, :]
    weights = jax.nn.softmax(jnp.where(known, logits, -1e9), axis=-1)
    return jnp.sum(jnp.where(known, weights * values[None, None, :], 0.0), axis=-1)
