"""What methods share that foresee a segment's total after each of its steps, and pay for what a step changes.

They differ in how they foresee. Inputs and targets are brought to size one by running statistics.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Segments, Transitions
from apportion.data import memory as memories
from apportion.data.memory import Memory
from apportion.methods.regression import FittedConfig
from apportion.nn import optimise
from apportion.nn.losses import masked_mean, sum_exactly
from apportion.nn.networks import dense, init_dense
from apportion.nn.optimise import Optimiser

MOST_UPDATES = 1000  # running statistics forget what is older
FARTHEST = 10.0  # standard deviations: inputs are cut there
LONGEST_GRADIENT = 1.0  # norm: through a thousand steps gradients can burst

Scalar = float | Float[Array, ""]


@dataclass(frozen=True)
class ForesightConfig(FittedConfig):
    """The settings that they have in common."""

    segments: int = 8
    """Segments (whole episodes when the reward comes at the end) per update, drawn from the replay: M."""
    learning_rate: float = 1e-3
    """Adam's step."""


class Statistics(NamedTuple):
    """Running ones, over the segments of the last updates."""

    updates: Int[Array, ""]
    mean: Float[Array, "I"]  # of the inputs
    variance: Float[Array, "I"]
    rate: Float[Array, ""]  # reward per step
    surplus: Float[Array, ""]  # mean square of total - T rate


def unknown(inputs: int) -> Statistics:
    """Before the first update."""
    zero, one = jnp.zeros(()), jnp.ones(())
    return Statistics(jnp.zeros((), jnp.int32), jnp.zeros(inputs), jnp.ones(inputs), zero, one)


def steps_of(segments: Segments) -> Float[Array, "M T I"]:
    """[s, a, s' - s] of each step."""
    before, after = segments.observations[:, :-1], segments.observations[:, 1:]
    return jnp.concatenate([before, segments.actions, after - before], axis=-1)


def inputs_of(statistics: Statistics, segments: Segments) -> Float[Array, "M T I"]:
    """The same, standardised; 0 on padding."""
    inputs = steps_of(segments)
    mean, deviation = (
        jnp.broadcast_to(x, inputs.shape) for x in (statistics.mean, jnp.sqrt(statistics.variance) + 1e-6)
    )
    inputs = jnp.clip((inputs - mean) / deviation, -FARTHEST, FARTHEST)
    return jnp.where(segments.mask[:, :, None], inputs, 0.0)


def target_of(statistics: Statistics, segments: Segments) -> Float[Array, "M"]:
    """z = (total - T rate) / unit: what is to be foreseen."""
    length = segments.length.astype(segments.total.dtype)
    return (segments.total - length * statistics.rate) / unit(statistics)


def squared_errors(
    foreseen: Float[Array, "M T"], segments: Segments, statistics: Statistics
) -> tuple[Float[Array, "M"], Float[Array, "M"]]:
    """(y_T - z)², and mean_t (y_t - z)²."""
    errors = (foreseen - target_of(statistics, segments)[:, None]) ** 2
    last = jnp.arange(errors.shape[1])[None, :] == segments.length[:, None] - 1
    return jnp.sum(jnp.where(last, errors, 0.0), axis=1), masked_mean(errors, segments.mask)


def redistribute(
    foreseen: Float[Array, "M T"], segments: Segments, statistics: Statistics
) -> Float[Array, "M T"]:
    """g_t - g_{t-1} + (total - Σ) / T, with g_t = (t + 1) rate + unit y_t, and g_{-1} = 0."""
    return sum_exactly(rises(foreseen, statistics), segments)


def rises(foreseen: Float[Array, "M T"], statistics: Statistics) -> Float[Array, "M T"]:
    """g_t - g_{t-1}: what each step adds to the expected total."""
    steps = jnp.diff(foreseen, axis=1, prepend=jnp.zeros_like(foreseen[:, :1]))
    return statistics.rate + unit(statistics) * steps


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


