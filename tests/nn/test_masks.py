"""Edge masks: their distribution, their gradient, and the compact representation as plain graph search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from apportion.methods.grd import parts


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_gradient_of_a_hard_sample_is_that_of_the_soft_one(temperature: float) -> None:
    logits, weights = jnp.asarray([[-2.0, 0.3], [0.0, 1.5]]), jnp.asarray([[1.0, -2.0], [3.0, 0.5]])
    key = jax.random.key(2)
    gradient = jax.grad(lambda x: jnp.sum(weights * parts.sample_mask(key, x, temperature)))(logits)

    noise = np.asarray(jax.random.logistic(key, logits.shape), np.float64)
    soft = 1 / (1 + np.exp(-(np.asarray(logits, np.float64) + noise) / temperature))
    np.testing.assert_allclose(gradient, weights * soft * (1 - soft) / temperature, rtol=1e-4, atol=1e-6)


# --- Compact representation


@st.composite
def graphs(draw: st.DrawFn) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Any graph: no parents at all, cycles and self loops included."""
    size = draw(st.sampled_from([1, 2, 5]))
    bits = draw(st.lists(st.booleans(), min_size=size * (size + 1), max_size=size * (size + 1)))
    table = np.asarray(bits, np.float32).reshape(size + 1, size)
    return table[0], table[1:]


def _parents_and_theirs(to_reward: NDArray[np.float32], edges: NDArray[np.float32]) -> set[int]:
    parents = {i for i in range(len(to_reward)) if to_reward[i]}
    return parents | {i for i in range(len(to_reward)) for j in parents if edges[i, j]}


def _ancestors(to_reward: NDArray[np.float32], edges: NDArray[np.float32]) -> set[int]:
    found: set[int] = set()
    waiting = [i for i in range(len(to_reward)) if to_reward[i]]
    while waiting:
        target = waiting.pop()
        if target not in found:
            found.add(target)
            waiting += [source for source in range(len(to_reward)) if edges[source, target]]
    return found


_one_hop, _closure = jax.jit(parts.one_hop), jax.jit(parts.closure)


@given(graph=graphs())
@settings(max_examples=150)
def test_one_hop_and_closure_are_graph_searches(
    graph: tuple[NDArray[np.float32], NDArray[np.float32]],
) -> None:
    to_reward, edges = map(jnp.asarray, graph)
    size = len(to_reward)
    for search, expected in ((_one_hop, _parents_and_theirs(*graph)), (_closure, _ancestors(*graph))):
        np.testing.assert_array_equal(search(to_reward, edges), [float(i in expected) for i in range(size)])
