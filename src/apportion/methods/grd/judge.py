"""Which reward teaches the policy: the one within the edges found, or the one that sees everything?

Neither reward is fitted to one segment in eight (only the search for edges sees them), and by how much both
miss the totals of those segments decides: a euro missed is as bad in a short segment as in a long one. Where
the restricted reward is clearly better, it is trusted: the policy gets it alone, and sees only what matters
to it. Otherwise the policy gets a mixture of both, in which the worse one hardly counts, and sees everything:
an edge may be missing, or the additive part mislead.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

ONE_IN = 8  # segments, of which one is held out
MEMORY = 100  # held-out segments that the running errors remember
ENOUGH = 0.1  # of that memory, before which nothing is decided
BETTER, NO_BETTER = 0.6, 0.9  # ratios of squared errors at which trust begins, and at which it ends

Numbers = NDArray[np.int64] | Int[Array, "M"]  # of segments, on the host or in JAX

RESTRICTED, FREE = 0, 1  # places of the two rewards, wherever they stand side by side


class Judge(NamedTuple):
    squares: Float[Array, "2"]  # running means of squared held-out errors times what each counts, of both,
    weight: Float[Array, ""]  # and of what each counts
    known: Float[Array, ""]  # how full the memory of these means is, from 0 to 1
    trusted: Float[Array, ""]  # 1 while the policy gets the restricted reward alone


def start() -> Judge:
    """Nothing known yet: nothing is trusted."""
    return Judge(jnp.zeros(2), jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def is_held_out(numbers: Numbers) -> Any:
    """Whether no reward is fitted to segments: one in each eight that follow each other, by a hash of these
    eight. Always the first would be the same window of each episode where that has 8 segments, or 16."""
    count = np.uint32(ONE_IN)
    eights, place = numbers.astype(np.uint32) // count, numbers.astype(np.uint32) % count
    mixed = (eights + np.uint32(1)) * np.uint32(0x9E3779B9)
    mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x85EBCA6B)
    return place == (mixed ^ (mixed >> np.uint32(13))) % count


def watch(judge: Judge, errors: Float[Array, "2 M"], importance: Float[Array, "M"]) -> Judge:
    """After some more segments: their errors, and how much each counts (0: not held out).

    What one counts, it counts among all that are remembered, not only among those that come with it: else a
    short one that comes alone would outweigh many long ones.
    """
    count = jnp.sum((importance > 0).astype(importance.dtype))
    rate, each = jnp.minimum(1.0, count / MEMORY), jnp.maximum(count, 1.0)
    squares = judge.squares + rate * (jnp.sum(errors**2 * importance[None, :], axis=1) / each - judge.squares)
    weight = judge.weight + rate * (jnp.sum(importance) / each - judge.weight)
    found = Judge(squares, weight, judge.known + rate * (1 - judge.known), judge.trusted)
    ratio = _ratio(found)
    decided = jnp.where(ratio < BETTER, 1.0, jnp.where(ratio > NO_BETTER, 0.0, judge.trusted))
    return found._replace(trusted=jnp.where(found.known > ENOUGH, decided, judge.trusted))


def share(judge: Judge) -> Float[Array, ""]:
    """Of the restricted reward in what the policy gets: 1 / (1 + ratio²), or all of it."""
    mixed = jnp.where(judge.known > ENOUGH, 1 / (1 + _ratio(judge) ** 2), 0.5)
    return jnp.where(judge.trusted > 0, 1.0, mixed)


def root_errors(judge: Judge) -> Float[Array, "2"]:
    """Root mean squares of the held-out errors, of both rewards."""
    return jnp.sqrt(judge.squares / jnp.maximum(judge.weight, 1e-6))


def _ratio(judge: Judge) -> Float[Array, ""]:
    """Of squared held-out errors, restricted to free."""
    return judge.squares[RESTRICTED] / jnp.maximum(judge.squares[FREE], 1e-30)
