"""IQL, Implicit Q-Learning (Kostrikov et al., 2022, Algorithm 1): values of the better ones among logged
actions, without asking what others would be worth."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.backbones import imitation
from apportion.backbones.actor_critic import (
    TargetConfig,
    bellman_target,
    follow,
    init_critics,
    step_critics,
    values,
)
from apportion.backbones.imitation import Actor, init_actor, log_density
from apportion.core.config import at_least, check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config(TargetConfig):
    """IQL, from logged episodes alone: weighs logged actions by how much better than usual they were."""

    expectile: float = 0.7
    """Of the values of logged actions: 0.5 is their mean, towards 1 their maximum."""
    temperature: float = 3.0
    """How strongly better actions are preferred; 0 clones behaviour."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 < self.expectile < 1, f"backbone.expectile={self.expectile} must be between 0 and 1")
        at_least(self, "backbone.", temperature=0)


class State(NamedTuple):
    actor: Actor
    value: MLP  # V(s)
    critics: MLP  # two of them: every array has a leading axis of 2
    target_critics: MLP
    actor_optimiser: Optimiser
    value_optimiser: Optimiser
    critic_optimiser: Optimiser


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor_key, value_key, critic_key = jax.random.split(key, 3)
        states, actions = spec.observation_size, spec.action_size
        actor = init_actor(actor_key, spec, config.hidden)
        value = MLP.init(value_key, (states, *config.hidden, 1))
        critics = init_critics(critic_key, 2, states + actions, config.hidden)
        return State(
            actor=actor,
            value=value,
            critics=critics,
            target_critics=jax.tree.map(jnp.copy, critics),
            actor_optimiser=optimise.start(actor, config.learning_rate),
            value_optimiser=optimise.start(value, config.learning_rate),
            critic_optimiser=optimise.start(critics, config.learning_rate),
        )

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        del key  # nothing here is drawn at random
        taken = jnp.min(values(state.target_critics, transitions.observation, transitions.action), axis=0)
        advantage = taken - state.value.scalar(transitions.observation)
        next_values = state.value.scalar(transitions.next_observation)
        target = bellman_target(rewards, transitions.terminated, next_values, config.discount)

        def off(value: MLP) -> Array:
            return expectile_loss(value, transitions.observation, taken, config.expectile)

        def unlike(actor: Actor) -> Array:
            return actor_loss_of(actor, transitions, advantage, config.temperature)

        value, value_optimiser, value_loss = optimise.descend(state.value_optimiser, state.value, off)
        actor, actor_optimiser, actor_loss = optimise.descend(state.actor_optimiser, state.actor, unlike)
        critics, critic_optimiser, metrics = step_critics(
            state.critics, state.critic_optimiser, transitions, target
        )
        targets = follow(state.target_critics, critics, config.polyak)
        optimisers = (actor_optimiser, value_optimiser, critic_optimiser)
        found = {
            "value_loss": value_loss,
            "actor_loss": actor_loss,
            "advantage": jnp.mean(advantage),
            "reward_mean": jnp.mean(rewards),
        }
        return State(actor, value, critics, targets, *optimisers), metrics | found

    return imitation.build(config, init, update)


def expectile_loss(
    value: MLP, observation: Float[Array, "B S"], taken: Float[Array, "B"], expectile: float
) -> Float[Array, ""]:
    """mean |τ - 1[u < 0]| u² with u = min_j Q'_j(s, a) - V(s)."""
    missing = taken - value.scalar(observation)
    return jnp.mean(jnp.where(missing > 0, expectile, 1 - expectile) * missing**2)


def actor_loss_of(
    actor: Actor, transitions: Transitions, advantage: Float[Array, "B"], temperature: float
) -> Float[Array, ""]:
    """- mean min(exp(β A), 100) log π(a|s)."""
    weight = jnp.minimum(jnp.exp(temperature * advantage), 100.0)
    return -jnp.mean(weight * log_density(actor, transitions.observation, transitions.action))
