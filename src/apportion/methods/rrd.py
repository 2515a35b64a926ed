"""RRD, Randomized Return Decomposition (Ren et al., ICLR 2022): long segments, seen through a few steps.

The mean reward of K random steps stands for that of the whole segment. Squaring it adds the variance of
the draw to the loss (biased), which can be estimated from the same steps and taken off (unbiased).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Segments, Transitions
from apportion.nn import losses, optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config:
    """RRD: a reward network fitted to random steps of each segment; its loss is biased by the draw."""

    unbiased: bool = False
    """Take the variance of the draw off the loss; it is then that of all steps, in expectation."""
    segments: int = 4
    """Segments (whole episodes when the reward comes at the end) per update: M. Long ones come more often."""
    steps_per_segment: int = 64
    """Steps drawn from each segment: K. Without replacement, unless the segment is shorter."""
    update_every: int = 1
    """Updates of the policy for one of the reward model; fewer where these do not divide an iteration's."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward network."""
    learning_rate: float = 3e-4
    """Adam's step."""

    def __post_init__(self) -> None:
        check(self.segments >= 1, f"method.segments={self.segments} must be at least 1")
        least = 2 if self.unbiased else 1  # one step has no variance to estimate
        check(
            self.steps_per_segment >= least,
            f"method.steps_per_segment={self.steps_per_segment} must be at least {least}",
        )
        check(self.update_every >= 1, f"method.update_every={self.update_every} must be at least 1")
        check(len(self.hidden) >= 1, "method.hidden needs at least one layer")
        check(min(self.hidden) >= 1, f"method.hidden={self.hidden} must be at least 1 each")
        check(self.learning_rate > 0, f"method.learning_rate={self.learning_rate} must be positive")


@dataclass(frozen=True)
class UnbiasedConfig(Config):
    """RRD (unbiased): the same with the variance of the draw taken off its loss."""

    unbiased: bool = True
    """Take the variance of the draw off the loss; it is then that of all steps, in expectation."""


class State(NamedTuple):
    network: MLP
    optimiser: Optimiser
    policy_mask: Float[Array, "S"]  # all ones


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        network = MLP.init(key, (2 * spec.observation_size + spec.action_size, *config.hidden, 1))
        optimiser = optimise.start(network, config.learning_rate)
        return State(network, optimiser, jnp.ones(spec.observation_size))

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        segments = batch.segments
        assert segments is not None
        network, optimiser, loss = optimise.descend(
            state.optimiser, state.network, lambda network: reward_loss(network, segments, key, config)
        )
        return state._replace(network=network, optimiser=optimiser), {"reward_loss": loss}

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return predict_reward(
            state.network, transitions.observation, transitions.action, transitions.next_observation
        )

    def policy_mask(state: State) -> Float[Array, "S"]:
        return state.policy_mask

    return Method(
        init, update, reward, policy_mask, None, Sampling(config.segments, "length", config.update_every)
    )


def reward_loss(network: MLP, segments: Segments, key: PRNGKeyArray, config: Config) -> Float[Array, ""]:
    """mean_m (mean_k r̂_k - total / T)² over K random steps; unbiased: less mean_m var_K(r̂) (1 - K/T) / K."""
    longest = segments.mask.shape[1]
    chosen = draw_steps(key, segments.length, longest, config.steps_per_segment)
    rewards = predict_reward(network, *take_steps(segments, chosen))
    loss = losses.randomized_return_loss(rewards, segments.total, segments.length)
    if config.unbiased:
        loss = loss - losses.sampling_variance(rewards, segments.length)
    return loss


def draw_steps(key: PRNGKeyArray, length: Int[Array, "M"], longest: int, count: int) -> Int[Array, "M K"]:
    """K steps of each segment: all subsets are equally likely, or all sequences where the segment is shorter.

    Where the K largest of independent numbers lie, one for each real step, is a uniform subset of the steps.
    """
    width = max(longest, count)
    noise = jax.random.uniform(key, (length.shape[0], width))
    real = jnp.arange(width)[None, :] < length[:, None]
    _, subset = jax.lax.top_k(jnp.where(real, noise, -1.0), count)
    sequence = jnp.floor(noise[:, :count] * length[:, None].astype(noise.dtype)).astype(subset.dtype)
    return jnp.where(count > length[:, None], sequence, subset)


def take_steps(
    segments: Segments, chosen: Int[Array, "M K"]
) -> tuple[Float[Array, "M K S"], Float[Array, "M K A"], Float[Array, "M K S"]]:
    """Observation, action and next observation of the chosen steps."""
    rows = chosen[:, :, None]
    return (
        jnp.take_along_axis(segments.observations, rows, axis=1),
        jnp.take_along_axis(segments.actions, rows, axis=1),
        jnp.take_along_axis(segments.observations, rows + 1, axis=1),
    )


def predict_reward(
    network: MLP,
    observation: Float[Array, "*B S"],
    action: Float[Array, "*B A"],
    next_observation: Float[Array, "*B S"],
) -> Float[Array, "*B"]:
    """r̂ = MLP([s, a, s - s'])."""
    inputs = jnp.concatenate([observation, action, observation - next_observation], axis=-1)
    return jnp.squeeze(network(inputs), axis=-1)
