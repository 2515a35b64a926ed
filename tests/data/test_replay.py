"""The replay against a plain list of episodes, through any chunks and any number of turns of the ring."""

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core.config import UserError
from apportion.core.spec import Spec
from apportion.core.types import Batch, Sampling
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Replay, filled, times
from apportion.envs.lane import ChunkWriter
from apportion.training import scaling
from builders import assert_equal, lane, stack

SPEC = Spec("toy", ("x", "y"), ("u",), max_episode_steps=5, max_segment_steps=5)
CHUNK_STEPS = (1, 3, 7)
CAPACITY = 15  # the least that works: two of the longest episodes, or the rows of the longest chunk
DRAWS = 512


class Episode(NamedTuple):
    segments: list[int]  # lengths
    terminated: bool  # else cut by a time limit

    @property
    def length(self) -> int:
        return sum(self.segments)


class Step(NamedTuple):
    """All there is to know about one step, as `drawn_steps` reads it from the replay."""

    observation: tuple[float, ...]
    action: tuple[float, ...]
    next_observation: tuple[float, ...]
    paid: float
    true_reward: float
    terminated: bool
    segment_total: float
    segment_length: int
    step_in_segment: int
    step_in_episode: int


class Model:
    """What the replay should hold, with lists: closed segments, and who wrote each place of the ring last."""

    def __init__(self) -> None:
        self.writer = [-1] * CAPACITY
        self.rows = 0
        self.closed: list[tuple[int, list[Step]]] = []  # first row of the episode, steps

    def insert(self, chunk: Chunk, closed: list[tuple[int, list[Step]]]) -> None:
        for row in range(self.rows, self.rows + int(chunk.rows) + 1):
            self.writer[row % CAPACITY] = row
        self.rows += int(chunk.rows)
        self.closed += closed

    def whole(self) -> list[list[Step]]:
        return [steps for first, steps in self.closed if self.writer[first % CAPACITY] == first]


def observe(number: float) -> np.ndarray:
    return np.array([number, -number / 2], np.float32)


def play(
    episodes: list[Episode], chunk_sizes: list[int]
) -> Iterator[tuple[Chunk, list[tuple[int, list[Step]]]]]:
    """Chunks as envs.lane.Lane.collect cuts them, each with the segments that closed in it.

    Every observation is a number of its own: 100 for each episode, 1 for each step in it.
    """
    walk = _walk(episodes)
    for size in chunk_sizes:
        writer = ChunkWriter(size, SPEC.observation_size, SPEC.action_size)
        closed, after = [], observe(0)
        for _ in range(size):
            found = next(walk, None)
            if found is None:
                return
            step, first_row, segment, after, ended = found
            seen, action = np.array(step.observation), np.array(step.action)
            writer.step(seen, action, step.paid, step.true_reward, step.terminated)
            if segment:
                writer.segment(len(segment), step.segment_total, step.step_in_episode + 1)
                closed.append((first_row, segment))
            if ended:
                writer.final(np.array(step.next_observation))
        yield Chunk(**writer.finish(after)), closed


def _walk(episodes: list[Episode]) -> Iterator[tuple[Step, int, list[Step], np.ndarray, bool]]:
    """Of each step: itself, its episode's first row, the segment that it closes, what is seen next, and
    whether the episode has ended."""
    first_row = 0
    for number, episode in enumerate(episodes):
        start = 0
        for length in episode.segments:
            steps = [_step(number, episode, start, length, position) for position in range(length)]
            start += length
            for step in steps:
                ended = step.step_in_episode == episode.length - 1
                seen = observe(100 * (number + 1)) if ended else np.array(step.next_observation, np.float32)
                yield step, first_row, steps if step is steps[-1] else [], seen, ended
        first_row += episode.length + 1


def _step(number: int, episode: Episode, start: int, length: int, position: int) -> Step:
    place = 100 * number + start + position
    total = float(sum(range(place - position, place - position + length)))
    return Step(
        observation=tuple(observe(place).tolist()),
        action=(place / 8,),
        next_observation=tuple(observe(place + 1).tolist()),
        paid=total if position == length - 1 else 0.0,
        true_reward=float(place),
        terminated=episode.terminated and start + position == episode.length - 1,
        segment_total=total,
        segment_length=length,
        step_in_segment=position,
        step_in_episode=start + position,
    )


