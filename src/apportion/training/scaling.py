"""Units do not matter: what learners see is brought to size one by a lane's own data.

Observations are standardised by the mean and spread of the replay, measured again each time the number of
segments has grown by a quarter: between two measurements nothing moves under the learners. Rewards keep their
unit unless it is far from one; then the backbone, whose values and temperature start at size one, gets them
in a closer one.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from apportion.core.spec import Spec
from apportion.core.types import Batch, Record, Segments, Survey, Transitions
from apportion.data.replay import Replay
from apportion.envs.acting import FARTHEST, standardise
from apportion.training import limits

FIRST, GROWTH = 150 / 256, 2 ** (1 / 3)  # segments at the first measurement, and until the next: see Revision
USUAL_REWARDS = (0.1, 10.0)  # root mean squares of rewards that backbones take as they come
_FORGET = 0.1  # share of the rewards' mean square that each iteration replaces


class Scaling(NamedTuple):
    """What was measured of one lane."""

    mean: Float[Array, "S"]
    scale: Float[Array, "S"]  # one over the standard deviation; 1 where a dimension has not varied
    reward_square: Float[Array, ""]  # running mean of r̂²; 0 before the first
    clocks: Float[Array, "S"] | None = None  # 1 for dimensions that tell the time; None: nobody asks


def unknown(spec: Spec, clocks: bool = False) -> Scaling:
    """Before anything was measured: observations as they are."""
    states = spec.observation_size
    nothing = jnp.zeros(states)
    return Scaling(nothing, jnp.ones(states), jnp.zeros(()), nothing if clocks else None)


def measured(scaling: Scaling, replay: Replay) -> Scaling:
    """With mean and spread of all observations in the replay, and those among them that tell the time."""
    rows = jnp.arange(replay.observation.shape[0]) <= replay.rows
    live = jnp.broadcast_to(rows[:, None], replay.observation.shape)
    # Relative to one of them: sums of large numbers that hardly differ would lose the difference.
    origin = replay.observation[0]
    moved = replay.observation - origin[None, :]
    mean = jnp.mean(moved, axis=0, where=live)
    spread = jnp.sqrt(jnp.mean((moved - mean[None, :]) ** 2, axis=0, where=live))
    varies = spread > 1e-6 * jnp.abs(origin + mean)  # less than that is rounding
    scale = jnp.where(varies, 1 / jnp.where(varies, spread, 1.0), 1.0)
    telling = None if scaling.clocks is None else limits.clocks(replay)
    return scaling._replace(mean=origin + mean, scale=scale, clocks=telling)


# --- Observations


def observations(scaling: Scaling | None, x: Float[Array, "*B S"]) -> Float[Array, "*B S"]:
    """(x - mean) / spread, never farther than ±10; as they are where nobody asked for it."""
    if scaling is None:
        return x
    mean, scale = (jnp.broadcast_to(part, x.shape) for part in (scaling.mean, scaling.scale))
    return jnp.clip((x - mean) * scale, -FARTHEST, FARTHEST)


def own_observations(scaling: Scaling | None, x: Float[Array, "*B S"]) -> Float[Array, "*B S"]:
    """Standardised ones in the environment's units again."""
    if scaling is None:
        return x
    mean, scale = (jnp.broadcast_to(part, x.shape) for part in (scaling.mean, scaling.scale))
    return x / scale + mean


def within_reach(scaling: Scaling | None, x: Float[Array, "*B S"]) -> Float[Array, "*B S"]:
    """Standardised ones that nobody has seen, no farther than those that anybody can see."""
    return x if scaling is None else jnp.clip(x, -FARTHEST, FARTHEST)


def transitions(scaling: Scaling | None, raw: Transitions) -> Transitions:
    return raw._replace(
        observation=observations(scaling, raw.observation),
        next_observation=observations(scaling, raw.next_observation),
    )


def segments(scaling: Scaling | None, raw: Segments) -> Segments:
    return raw._replace(observations=observations(scaling, raw.observations))


def batch(scaling: Scaling | None, raw: Batch) -> Batch:
    parts = None if raw.segments is None else segments(scaling, raw.segments)
    return Batch(parts, transitions(scaling, raw.transitions))


def survey(scaling: Scaling | None, raw: Survey) -> Survey:
    return raw._replace(gather=lambda places: segments(scaling, raw.gather(places)))


def record(scaling: Scaling | None, raw: Record) -> Record:
    """One segment on the host."""
    if scaling is None:
        return raw
    mean, scale = np.asarray(scaling.mean), np.asarray(scaling.scale)
    return raw._replace(observations=standardise(raw.observations, mean, scale))


def clocks(scaling: Scaling | None) -> Float[Array, "S"] | None:
    """1 for dimensions that tell the time, where anybody asked."""
    return None if scaling is None else scaling.clocks


# --- Rewards


def watched(scaling: Scaling, rewards: Float[Array, "B"]) -> Scaling:
    """With some more rewards in their running mean square, which is slow to fall."""
    now, before = jnp.mean(rewards**2), scaling.reward_square
    # Upwards at once: while a reward model finds its size, no value may be learned from outsized rewards.
    return scaling._replace(reward_square=jnp.maximum(now, before + _FORGET * (now - before)))


def reward_factor(scaling: Scaling | None) -> Float[Array, ""]:
    """What rewards are multiplied with for the backbone: 1, unless they are unusually small or large."""
    if scaling is None:
        return jnp.ones(())
    size = jnp.sqrt(scaling.reward_square)
    return jnp.where(size > 0, jnp.clip(size, *USUAL_REWARDS) / jnp.where(size > 0, size, 1.0), 1.0)
