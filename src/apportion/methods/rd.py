"""RD, return decomposition by least squares: equation 4 of the GRD paper (Zhang et al., NeurIPS 2023) with
every edge on, and no dynamics. RRD (Ren et al., ICLR 2022) approximates the same loss."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Segments, Transitions
from apportion.nn import losses, optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config:
    """RD: a reward network whose sum over a segment is what the segment paid."""

    segments: int = 4
    """Segments (whole episodes when the reward comes at the end) per update: M."""
    update_every: int = 1
    """Updates of the policy for one of the reward model; fewer where these do not divide an iteration's."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward network."""
    learning_rate: float = 3e-4
    """Adam's step."""

    def __post_init__(self) -> None:
        check(self.segments >= 1, f"method.segments={self.segments} must be at least 1")
        check(self.update_every >= 1, f"method.update_every={self.update_every} must be at least 1")
        check(len(self.hidden) >= 1, "method.hidden needs at least one layer")
        check(min(self.hidden) >= 1, f"method.hidden={self.hidden} must be at least 1 each")
        check(self.learning_rate > 0, f"method.learning_rate={self.learning_rate} must be positive")


class State(NamedTuple):
    network: MLP
    optimiser: Optimiser
    policy_mask: Float[Array, "S"]  # all ones


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        network = MLP.init(key, (spec.observation_size + spec.action_size, *config.hidden, 1))
        optimiser = optimise.start(network, config.learning_rate)
        return State(network, optimiser, jnp.ones(spec.observation_size))

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        segments = batch.segments
        assert segments is not None
        network, optimiser, loss = optimise.descend(
            state.optimiser, state.network, lambda network: reward_loss(network, segments)
        )
        return state._replace(network=network, optimiser=optimiser), {"reward_loss": loss}

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return predict_reward(state.network, transitions.observation, transitions.action)

    def policy_mask(state: State) -> Float[Array, "S"]:
        return state.policy_mask

    return Method(
        init, update, reward, policy_mask, None, Sampling(config.segments, "uniform", config.update_every)
    )


def reward_loss(network: MLP, segments: Segments) -> Float[Array, ""]:
    """mean_m ((Σ_t r̂_t - total) / T)², over all steps of each segment."""
    rewards = predict_reward(network, segments.observations[:, :-1], segments.actions)
    return losses.return_loss(rewards, segments.mask, segments.total, segments.length)


def predict_reward(
    network: MLP, observation: Float[Array, "*B S"], action: Float[Array, "*B A"]
) -> Float[Array, "*B"]:
    """r̂ = MLP([s, a])."""
    return jnp.squeeze(network(jnp.concatenate([observation, action], axis=-1)), axis=-1)
