"""DQN, Deep Q-Network (Mnih et al., 2015), with double targets (van Hasselt et al., 2016) from twin networks
(Fujimoto et al., 2018)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.backbones.actor_critic import (
    TargetConfig,
    arrays,
    bellman_target,
    first,
    follow,
    init_critics,
    step_critics,
)
from apportion.core.config import at_least, check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config(TargetConfig):
    """DQN, for discrete actions: a value for each, twin networks, random actions now and then."""

    initial_epsilon: float = 1.0
    """Share of random actions while collecting, at the first update."""
    final_epsilon: float = 0.05
    """The same after `exploration_updates`."""
    exploration_updates: int = 10_000
    """Updates over which that share falls, along a straight line."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("initial_epsilon", "final_epsilon"):
            value = getattr(self, name)
            check(0 <= value <= 1, f"backbone.{name}={value} must be in [0, 1]")
        at_least(self, "backbone.", exploration_updates=1)


class State(NamedTuple):
    networks: MLP  # two, with a leading axis: each gives a value for each action; the first one acts
    target_networks: MLP
    optimiser: Optimiser
    updates: Int[Array, ""]  # so many have been made


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        networks = init_critics(key, 2, spec.observation_size, config.hidden, spec.action_size)
        return State(
            networks=networks,
            target_networks=jax.tree.map(jnp.copy, networks),
            optimiser=optimise.start(networks, config.learning_rate),
            updates=jnp.asarray(0, jnp.int32),
        )

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        del key  # nothing here is drawn at random
        next_values = double_values(state.networks, state.target_networks, transitions.next_observation)
        target = bellman_target(rewards, transitions.terminated, next_values, config.discount)
        networks, optimiser, metrics = step_critics(
            state.networks, state.optimiser, transitions, target, _taken
        )
        metrics |= {"reward_mean": jnp.mean(rewards), "epsilon": epsilon(state.updates, config)}
        targets = follow(state.target_networks, networks, config.polyak)
        return State(networks, targets, optimiser, state.updates + 1), metrics

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        found = first(state.networks)(observation)
        action = jnp.argmax(found)
        if explore:
            chance_key, action_key = jax.random.split(key)
            anything = jax.random.randint(action_key, (), 0, found.shape[0])
            chance = jax.random.uniform(chance_key) < epsilon(state.updates, config)
            action = jnp.where(chance, anything, action)
        return jax.nn.one_hot(action, found.shape[0], dtype=jnp.float32)

    def actor(state: State) -> dict[str, Array]:
        return arrays(first(state.networks)) | {"epsilon": epsilon(state.updates, config)}

    return Backbone(init, update, act, actor, "epsilon_greedy", config.batch_size, discrete=True)


def double_values(networks: MLP, target_networks: MLP, observation: Float[Array, "B S"]) -> Float[Array, "B"]:
    """min_j Q'_j(s, argmax_a Q_1(s, a)): one network chooses the action, the slow copies of both judge it."""
    best = jax.nn.one_hot(jnp.argmax(first(networks)(observation), axis=-1), networks.biases[-1].shape[-1])
    return jnp.min(_taken(target_networks, observation, best), axis=0)


def _taken(
    networks: MLP, observation: Float[Array, "B S"], action: Float[Array, "B A"]
) -> Float[Array, "J B"]:
    """Q_j(s, a) of both: actions are one-hot, so it is a product."""
    return jnp.sum(jax.vmap(lambda network: network(observation))(networks) * action[None], axis=-1)


def epsilon(updates: Int[Array, ""], config: Config) -> Float[Array, ""]:
    """The share of random actions after so many updates."""
    passed = jnp.minimum(updates.astype(jnp.float32) / config.exploration_updates, 1.0)
    return config.initial_epsilon + passed * (config.final_epsilon - config.initial_epsilon)
