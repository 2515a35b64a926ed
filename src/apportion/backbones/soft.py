"""Soft Actor-Critic (Haarnoja et al., 2018) for networks and critics of any kind: the learner of SAC, SimBa,
CrossQ and FlashSAC. The policy is a = tanh(u), u Gaussian; a temperature holds its entropy near an aim."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.backbones.actor_critic import (
    CommonConfig,
    TargetConfig,
    arrays,
    bellman_target,
    critic_loss,
    follow,
    values,
)
from apportion.core.config import check, positive
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Returns, Transitions
from apportion.nn import optimise
from apportion.nn.lanes import choose, in_any_lane
from apportion.nn.optimise import Optimiser
from apportion.nn.renorm import Statistics

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


@dataclass(frozen=True)
class SoftConfig(StochasticConfig, TargetConfig):
    """The settings of SAC and SimBa."""

    critic_learning_rate: float | None = None
    """Adam's step for the critics; `learning_rate` when not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "backbone.", "critic_learning_rate")


# An actor and two critics, whose arrays have a leading axis of 2; running statistics of batch norms of each.
Networks = tuple[Any, Any, Statistics | None, Statistics | None]
Init = Callable[[PRNGKeyArray, tuple[int, ...]], Any]  # a network, or one with its statistics


def networks_of(
    actor: Init, critic: Init, hidden: tuple[int, ...], critic_hidden: tuple[int, ...], outputs: int = 1
) -> Callable[[PRNGKeyArray, Spec], Networks]:
    """An actor and two critics of these kinds, with these hidden layers."""

    def networks(key: PRNGKeyArray, spec: Spec) -> Networks:
        actor_key, critic_key = jax.random.split(key)
        states, actions = spec.observation_size, spec.action_size
        acts = actor(actor_key, (states, *hidden, 2 * actions))
        sizes = (states + actions, *critic_hidden, outputs)
        judge = jax.vmap(lambda k: critic(k, sizes))(jax.random.split(critic_key))
        if not isinstance(acts, tuple):
            return acts, judge, None, None
        return acts[0], judge[0], acts[1], judge[1]

    return networks


class State(NamedTuple):
    actor: Any
    critics: Any
    actor_statistics: Statistics | None
    critic_statistics: Statistics | None
    target_critics: Any  # None: critics are their own targets
    log_temperature: Float[Array, ""]
    actor_optimiser: Optimiser
    critic_optimiser: Optimiser
    temperature_optimiser: Optimiser
    updates: Int[Array, ""]  # so many have been made
    actor_loss: Float[Array, ""]  # at the actor's latest step, and the entropy then; 0 before the first
    entropy: Float[Array, ""]


Policy = Any  # from observations to means and log standard deviations
CriticLoss = Callable[[Any], tuple[Float[Array, ""], tuple[Float[Array, ""], Statistics | None]]]


class Kind(NamedTuple):
    """What makes one soft actor-critic another than SAC.

    `critic_loss` comes from a state, steps and their rewards, and what the policy does next, with log
    densities. `policy` is an actor with its statistics, as it acts; `learning` gives its outputs for a batch
    that it learns from, and new statistics; `judging` is Q_j(s, a) by critics with theirs, to teach it.
    """

    networks: Callable[[PRNGKeyArray, Spec], Networks]
    critic_loss: Callable[[State, Transitions, Float[Array, "B"], Array, Array], CriticLoss]
    policy: Callable[..., Policy] = lambda actor, statistics: actor
    learning: Callable[..., tuple[Any, Any]] = lambda actor, statistics, steps: (
        actor(steps.observation),
        statistics,
    )
    judging: Callable[..., Float[Array, "J B"]] = lambda critics, statistics, *of: values(critics, *of)
    arrays: Callable[[Any], dict[str, Array]] = arrays  # a policy's, under the names of envs.acting
    polyak: float | None = None  # None: no target networks
    critic_learning_rate: float | None = None  # None: that of the actor
    weight_decay: float | None = None  # of actor and critics
    momentum: float = optimise.MOMENTUM
    rate_share: Callable[[Array], Array | None] = lambda updates: None  # of the rate, by updates so far
    constrained: Callable[[Any], Any] = lambda network: network  # brings one back to where it may be
    actor_every: int = 1
    actor_first: bool = False
    head: str = "tanh_gaussian"
    returns: Returns | None = None


def make(config: StochasticConfig, kind: Kind) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor, critics, actor_statistics, critic_statistics = kind.networks(key, spec)
        log_temperature = jnp.asarray(math.log(config.initial_temperature), jnp.float32)
        rate, decay = config.learning_rate, kind.weight_decay
        critic_rate = rate if kind.critic_learning_rate is None else kind.critic_learning_rate
        return State(
            actor,
            critics,
            actor_statistics,
            critic_statistics,
            target_critics=None if kind.polyak is None else jax.tree.map(jnp.copy, critics),
            log_temperature=log_temperature,
            actor_optimiser=optimise.start(actor, rate, decay),
            critic_optimiser=optimise.start(critics, critic_rate, decay),
            temperature_optimiser=optimise.start(log_temperature, rate),
            updates=jnp.asarray(0, jnp.int32),
            actor_loss=jnp.zeros(()),
            entropy=jnp.zeros(()),
        )

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        first_key, second_key = jax.random.split(key)
        if kind.actor_first:
            state = step_actor_if_due(state, transitions, first_key, config, kind)
            state, metrics = step_critics(state, transitions, rewards, second_key, kind)
        else:
            state, metrics = step_critics(state, transitions, rewards, first_key, kind)
            state = step_actor_if_due(state, transitions, second_key, config, kind)
        metrics |= {
            "reward_mean": jnp.mean(rewards),
            "actor_loss": state.actor_loss,
            "entropy": state.entropy,
            "temperature": jnp.exp(state.log_temperature),
        }
        return state._replace(updates=state.updates + 1), metrics

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        """A sampled action; without exploring, the tanh of the mean."""
        mean, log_std = gaussian(kind.policy(state.actor, state.actor_statistics)(observation))
        noise = jax.random.normal(key, mean.shape) if explore else jnp.zeros_like(mean)
        return jnp.tanh(mean + jnp.exp(log_std) * noise)

    def actor(state: State) -> dict[str, Array]:
        return kind.arrays(kind.policy(state.actor, state.actor_statistics))

    return Backbone(init, update, act, actor, kind.head, config.batch_size, returns=kind.returns)


