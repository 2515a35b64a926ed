"""Return decomposition by a causal transformer (Liu et al., 2019, arXiv 1905.13420): the reward of a step may
depend on all that led to it. Their sum over a segment is regressed on what the segment paid."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Segments, Transitions
from apportion.methods import regression
from apportion.methods.regression import State
from apportion.nn import losses
from apportion.nn.attention import Transformer
from apportion.nn.losses import tokens_of


@dataclass(frozen=True)
class Config:
    """Transformer: causal self-attention over the steps of a segment; its rewards sum to what was paid."""

    variance_penalty: float = 0.1
    """Weight of the rewards' variance within a segment: β."""
    segments: int = 4
    """Segments (whole episodes when the reward comes at the end) per update: M."""
    update_every: int = 10
    """Updates of the policy for one of the transformer."""
    width: int = 64
    """Numbers that stand for a step inside the network."""
    heads: int = 2
    """Attention heads; they share the width."""
    layers: int = 2
    """Layers of attention."""
    learning_rate: float = 3e-4
    """Adam's step."""

    def __post_init__(self) -> None:
        regression.check_transformer(self)
        penalty = self.variance_penalty
        check(penalty >= 0, f"method.variance_penalty={penalty} must not be negative")


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        inputs = spec.observation_size + spec.action_size
        network = Transformer.init(
            key, inputs, 1, width=config.width, heads=config.heads, layers=config.layers
        )
        return regression.start(network, config.learning_rate)

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        penalty = config.variance_penalty
        return regression.fit(state, batch, lambda network, seen: reward_loss(network, seen, penalty))

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return transitions.credit

    def credit(state: State, segments: Segments) -> Float[Array, "M T"]:
        return predict_rewards(state.network, segments)

    sampling = Sampling(config.segments, "uniform", config.update_every)
    repaid = regression.repaid_by(lambda network: network.read)
    return Method(init, update, reward, sampling, credit=credit, repaid=repaid)


def reward_loss(network: Transformer, segments: Segments, penalty: float) -> Float[Array, ""]:
    """mean_m [(Σ_t r̂_t - total)² + β Σ_t (r̂_t - mean r̂)²] / T².

    Both terms are squares of sums of T rewards: β means the same whatever their scale and number.
    """
    rewards = predict_rewards(network, segments)
    error = losses.return_loss(rewards, segments.mask, segments.total, segments.length, segments.base)
    return error + penalty * losses.reward_variance(rewards, segments.mask, segments.length)


def predict_rewards(network: Transformer, segments: Segments) -> Float[Array, "M T"]:
    """r̂_t = Transformer([s_1, a_1] ... [s_t, a_t]); 0 on padding."""
    # Padding comes last, where no real step looks. But weight 0 times a NaN there would still be NaN.
    rewards = jnp.squeeze(jax.vmap(network)(tokens_of(segments)), axis=-1)
    return jnp.where(segments.mask, rewards, 0.0)
