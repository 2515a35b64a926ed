"""Lanes beside each other: what they ask each other where it saves them work."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool


@custom_vmap
def in_any_lane(condition: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether it holds here or, under vmap, in any of the lanes: one answer for all of them.

    A `lax.cond` on it stays a branch where one on the lane's own condition would compute both sides.
    """
    return condition


@in_any_lane.def_vmap
def _together(
    lanes: int, batched: list[bool], condition: Bool[Array, "..."]
) -> tuple[Bool[Array, "..."], bool]:
    return (jnp.any(condition, axis=0) if batched[0] else condition), False


def choose(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees of the same form."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)
