"""ReBRAC, Revisited Behavior Regularized Actor-Critic (Tarasov et al., 2023): TD3 with layer norms in the
critics, held near logged actions in both actor and critics (TD3+BC, Fujimoto and Gu, 2021)."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from apportion.backbones import deterministic
from apportion.backbones.actor_critic import values
from apportion.backbones.deterministic import State, lower_values
from apportion.core.config import at_least
from apportion.core.types import Backbone, Transitions
from apportion.nn.networks import MLP, NormedMLP


@dataclass(frozen=True)
class Config(deterministic.Config):
    """ReBRAC, from logged episodes alone: TD3 that pays for leaving logged actions. Continuous actions."""

    actor_penalty: float = 0.1
    """Of the squared distance from the logged action, in the actor's loss, where values are of size one."""
    critic_penalty: float = 0.05
    """Of the same distance after the step, in the critics' target."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "backbone.", actor_penalty=0, critic_penalty=0)


def make(config: Config) -> Backbone:
    return deterministic.build(
        config,
        partial(penalised_values, penalty=config.critic_penalty),
        partial(actor_loss, penalty=config.actor_penalty),
        critic=NormedMLP,
        offline=True,
    )


def penalised_values(
    state: State, transitions: Transitions, next_action: Float[Array, "B A"], penalty: float
) -> Float[Array, "B"]:
    """min_j Q'_j(s', a') - β₂ ‖a' - â'‖², where â' is the logged next action. Where that is not known nothing
    is taken off."""
    found = lower_values(state, transitions, next_action)
    if transitions.next_action is None:
        return found
    return found - penalty * jnp.sum((next_action - transitions.next_action) ** 2, axis=-1)


def actor_loss(actor: MLP, critics: MLP, transitions: Transitions, penalty: float) -> Float[Array, ""]:
    """mean (β₁ ‖π(s) - a‖² - min_j Q_j(s, π(s)) / mean |Q|)."""
    action = jnp.tanh(actor(transitions.observation))
    found = jnp.min(values(critics, transitions.observation, action), axis=0)
    size = jax.lax.stop_gradient(jnp.maximum(jnp.mean(jnp.abs(found)), 1e-6))
    return jnp.mean(penalty * jnp.sum((action - transitions.action) ** 2, axis=-1) - found / size)
