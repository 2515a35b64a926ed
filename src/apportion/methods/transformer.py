"""Return decomposition by a causal transformer (Liu et al., 2019, arXiv 1905.13420): the reward of a step may
depend on all that led to it. Their sum over a segment is regressed on what the segment paid."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.config import at_least
from apportion.core.spec import Spec
from apportion.core.types import Method, Segments
from apportion.methods import regression
from apportion.methods.regression import Loss, TransformerConfig
from apportion.nn import losses
from apportion.nn.attention import Transformer
from apportion.nn.losses import tokens_of


@dataclass(frozen=True)
class Config(TransformerConfig):
    """Transformer: causal self-attention over the steps of a segment; its rewards sum to what was paid."""

    variance_penalty: float = 0.1
    """Weight of the rewards' variance within a segment: β."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "method.", variance_penalty=0)


def make(config: Config) -> Method:
    def network(key: PRNGKeyArray, spec: Spec) -> Transformer:
        inputs = spec.observation_size + spec.action_size
        sizes = {"width": config.width, "heads": config.heads, "layers": config.layers}
        return Transformer.init(key, inputs, 1, **sizes)

    def loss(network: Transformer, segments: Segments, key: PRNGKeyArray) -> Loss:
        return regression.alone(reward_loss(network, segments, config.variance_penalty))

    return regression.build(config, network, loss, last=lambda network: network.read, credit=predict_rewards)


def reward_loss(network: Transformer, segments: Segments, penalty: float) -> Float[Array, ""]:
    """mean_m [(Σ_t r̂_t - total)² + β Σ_t (r̂_t - mean r̂)²] / T².

    Both terms are squares of sums of T rewards: β means the same whatever their scale and number.
    """
    rewards = predict_rewards(network, segments)
    error = losses.return_loss(rewards, segments)
    return error + penalty * losses.reward_variance(rewards, segments)


def predict_rewards(network: Transformer, segments: Segments) -> Float[Array, "M T"]:
    """r̂_t = Transformer([s_1, a_1] ... [s_t, a_t]); 0 on padding."""
    # Padding comes last, where no real step looks. But weight 0 times a NaN there would still be NaN.
    rewards = jnp.squeeze(jax.vmap(network)(tokens_of(segments)), axis=-1)
    return jnp.where(segments.mask, rewards, 0.0)
