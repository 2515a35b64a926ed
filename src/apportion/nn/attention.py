"""A small transformer (pre-norm) as an Equinox module of arrays only, in memory that grows like T.

Plain attention holds T² weights for each head. Here a few queries at a time look back over all keys, and the
way back computes their weights again instead of keeping them. `jax.nn.dot_product_attention` does not serve:
on a CPU it makes the T² weights, and its cuDNN form takes half precision only.
"""

import math

import jax
import jax.numpy as jnp
from equinox import Module
from jaxtyping import Array, Float, Int, PRNGKeyArray

from apportion.nn.networks import MLP, init_dense, normalise

BLOCK = 128  # queries at a time: enough to fill a device, and little memory beside the activations


def block_attention(
    query: Float[Array, "T H"],
    key: Float[Array, "T H"],
    value: Float[Array, "T H"],
    length: Int[Array, ""] | None = None,
    block: int = BLOCK,
) -> Float[Array, "T H"]:
    """Σ_u softmax_u(q_t · k_u / √H) v_u: each step looks at itself and at those before it (u <= t); where a
    length is given, at all of so many steps (u < length)."""
    steps, size = query.shape
    block = min(block, steps)
    padding = -steps % block
    blocks = jnp.pad(query, ((0, padding), (0, 0))).reshape(-1, block, size)

    @jax.checkpoint
    def attend(start_and_queries: tuple[Int[Array, ""], Float[Array, "Q H"]]) -> Float[Array, "Q H"]:
        start, queries = start_and_queries
        last_seen = start + jnp.arange(block) if length is None else jnp.full(block, length - 1)
        seen = jnp.arange(steps)[None, :] <= last_seen[:, None]
        logits = jnp.where(seen, queries @ key.T / math.sqrt(size), -jnp.inf)
        return jax.nn.softmax(logits, axis=-1) @ value

    starts = block * jnp.arange(blocks.shape[0])
    return jax.lax.map(attend, (starts, blocks)).reshape(-1, size)[:steps]


def positions(steps: int, width: int) -> Float[Array, "T W"]:
    """sin and cos of t / 10000^(2i / W): where a step stands, for any number of steps."""
    rates = 10_000.0 ** (-2.0 * jnp.arange((width + 1) // 2, dtype=jnp.float32) / width)
    angles = jnp.arange(steps, dtype=jnp.float32)[:, None] * rates[None, :]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)[:, :width]


class Layer(Module):
    """Self-attention, then a network for each step by itself; both read a normalised x and add to x.

    Attention starts at 0: a step is judged by itself until those before it have proved to matter.
    """

    into_heads: Float[Array, "3 N W H"]  # queries, keys, values
    head_bias: Float[Array, "3 N H"]
    out_of_heads: Float[Array, "N H W"]
    out_bias: Float[Array, "W"]
    each_step: MLP

    @staticmethod
    def init(key: PRNGKeyArray, width: int, heads: int) -> "Layer":
        attention_key, step_key = jax.random.split(key)
        into = init_dense(attention_key, (width,) * 4)
        size = width // heads
        return Layer(
            into_heads=jnp.stack([w.reshape(width, heads, size).swapaxes(0, 1) for w, _ in into]),
            head_bias=jnp.stack([b.reshape(heads, size) for _, b in into]),
            out_of_heads=jnp.zeros((heads, size, width)),
            out_bias=jnp.zeros(width),
            each_step=MLP.init(step_key, (width, 4 * width, width)),
        )

    def __call__(self, x: Float[Array, "T W"], length: Int[Array, ""] | None = None) -> Float[Array, "T W"]:
        """Without a length, no step sees a later one; with it, each sees all of so many."""
        heads = jnp.einsum("tw,cnwh->cnth", normalise(x), self.into_heads)
        query, key, value = heads + jnp.broadcast_to(self.head_bias[:, :, None, :], heads.shape)
        looked = jax.vmap(lambda q, k, v: block_attention(q, k, v, length))(query, key, value)
        seen = jnp.einsum("nth,nhw->tw", looked, self.out_of_heads)
        x = x + seen + jnp.broadcast_to(self.out_bias, x.shape)
        return x + self.each_step(normalise(x))


class Transformer(Module):
    """From a token for each step to outputs for each step, which depend on this and earlier steps only."""

    embed: MLP
    layers: Layer  # every array with a leading axis of layers, which are gone through in turn
    read: MLP

    @staticmethod
    def init(
        key: PRNGKeyArray, inputs: int, outputs: int, *, width: int, heads: int, layers: int
    ) -> "Transformer":
        embed_key, layers_key, read_key = jax.random.split(key, 3)
        layer_keys = jax.random.split(layers_key, layers)
        return Transformer(
            embed=MLP.init(embed_key, (inputs, width, width)),
            layers=jax.vmap(lambda layer_key: Layer.init(layer_key, width, heads))(layer_keys),
            read=MLP.init(read_key, (width, width, outputs)),
        )

    def __call__(self, tokens: Float[Array, "T I"]) -> Float[Array, "T O"]:
        x = self.embed(tokens)
        x = x + 0.1 * positions(*x.shape)  # quieter than what the step itself says: a few tenths
        # No scan over layers: what is the same in all of them, such as which steps lie before which, would be
        # computed once for all blocks and kept, T² numbers of it.
        for index in range(self.layers.out_bias.shape[0]):
            x = jax.tree.map(lambda leaf, index=index: leaf[index], self.layers)(x)
        return self.read(normalise(x))
