"""What TD3 and those that come from it share: smoothed targets, and an actor that steps less often."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.backbones.actor_critic import DeterministicConfig, follow
from apportion.core.config import check
from apportion.core.types import Metrics
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class SmoothedConfig(DeterministicConfig):
    """The settings that they have in common."""

    smoothing_noise: float = 0.2
    """Standard deviation of the noise on the target actor's actions."""
    smoothing_clip: float = 0.5
    """The largest such noise."""
    actor_every: int = 2
    """Actor and target networks move at every so many updates of the critics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("smoothing_noise", "smoothing_clip"):
            check(getattr(self, name) >= 0, f"backbone.{name}={getattr(self, name)} must not be negative")
        check(self.actor_every >= 1, f"backbone.actor_every={self.actor_every} must be at least 1")


class State(NamedTuple):
    actor: MLP
    target_actor: MLP
    critics: MLP  # every array has a leading axis of J: two of them, one for DDPG
    target_critics: MLP
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser
    updates: Int[Array, ""]  # so many have been made


def smoothed_action(
    target_actor: MLP, observation: Float[Array, "B S"], key: PRNGKeyArray, noise: float, clip: float
) -> Float[Array, "B A"]:
    """Somewhere near the target actor's action: clip(tanh(μ'(s)) + clip(ε, ±c), ±1) with ε ~ N(0, noise²)."""
    action = jnp.tanh(target_actor(observation))
    if noise == 0:
        return action
    shift = jnp.clip(noise * jax.random.normal(key, action.shape), -clip, clip)
    return jnp.clip(action + shift, -1.0, 1.0)


def step_actor(
    state: State, loss: Callable[[MLP], Float[Array, ""]], config: SmoothedConfig
) -> tuple[State, Metrics]:
    """Every `actor_every`-th time the actor steps down a loss and all targets follow; else only the loss is
    measured."""

    def step() -> tuple[State, Array]:
        actor_loss, gradients = jax.value_and_grad(loss)(state.actor)
        actor, optimiser = optimise.step(state.actor_optimiser, state.actor, gradients)
        moved = state._replace(
            actor=actor,
            target_actor=follow(state.target_actor, actor, config.polyak),
            target_critics=follow(state.target_critics, state.critics, config.polyak),
            actor_optimiser=optimiser,
        )
        return moved, actor_loss

    def wait() -> tuple[State, Array]:
        return state, loss(state.actor)

    due = state.updates % config.actor_every == 0
    state, actor_loss = step() if config.actor_every == 1 else jax.lax.cond(due, step, wait)
    return state, {"actor_loss": actor_loss}