# --- The three steps


def step_critics(
    state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray, kind: Kind
) -> tuple[State, Metrics]:
    policy = kind.policy(state.actor, state.actor_statistics)
    following = sample_action(policy(transitions.next_observation), key)
    loss = kind.critic_loss(state, transitions, rewards, *following)
    (found, (value, statistics)), gradients = jax.value_and_grad(loss, has_aux=True)(state.critics)
    critics, optimiser = _step(kind, state, state.critic_optimiser, state.critics, gradients)
    critics = jax.vmap(kind.constrained)(critics)
    state = state._replace(critics=critics, critic_statistics=statistics, critic_optimiser=optimiser)
    if kind.polyak is not None:
        state = state._replace(target_critics=follow(state.target_critics, critics, kind.polyak))
    return state, {"critic_loss": found, "value": value}


def soft_target(
    next_values: Float[Array, "B"],
    next_log_density: Float[Array, "B"],
    state: State,
    transitions: Transitions,
    rewards: Float[Array, "B"],
    discount: float,
) -> Float[Array, "B"]:
    """r + γ (Q(s', a') - α log π(a'|s'))."""
    soft_values = next_values - jnp.exp(state.log_temperature) * next_log_density
    return bellman_target(rewards, transitions.terminated, soft_values, discount)


def regression(config: StochasticConfig) -> Callable[..., CriticLoss]:
    """Σ_j mean (Q_j(s, a) - target)², the target by slow copies of the critics: SAC's loss, and SimBa's."""

    def of(
        state: State, transitions: Transitions, rewards: Array, next_action: Array, next_log_density: Array
    ) -> CriticLoss:
        after = config.pooled(values(state.target_critics, transitions.next_observation, next_action))
        target = soft_target(after, next_log_density, state, transitions, rewards, config.discount)

        def loss(critics: Any) -> tuple[Array, tuple[Array, None]]:
            found, mean = critic_loss(critics, transitions, target)
            return found, (mean, None)

        return loss

    return of


def step_actor_if_due(
    state: State, transitions: Transitions, key: PRNGKeyArray, config: StochasticConfig, kind: Kind
) -> State:
    """At every so many updates, the last of which is this one; or the first, where the actor comes first."""
    if kind.actor_every == 1:
        return step_actor(state, transitions, key, config, kind)
    updates = state.updates if kind.actor_first else state.updates + 1
    due = updates % kind.actor_every == 0
    return jax.lax.cond(
        in_any_lane(due),
        lambda: choose(due, step_actor(state, transitions, key, config, kind), state),
        lambda: state,
    )


def step_actor(
    state: State, transitions: Transitions, key: PRNGKeyArray, config: StochasticConfig, kind: Kind
) -> State:
    """A step down mean (α log π(a|s) - Q(s, a)), and one of the temperature."""

    def loss(actor: Any) -> tuple[Array, tuple[Array, Statistics | None]]:
        outputs, statistics = kind.learning(actor, state.actor_statistics, transitions)
        action, log_density = sample_action(outputs, key)
        judged = kind.judging(state.critics, state.critic_statistics, transitions.observation, action)
        found = jnp.mean(jnp.exp(state.log_temperature) * log_density - config.pooled(judged))
        return found, (-jnp.mean(log_density), statistics)

    (actor_loss, (entropy, statistics)), gradients = jax.value_and_grad(loss, has_aux=True)(state.actor)
    actor, optimiser = _step(kind, state, state.actor_optimiser, state.actor, gradients)
    state = state._replace(
        actor=kind.constrained(actor),
        actor_statistics=statistics,
        actor_optimiser=optimiser,
        actor_loss=actor_loss,
        entropy=entropy,
    )
    return step_temperature(state, config.entropy_for(transitions.action.shape[-1]), kind)


def step_temperature(state: State, target_entropy: float, kind: Kind) -> State:
    """One step down α (entropy - target entropy), in log α: more randomness where there is too little."""
    gradient = jax.grad(lambda log_alpha: jnp.exp(log_alpha) * (state.entropy - target_entropy))(
        state.log_temperature
    )
    share = kind.rate_share(state.updates)
    log_temperature, optimiser = optimise.step(
        state.temperature_optimiser, state.log_temperature, gradient, share=share
    )
    return state._replace(log_temperature=log_temperature, temperature_optimiser=optimiser)


def _step(
    kind: Kind, state: State, optimiser: Optimiser, network: Any, gradients: Any
) -> tuple[Any, Optimiser]:
    return optimise.step(optimiser, network, gradients, kind.momentum, kind.rate_share(state.updates))


# --- The policy


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
