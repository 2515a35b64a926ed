"""SAC, Soft Actor-Critic (Haarnoja et al., 2018): twin critics, tanh-Gaussian actor, learned temperature."""

from dataclasses import dataclass

import jax
from jaxtyping import PRNGKeyArray

from apportion.backbones.actor_critic import arrays, init_critics
from apportion.backbones.soft import SoftConfig, make_soft
from apportion.core.spec import Spec
from apportion.core.types import Backbone
from apportion.nn.networks import MLP, NormedMLP


@dataclass(frozen=True)
class Config(SoftConfig):
    """SAC: twin critics, tanh-Gaussian actor, learned temperature."""

    critic_norm: bool = False
    """A layer norm in each hidden layer of the critics: they promise less where nobody has been."""


def make(config: Config) -> Backbone:
    critic = NormedMLP if config.critic_norm else MLP

    def networks(key: PRNGKeyArray, spec: Spec) -> tuple[MLP, MLP]:
        actor_key, critic_key = jax.random.split(key)
        states, actions = spec.observation_size, spec.action_size
        actor = MLP.init(actor_key, (states, *config.hidden, 2 * actions))
        return actor, init_critics(critic_key, 2, states + actions, config.hidden, kind=critic)

    return make_soft(config, networks, arrays)
