"""PPO, Proximal Policy Optimisation (Schulman et al., 2017): clipped steps on each rollout, its advantages by
GAE (Schulman et al., 2016). On-policy: it learns from what its own newest policy did, once."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from apportion.backbones.actor_critic import CommonConfig, arrays, bellman_target
from apportion.core.config import at_least, check, positive
from apportion.core.spec import Spec
from apportion.core.types import Acted, Backbone, Metrics, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class Config(CommonConfig):
    """PPO, on-policy, for continuous and discrete actions: clipped steps on each rollout."""

    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of each network."""
    batch_size: int = 64
    """Transitions per step down the loss."""
    epochs: int = 10
    """How often each rollout is gone through."""
    trace: float = 0.95
    """GAE's λ: how far advantages look past the value of the next state."""
    clip: float = 0.2
    """How far an action's probability may move before it stops to pay, as a ratio to 1."""
    value_weight: float = 0.5
    """Weight of the critic's loss."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy, which is rewarded."""
    largest_gradient: float = 0.5
    """Norm to which gradients are cut."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "backbone.", epochs=1, value_weight=0, entropy_weight=0)
        positive(self, "backbone.", "clip", "largest_gradient")
        check(0 <= self.trace <= 1, f"backbone.trace={self.trace} must be in [0, 1]")


class Networks(NamedTuple):
    actor: MLP  # means before the tanh, or logits of discrete actions
    critic: MLP
    log_std: Float[Array, "A"] | None  # the same everywhere; None: actions are discrete


class State(NamedTuple):
    networks: Networks
    optimiser: Optimiser


class Rollout(NamedTuple):
    """Steps with all that the loss asks of them."""

    observation: Float[Array, "B S"]
    action: Float[Array, "B A"]
    log_density: Float[Array, "B"]  # of the action, under the policy that acted
    advantage: Float[Array, "B"]
    value: Float[Array, "B"]  # what the critic is to say
    weight: Float[Array, "B"]  # 0 on padding, else 1


def make(config: Config) -> Backbone:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        actor_key, critic_key = jax.random.split(key)
        states, actions = spec.observation_size, spec.action_size
        actor = MLP.init(actor_key, (states, *config.hidden, actions))
        for layers in (actor.weights, actor.biases):
            layers[-1] = 0.01 * layers[-1]  # at the start all actions are alike
        critic = MLP.init(critic_key, (states, *config.hidden, 1))
        networks = Networks(actor, critic, None if spec.discrete else jnp.zeros(actions))
        return State(networks, optimise.start(networks, config.learning_rate))

    def update(
        state: State, transitions: Transitions, rewards: Float[Array, "B"], key: PRNGKeyArray
    ) -> tuple[State, Metrics]:
        rollout = prepared(state.networks, transitions, rewards, config)
        size = min(config.batch_size, len(rewards))
        order = jax.vmap(lambda k: jax.random.permutation(k, len(rewards)))(
            jax.random.split(key, config.epochs)
        )
        batches = order[:, : len(rewards) // size * size].reshape(-1, size)

        def step(state: State, batch: Array) -> tuple[State, Metrics]:
            return _step(state, jax.tree.map(lambda x: x[batch], rollout), config)

        state, metrics = jax.lax.scan(step, state, batches)
        means = {name: jnp.mean(values) for name, values in metrics.items()}
        return state, means | {"reward_mean": _mean(rewards, rollout.weight)}

    def act(
        state: State, observation: Float[Array, "S"], key: PRNGKeyArray, explore: bool
    ) -> Float[Array, "A"]:
        outputs, log_std = state.networks.actor(observation), state.networks.log_std
        if log_std is None:
            chosen = jax.random.categorical(key, outputs) if explore else jnp.argmax(outputs)
            return jax.nn.one_hot(chosen, outputs.shape[0], dtype=jnp.float32)
        noise = jax.random.normal(key, outputs.shape) if explore else jnp.zeros_like(outputs)
        return jnp.tanh(outputs + jnp.exp(log_std) * noise)

    def actor(state: State) -> dict[str, Array]:
        spread = {} if state.networks.log_std is None else {"log_std": state.networks.log_std}
        return arrays(state.networks.actor) | spread

    def log_density(
        state: State, observation: Float[Array, "*B S"], action: Float[Array, "*B A"]
    ) -> Float[Array, "*B"]:
        return log_densities(state.networks, observation, action)

    return Backbone(init, update, act, actor, "sampled", config.batch_size, None, log_density)


# --- The policy


def log_densities(
    networks: Networks, observation: Float[Array, "*B S"], action: Float[Array, "*B A"]
) -> Float[Array, "*B"]:
    """log π(a|s): log N(u) - Σ log(1 - a²) with a = tanh(u), or log of a discrete action's probability."""
    outputs = networks.actor(observation)
    if networks.log_std is None:
        return jnp.sum(jax.nn.log_softmax(outputs) * action, axis=-1)
    before_tanh = jnp.arctanh(jnp.clip(action, -1 + 1e-6, 1 - 1e-6))
    log_std = jnp.broadcast_to(networks.log_std, outputs.shape)
    noise = (before_tanh - outputs) * jnp.exp(-log_std)
    log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    return jnp.sum(log_normal - jnp.log1p(-(jnp.tanh(before_tanh) ** 2)), axis=-1)


