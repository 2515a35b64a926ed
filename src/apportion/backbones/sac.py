"""SAC, Soft Actor-Critic (Haarnoja et al., 2018): twin critics, tanh-Gaussian actor, learned temperature."""

from dataclasses import dataclass

from apportion.backbones import soft
from apportion.backbones.soft import Kind, SoftConfig, networks_of, regression
from apportion.core.types import Backbone
from apportion.nn.networks import MLP, NormedMLP


@dataclass(frozen=True)
class Config(SoftConfig):
    """SAC: twin critics, tanh-Gaussian actor, learned temperature."""

    critic_norm: bool = False
    """A layer norm in each hidden layer of the critics: they promise less where nobody has been."""


def make(config: Config) -> Backbone:
    critic = NormedMLP.init if config.critic_norm else MLP.init
    kind = Kind(
        networks_of(MLP.init, critic, config.hidden, config.hidden),
        regression(config),
        polyak=config.polyak,
        critic_learning_rate=config.critic_learning_rate,
    )
    return soft.make(config, kind)
