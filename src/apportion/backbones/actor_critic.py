"""What actor-critic backbones share: critics and their targets, actors of both kinds, arrays for workers."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser
from apportion.nn.residual import ResidualMLP

Network = MLP | ResidualMLP
AnyNetwork = TypeVar("AnyNetwork", bound=Network)
Weights = TypeVar("Weights")


@dataclass(frozen=True)
class CommonConfig:
    """The settings that all of these backbones have."""

    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of each network."""
    learning_rate: float = 3e-4
    """Adam's step for all that is learned."""
    batch_size: int = 256
    """Transitions per update: N."""
    discount: float = 0.99
    """Discount of later rewards (the return itself is a plain sum)."""

    def __post_init__(self) -> None:
        check_layers("hidden", self.hidden)
        check(self.learning_rate > 0, f"backbone.learning_rate={self.learning_rate} must be positive")
        check(self.batch_size >= 1, f"backbone.batch_size={self.batch_size} must be at least 1")
        check(0 <= self.discount < 1, f"backbone.discount={self.discount} must be in [0, 1)")


def check_layers(name: str, layers: tuple[int, ...]) -> None:
    """Complain of a setting that is no list of hidden layers."""
    check(len(layers) >= 1, f"backbone.{name} needs at least one layer")
    check(min(layers) >= 1, f"backbone.{name}={layers} must be at least 1 each")


def check_width(name: str, layers: tuple[int, ...]) -> None:
    """Complain of a setting that is not the width of residual blocks, once for every block."""
    check_layers(name, layers)
    check(len(set(layers)) == 1, f"backbone.{name}={layers} must be the same width for every block")


@dataclass(frozen=True)
class DecayConfig(CommonConfig):
    """The settings of those whose learning rate falls."""

    decay_updates: int | None = None
    """Updates over which the learning rate falls to its half; those of the whole training when not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        updates = self.decay_updates
        check(updates is None or updates >= 1, f"backbone.decay_updates={updates} must be at least 1")

    def rate_share(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """What is left of the learning rate after so many updates, by half a turn of a cosine from 1 to ½."""
        if self.decay_updates is None:
            return jnp.ones(())
        passed = jnp.minimum(updates.astype(jnp.float32) / self.decay_updates, 1.0)
        return 0.75 + 0.25 * jnp.cos(math.pi * passed)


@dataclass(frozen=True)
class TargetConfig(CommonConfig):
    """The settings of those with target networks."""

    polyak: float = 0.005
    """How far target networks move towards those that learn, each time they move."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 < self.polyak <= 1, f"backbone.polyak={self.polyak} must be in (0, 1]")


# --- Critics: one network whose arrays have a leading axis of J, the number of critics


def init_critics(
    key: PRNGKeyArray,
    count: int,
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int = 1,
    kind: type[MLP] = MLP,
) -> MLP:
    return jax.vmap(lambda k: kind.init(k, (inputs, *hidden, outputs)))(jax.random.split(key, count))


def first(critics: MLP) -> MLP:
    """One of them, as a network of its own."""
    return jax.tree.map(lambda array: array[0], critics)


def values(
    critics: Network, observation: Float[Array, "B S"], action: Float[Array, "B A"]
) -> Float[Array, "J B"]:
    """Q_j(s, a) of every critic."""
    inputs = jnp.concatenate([observation, action], axis=-1)
    return jnp.squeeze(jax.vmap(lambda critic: critic(inputs))(critics), axis=-1)


def bellman_target(
    rewards: Float[Array, "B"],
    terminated: Bool[Array, "B"],
    next_values: Float[Array, "B"],
    discount: float,
) -> Float[Array, "B"]:
    """r + γ V(s'), where a true end has no s'; a time limit has."""
    return rewards + discount * jnp.where(terminated, 0.0, next_values)


def step_critics(
    critics: AnyNetwork, optimiser: Optimiser, transitions: Transitions, target: Float[Array, "B"]
) -> tuple[AnyNetwork, Optimiser, Metrics]:
    """One step down Σ_j mean (Q_j(s, a) - target)²."""

    def loss(critics: AnyNetwork) -> tuple[Array, Array]:
        found = values(critics, transitions.observation, transitions.action)
        return jnp.sum(jnp.mean((found - target[None, :]) ** 2, axis=1)), jnp.mean(found)

    (value_loss, mean_value), gradients = jax.value_and_grad(loss, has_aux=True)(critics)
    critics, optimiser = optimise.step(optimiser, critics, gradients)
    return critics, optimiser, {"critic_loss": value_loss, "value": mean_value}


def follow(target: Weights, network: Weights, polyak: float) -> Weights:
    """θ' + polyak (θ - θ')."""
    moved: Weights = jax.tree.map(lambda t, n: t + polyak * (n - t), target, network)
    return moved


# --- Deterministic actors: a = tanh(μ(s))


@dataclass(frozen=True)
class DeterministicConfig(TargetConfig):
    """The settings of backbones whose actor is a function, and explores by noise."""

    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions while collecting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        noise = self.exploration_noise
        check(noise >= 0, f"backbone.exploration_noise={noise} must not be negative")