# --- Reading the replay

_insert = jax.jit(replays.insert)
_times = jax.jit(times)


@jax.jit
def _sample(replay: Replay, key: jax.Array) -> Batch:
    drawn = replays.draw(replay, key, Sampling(segments=DRAWS), DRAWS, 1)
    return replays.gather(replay, lane(drawn, 0), SPEC.max_segment_steps)


@jax.jit
def _segment_table(replay: Replay) -> Any:
    numbers = replay.oldest + jnp.arange(CAPACITY)
    return replays.gather_segments(replay, numbers, SPEC.max_segment_steps)


@jax.jit
def _surveyed(replay: Replay) -> Any:
    """Of each place whether there is a whole segment, its length, total and first observation."""
    found = replays.survey(replay, SPEC.max_segment_steps)
    seen = found.gather(jnp.arange(CAPACITY)).observations[:, 0]
    return found.live, found.length, found.total, *seen.T


def drawn_steps(batch: Batch) -> set[Step]:
    columns = [np.asarray(getattr(batch.transitions, name)).tolist() for name in Step._fields]
    rows = zip(*columns, strict=True)
    return {Step(*(tuple(x) if isinstance(x, list) else x for x in row)) for row in rows}


def segment_facts(segments: Any, index: int) -> tuple[Any, ...]:
    """What the model says of a segment: observations, actions, true rewards, total."""
    length = int(segments.length[index])
    assert np.asarray(segments.mask[index]).tolist() == [t < length for t in range(SPEC.max_segment_steps)]
    return (
        tuple(map(tuple, np.asarray(segments.observations[index, : length + 1]).tolist())),
        tuple(map(tuple, np.asarray(segments.actions[index, :length]).tolist())),
        tuple(np.asarray(segments.true_rewards[index, :length]).tolist()),
        float(segments.total[index]),
    )


def expected_facts(steps: list[Step]) -> tuple[Any, ...]:
    return (
        (*(step.observation for step in steps), steps[-1].next_observation),
        tuple(step.action for step in steps),
        tuple(step.true_reward for step in steps),
        steps[0].segment_total,
    )


def check(replay: Replay, model: Model, key: jax.Array) -> None:
    whole = model.whole()
    assert int(replay.rows) == model.rows
    assert int(replay.segments) == len(model.closed)
    assert int(replay.segments) - int(replay.oldest) == len(whole)
    table = jax.device_get(_segment_table(replay))
    assert [segment_facts(table, i) for i in range(len(whole))] == [expected_facts(s) for s in whole]
    live, *columns = jax.device_get(_surveyed(replay))
    found = sorted(zip(*(column[live].tolist() for column in columns), strict=True))
    first = sorted((len(steps), steps[0].segment_total, *steps[0].observation) for steps in whole)
    assert found == first
    time, known = jax.device_get(_times(replay))
    seen = np.asarray(replay.observation)[known, 0]
    assert (seen % 100).tolist() == time[known].tolist()
    assert set(seen.tolist()) == {place for steps in whole for place, _ in expected_facts(steps)[0]}
    if whole:
        batch = jax.device_get(_sample(replay, key))
        assert drawn_steps(batch) == {step for steps in whole for step in steps}
        drawn = {segment_facts(batch.segments, i) for i in range(DRAWS)}
        assert drawn == {expected_facts(steps) for steps in whole}


@st.composite
def episode_lists(draw: st.DrawFn) -> list[Episode]:
    lengths = st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(lambda x: sum(x) <= 5)
    episode = st.builds(Episode, lengths, st.booleans())
    return draw(st.lists(episode, min_size=1, max_size=14))


def _filled(episodes: list[Episode], chunk_sizes: list[int], seed: int | None = None) -> Replay:
    """After these chunks, or as many of them as there are steps for; with a `seed`, checked after each."""
    replay, model = replays.init(SPEC, CAPACITY), Model()
    for chunk, closed in play(episodes, chunk_sizes):
        replay = _insert(replay, chunk)
        model.insert(chunk, closed)
        if seed is not None:
            check(replay, model, jax.random.key(seed + model.rows))
    return replay


