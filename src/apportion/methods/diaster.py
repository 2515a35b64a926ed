"""Diaster, Difference of Implicitly Assigned Sub-Trajectory Reward (Lin et al., AAAI 2024).

A recurrent network values sub-trajectories: cut anywhere, a segment's two parts are to be worth what it paid.
What a step adds to the value of the steps before it is its reward, which a network of single steps learns.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.config import at_least
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Segments, Transitions
from apportion.methods import foresight
from apportion.methods.foresight import (
    LSTM,
    ForesightConfig,
    Scalar,
    Statistics,
    follow,
    inputs_of,
    target_of,
    unit,
)
from apportion.nn import optimise
from apportion.nn.losses import masked_mean, tokens_of
from apportion.nn.networks import MLP, check_layers
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config(ForesightConfig):
    """Diaster: a segment cut at random is worth what its parts are; a step, what it adds to those before."""

    cells: int = 64
    """Cells of the recurrent network."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the network of single steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "method.", cells=1)
        check_layers("method.hidden", self.hidden)


class Networks(NamedTuple):
    part: LSTM  # the value of a run of steps
    step: MLP  # the reward of one


class State(NamedTuple):
    networks: Networks
    optimiser: Optimiser
    statistics: Statistics
    per_step: Float[Array, ""]  # 1 / √T of the longest segment: a step's share of the totals' unit


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        part_key, step_key = jax.random.split(key)
        inputs = 2 * spec.observation_size + spec.action_size
        step_sizes = (spec.observation_size + spec.action_size, *config.hidden, 1)
        networks = Networks(LSTM.init(part_key, inputs, config.cells), MLP.init(step_key, step_sizes))
        return State(
            networks=networks,
            optimiser=optimise.start(networks, config.learning_rate),
            statistics=foresight.unknown(inputs),
            per_step=jnp.asarray(spec.max_segment_steps**-0.5, jnp.float32),
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        segments = batch.segments
        assert segments is not None
        statistics = follow(state.statistics, segments)
        cut = jax.random.randint(key, segments.length.shape, 1, segments.length + 1)

        def loss(networks: Networks) -> tuple[Float[Array, ""], Metrics]:
            parts = part_loss(networks.part, statistics, state.per_step, segments, cut)
            steps = step_loss(networks, statistics, state.per_step, segments)
            return parts + steps, {"part_loss": parts, "step_loss": steps}

        networks, optimiser, metrics = optimise.descend_with(
            state.optimiser, state.networks, loss, foresight.LONGEST_GRADIENT
        )
        return state._replace(networks=networks, optimiser=optimiser, statistics=statistics), metrics

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        tokens = jnp.concatenate([transitions.observation, transitions.action], axis=-1)
        scale = state.per_step * unit(state.statistics)
        return predict_reward(state.networks.step, state.statistics.rate, scale, tokens)

    sampling = Sampling(config.segments, "uniform", config.update_every)
    return Method(init, update, reward, sampling, rescale=foresight.rescale)


def part_loss(
    part: LSTM, statistics: Statistics, per_step: Scalar, segments: Segments, cut: Int[Array, "M"]
) -> Float[Array, ""]:
    """mean_m (f(τ_{0:c}) + f(τ_{c:T}) - z)²; only the first where c = T."""
    steps = jnp.arange(segments.mask.shape[1])[None, :]
    values = part(inputs_of(statistics, segments), per_step, steps == cut[:, None])
    # The value of a part is what the network says after its last step.
    ends = (steps == cut[:, None] - 1) | (steps == segments.length[:, None] - 1)
    return jnp.mean((jnp.sum(jnp.where(ends, values, 0.0), axis=1) - target_of(statistics, segments)) ** 2)


def step_loss(
    networks: Networks, statistics: Statistics, per_step: Scalar, segments: Segments
) -> Float[Array, ""]:
    """mean ((r̂_t - d_t) / scale)² over all steps of the segments."""
    scale = per_step * unit(statistics)
    worth = jax.lax.stop_gradient(differences(networks.part, statistics, per_step, segments))
    rewards = predict_reward(networks.step, statistics.rate, scale, tokens_of(segments))
    return masked_mean(((rewards - worth) / scale).ravel() ** 2, segments.mask.ravel())


def differences(
    part: LSTM, statistics: Statistics, per_step: Scalar, segments: Segments
) -> Float[Array, "M T"]:
    """d_t = f(τ_{0:t+1}) - f(τ_{0:t}), where f of the whole is what it paid: their sum is exact."""
    foreseen = part(inputs_of(statistics, segments), per_step)
    last = jnp.arange(foreseen.shape[1])[None, :] == segments.length[:, None] - 1
    foreseen = jnp.where(last, target_of(statistics, segments)[:, None], foreseen)
    return jnp.where(segments.mask, foresight.rises(foreseen, statistics), 0.0)


def predict_reward(
    step: MLP, rate: Float[Array, ""], scale: Float[Array, ""], tokens: Float[Array, "*B I"]
) -> Float[Array, "*B"]:
    """r̂ = rate + scale MLP([s, a])."""
    return rate + scale * step.scalar(tokens)
