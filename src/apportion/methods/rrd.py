"""RRD, Randomized Return Decomposition (Ren et al., ICLR 2022): long segments, seen through a few steps.

The mean reward of K random steps stands for that of the whole segment. Squaring it adds the variance of
the draw to the loss (biased), which can be estimated from the same steps and taken off (unbiased).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.config import at_least
from apportion.core.spec import Spec
from apportion.core.types import Method, Segments, Transitions
from apportion.methods import regression
from apportion.methods.regression import NetworkConfig
from apportion.nn import losses
from apportion.nn.networks import MLP


@dataclass(frozen=True)
class Config(NetworkConfig):
    """RRD: a reward network fitted to random steps of each segment; its loss is biased by the draw."""

    segments: int = 4
    """Segments (whole episodes when the reward comes at the end) per update: M. Long ones come more often."""
    unbiased: bool = False
    """Take the variance of the draw off the loss; it is then that of all steps, in expectation."""
    steps_per_segment: int = 64
    """Steps drawn from each segment: K. Without replacement, unless the segment is shorter."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # One step has no variance to estimate.
        at_least(self, "method.", steps_per_segment=2 if self.unbiased else 1)


@dataclass(frozen=True)
class UnbiasedConfig(Config):
    """RRD (unbiased): the same with the variance of the draw taken off its loss."""

    unbiased: bool = True
    """Take the variance of the draw off the loss; it is then that of all steps, in expectation."""


def make(config: Config) -> Method:
    def network(key: PRNGKeyArray, spec: Spec) -> MLP:
        return MLP.init(key, (2 * spec.observation_size + spec.action_size, *config.hidden, 1))

    def reward(network: MLP, transitions: Transitions) -> Float[Array, "*B"]:
        return predict_reward(
            network, transitions.observation, transitions.action, transitions.next_observation
        )

    return regression.build(
        config,
        network,
        lambda network, segments, key: regression.alone(reward_loss(network, segments, key, config)),
        reward=reward,
        weight="length",
    )


def reward_loss(network: MLP, segments: Segments, key: PRNGKeyArray, config: Config) -> Float[Array, ""]:
    """mean_m (mean_k r̂_k - total / T)² over K random steps; unbiased: less mean_m var_K(r̂) (1 - K/T) / K."""
    longest = segments.mask.shape[1]
    chosen = draw_steps(key, segments.length, longest, config.steps_per_segment)
    rewards = predict_reward(network, *take_steps(segments, chosen))
    loss = losses.randomized_return_loss(rewards, segments)
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
    return network.scalar(observation, action, observation - next_observation)