def entropies(networks: Networks, observation: Float[Array, "B S"]) -> Float[Array, "B"]:
    """Of the Gaussian before its tanh, or of the choice among discrete actions, in nats."""
    if networks.log_std is None:
        logs = jax.nn.log_softmax(networks.actor(observation))
        return -jnp.sum(jnp.exp(logs) * logs, axis=-1)
    entropy = jnp.sum(networks.log_std + 0.5 * math.log(2 * math.pi * math.e))
    return jnp.broadcast_to(entropy, observation.shape[:1])


# --- Advantages


def advantages(
    errors: Float[Array, "B"], follows: Bool[Array, "B"], discount: float, trace: float
) -> Float[Array, "B"]:
    """A_t = δ_t + γ λ A_{t+1}, where the next step follows; δ_t where it does not."""

    def back(later: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        error, goes_on = x
        now = error + discount * trace * jnp.where(goes_on, later, 0.0)
        return now, now

    return jax.lax.scan(back, jnp.zeros(()), (errors, follows), reverse=True)[1]


def prepared(networks: Networks, steps: Transitions, rewards: Float[Array, "B"], config: Config) -> Rollout:
    """δ_t = r_t + γ V(s_{t+1}) - V(s_t), also where time or the rollout ends; no V after a true end."""
    # Single steps that nobody ordered are rollouts of one step, by the policy as it is.
    acted = steps.acted or Acted(
        log_density=log_densities(networks, steps.observation, steps.action),
        follows=jnp.zeros_like(steps.terminated),
        real=jnp.ones_like(steps.terminated),
    )
    now, after = (networks.critic.scalar(x) for x in (steps.observation, steps.next_observation))
    errors = bellman_target(rewards, steps.terminated, after, config.discount) - now
    found = advantages(errors, acted.follows, config.discount, config.trace)
    weight = acted.real.astype(jnp.float32)
    centred = found - _mean(found, weight)
    scaled = centred / (jnp.sqrt(_mean(centred**2, weight)) + 1e-8)
    return Rollout(steps.observation, steps.action, acted.log_density, scaled, now + found, weight)


# --- Steps


def loss(networks: Networks, batch: Rollout, config: Config) -> tuple[Float[Array, ""], Metrics]:
    """- mean min(ρ A, clip(ρ, 1 ± c) A) + w mean (V - value)² - h entropy, with ρ = π(a|s) / π_acted(a|s)."""
    change = log_densities(networks, batch.observation, batch.action) - batch.log_density
    ratio = jnp.exp(jnp.minimum(change, 20.0))  # far beyond any clip, and still a number
    near = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    actor_loss = -_mean(jnp.minimum(ratio * batch.advantage, near * batch.advantage), batch.weight)
    value = networks.critic.scalar(batch.observation)
    critic_loss = _mean((value - batch.value) ** 2, batch.weight)
    entropy = _mean(entropies(networks, batch.observation), batch.weight)
    metrics = {
        "critic_loss": critic_loss,
        "value": _mean(value, batch.weight),
        "actor_loss": actor_loss,
        "entropy": entropy,
        "clipped": _mean((ratio != near).astype(jnp.float32), batch.weight),
    }
    return actor_loss + config.value_weight * critic_loss - config.entropy_weight * entropy, metrics


def _step(state: State, batch: Rollout, config: Config) -> tuple[State, Metrics]:
    networks, optimiser, metrics = optimise.descend_with(
        state.optimiser, state.networks, lambda nets: loss(nets, batch, config), config.largest_gradient
    )
    return State(networks, optimiser), metrics


def _mean(x: Float[Array, "B"], weight: Float[Array, "B"]) -> Float[Array, ""]:
    """Over real steps."""
    return jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1.0)
