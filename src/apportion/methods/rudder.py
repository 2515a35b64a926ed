"""RUDDER, Return Decomposition for Delayed Rewards (Arjona-Medina et al., NeurIPS 2019).

An LSTM reads a segment and says after every step what the whole will have paid. What a step adds to that
expectation is its reward; what the LSTM failed to foresee is shared equally, so that the sum is exact.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Segments, Transitions
from apportion.data import memory as memories
from apportion.data.memory import Memory
from apportion.nn import optimise
from apportion.nn.optimise import Optimiser
from apportion.nn.recurrent import LSTM
from apportion.nn.segments import masked_mean, sum_exactly

MOST_UPDATES = 1000  # running statistics forget what is older
FARTHEST = 10.0  # standard deviations: inputs are cut there
CLIP = optax.clip_by_global_norm(1.0)  # gradients through a thousand steps can burst


@dataclass(frozen=True)
class Config:
    """RUDDER: an LSTM foresees what a segment will pay; what a step changes in that is its reward."""

    segments: int = 8
    """Segments (whole episodes when the reward comes at the end) per update, drawn from the replay: M."""
    lessons: int = 32
    """Segments that are remembered because the LSTM was wrong about them."""
    lessons_per_update: int = 4
    """Segments per update that are drawn from those, beside M; 0 for none."""
    update_every: int = 10
    """Updates of the policy for one of the LSTM."""
    cells: int = 64
    """Cells of the LSTM."""
    prefix_weight: float = 0.5
    """Weight of the loss at every step beside that at the last."""
    learning_rate: float = 1e-3
    """Adam's step."""

    def __post_init__(self) -> None:
        for name in ("segments", "lessons", "update_every", "cells"):
            check(getattr(self, name) >= 1, f"method.{name}={getattr(self, name)} must be at least 1")
        for name in ("lessons_per_update", "prefix_weight"):
            check(getattr(self, name) >= 0, f"method.{name}={getattr(self, name)} is negative")
        check(self.learning_rate > 0, f"method.learning_rate={self.learning_rate} must be positive")


class Statistics(NamedTuple):
    """Running ones, over the segments of the last updates: they bring inputs and targets to size one."""

    updates: Int[Array, ""]
    mean: Float[Array, "I"]  # of the inputs
    variance: Float[Array, "I"]
    rate: Float[Array, ""]  # reward per step
    surplus: Float[Array, ""]  # mean square of total - T rate


