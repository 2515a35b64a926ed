"""RBT, Reward Bag Transformer (Tang et al., Reinforcement Learning from Bagged Reward, TMLR 2025).

A causal transformer reads a segment, there called a bag, and foretells the next state; then every step looks
at all others, before and after it, and gets its reward. The rewards' sum is regressed on what was paid.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from equinox import Module
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.core.config import at_least
from apportion.core.spec import Spec
from apportion.core.types import Method, Segments
from apportion.methods import regression
from apportion.methods.regression import Loss, TransformerConfig
from apportion.nn import losses
from apportion.nn.attention import Layer, Transformer
from apportion.nn.losses import masked_mean, tokens_of
from apportion.nn.networks import MLP, normalise


@dataclass(frozen=True)
class Config(TransformerConfig):
    """RBT: a transformer that looks back and ahead over a segment, and foretells the next state besides."""

    state_weight: float = 1.0
    """Weight of the error of the foretold next state beside that of the sum: β."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "method.", state_weight=0)


class BagTransformer(Module):
    """From a token for each step to a reward for each, and to the state that each leads to."""

    reader: Transformer
    both_ways: Layer
    to_reward: MLP
    to_state: MLP

    @staticmethod
    def init(
        key: PRNGKeyArray, states: int, actions: int, *, width: int, heads: int, layers: int
    ) -> "BagTransformer":
        reader_key, layer_key, reward_key, state_key = jax.random.split(key, 4)
        return BagTransformer(
            reader=Transformer.init(
                reader_key, states + actions, width, width=width, heads=heads, layers=layers
            ),
            both_ways=Layer.init(layer_key, width, heads),
            to_reward=MLP.init(reward_key, (width, width, 1)),
            to_state=MLP.init(state_key, (width, width, states)),
        )

    def __call__(
        self, tokens: Float[Array, "T I"], length: Int[Array, ""]
    ) -> tuple[Float[Array, "T"], Float[Array, "T S"]]:
        """r̂_t, which knows all of so many steps, and the foretold s_{t+1}, which knows none after t."""
        read = self.reader(tokens)
        seen = self.both_ways(read, length)
        return jnp.squeeze(self.to_reward(normalise(seen)), axis=-1), self.to_state(normalise(read))


def make(config: Config) -> Method:
    def network(key: PRNGKeyArray, spec: Spec) -> BagTransformer:
        sizes = {"width": config.width, "heads": config.heads, "layers": config.layers}
        return BagTransformer.init(key, spec.observation_size, spec.action_size, **sizes)

    def loss(network: BagTransformer, segments: Segments, key: PRNGKeyArray) -> Loss:
        reward_loss, state_loss = bag_losses(network, segments)
        metrics = {"reward_loss": reward_loss, "state_loss": state_loss}
        return reward_loss + config.state_weight * state_loss, metrics

    def credit(network: BagTransformer, segments: Segments) -> Float[Array, "M T"]:
        return predict(network, segments)[0]

    return regression.build(config, network, loss, last=lambda network: network.to_reward, credit=credit)


def bag_losses(network: BagTransformer, segments: Segments) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """mean_m ((Σ_t r̂_t - total) / T)², and the mean square of what was foretold wrong of s_{t+1}."""
    rewards, foretold = predict(network, segments)
    reached = jnp.where(segments.mask[:, :, None], segments.observations[:, 1:], 0.0)
    errors = jnp.mean((foretold - reached) ** 2, axis=-1)
    reward_loss = losses.return_loss(rewards, segments)
    return reward_loss, masked_mean(errors.ravel(), segments.mask.ravel())


def predict(network: BagTransformer, segments: Segments) -> tuple[Float[Array, "M T"], Float[Array, "M T S"]]:
    """Rewards, 0 on padding, and foretold next states."""
    # A place without any step, as memories have, is read as if it had one: nothing comes of it.
    rewards, foretold = jax.vmap(network)(tokens_of(segments), jnp.maximum(segments.length, 1))
    return jnp.where(segments.mask, rewards, 0.0), foretold
