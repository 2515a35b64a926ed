"""TD3, Twin Delayed Deep Deterministic policy gradient (Fujimoto et al., 2018, Algorithm 1).

DDPG (Lillicrap et al., 2016, Algorithm 1), which it comes from, has one critic, no smoothing and no delay.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from apportion.backbones import deterministic
from apportion.backbones.actor_critic import values
from apportion.backbones.deterministic import DeterministicConfig, SmoothedConfig, lower_values
from apportion.core.types import Backbone, Transitions
from apportion.nn.networks import MLP


@dataclass(frozen=True)
class Config(SmoothedConfig):
    """TD3: twin critics, smoothed targets, a deterministic actor that steps every second time."""


@dataclass(frozen=True)
class DDPGConfig(DeterministicConfig):
    """DDPG: one critic, a deterministic actor, and targets for both."""


def make_ddpg(config: DDPGConfig) -> Backbone:
    return make(Config(**vars(config), smoothing_noise=0.0, actor_every=1), critics=1)


def make(config: Config, critics: int = 2) -> Backbone:
    return deterministic.build(config, lower_values, deterministic_loss, critics)


def deterministic_loss(actor: MLP, critics: MLP, transitions: Transitions) -> Float[Array, ""]:
    """- mean Q_1(s, tanh(μ(s))): of several critics only the first teaches the actor."""
    first = jax.tree.map(lambda array: array[:1], critics)
    return -jnp.mean(values(first, transitions.observation, jnp.tanh(actor(transitions.observation))))
