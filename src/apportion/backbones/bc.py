"""Behaviour cloning: the policy that makes logged actions most likely."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones import imitation
from apportion.backbones.actor_critic import CommonConfig
from apportion.backbones.imitation import Actor, init_actor, log_density
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config(CommonConfig):
    """Behaviour cloning, from logged episodes alone: does what was done, whatever it earned."""


class State(NamedTuple):
    actor: Actor
    optimiser: Optimiser


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor = init_actor(key, spec, config.hidden)
        return State(actor, optimise.start(actor, config.learning_rate))

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        del key  # nothing here is drawn at random

        def loss(actor: Actor) -> Array:
            return -jnp.mean(log_density(actor, transitions.observation, transitions.action))

        actor, optimiser, actor_loss = optimise.descend(state.optimiser, state.actor, loss)
        return State(actor, optimiser), {"actor_loss": actor_loss, "reward_mean": jnp.mean(rewards)}

    return imitation.build(config, init, update)