class State(NamedTuple):
    network: LSTM
    optimiser: Optimiser
    statistics: Statistics
    lessons: Memory
    policy_mask: Float[Array, "S"]  # all ones


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        inputs = 2 * spec.observation_size + spec.action_size
        network = LSTM.init(key, inputs, config.cells)
        return State(
            network=network,
            optimiser=optimise.start(network, config.learning_rate),
            statistics=Statistics(
                jnp.zeros((), jnp.int32), jnp.zeros(inputs), jnp.ones(inputs), jnp.zeros(()), jnp.ones(())
            ),
            lessons=memories.init(spec, config.lessons),
            policy_mask=jnp.ones(spec.observation_size),
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        segments = batch.segments
        assert segments is not None
        statistics = follow(state.statistics, segments)
        lessons = memories.draw_segments(state.lessons, config.lessons_per_update, key)
        segments = jax.tree.map(lambda *x: jnp.concatenate(x), segments, lessons)

        def loss(network: LSTM) -> tuple[Float[Array, ""], tuple[Array, Metrics]]:
            last, prefix = squared_errors(foresee(network, statistics, segments), segments, statistics)
            real = jnp.any(segments.mask, axis=1)  # not so the lessons before there are any
            metrics = {"last_loss": masked_mean(last, real), "prefix_loss": masked_mean(prefix, real)}
            wrong = jnp.where(real, last, -jnp.inf)
            return metrics["last_loss"] + config.prefix_weight * metrics["prefix_loss"], (wrong, metrics)

        gradients, (wrong, metrics) = jax.grad(loss, has_aux=True)(state.network)
        gradients, _ = CLIP.update(gradients, optax.EmptyState())
        network, optimiser = optimise.step(state.optimiser, state.network, gradients)
        remembered = memories.offer(state.lessons, segments, wrong)
        return State(network, optimiser, statistics, remembered, state.policy_mask), metrics

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return transitions.credit

    def policy_mask(state: State) -> Float[Array, "S"]:
        return state.policy_mask

    def credit(state: State, segments: Segments) -> Float[Array, "M T"]:
        foreseen = foresee(state.network, state.statistics, segments)
        return redistribute(foreseen, segments, state.statistics)

    sampling = Sampling(config.segments, "uniform", config.update_every)
    return Method(init, update, reward, policy_mask, None, sampling, credit=credit)


def steps_of(segments: Segments) -> Float[Array, "M T I"]:
    """[s, a, s' - s] of each step."""
    before, after = segments.observations[:, :-1], segments.observations[:, 1:]
    return jnp.concatenate([before, segments.actions, after - before], axis=-1)


def foresee(network: LSTM, statistics: Statistics, segments: Segments) -> Float[Array, "M T"]:
    """y_t: by how much the total will be above T times the usual reward, in the targets' unit."""
    inputs = steps_of(segments)
    mean, deviation = (
        jnp.broadcast_to(x, inputs.shape) for x in (statistics.mean, jnp.sqrt(statistics.variance) + 1e-6)
    )
    inputs = jnp.clip((inputs - mean) / deviation, -FARTHEST, FARTHEST)
    return network(jnp.where(segments.mask[:, :, None], inputs, 0.0))


def squared_errors(
    foreseen: Float[Array, "M T"], segments: Segments, statistics: Statistics
) -> tuple[Float[Array, "M"], Float[Array, "M"]]:
    """(y_T - z)², and mean_t (y_t - z)², with z = (total - T rate) / unit."""
    length = segments.length.astype(foreseen.dtype)
    target = (segments.total - length * statistics.rate) / unit(statistics)
    errors = (foreseen - target[:, None]) ** 2
    last = jnp.arange(errors.shape[1])[None, :] == segments.length[:, None] - 1
    return jnp.sum(jnp.where(last, errors, 0.0), axis=1), masked_mean(errors, segments.mask)


def redistribute(
    foreseen: Float[Array, "M T"], segments: Segments, statistics: Statistics
) -> Float[Array, "M T"]:
    """g_t - g_{t-1} + (total - Σ) / T, with g_t = (t + 1) rate + unit y_t, and g_{-1} = 0."""
    rises = jnp.diff(foreseen, axis=1, prepend=jnp.zeros_like(foreseen[:, :1]))
    return sum_exactly(statistics.rate + unit(statistics) * rises, segments)


def unit(statistics: Statistics) -> Float[Array, ""]:
    """What stands for 1 in the targets: the usual distance of a total from T times the usual reward."""
    return jnp.sqrt(statistics.surplus) + 1e-6


def follow(statistics: Statistics, segments: Segments) -> Statistics:
    """Take an update's segments in: all updates count the same at first, later the last thousand or so."""
    real = segments.mask[:, :, None]
    inputs = steps_of(segments)
    count = jnp.maximum(jnp.sum(segments.length), 1).astype(inputs.dtype)
    share = 1.0 / jnp.minimum(statistics.updates + 1, MOST_UPDATES).astype(inputs.dtype)

    def move(old: Array, new: Array) -> Array:
        return old + share * (new - old)

    mean = move(statistics.mean, jnp.sum(jnp.where(real, inputs, 0.0), axis=(0, 1)) / count)
    squares = jnp.where(real, (inputs - jnp.broadcast_to(mean, inputs.shape)) ** 2, 0.0)
    rate = move(statistics.rate, jnp.sum(segments.total) / count)
    surplus = jnp.mean((segments.total - segments.length.astype(inputs.dtype) * rate) ** 2)
    return Statistics(
        updates=statistics.updates + 1,
        mean=mean,
        variance=move(statistics.variance, jnp.sum(squares, axis=(0, 1)) / count),
        rate=rate,
        surplus=move(statistics.surplus, surplus),
    )