class Deterministic(NamedTuple):
    """What they learn."""

    actor: MLP
    target_actor: MLP
    critics: MLP  # every array has a leading axis of J
    target_critics: MLP
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser


def init_deterministic(
    key: PRNGKeyArray, spec: Spec, count: int, config: DeterministicConfig, kind: type[MLP] = MLP
) -> Deterministic:
    """An actor and so many critics of a kind; the targets start as their copies."""
    actor_key, critic_key = jax.random.split(key)
    states, actions = spec.observation_size, spec.action_size
    actor = MLP.init(actor_key, (states, *config.hidden, actions))
    critics = init_critics(critic_key, count, states + actions, config.hidden, kind=kind)
    return Deterministic(
        actor=actor,
        target_actor=jax.tree.map(jnp.copy, actor),
        critics=critics,
        target_critics=jax.tree.map(jnp.copy, critics),
        actor_optimiser=optimise.start(actor, config.learning_rate),
        critic_optimiser=optimise.start(critics, config.learning_rate),
    )


def act_with_noise(
    actor: MLP, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool, noise: float
) -> Float[Array, "A"]:
    """The action; to explore, Gaussian noise is added and the sum clipped to [-1, 1]."""
    action = jnp.tanh(actor(observation))
    if not explore:
        return action
    return jnp.clip(action + noise * jax.random.normal(key, action.shape), -1.0, 1.0)


def deterministic_loss(actor: MLP, critics: MLP, observation: Float[Array, "B S"]) -> Float[Array, ""]:
    """- mean Q_1(s, tanh(μ(s))): of several critics only the first teaches the actor."""
    first = jax.tree.map(lambda array: array[:1], critics)
    return -jnp.mean(values(first, observation, jnp.tanh(actor(observation))))


# --- Stochastic actors: a = tanh(u), u Gaussian; the network gives its mean and log standard deviation

LOG_STD_RANGE = (-20.0, 2.0)


@dataclass(frozen=True)
class StochasticConfig(CommonConfig):
    """The settings of backbones whose actor is a distribution, with entropy as a second aim."""

    initial_temperature: float = 1.0
    """Entropy temperature at the start."""
    target_entropy: float | None = None
    """The entropy the temperature aims at; minus the number of actions when not given."""
    critic_pool: Literal["min", "mean"] = "min"
    """What becomes of two critics' values: the lower one, or their mean. The lower one is a little too low,
    which adds up over 1/(1 - discount) steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.initial_temperature > 0, "backbone.initial_temperature must be positive")

    def entropy_for(self, actions: int) -> float:
        """What so many actions aim at."""
        return -float(actions) if self.target_entropy is None else self.target_entropy

    def pooled(self, values: Float[Array, "J B"]) -> Float[Array, "B"]:
        """One value of each step, from those of all critics."""
        return jnp.min(values, axis=0) if self.critic_pool == "min" else jnp.mean(values, axis=0)


def gaussian(outputs: Float[Array, "*B O"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B A"]]:
    """Mean and log standard deviation before the tanh, from a network's outputs (O = 2A)."""
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def sample_action(
    outputs: Float[Array, "B O"], key: PRNGKeyArray
) -> tuple[Float[Array, "B A"], Float[Array, "B"]]:
    """An action a = tanh(u), u Gaussian, and its log density log N(u) - Σ log(1 - tanh(u)²)."""
    mean, log_std = gaussian(outputs)
    noise = jax.random.normal(key, mean.shape)
    before_tanh = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(u)²) = 2 (log 2 - u - softplus(-2u)), which stays finite for large |u|.
    squash = 2 * (math.log(2) - before_tanh - jax.nn.softplus(-2 * before_tanh))
    return jnp.tanh(before_tanh), jnp.sum(log_normal - squash, axis=-1)


def act_by_chance(outputs: Float[Array, "O"], key: PRNGKeyArray, explore: bool) -> Float[Array, "A"]:
    """A sampled action; without exploring, the tanh of the mean."""
    mean, log_std = gaussian(outputs)
    noise = jax.random.normal(key, mean.shape) if explore else jnp.zeros_like(mean)
    return jnp.tanh(mean + jnp.exp(log_std) * noise)


def step_temperature(
    log_temperature: Float[Array, ""],
    optimiser: Optimiser,
    entropy: Float[Array, ""],
    target_entropy: float,
    share: Float[Array, ""] | None = None,
) -> tuple[Float[Array, ""], Optimiser]:
    """One step down α (entropy - target entropy), in log α: more randomness where there is too little."""
    gradient = jax.grad(lambda log_alpha: jnp.exp(log_alpha) * (entropy - target_entropy))(log_temperature)
    return optimise.step(optimiser, log_temperature, gradient, share=share)


# --- Workers


def noisy_arrays(actor: MLP, noise: float) -> dict[str, Array]:
    """A deterministic actor's layers, and the size of the noise it explores by."""
    return arrays(actor) | {"noise": jnp.asarray(noise, jnp.float32)}


def arrays(actor: MLP) -> dict[str, Array]:
    """An actor's layers under the names that envs.acting knows them by."""
    layers = enumerate(zip(actor.weights, actor.biases, strict=True))
    return {name: array for i, (w, b) in layers for name, array in ((f"w{i}", w), (f"b{i}", b))}
