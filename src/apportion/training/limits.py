"""What it means that an episode's time is up: for a policy that can see it coming, the end.

To Gymnasium a time limit is a pause: life would go on, so values look beyond it. But what an episode pays
ends with it. A policy that is to earn most until then must know how much time is left, or the same state has
two values. So the limit is an end where an observation tells the time, and a pause where none does.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from apportion.core.types import Transitions
from apportion.data.blocks import summed
from apportion.data.replay import Replay
from apportion.data.times import times
from apportion.envs.make import TimeUp

_EXACT = 0.999  # squared correlation with the time: known to a hundredth of an episode


class Limit(NamedTuple):
    """How long an episode may last, and what its end means then."""

    steps: int
    means: TimeUp


def over(limit: Limit, clocks: Float[Array, "S"] | None, transitions: Transitions) -> Bool[Array, "*B"]:
    """After which steps nothing counts any more."""
    up = transitions.step_in_episode + 1 == limit.steps
    if limit.means == "end":
        return transitions.terminated | up
    if limit.means == "pause" or clocks is None:
        return transitions.terminated
    return transitions.terminated | (up & jnp.any(clocks > 0))


def clocks(replay: Replay) -> Float[Array, "S"]:
    """1 for each observation that tells the time: it rises, or falls, by the same amount at every step."""
    time, known = times(replay)
    rows, dtype = replay.observation, replay.observation.dtype
    share = known.astype(dtype) / jnp.maximum(jnp.sum(known), 1).astype(dtype)
    passed = time.astype(dtype)
    passed = passed - jnp.sum(share * passed)
    # Relative to one of them: sums of large numbers that hardly differ would lose the difference.
    origin = rows[:1]
    mean, both = summed(rows, jnp.stack([share, share * passed]), lambda rows: rows - origin)
    [alone] = summed(rows, share[None, :], lambda rows: (rows - origin - mean[None, :]) ** 2)
    return (both**2 > _EXACT * alone * jnp.sum(share * passed**2)).astype(dtype)
