"""One episode store for every method: a ring of rows, and a ring of the segments that lie in it.

An episode of T steps takes T+1 rows, the last of which holds only the final observation. So each observation
is stored once, and the observation after row r is always in row r+1. A segment enters its table when it has
been paid; only steps of such closed segments are ever sampled. When new rows overwrite an episode's first
row, all of that episode's segments leave at once.

Row, step and segment numbers count from the start of training and are reduced modulo the capacity when used.
Written for one lane; the trainer vmaps it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Batch, Record, Sampling, Segments, Survey, Transitions

_COUNTERS = ("rows", "steps", "segments", "oldest")  # columns of a replay that are single numbers
_ROWS = ("observation", "action", "paid", "true_reward", "terminated", "log_density")  # that a chunk has, too


class Chunk(NamedTuple):
    """Consecutive rows from one environment, and the segments that were paid meanwhile.

    Arrays are padded to a fixed size: R rows, G segments. Row `rows` itself (the first after the real ones)
    holds the observation that the next chunk starts with.
    """

    observation: Float[Array, "R S"]
    action: Float[Array, "R A"]
    paid: Float[Array, "R"]
    true_reward: Float[Array, "R"]
    terminated: Bool[Array, "R"]
    rows: Int[Array, ""]
    segment_start: Int[Array, "G"]  # counted from the chunk's first row; negative: began in an earlier chunk
    segment_length: Int[Array, "G"]
    segment_total: Float[Array, "G"]
    episode_start: Int[Array, "G"]  # first row of the segment's episode, counted the same way
    segments: Int[Array, ""]
    log_density: Float[Array, "R"] | None = None  # of the action, under the policy that acted


class Replay(NamedTuple):
    observation: Float[Array, "N S"]
    action: Float[Array, "N A"]
    paid: Float[Array, "N"]
    true_reward: Float[Array, "N"]
    terminated: Bool[Array, "N"]
    credit: Float[Array, "N"]  # above the mean reward of the step's segment; 0 until a method says otherwise
    segment_start: Int[Array, "N"]  # row number
    segment_length: Int[Array, "N"]
    segment_total: Float[Array, "N"]
    segment_first_step: Int[Array, "N"]  # how many steps all earlier segments had together
    segment_episode: Int[Array, "N"]  # row number of its episode's first row
    rows: Int[Array, ""]  # rows written so far
    steps: Int[Array, ""]  # steps in all closed segments so far
    segments: Int[Array, ""]  # segments closed so far
    oldest: Int[Array, ""]  # number of the oldest segment that is still whole
    log_density: Float[Array, "N"] | None = None  # for on-policy backbones only


class Draw(NamedTuple):
    """Which steps and segments to look at: numbers only, so that many draws cost little."""

    steps: Int[Array, "*U B"]  # step numbers
    step_segments: Int[Array, "*U B"]  # the segment that each step is in
    segments: Int[Array, "*V M"]  # one draw for each update of the method


def capacity_for(spec: Spec, replay_steps: int, chunk_steps: int) -> int:
    """Rows for `replay_steps` steps; at least enough for two of the longest episodes and two chunks."""
    least = 2 * max(spec.max_episode_steps + 1, 2 * chunk_steps)
    need = f"two episodes of {spec.max_episode_steps} steps and two iterations of {chunk_steps}"
    fix = f"raise --replay-steps to at least {least}"
    check(replay_steps >= least, f"replay_steps={replay_steps} cannot hold {need}: {fix}")
    return replay_steps + replay_steps // spec.max_episode_steps + 1


def init(spec: Spec, capacity: int, on_policy: bool = False) -> Replay:
    """Nothing yet, with room for so many rows."""
    whole = ("segment_start", "segment_length", "segment_first_step", "segment_episode", *_COUNTERS)
    kinds = {**dict.fromkeys(whole, jnp.int32), "terminated": jnp.bool_}
    sizes: dict[str, tuple[int, ...]] = dict.fromkeys(_COUNTERS, ())
    sizes |= {"observation": (capacity, spec.observation_size), "action": (capacity, spec.action_size)}
    columns: dict[str, Any] = {
        name: jnp.zeros(sizes.get(name, (capacity,)), kinds.get(name, jnp.float32))
        for name in Replay._fields
        if on_policy or name != "log_density"
    }
    return Replay(**columns)


def insert(replay: Replay, chunk: Chunk) -> Replay:
    """Append a chunk, then drop the episodes whose rows it overwrote."""
    replay = _insert_segments(_insert_rows(replay, chunk), chunk)
    capacity = replay.paid.shape[0]
    rows = replay.rows + chunk.rows
    # The row after the last real one is written too (see Chunk), hence the + 1.
    first_whole = _first_at_least(
        replay.segment_episode,
        rows + 1 - capacity,
        jnp.maximum(replay.oldest, replay.segments - capacity),
        replay.segments,
    )
    return replay._replace(rows=rows, oldest=first_whole)


def draw(replay: Replay, key: PRNGKeyArray, sampling: Sampling, batch_size: int, updates: int) -> Draw:
    """Choose steps (uniform over those of whole, closed segments) and segments for many updates at once."""
    step_key, segment_key = jax.random.split(key)
    steps, step_segments = _draw_steps(replay, step_key, (updates, batch_size))
    shape = (updates // sampling.every, sampling.segments)
    if sampling.weight == "length":
        _, segments = _draw_steps(replay, segment_key, shape)
    else:
        segments = jax.random.randint(segment_key, shape, replay.oldest, replay.segments)
    return Draw(steps, step_segments, segments)


def gather(replay: Replay, drawn: Draw, max_segment_steps: int) -> Batch:
    """What was drawn: transitions, and segments padded to `max_segment_steps`."""
    segments = None
    if drawn.segments.shape[-1] > 0:
        segments = gather_segments(replay, drawn.segments, max_segment_steps)
    return Batch(segments, gather_transitions(replay, drawn.steps, drawn.step_segments))


def with_credit(replay: Replay, segments: Segments, credit: Float[Array, "M T"]) -> Replay:
    """Keep what a method gave to each step of some segments."""
    capacity = replay.paid.shape[0]
    start = replay.segment_start[segments.number % capacity]
    rows = (start[:, None] + jnp.arange(credit.shape[1])[None, :]) % capacity
    above_mean = credit - _mean_reward(segments.total, segments.length)[:, None]
    # Rows of padding point past the end, where a scatter drops them.
    rows = jnp.where(segments.mask, rows, capacity)
    return replay._replace(credit=replay.credit.at[rows].set(above_mean, mode="drop"))


def survey(replay: Replay, max_segment_steps: int) -> Survey:
    """A look over all segments."""
    capacity = replay.paid.shape[0]
    places = jnp.arange(capacity)
    # The one number in [oldest, oldest + capacity) that belongs to each place.
    number = replay.oldest + (places - replay.oldest) % capacity

    def at(places: Int[Array, "K"]) -> Segments:
        return gather_segments(replay, number[places], max_segment_steps)

    return Survey(replay.segment_total, replay.segment_length, number < replay.segments, at)


def of_lane(replay: Replay, lane: int) -> Replay:
    """One lane of a stacked replay, on the host; of one that is not full yet, not much more than it holds."""
    rows, capacity = int(jax.device_get(replay.rows)[lane]), replay.paid.shape[1]
    # A power of two: few programs for any number of rows.
    return jax.device_get(_first_rows(replay, lane, min(capacity, 1 << rows.bit_length())))


@partial(jax.jit, static_argnums=2)
def _first_rows(replay: Replay, lane: int | Int[Array, ""], rows: int) -> Replay:
    return jax.tree.map(lambda x: x[lane, :rows] if x.ndim > 1 else x[lane], replay)


def records(replay: Replay, max_rows: int) -> list[Record]:
    """Whole segments of one lane's replay on the host: evenly chosen where there are too many."""
    capacity = len(replay.paid)
    numbers = np.arange(int(replay.oldest), int(replay.segments))
    start, length, total = (
        np.asarray(column)[numbers % capacity]
        for column in (replay.segment_start, replay.segment_length, replay.segment_total)
    )
    observation, action, terminated = map(np.asarray, (replay.observation, replay.action, replay.terminated))
    found = []
    # An odd stride: every eighth segment, say, must be among those chosen as often as among all.
    for place in range(0, len(numbers), -(-int(length.sum()) // max_rows) | 1):
        rows = (start[place] + np.arange(length[place] + 1)) % capacity
        ended = bool(terminated[rows[-2]])
        number = int(numbers[place])
        found.append(Record(observation[rows], action[rows[:-1]], float(total[place]), ended, number))
    return found


def filled(replay: Replay) -> dict[str, NDArray[Any]]:
    """The columns of a stacked replay, cut to the rows (or segments) that any lane has written."""
    capacity = replay.paid.shape[1]
    # The row after the last one holds the next observation and is written too.
    rows = min(capacity, int(np.max(np.asarray(replay.rows))) + 1)
    segments = min(capacity, int(np.max(np.asarray(replay.segments))))

    def cut(name: str, column: Any) -> NDArray[Any]:
        if name in _COUNTERS:
            return np.asarray(column)
        wanted = segments if name.startswith("segment_") else rows
        # First to a power of two: on the device each size is a program of its own, which stays in memory.
        return np.ascontiguousarray(np.asarray(column[:, : 1 << wanted.bit_length()])[:, :wanted])

    return {name: cut(name, column) for name, column in present(replay).items()}


def unfilled(columns: dict[str, NDArray[Any]], template: Replay) -> dict[str, NDArray[Any]]:
    """The columns at full size again, that of the template; those of other forms stay as they are."""

    def grow(name: str, wanted: Any) -> NDArray[Any]:
        column = columns[name]
        if name in _COUNTERS or column.ndim != len(wanted.shape):
            return column
        more = max(0, wanted.shape[1] - column.shape[1])
        return np.pad(column, [(0, more if axis == 1 else 0) for axis in range(column.ndim)])

    return {name: grow(name, leaf) for name, leaf in present(template).items() if name in columns}


def present(replay: Replay) -> dict[str, Any]:
    """The columns that a replay has, by name."""
    return {name: column for name, column in replay._asdict().items() if column is not None}


def _insert_rows(replay: Replay, chunk: Chunk) -> Replay:
    capacity = replay.paid.shape[0]
    offsets = jnp.arange(chunk.paid.shape[0])
    # Rows of padding point past the end, where a scatter drops them.
    target = jnp.where(offsets <= chunk.rows, (replay.rows + offsets) % capacity, capacity)

    new = {name: array for name, array in chunk._asdict().items() if name in _ROWS and array is not None}
    return _written(replay, target, {**new, "credit": jnp.zeros_like(chunk.paid)})


def _insert_segments(replay: Replay, chunk: Chunk) -> Replay:
    capacity = replay.paid.shape[0]
    offsets = jnp.arange(chunk.segment_total.shape[0])
    real = offsets < chunk.segments
    target = jnp.where(real, (replay.segments + offsets) % capacity, capacity)
    lengths = jnp.where(real, chunk.segment_length, 0)
    ends = jnp.cumsum(lengths)
    new = {
        "segment_start": replay.rows + chunk.segment_start,
        "segment_length": chunk.segment_length,
        "segment_total": chunk.segment_total,
        "segment_first_step": replay.steps + ends - lengths,
        "segment_episode": replay.rows + chunk.episode_start,
    }
    counted = replay._replace(steps=replay.steps + ends[-1], segments=replay.segments + chunk.segments)
    return _written(counted, target, new)


def _written(replay: Replay, target: Int[Array, "K"], new: dict[str, Array]) -> Replay:
    """Columns with new values in these places; those past the end are dropped."""
    columns: dict[str, Any] = {
        name: getattr(replay, name).at[target].set(values, mode="drop") for name, values in new.items()
    }
    return replay._replace(**columns)


def _draw_steps(replay: Replay, key: PRNGKeyArray, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Uniform step numbers, and the segment each is in (so segments come up in proportion to length)."""
    capacity = replay.paid.shape[0]
    first_step = replay.segment_first_step[replay.oldest % capacity]
    steps = jax.random.randint(key, shape, first_step, replay.steps)
    return steps, segments_of(replay, steps)


def segments_of(replay: Replay, steps: Int[Array, "*B"]) -> Int[Array, "*B"]:
    """The segment that each step is in."""
    return _first_at_least(replay.segment_first_step, steps + 1, replay.oldest, replay.segments) - 1


def _first_at_least(column: Int[Array, "N"], value: Array, low: Array, high: Array) -> Array:
    """Binary search in the segment ring: the first segment in [low, high) with column >= value, else high."""
    capacity = column.shape[0]

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        reached = column[middle % capacity] >= value
        open_ = low < high
        return jnp.where(open_ & ~reached, middle + 1, low), jnp.where(open_ & reached, middle, high)

    start = (jnp.broadcast_to(low, value.shape), jnp.broadcast_to(high, value.shape))
    return jax.lax.fori_loop(0, capacity.bit_length(), halve, start)[0]


def gather_transitions(replay: Replay, steps: Int[Array, "*B"], segments: Int[Array, "*B"]) -> Transitions:
    """Single steps, given by their numbers and those of the segments they are in."""
    capacity = replay.paid.shape[0]
    slot = segments % capacity
    position = steps - replay.segment_first_step[slot]
    row = (replay.segment_start[slot] + position) % capacity
    total, length = replay.segment_total[slot], replay.segment_length[slot]
    return Transitions(
        observation=replay.observation[row],
        action=replay.action[row],
        next_observation=replay.observation[(row + 1) % capacity],
        paid=replay.paid[row],
        true_reward=replay.true_reward[row],
        terminated=replay.terminated[row],
        segment_total=total,
        segment_length=length,
        step_in_segment=position,
        step_in_episode=position + replay.segment_start[slot] - replay.segment_episode[slot],
        credit=_mean_reward(total, length) + replay.credit[row],
    )


def gather_segments(replay: Replay, segments: Int[Array, "M"], max_steps: int) -> Segments:
    """Whole segments by their numbers, padded to `max_steps`."""
    capacity = replay.paid.shape[0]
    slot = segments % capacity
    rows = (replay.segment_start[slot][:, None] + jnp.arange(max_steps + 1)[None, :]) % capacity
    length = replay.segment_length[slot]
    return Segments(
        observations=replay.observation[rows],
        actions=replay.action[rows[:, :-1]],
        true_rewards=replay.true_reward[rows[:, :-1]],
        length=length,
        total=replay.segment_total[slot],
        mask=jnp.arange(max_steps)[None, :] < length[:, None],
        terminated=replay.terminated[(replay.segment_start[slot] + length - 1) % capacity],
        number=segments,
    )


def _mean_reward(total: Float[Array, "*M"], length: Int[Array, "*M"]) -> Float[Array, "*M"]:
    return total / length.astype(total.dtype)


# --- Looks over a full replay


def times(replay: Replay) -> tuple[Int[Array, "N"], Bool[Array, "N"]]:
    """How many steps of its episode lie before each row's observation, and for which rows that is known:
    those of whole, closed segments."""
    capacity = replay.paid.shape[0]
    places = jnp.arange(capacity)
    row = replay.rows - (replay.rows - places) % capacity  # the newest one in each place
    whole = survey(replay, 1).live
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


BLOCK = 4096  # rows


def summed(
    rows: Float[Array, "N S"],
    weights: Float[Array, "K N"],
    of: Callable[[Float[Array, "B S"]], Float[Array, "B S"]],
) -> Float[Array, "K S"]:
    """Σ_n weights[k, n] · of(rows)[n], where `of` knows each row by itself."""
    count, size = rows.shape[0], min(BLOCK, rows.shape[0])

    def add(block: int | Array, total: Float[Array, "K S"]) -> Float[Array, "K S"]:
        first = jnp.minimum(block * size, count - size)  # the last block has rows of the one before, too
        fresh: Bool[Array, B] = first + jnp.arange(size) >= block * size
        part = jax.lax.dynamic_slice_in_dim(weights, first, size, axis=1)
        part = jnp.where(fresh[None, :], part, 0.0)
        # A GPU would round what it multiplies.
        found = of(jax.lax.dynamic_slice_in_dim(rows, first, size))
        return total + jnp.matmul(part, found, precision="highest")

    return jax.lax.fori_loop(0, -(-count // size), add, jnp.zeros((weights.shape[0], rows.shape[1])))
