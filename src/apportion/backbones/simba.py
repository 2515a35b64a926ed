"""SimBa (Lee et al., 2025): SAC on residual blocks with layer norm, wide critics and weight decay."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array

from apportion.backbones import soft
from apportion.backbones.actor_critic import arrays, check_width
from apportion.backbones.soft import Kind, SoftConfig, networks_of, regression
from apportion.core.config import at_least
from apportion.core.types import Backbone
from apportion.nn.networks import NORM_EPSILON
from apportion.nn.residual import ResidualMLP


@dataclass(frozen=True)
class Config(SoftConfig):
    """SimBa: SAC on residual blocks with layer norm, wide critics and weight decay."""

    hidden: tuple[int, ...] = (128,)
    """The actor's width, once for every residual block."""
    critic_hidden: tuple[int, ...] = (512, 512)
    """The same of each critic."""
    learning_rate: float = 1e-4
    """Adam's step for all that is learned."""
    initial_temperature: float = 0.01
    """Entropy temperature at the start."""
    target_entropy: float | None = None
    """The entropy the temperature aims at; minus half the number of actions when not given."""
    weight_decay: float = 1e-2
    """What a step takes from the weights of actor and critics, in units of the learning rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_width("backbone.hidden", self.hidden)
        check_width("backbone.critic_hidden", self.critic_hidden)
        at_least(self, "backbone.", weight_decay=0)

    def entropy_for(self, actions: int) -> float:
        return -actions / 2 if self.target_entropy is None else self.target_entropy


def make(config: Config) -> Backbone:
    kind = Kind(
        networks_of(ResidualMLP.init, ResidualMLP.init, config.hidden, config.critic_hidden),
        regression(config),
        arrays=_named,
        polyak=config.polyak,
        critic_learning_rate=config.critic_learning_rate,
        weight_decay=config.weight_decay,
    )
    return soft.make(config, kind)


def _named(actor: ResidualMLP) -> dict[str, Array]:
    """With ε among its arrays envs.acting knows it as a network of residual blocks."""
    return arrays(actor.layers()) | {"norm_epsilon": jnp.asarray(NORM_EPSILON, jnp.float32)}
