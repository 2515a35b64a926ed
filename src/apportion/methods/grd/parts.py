"""What both forms of GRD stand on: a reward network behind edges, the policy's view, looks at the data."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS, Spec
from apportion.core.types import Edges, Metrics, Record
from apportion.graph import ENOUGH_SEGMENTS, ending_dimensions, identify
from apportion.methods.grd.config import Config
from apportion.nn import masks

MAX_ROWS = 400_000  # steps that one search for edges looks at
CERTAIN = 0.8  # how confident a search must be to take an edge away


def all_edges(states: int, actions: int, value: float) -> Edges:
    """The same number (a mask, or a logit) for every edge."""
    shapes = ((states,), (actions,), (states, states), (actions, states))
    return Edges(*(jnp.full(shape, value, jnp.float32) for shape in shapes))


# --- The reward


def reward_mask(edges: Edges) -> Float[Array, "D"]:
    """[C^{s→r}, C^{a→r}]: what a reward network may see of states and actions."""
    return jnp.concatenate([edges.state_to_reward, edges.action_to_reward])


def shares_on(edges: Edges) -> Metrics:
    """The share of edges that are on, by block."""
    return {f"{block}_on": jnp.mean(mask) for block, mask in edges._asdict().items()}


# --- The policy


def compact(on: Edges, ends: Float[Array, "S"], config: Config) -> Float[Array, "S"]:
    """What the policy sees: dimensions that matter to the reward or to an episode's end, by equation 7."""
    if config.compact == "none":
        return jnp.ones_like(on.state_to_reward)
    matters = jnp.maximum(on.state_to_reward, ends)
    if config.compact == "parents":
        return matters
    widen = masks.closure if config.compact == "closure" else masks.one_hop
    return widen(matters, on.state_to_state)


# --- Looks at all segments so far


class Looked(NamedTuple):
    """What searches have brought, beside edges."""

    ends: Float[Array, "S"]  # 1 where a dimension tells that an episode ends; found with the edges
    searched: Int[Array, ""]  # how many segments there were at the last search for edges


def nothing_looked_at(spec: Spec) -> Looked:
    return Looked(
        ends=jnp.zeros(spec.observation_size, jnp.float32),
        searched=jnp.zeros((), jnp.int32),
    )


def search_due(looked: Looked, segments: int) -> bool:
    """Edges are searched for when there are enough segments, and then each time these have doubled."""
    return segments >= max(ENOUGH_SEGMENTS, 2 * int(looked.searched))


def search(before: Edges, looked: Looked, records: list[Record], segments: int) -> tuple[Edges, Looked]:
    """Keep the edges that the data support; all of them where the data cannot tell."""
    observations = [record.observations for record in records]
    totals = np.array([record.total for record in records])
    result = identify(observations, [record.actions for record in records], totals)
    ends = ending_dimensions(observations, np.array([record.terminated for record in records]))
    if result.certificate.reward:
        parts = (before, result.graph, result.confidence)
        edges = Edges(*(keep(*(getattr(part, name) for part in parts)) for name in BLOCKS))
    else:
        edges = jax.tree.map(jnp.ones_like, before)
    return edges, looked._replace(
        ends=jnp.asarray(ends, jnp.float32), searched=jnp.asarray(segments, jnp.int32)
    )


def keep(before: Array, found: NDArray[Any], confidence: NDArray[Any]) -> Float[Array, "..."]:
    """Edges: on where found, off where their absence is certain, else as before; so that the policy's input
    does not flicker from look to look."""
    return jnp.asarray(np.where(found, 1.0, np.where(confidence >= CERTAIN, 0.0, before)), jnp.float32)
