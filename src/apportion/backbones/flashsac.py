"""FlashSAC (2026): SAC whose networks keep their length while they learn, with categorical critics."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from apportion.backbones import soft
from apportion.backbones.actor_critic import TargetConfig, arrays, check_width
from apportion.backbones.soft import CriticLoss, Kind, State, StochasticConfig, networks_of
from apportion.core.config import at_least, check
from apportion.core.types import Backbone, Returns, Transitions
from apportion.nn.renorm import Statistics
from apportion.nn.unit import RMS_EPSILON, FoldedResidual, UnitResidual

LARGEST_VALUE = 5.0  # values lie within ±this
BINS = 101  # that a critic spreads its probability over, evenly from end to end
LOG_STD_RANGE = (-10.0, 2.0)
STATISTICS_RATE = 0.01  # how far each batch moves the running statistics


@dataclass(frozen=True)
class Config(StochasticConfig, TargetConfig):
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
    decay_updates: int | None = None
    """Updates over which the learning rate falls to its half; those of the whole training when not given."""
    actor_every: int = 2
    """Actor and temperature step at every so many updates of the critics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_width("backbone.hidden", self.hidden)
        check_width("backbone.critic_hidden", self.critic_hidden)
        check(self.batch_size >= 2, f"backbone.batch_size={self.batch_size} must be at least 2 for flashsac")
        at_least(self, "backbone.", actor_every=1, decay_updates=1)

    def entropy_for(self, actions: int) -> float:
        usual = 0.5 * actions * math.log(2 * math.pi * math.e * 0.15**2)
        return usual if self.target_entropy is None else self.target_entropy

    def rate_share(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """What is left of the learning rate after so many updates, by half a turn of a cosine from 1 to ½."""
        if self.decay_updates is None:
            return jnp.ones(())
        passed = jnp.minimum(updates.astype(jnp.float32) / self.decay_updates, 1.0)
        return 0.75 + 0.25 * jnp.cos(math.pi * passed)


class BoundedPolicy(NamedTuple):
    """A folded actor whose log standard deviations are brought into their range."""

    network: FoldedResidual

    def __call__(self, observation: Float[Array, "*B S"]) -> Float[Array, "*B O"]:
        return bounded(self.network(observation))


def make(config: Config) -> Backbone:
    def critic_loss(
        state: State, transitions: Transitions, rewards: Array, next_action: Array, next_log_density: Array
    ) -> CriticLoss:
        """Cross entropy to the projected target of whichever target critic finds (s', a') worth less."""
        now = jnp.concatenate([transitions.observation, transitions.action], axis=-1)
        after = jnp.concatenate([transitions.next_observation, next_action], axis=-1)
        inputs, statistics = jnp.concatenate([now, after]), state.critic_statistics
        assert statistics is not None
        found, _ = joint_log_probabilities(state.target_critics, statistics, inputs)
        following = _pooled(jnp.exp(jnp.split(found, 2, axis=1)[1]), config)
        costs = jnp.exp(state.log_temperature) * next_log_density
        target = projected(following, rewards, transitions.terminated, costs, config.discount)

        def loss(critics: UnitResidual) -> tuple[Array, tuple[Array, Statistics]]:
            found, now = joint_log_probabilities(critics, statistics, inputs)
            found, _ = jnp.split(found, 2, axis=1)
            cross_entropy = -jnp.sum(target[None] * found, axis=-1)
            return jnp.mean(cross_entropy), (jnp.mean(expectation(jnp.exp(found))), now)

        return loss

    kind = Kind(
        networks_of(UnitResidual.init, UnitResidual.init, config.hidden, config.critic_hidden, BINS),
        critic_loss,
        policy=lambda actor, statistics: BoundedPolicy(actor.folded(statistics)),
        learning=learning,
        judging=judging,
        arrays=_named,
        polyak=config.polyak,
        rate_share=config.rate_share,
        constrained=UnitResidual.unit,
        actor_every=config.actor_every,
        actor_first=True,
        head="bounded_gaussian",
        returns=Returns(config.discount, LARGEST_VALUE),
    )
    return soft.make(config, kind)


def _named(policy: BoundedPolicy) -> dict[str, Array]:
    """With ε among its arrays envs.acting knows it as a network of these blocks; and for how many steps
    exploration noise is kept at the most."""
    numbers = {"rms_epsilon": RMS_EPSILON, "longest_repeat": 16}
    constants = {name: jnp.asarray(number, jnp.float32) for name, number in numbers.items()}
    return arrays(policy.network.layers) | constants


def learning(
    actor: UnitResidual, statistics: Statistics, transitions: Transitions
) -> tuple[Float[Array, "B O"], Statistics]:
    """Outputs at s, of one batch with s', which has a say in its statistics."""
    observations = jnp.concatenate([transitions.observation, transitions.next_observation])
    outputs, statistics = actor.learn(observations, statistics, STATISTICS_RATE)
    return bounded(jnp.split(outputs, 2)[0]), statistics


def judging(
    critics: UnitResidual,
    statistics: Statistics,
    observation: Float[Array, "B S"],
    action: Float[Array, "B A"],
) -> Float[Array, "J B"]:
    """Q_j(s, a) by the running statistics alone: critics that teach do not learn from the batch."""
    inputs = jnp.concatenate([observation, action], axis=-1)
    folded = jax.vmap(UnitResidual.folded)(critics, statistics)
    logits = jax.vmap(lambda critic: critic(inputs))(folded)
    return expectation(jax.nn.softmax(logits, axis=-1))


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


def _pooled(probabilities: Float[Array, "J B K"], config: Config) -> Float[Array, "B K"]:
    """Those of the critic whose value is the lower one, or the mean of both."""
    if config.critic_pool == "mean":
        return jnp.mean(probabilities, axis=0)
    first, second = expectation(probabilities)
    lower = jnp.broadcast_to((first <= second)[:, None], probabilities.shape[1:])
    return jnp.where(lower, probabilities[0], probabilities[1])