@given(
    episodes=episode_lists(),
    chunk_sizes=st.lists(st.sampled_from(CHUNK_STEPS), min_size=1, max_size=20),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40)
def test_the_replay_holds_what_a_list_of_episodes_holds(
    episodes: list[Episode], chunk_sizes: list[int], seed: int
) -> None:
    _filled(episodes, chunk_sizes, seed)


@pytest.mark.parametrize(("length", "steps"), [(1, 7), (3, 3), (5, 1)])
def test_the_densest_segments_go_round_the_ring(length: int, steps: int) -> None:
    """Every step paid: single-step episodes have the most rows, long ones the most segments in them."""
    episodes = [Episode([1] * length, terminated=bool(i % 2)) for i in range(105 // length)]
    replay = _filled(episodes, [steps] * (105 // steps), seed=0)
    assert int(replay.rows) == 105 + len(episodes)


# --- The promises, one by one


def _shares(values: Any) -> dict[float, float]:
    found, counts = np.unique(np.asarray(values), return_counts=True)
    return dict(zip(found.tolist(), (counts / counts.sum()).tolist(), strict=True))


@pytest.mark.parametrize("weight", ["uniform", "length"])
def test_draws_are_as_frequent_as_promised(weight: Any) -> None:
    """Steps uniformly; segments uniformly, or in proportion to their length."""
    replay = _filled([Episode([1, 4], True), Episode([2], True), Episode([3, 1], True)], [3] * 3 + [1] * 2)
    count = 40_000

    @jax.jit
    def sample(key: jax.Array) -> Batch:
        drawn = replays.draw(replay, key, Sampling(segments=count, weight=weight), count, 1)
        return replays.gather(replay, lane(drawn, 0), SPEC.max_segment_steps)

    batch = sample(jax.random.key(1))
    assert batch.segments is not None
    steps = _shares(batch.transitions.observation[:, 0])
    assert len(steps) == 11
    np.testing.assert_allclose(list(steps.values()), 1 / 11, atol=0.008)
    segments = _shares(batch.segments.observations[:, 0, 0])
    lengths = {0.0: 1, 1.0: 4, 100.0: 2, 200.0: 3, 203.0: 1}
    expected = {x: 0.2 if weight == "uniform" else length / 11 for x, length in lengths.items()}
    assert segments == pytest.approx(expected, abs=0.012)


def test_lanes_are_kept_as_they_would_be_alone() -> None:
    runs = [
        [Episode([1, 4], True), Episode([3], False), Episode([5], True), Episode([1], True)],
        [Episode([1], False)] * 3 + [Episode([2, 3], True), Episode([5], False)],
    ]
    keys = jax.random.split(jax.random.key(3), 2)
    chunks = [[chunk for chunk, _ in play(episodes, [3] * 4)] for episodes in runs]
    together = stack(*[replays.init(SPEC, CAPACITY)] * 2)
    for pair in zip(*chunks, strict=True):
        together = jax.jit(jax.vmap(replays.insert))(together, stack(*pair))
    batches = jax.jit(jax.vmap(_sample))(together, keys)
    for index, episodes in enumerate(runs):
        alone = _filled(episodes, [3] * 4)
        assert_equal(lane(together, index), alone)
        assert_equal(lane(batches, index), _sample(alone, keys[index]))


def test_a_replay_too_small_for_its_episodes_or_chunks_is_refused() -> None:
    assert replays.capacity_for(SPEC, 12, chunk_steps=3) >= CAPACITY
    with pytest.raises(UserError, match="raise --replay-steps to at least 12"):
        replays.capacity_for(SPEC, 11, chunk_steps=3)
    with pytest.raises(UserError, match="raise --replay-steps to at least 28"):
        replays.capacity_for(SPEC, 27, chunk_steps=7)


# --- Credit


def test_credit_is_the_mean_reward_until_a_method_gives_another() -> None:
    replay = _filled([Episode([3, 2], True), Episode([4], False)], [3, 3, 3])
    before = jax.device_get(_sample(replay, jax.random.key(0))).transitions
    np.testing.assert_allclose(before.credit, before.segment_total / before.segment_length, rtol=1e-6)

    number = jnp.asarray([1, 2])
    segments = replays.gather_segments(replay, number, SPEC.max_segment_steps)
    given = jnp.asarray([[10.0, 11, 12, 13, 14], [20.0, 21, 22, 23, 24]])  # longer than the segments are
    after = jax.device_get(_sample(replays.with_credit(replay, segments, given), jax.random.key(0)))
    steps = after.transitions
    for start, first in ((3, 10.0), (100, 20.0)):
        here = steps.observation[:, 0] == start + steps.step_in_segment
        np.testing.assert_allclose(steps.credit[here], first + steps.step_in_segment[here], rtol=1e-6)
    untouched = steps.observation[:, 0] < 3
    np.testing.assert_array_equal(steps.credit[untouched], before.credit[untouched])


def test_rows_that_are_written_anew_have_no_credit_yet() -> None:
    episodes = [Episode([5], False)] * 12
    replay = replays.init(SPEC, CAPACITY)._replace(credit=jnp.full(CAPACITY, 7.0))
    for chunk, _ in play(episodes, [7] * 4):
        replay = _insert(replay, chunk)
    steps = jax.device_get(_sample(replay, jax.random.key(0))).transitions
    np.testing.assert_allclose(steps.credit, steps.segment_total / steps.segment_length, rtol=1e-6)


# --- Sums by blocks, without a copy of the replay


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 11])
def test_sums_are_those_of_a_plain_loop(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "BLOCK", 4)
    rng = np.random.default_rng(rows)
    data = rng.normal(size=(2, rows, 3)).astype(np.float32)  # of two lanes, each summed by itself
    weights = rng.normal(size=(2, 2, rows)).astype(np.float32)
    expected = np.zeros((2, 2, 3))
    for lane_, k, n in np.ndindex(2, 2, rows):
        expected[lane_, k] += weights[lane_, k, n] * (data[lane_, n] - 1.0) ** 2
    summed = jax.vmap(lambda each, shares: replays.summed(each, shares, lambda part: (part - 1.0) ** 2))
    found = summed(jnp.asarray(data), jnp.asarray(weights))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_measuring_a_replay_takes_a_small_part_of_its_memory() -> None:
    spec = Spec("wide", tuple(f"s{i}" for i in range(100)), ("a",), 50, 50)
    replay = jax.eval_shape(lambda: replays.init(spec, 200_000))
    known = jax.eval_shape(lambda: scaling.unknown(spec, clocks=True))
    used = jax.jit(scaling.measured).lower(known, replay).compile().memory_analysis()
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(replay))
    assert used.temp_size_in_bytes < size / 4


# --- On its way into a checkpoint


ONE_NUMBER = Spec("toy", ("height",), ("push",), max_episode_steps=4, max_segment_steps=4)


def test_a_growing_replay_is_saved_with_few_programs(caplog: pytest.LogCaptureFixture) -> None:
    """Each program stays in memory: one for every size would be a leak of megabytes with each checkpoint."""
    empty = jax.tree.map(lambda x: jnp.zeros((2, *x.shape), x.dtype), replays.init(ONE_NUMBER, 600))
    numbers = np.arange(1200.0, dtype=np.float32).reshape(2, 600, 1)
    empty = empty._replace(observation=jnp.asarray(numbers))
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for rows in range(1, 600, 23):
            counts = jnp.array([rows - 1, rows], jnp.int32)
            saved = filled(empty._replace(rows=counts, segments=counts))
            assert saved["observation"].shape == (2, min(600, rows + 1), 1)
            np.testing.assert_array_equal(saved["observation"], numbers[:, : rows + 1])
            assert saved["segment_total"].shape == (2, rows)
    slices = [each for each in caplog.messages if "Finished XLA compilation" in each]
    assert 0 < len(slices) < 80, len(slices)
