"""When in its episode each row of the replay was seen."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from apportion.data import replay as replays
from apportion.data.replay import Replay


def times(replay: Replay) -> tuple[Int[Array, "N"], Bool[Array, "N"]]:
    """How many steps of its episode lie before each row's observation, and for which rows that is known:
    those of whole, closed segments."""
    capacity = replay.paid.shape[0]
    places = jnp.arange(capacity)
    row = replay.rows - (replay.rows - places) % capacity  # the newest one in each place
    whole = replays.survey(replay, 1).live
    # What does not count points past the end, where a scatter drops it.
    first = jnp.where(whole, replay.segment_episode % capacity, capacity)

    def at_first_rows(of_segments: Int[Array, "N"]) -> Int[Array, "N"]:
        return jnp.full(capacity, -1, jnp.int32).at[first].max(of_segments, mode="drop")

    begins = at_first_rows(replay.segment_episode)
    ends = at_first_rows(replay.segment_start + replay.segment_length)
    # Forwards in time, each row belongs to the episode that began last.
    oldest = (replay.rows + 1) % capacity
    begun = jnp.roll(jax.lax.cummax(jnp.roll(begins, -oldest)), oldest)
    return row - begun, (begun >= 0) & (row <= ends[begun % capacity])
