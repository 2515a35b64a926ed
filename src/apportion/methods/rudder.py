"""RUDDER, Return Decomposition for Delayed Rewards (Arjona-Medina et al., NeurIPS 2019).

An LSTM reads a segment and says after every step what the whole will have paid. What a step adds to that
expectation is its reward; what the LSTM failed to foresee is shared equally, so that the sum is exact.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.config import at_least
from apportion.core.types import Method, Metrics, Segments
from apportion.data import memory as memories
from apportion.methods import foresight
from apportion.methods.foresight import LSTM, ForesightConfig, State, inputs_of, squared_errors
from apportion.nn import optimise
from apportion.nn.losses import masked_mean


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
        at_least(self, "method.", lessons=1, cells=1, lessons_per_update=0, prefix_weight=0)


def make(config: Config) -> Method:
    def learn(state: State, segments: Segments, key: PRNGKeyArray) -> tuple[State, Metrics]:
        statistics = state.statistics
        lessons = memories.draw_segments(state.memory, config.lessons_per_update, key)
        segments = jax.tree.map(lambda *x: jnp.concatenate(x), segments, lessons)

        def loss(network: LSTM) -> tuple[Float[Array, ""], tuple[Array, Metrics]]:
            foreseen = foresee(state._replace(network=network), segments)
            last, prefix = squared_errors(foreseen, segments, statistics)
            real = jnp.any(segments.mask, axis=1)  # not so the lessons before there are any
            metrics = {"last_loss": masked_mean(last, real), "prefix_loss": masked_mean(prefix, real)}
            wrong = jnp.where(real, last, -jnp.inf)
            return metrics["last_loss"] + config.prefix_weight * metrics["prefix_loss"], (wrong, metrics)

        network, optimiser, (wrong, metrics) = optimise.descend_with(
            state.optimiser, state.network, loss, foresight.LONGEST_GRADIENT
        )
        remembered = memories.offer(state.memory, segments, wrong)
        return State(network, optimiser, statistics, remembered), metrics

    def network(key: PRNGKeyArray, inputs: int) -> LSTM:
        return LSTM.init(key, inputs, config.cells)

    return foresight.build(config, network, config.lessons, learn, foresee)


def foresee(state: State, segments: Segments) -> Float[Array, "M T"]:
    """y_t: by how much the total will be above T times the usual reward, in the targets' unit."""
    # Lessons have the padding of the longest segment that there can be, and so has what comes beside them.
    found: Array = state.network(inputs_of(state.statistics, segments), segments.mask.shape[1] ** -0.5)
    return found
