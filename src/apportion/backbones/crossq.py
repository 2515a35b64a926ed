"""CrossQ (Bhatt et al., 2024): SAC with batch renormalisation, wide critics, and no target networks."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from apportion.backbones import soft
from apportion.backbones.actor_critic import values
from apportion.backbones.soft import CriticLoss, Kind, State, StochasticConfig, networks_of, soft_target
from apportion.core.config import at_least, check
from apportion.core.types import Backbone, Transitions
from apportion.nn.networks import check_layers
from apportion.nn.renorm import RenormMLP, Statistics


@dataclass(frozen=True)
class Config(StochasticConfig):
    """CrossQ: SAC with batch renormalisation and wide critics, without target networks."""

    learning_rate: float = 1e-3
    """Adam's step for all that is learned."""
    critic_hidden: tuple[int, ...] = (512, 512)
    """Hidden layers of each critic (2048 2048 as published); `hidden` are those of the actor."""
    actor_every: int = 3
    """Actor and temperature step at every so many updates of the critics."""
    momentum: float = 0.5
    """Adam's β₁, for actor and critics."""
    statistics_rate: float = 0.01
    """How far each batch moves the running statistics."""
    renorm_after: int = 100_000
    """Batches that are normalised by themselves alone, before running statistics have a say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = self.statistics_rate
        check_layers("backbone.critic_hidden", self.critic_hidden)
        at_least(self, "backbone.", actor_every=1, renorm_after=0)
        check(self.batch_size >= 2, f"backbone.batch_size={self.batch_size} must be at least 2 for crossq")
        check(0 <= self.momentum < 1, f"backbone.momentum={self.momentum} must be in [0, 1)")
        check(0 < rate <= 1, f"backbone.statistics_rate={rate} must be in (0, 1]")


def make(config: Config) -> Backbone:
    def critic_loss(
        state: State, transitions: Transitions, rewards: Array, next_action: Array, next_log_density: Array
    ) -> CriticLoss:
        now = jnp.concatenate([transitions.observation, transitions.action], axis=-1)
        after = jnp.concatenate([transitions.next_observation, next_action], axis=-1)
        inputs = jnp.concatenate([now, after])

        def loss(critics: RenormMLP) -> tuple[Array, tuple[Array, Statistics]]:
            assert state.critic_statistics is not None
            found, statistics = joint_values(critics, state.critic_statistics, inputs, config)
            found, next_values = jnp.split(found, 2, axis=1)
            judged = config.pooled(next_values)
            target = soft_target(judged, next_log_density, state, transitions, rewards, config.discount)
            errors = found - jax.lax.stop_gradient(target)[None, :]
            return jnp.sum(jnp.mean(errors**2, axis=1)), (jnp.mean(found), statistics)

        return loss

    def learning(
        actor: RenormMLP, statistics: Statistics, transitions: Transitions
    ) -> tuple[Float[Array, "B O"], Statistics]:
        rate, warmup = config.statistics_rate, config.renorm_after
        return actor.learn(transitions.observation, statistics, rate, warmup)

    kind = Kind(
        networks_of(RenormMLP.init, RenormMLP.init, config.hidden, config.critic_hidden),
        critic_loss,
        policy=RenormMLP.folded,
        learning=learning,
        judging=judging,
        momentum=config.momentum,
        actor_every=config.actor_every,
    )
    return soft.make(config, kind)


def joint_values(
    critics: RenormMLP, statistics: Statistics, inputs: Float[Array, "B I"], config: Config
) -> tuple[Float[Array, "J B"], Statistics]:
    """Q_j of every critic for one batch of (s, a) and (s', a') together, so that one normalisation serves
    both: apart they are distributed differently, and neither is what running statistics describe."""

    def learn(critic: RenormMLP, statistics: Statistics) -> tuple[Array, Statistics]:
        return critic.learn(inputs, statistics, config.statistics_rate, config.renorm_after)

    found, statistics = jax.vmap(learn)(critics, statistics)
    return jnp.squeeze(found, axis=-1), statistics


def judging(
    critics: RenormMLP, statistics: Statistics, observation: Float[Array, "B S"], action: Float[Array, "B A"]
) -> Float[Array, "J B"]:
    """Q_j(s, a) by the running statistics alone: critics that teach do not learn from the batch."""
    return values(jax.vmap(RenormMLP.folded)(critics, statistics), observation, action)