def rescale(state: Any, factor: Float[Array, ""], shift: Float[Array, ""]) -> Any:
    """Of a method's state: by the statistics in whose unit its networks learn."""
    known: Statistics = state.statistics
    now = known._replace(rate=known.rate * factor + shift, surplus=known.surplus * factor**2)
    return state._replace(statistics=now)


# --- Methods that pay for what changes in a foreseen total, and that remember segments


class State(NamedTuple):
    network: Any
    optimiser: Optimiser
    statistics: Statistics
    memory: Memory


Learn = Callable[[State, Segments, PRNGKeyArray], tuple[State, Metrics]]  # by the statistics of now


def build(
    config: ForesightConfig,
    network: Callable[[PRNGKeyArray, int], Any],  # with so many inputs
    places: int,  # of the memory
    learn: Learn,
    foresee: Callable[[State, Segments], Float[Array, "M T"]],
) -> Method:
    """A method whose credit is the rise of what it foresees."""

    def init(key: PRNGKeyArray, spec: Spec) -> State:
        inputs = 2 * spec.observation_size + spec.action_size
        fresh = network(key, inputs)
        optimiser = optimise.start(fresh, config.learning_rate)
        return State(fresh, optimiser, unknown(inputs), memories.init(spec, places))

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        assert batch.segments is not None
        statistics = follow(state.statistics, batch.segments)
        return learn(state._replace(statistics=statistics), batch.segments, key)

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return transitions.credit

    def credit(state: State, segments: Segments) -> Float[Array, "M T"]:
        return redistribute(foresee(state, segments), segments, state.statistics)

    sampling = Sampling(config.segments, "uniform", config.update_every)
    return Method(init, update, reward, sampling, credit=credit, rescale=rescale)


# --- A network that reads segments step by step


class LSTM(eqx.Module):
    """The LSTM of RUDDER: no forget gate and no output gate, so what a cell took in stays there.

    c_t = c_{t-1} + σ(V tanh(c_{t-1}) + d) ⊙ tanh(W x_t + b) / √T, and y_t = u·c_t + e after every step. T (as
    per_step = 1 / √T) is that of the longest segment that there can be, whatever these are padded to.
    What a cell takes in depends on the step alone, how much of it on the cells alone.
    """

    weight: Float[Array, "I H"]
    bias: Float[Array, "H"]
    gate_weight: Float[Array, "H H"]
    gate_bias: Float[Array, "H"]
    out_weight: Float[Array, "H 1"]
    out_bias: Float[Array, "1"]

    @staticmethod
    def init(key: PRNGKeyArray, inputs: int, cells: int) -> "LSTM":
        layers = init_dense(key, (inputs, cells, cells, 1))
        (weight, bias), (gate_weight, gate_bias), (out_weight, out_bias) = layers
        # Gates start nearly shut, as in the authors' code: first little is taken in, then what helps.
        return LSTM(weight, bias, gate_weight, gate_bias - 2.0, out_weight, out_bias)

    def __call__(
        self, x: Float[Array, "M T I"], per_step: Scalar, starts: Bool[Array, "M T"] | None = None
    ) -> Float[Array, "M T"]:
        """What it says after each step, having seen no later one; none before a step where it starts anew."""
        # Scaled by the most steps that there can be, sums of steps start at the size of one, for any T.
        taken = jnp.tanh(dense(x, self.weight, self.bias)) * per_step

        goes_on = jnp.ones(x.shape[:2], x.dtype) if starts is None else (~starts).astype(x.dtype)

        def step(cells: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            taken, goes_on = now
            cells = cells * goes_on[:, None]
            cells = cells + jax.nn.sigmoid(dense(jnp.tanh(cells), self.gate_weight, self.gate_bias)) * taken
            return cells, cells

        inputs = (jnp.swapaxes(taken, 0, 1), goes_on.T)
        _, cells = jax.lax.scan(step, jnp.zeros_like(taken[:, 0]), inputs)
        return jnp.squeeze(dense(jnp.swapaxes(cells, 0, 1), self.out_weight, self.out_bias), axis=-1)
