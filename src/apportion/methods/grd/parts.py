"""What both forms of GRD stand on: a reward network behind edges, the policy's view, looks at the data."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from apportion.core.spec import Spec
from apportion.core.types import Edges, Metrics, Record
from apportion.graph import ENOUGH_SEGMENTS, Endings
from apportion.graph.certificate import Doubt, marks
from apportion.graph.looking import Searched, Seen
from apportion.methods.grd.config import Config
from apportion.nn import masks

MAX_ROWS = 400_000  # steps that one search for edges looks at


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
    """What searches have brought, beside the edges that are on."""

    known: Edges  # 1 where an edge is present, 0 where it is absent, 0.5 where the data cannot tell
    ends: Float[Array, "S"]  # 1 where a dimension tells that an episode ends
    ends_seen: Int[Array, ""]  # in how many episodes that was looked for
    searched: Int[Array, ""]  # how many segments there were at the last search
    doubts: Float[Array, "N"]  # 1 for each doubt that speaks against the edges, in the order of Doubt


def nothing_looked_at(spec: Spec) -> Looked:
    return Looked(
        known=all_edges(spec.observation_size, spec.action_size, 0.5),
        ends=jnp.zeros(spec.observation_size, jnp.float32),
        ends_seen=jnp.zeros((), jnp.int32),
        searched=jnp.zeros((), jnp.int32),
        doubts=jnp.asarray(marks([Doubt.NOT_SEARCHED]), jnp.float32),
    )


def search_due(looked: Looked, segments: int) -> bool:
    """Edges are searched for when there are enough segments, and then each time these have doubled."""
    return segments >= max(ENOUGH_SEGMENTS, 2 * int(looked.searched))


def seen_in(records: list[Record]) -> Seen:
    """What a look sees of segments."""
    return Seen(
        [record.observations for record in records],
        [record.actions for record in records],
        np.array([record.total for record in records]),
        np.array([record.terminated for record in records]),
    )


def after(before: Edges, looked: Looked, found: Searched, segments: int) -> tuple[Edges, Looked]:
    """The edges that are on, and what is known: an edge goes only when its absence is known."""
    on = found.edges_after(map(np.asarray, before))
    # Falls leave the replay when a policy has learned not to fall; what they told must not leave with them.
    ends = Endings(np.asarray(looked.ends) > 0, int(looked.ends_seen)).remember(found.endings)
    return Edges(*map(jnp.asarray, on)), Looked(
        known=Edges(*map(jnp.asarray, found.known)),
        ends=jnp.asarray(ends.matters, jnp.float32),
        ends_seen=jnp.asarray(ends.ends, jnp.int32),
        searched=jnp.asarray(segments, jnp.int32),
        doubts=jnp.asarray(marks(found.doubts), jnp.float32),
    )
