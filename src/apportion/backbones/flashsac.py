"""FlashSAC (2026): SAC whose networks keep their length while they learn, with categorical critics."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from apportion.backbones.actor_critic import (
    DecayConfig,
    StochasticConfig,
    TargetConfig,
    act_by_chance,
    arrays,
    check_width,
    follow,
    sample_action,
    step_temperature,
)
from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Returns, Transitions
from apportion.nn import optimise
from apportion.nn.lanes import choose, in_any_lane
from apportion.nn.optimise import Optimiser
from apportion.nn.renorm import Statistics
from apportion.nn.unit import RMS_EPSILON, FoldedResidual, UnitResidual

LARGEST_VALUE = 5.0  # values lie within ±this
BINS = 101  # that a critic spreads its probability over, evenly from end to end
LOG_STD_RANGE = (-10.0, 2.0)
TARGET_STD = 0.15  # of a Gaussian with the entropy that the temperature aims at
LONGEST_REPEAT = 16  # steps that exploration noise is kept for, at the most
STATISTICS_RATE = 0.01  # how far each batch moves the running statistics


@dataclass(frozen=True)
class Config(DecayConfig, StochasticConfig, TargetConfig):
    """FlashSAC: SAC on residual blocks with batch norm and unit-norm weights, categorical critics."""

    hidden: tuple[int, ...] = (128, 128)
    """The actor's width, once for every residual block."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """The same of each critic."""
    batch_size: int = 512
    """Transitions per update: N."""
    polyak: float = 0.01
    """How far target networks move towards those that learn, at each update."""
    initial_temperature: float = 0.01
    """Entropy temperature at the start."""
    target_entropy: float | None = None
    """The entropy the temperature aims at; that of Gaussians with a spread of 0.15 when not given."""
    actor_every: int = 2
    """Actor and temperature step at every so many updates of the critics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_width("hidden", self.hidden)
        check_width("critic_hidden", self.critic_hidden)
        check(self.batch_size >= 2, f"backbone.batch_size={self.batch_size} must be at least 2 for flashsac")
        check(self.actor_every >= 1, f"backbone.actor_every={self.actor_every} must be at least 1")

    def entropy_for(self, actions: int) -> float:
        usual = 0.5 * actions * math.log(2 * math.pi * math.e * TARGET_STD**2)
        return usual if self.target_entropy is None else self.target_entropy


class State(NamedTuple):
    actor: UnitResidual
    critics: UnitResidual  # two of them: every array has a leading axis of 2
    target_critics: UnitResidual
    actor_statistics: Statistics
    critic_statistics: Statistics  # two
    log_temperature: Float[Array, ""]
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser
    temperature_optimiser: Optimiser
    updates: Int[Array, ""]  # so many have been made
    actor_loss: Float[Array, ""]  # at the actor's latest step, and the entropy then
    entropy: Float[Array, ""]


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor_key, critic_key = jax.random.split(key)
        states, actions = spec.observation_size, spec.action_size
        actor, actor_statistics = UnitResidual.init(actor_key, (states, *config.hidden, 2 * actions))
        sizes = (states + actions, *config.critic_hidden, BINS)
        critics, statistics = jax.vmap(lambda k: UnitResidual.init(k, sizes))(jax.random.split(critic_key))
        log_temperature = jnp.asarray(math.log(config.initial_temperature), jnp.float32)
        return State(
            actor=actor,
            critics=critics,
            target_critics=jax.tree.map(jnp.copy, critics),
            actor_statistics=actor_statistics,
            critic_statistics=statistics,
            log_temperature=log_temperature,
            actor_optimiser=optimise.start(actor, config.learning_rate),
            critic_optimiser=optimise.start(critics, config.learning_rate),
            temperature_optimiser=optimise.start(log_temperature, config.learning_rate),
            updates=jnp.asarray(0, jnp.int32),
            actor_loss=jnp.zeros(()),
            entropy=jnp.zeros(()),
        )

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        actor_key, target_key = jax.random.split(key)
        due = state.updates % config.actor_every == 0
        state = jax.lax.cond(
            in_any_lane(due),
            lambda: choose(due, _update_actor(state, transitions, actor_key, config), state),
            lambda: state,
        )
        state, metrics = _update_critics(state, transitions, rewards, target_key, config)
        metrics |= {"actor_loss": state.actor_loss, "entropy": state.entropy}
        metrics |= {"temperature": jnp.exp(state.log_temperature)}
        return state._replace(updates=state.updates + 1), metrics

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        outputs = state.actor.folded(state.actor_statistics)(observation)
        return act_by_chance(bounded(outputs), key, explore)

    def actor(state: State) -> dict[str, Array]:
        """With ε among its arrays envs.acting knows it as a network of these blocks."""
        layers = arrays(state.actor.folded(state.actor_statistics).layers)
        numbers = {"rms_epsilon": RMS_EPSILON, "longest_repeat": LONGEST_REPEAT}
        return layers | {name: jnp.asarray(number, jnp.float32) for name, number in numbers.items()}

    returns = Returns(config.discount, LARGEST_VALUE)
    return Backbone(init, update, act, actor, "bounded_gaussian", config.batch_size, returns=returns)


def bounded(outputs: Float[Array, "*B O"]) -> Float[Array, "*B O"]:
    """Mean and log standard deviation of a Gaussian (O = 2A), the latter brought into its range by a tanh."""
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    low, high = LOG_STD_RANGE
    return jnp.concatenate([mean, low + (high - low) / 2 * (1 + jnp.tanh(log_std))], axis=-1)


# --- Critics


def joint_log_probabilities(
    critics: UnitResidual, statistics: Statistics, inputs: Float[Array, "B I"]
) -> tuple[Float[Array, "J B K"], Statistics]:
    """Of each bin, by every critic, for one batch of (s, a) and (s', a') together: they share statistics."""

    def learn(critic: UnitResidual, statistics: Statistics) -> tuple[Array, Statistics]:
        return critic.learn(inputs, statistics, STATISTICS_RATE)

    logits, statistics = jax.vmap(learn)(critics, statistics)
    return jax.nn.log_softmax(logits, axis=-1), statistics


def expectation(probabilities: Float[Array, "*B K"]) -> Float[Array, "*B"]:
    """Σ_k p_k z_k, the value."""
    return jnp.sum(probabilities * jnp.broadcast_to(_bins(), probabilities.shape), axis=-1)


def projected(
    probabilities: Float[Array, "B K"],
    rewards: Float[Array, "B"],
    terminated: Bool[Array, "B"],
    entropy_costs: Float[Array, "B"],
    discount: float,
) -> Float[Array, "B K"]:
    """Where the bins' probability goes when each is moved to r + γ (1 - terminated) (z - α log π), cut at the
    ends, and shared by its two neighbours among the bins in proportion to how near they are."""
    after = _bins()[None, :] - entropy_costs[:, None]
    moved = rewards[:, None] + discount * jnp.where(terminated[:, None], 0.0, after)
    width = 2 * LARGEST_VALUE / (BINS - 1)
    places = (jnp.clip(moved, -LARGEST_VALUE, LARGEST_VALUE) + LARGEST_VALUE) / width
    # As a sum over all pairs, not a scatter, whose order is left to chance on a GPU.
    distances = jnp.abs(places[:, :, None] - jnp.arange(BINS, dtype=places.dtype)[None, None, :])
    return jnp.sum(probabilities[:, :, None] * jnp.maximum(1 - distances, 0.0), axis=1)


def _bins() -> Float[Array, "K"]:
    return jnp.linspace(-LARGEST_VALUE, LARGEST_VALUE, BINS)


def _update_critics(
    state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray, config: Config
) -> tuple[State, Metrics]:
    """A step towards the projected target of whichever target critic finds (s', a') worth less."""
    actor = state.actor.folded(state.actor_statistics)
    next_action, next_log_density = sample_action(bounded(actor(transitions.next_observation)), key)
    now = jnp.concatenate([transitions.observation, transitions.action], axis=-1)
    after = jnp.concatenate([transitions.next_observation, next_action], axis=-1)
    inputs = jnp.concatenate([now, after])

    found, _ = joint_log_probabilities(state.target_critics, state.critic_statistics, inputs)
    following = _pooled(jnp.exp(jnp.split(found, 2, axis=1)[1]), config)
    costs = jnp.exp(state.log_temperature) * next_log_density
    target = projected(following, rewards, transitions.terminated, costs, config.discount)

    def loss(critics: UnitResidual) -> tuple[Array, tuple[Array, Statistics]]:
        found, statistics = joint_log_probabilities(critics, state.critic_statistics, inputs)
        found, _ = jnp.split(found, 2, axis=1)
        cross_entropy = -jnp.sum(target[None] * found, axis=-1)
        return jnp.mean(cross_entropy), (jnp.mean(expectation(jnp.exp(found))), statistics)

    step = jax.value_and_grad(loss, has_aux=True)
    (critic_loss, (value, statistics)), gradients = step(state.critics)
    share = config.rate_share(state.updates)
    critics, optimiser = optimise.step(state.critic_optimiser, state.critics, gradients, share=share)
    critics = jax.vmap(UnitResidual.unit)(critics)
    state = state._replace(
        critics=critics,
        target_critics=follow(state.target_critics, critics, config.polyak),
        critic_statistics=statistics,
        critic_optimiser=optimiser,
    )
    return state, {"critic_loss": critic_loss, "value": value, "reward_mean": jnp.mean(rewards)}


def _pooled(probabilities: Float[Array, "J B K"], config: Config) -> Float[Array, "B K"]:
    """Those of the critic whose value is the lower one, or the mean of both."""
    if config.critic_pool == "mean":
        return jnp.mean(probabilities, axis=0)
    first, second = expectation(probabilities)
    lower = jnp.broadcast_to((first <= second)[:, None], probabilities.shape[1:])
    return jnp.where(lower, probabilities[0], probabilities[1])


# --- Actor and temperature


def _update_actor(state: State, transitions: Transitions, key: PRNGKeyArray, config: Config) -> State:
    """A step of the actor, which learns from s and s' in one batch, up the critics' values at s, where they
    judge by their running statistics; then one of the temperature."""
    judges = jax.vmap(UnitResidual.folded)(state.critics, state.critic_statistics)
    observations = jnp.concatenate([transitions.observation, transitions.next_observation])

    def loss(actor: UnitResidual) -> tuple[Array, tuple[Array, Statistics]]:
        outputs, statistics = actor.learn(observations, state.actor_statistics, STATISTICS_RATE)
        action, log_density = sample_action(bounded(jnp.split(outputs, 2)[0]), key)
        worth = config.pooled(_values(judges, transitions.observation, action))
        found = jnp.mean(jnp.exp(state.log_temperature) * log_density - worth)
        return found, (-jnp.mean(log_density), statistics)

    step = jax.value_and_grad(loss, has_aux=True)
    (actor_loss, (entropy, statistics)), gradients = step(state.actor)
    share = config.rate_share(state.updates)
    actor, actor_optimiser = optimise.step(state.actor_optimiser, state.actor, gradients, share=share)
    log_temperature, temperature_optimiser = step_temperature(
        state.log_temperature,
        state.temperature_optimiser,
        entropy,
        config.entropy_for(transitions.action.shape[-1]),
        share,
    )
    return state._replace(
        actor=actor.unit(),
        actor_statistics=statistics,
        log_temperature=log_temperature,
        actor_optimiser=actor_optimiser,
        temperature_optimiser=temperature_optimiser,
        actor_loss=actor_loss,
        entropy=entropy,
    )


def _values(
    critics: FoldedResidual, observation: Float[Array, "B S"], action: Float[Array, "B A"]
) -> Float[Array, "J B"]:
    """Q_j(s, a) of every critic."""
    inputs = jnp.concatenate([observation, action], axis=-1)
    logits = jax.vmap(lambda critic: critic(inputs))(critics)
    return expectation(jax.nn.softmax(logits, axis=-1))
