"""RUDDER, Return Decomposition for Delayed Rewards (Arjona-Medina et al., NeurIPS 2019).

An LSTM reads a segment and says after every step what the whole will have paid. What a step adds to that
expectation is its reward; what the LSTM failed to foresee is shared equally, so that the sum is exact.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Segments, Transitions
from apportion.data import memory as memories
from apportion.data.memory import Memory
from apportion.methods import foresight
from apportion.methods.foresight import (
    LSTM,
    ForesightConfig,
    Statistics,
    follow,
    inputs_of,
    redistribute,
    squared_errors,
)
from apportion.nn import optimise
from apportion.nn.losses import masked_mean
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config(ForesightConfig):
    """RUDDER: an LSTM foresees what a segment will pay; what a step changes in that is its reward."""

    lessons: int = 32
    """Segments that are remembered because the LSTM was wrong about them."""
    lessons_per_update: int = 4
    """Segments per update that are drawn from those, beside M; 0 for none."""
    cells: int = 64
    """Cells of the LSTM."""
    prefix_weight: float = 0.5
    """Weight of the loss at every step beside that at the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lessons", "cells"):
            check(getattr(self, name) >= 1, f"method.{name}={getattr(self, name)} must be at least 1")
        for name in ("lessons_per_update", "prefix_weight"):
            check(getattr(self, name) >= 0, f"method.{name}={getattr(self, name)} is negative")


class State(NamedTuple):
    network: LSTM
    optimiser: Optimiser
    statistics: Statistics
    lessons: Memory


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        inputs = 2 * spec.observation_size + spec.action_size
        network = LSTM.init(key, inputs, config.cells)
        return State(
            network=network,
            optimiser=optimise.start(network, config.learning_rate),
            statistics=foresight.unknown(inputs),
            lessons=memories.init(spec, config.lessons),
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

        network, optimiser, (wrong, metrics) = optimise.descend_with(
            state.optimiser, state.network, loss, foresight.LONGEST_GRADIENT
        )
        remembered = memories.offer(state.lessons, segments, wrong)
        return State(network, optimiser, statistics, remembered), metrics

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return transitions.credit

    def credit(state: State, segments: Segments) -> Float[Array, "M T"]:
        foreseen = foresee(state.network, state.statistics, segments)
        return redistribute(foreseen, segments, state.statistics)

    sampling = Sampling(config.segments, "uniform", config.update_every)
    return Method(init, update, reward, sampling, credit=credit, rescale=foresight.rescale)


def foresee(network: LSTM, statistics: Statistics, segments: Segments) -> Float[Array, "M T"]:
    """y_t: by how much the total will be above T times the usual reward, in the targets' unit."""
    # Lessons have the padding of the longest segment that there can be, and so has what comes beside them.
    return network(inputs_of(statistics, segments), segments.mask.shape[1] ** -0.5)
