"""The causal transformer: equal to plain attention, blind to the future, and small for long segments."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.nn import attention
from apportion.nn.attention import Layer, Transformer
from builders import as_if_learned, assert_close, lane, normal, numpy
from probes import plain_outputs


def _plain_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    rows = []
    for t, q in enumerate(query):
        weights = np.exp([q @ k / math.sqrt(len(q)) for k in key[: t + 1]])
        rows.append((weights / weights.sum()) @ value[: t + 1])
    return np.array(rows)


def _plain_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)


def _plain_layer(layer: Layer, x: np.ndarray) -> np.ndarray:
    seen = layer.out_bias
    for head in range(layer.into_heads.shape[1]):
        parts = [_plain_norm(x) @ layer.into_heads[i, head] + layer.head_bias[i, head] for i in range(3)]
        seen = seen + _plain_attention(*parts) @ layer.out_of_heads[head]
    x = x + seen
    return x + plain_outputs(layer.each_step, _plain_norm(x))


def _init(layers: int, width: int = 6, heads: int = 2) -> Transformer:
    def init(key: jax.Array) -> Transformer:
        return Transformer.init(key, 4, 1, width=width, heads=heads, layers=layers)

    return jax.jit(init)(jax.random.key(0))


_outputs = jax.jit(lambda network, tokens: network(tokens))


@pytest.fixture(scope="module")
def network() -> Transformer:
    return as_if_learned(_init(layers=2), 1.0)


@pytest.fixture(scope="module")
def tokens() -> jax.Array:
    return normal(np.random.default_rng(1), 7, 4)


@pytest.mark.parametrize(("steps", "block"), [(1, 4), (4, 4), (9, 4), (9, 100)])
def test_attention_in_blocks_equals_attention_at_once(steps: int, block: int) -> None:
    """Whether the steps fill the blocks or not."""
    arguments = tuple(normal(np.random.default_rng(steps), 3, steps, 2))
    found = attention.block_attention(*arguments, block=block)
    np.testing.assert_allclose(found, _plain_attention(*numpy(arguments)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [1, 5, 9])
def test_with_a_length_every_step_sees_all_of_so_many(length: int) -> None:
    query, key, value = normal(np.random.default_rng(3), 3, 9, 2)
    found = attention.block_attention(query, key, value, jnp.asarray(length), block=4)
    logits = numpy(query) @ numpy(key)[:length].T / math.sqrt(2)
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, weights @ numpy(value)[:length], rtol=1e-5, atol=1e-6)


def test_its_slopes_are_those_of_jax_itself() -> None:
    arguments = tuple(normal(np.random.default_rng(0), 3, 9, 2))

    def at_once(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        four = (x[None, :, None, :] for x in (query, key, value))  # one sequence, one head
        return jax.nn.dot_product_attention(*four, is_causal=True)[0, :, 0]

    def in_blocks(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        return attention.block_attention(query, key, value, block=4)

    def slopes(attend: Any) -> Any:
        return jax.jit(jax.grad(lambda arguments: jnp.sum(jnp.sin(attend(*arguments)))))(arguments)

    assert_close(slopes(in_blocks), slopes(at_once))


def test_large_logits_do_not_overflow() -> None:
    scale = jnp.asarray([1e4, 1e4, 1.0])[:, None, None]
    query, key, value = normal(np.random.default_rng(0), 3, 5, 2) * scale
    found = attention.block_attention(query, key, value, block=2)
    chosen = [np.argmax(np.asarray(key)[: t + 1] @ np.asarray(query)[t]) for t in range(5)]
    np.testing.assert_allclose(found, np.asarray(value)[chosen], rtol=1e-5)


def test_the_transformer_equals_numpy(network: Transformer, tokens: jax.Array) -> None:
    plain = numpy(network)
    x = plain_outputs(plain.embed, numpy(tokens))
    for t, i in np.ndindex(x.shape):
        angle = t / 10_000 ** (2 * (i % 3) / 6)
        x[t, i] += 0.1 * (math.sin(angle) if i < 3 else math.cos(angle))
    for index in range(2):
        x = _plain_layer(lane(plain.layers, index), x)
    expected = plain_outputs(plain.read, _plain_norm(x))
    np.testing.assert_allclose(_outputs(network, tokens), expected, rtol=1e-3, atol=1e-5)


def _peak_bytes(steps: int) -> int:
    """What the slope of a loss over two segments takes beside its inputs and outputs."""
    network = jax.eval_shape(lambda: _init(layers=2, width=8))
    tokens = jax.ShapeDtypeStruct((2, steps, 4), jnp.float32)
    slope = jax.grad(lambda network, tokens: jnp.sum(jax.vmap(network)(tokens) ** 2))
    analysis = jax.jit(slope).lower(network, tokens).compile().memory_analysis()
    return int(analysis.temp_size_in_bytes)


def test_memory_grows_like_the_steps_not_like_their_square() -> None:
    """For 1000 steps, two segments, heads and layers, T² weights alone would be 32 MB."""
    long = _peak_bytes(1000)
    assert long < 32e6 / 2
    assert _peak_bytes(4000) < 5 * long
