"""Lanes beside each other: how they come together, and what they ask each other where it saves them work."""

from collections.abc import Sequence
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


def joined(trees: Sequence[Any]) -> Any:
    """Lanes of several trees [L, ...] of the same form, one after the other."""
    return trees[0] if len(trees) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *trees)


def choose(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees of the same form."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)
