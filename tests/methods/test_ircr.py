"""IRCR: equal shares, scaled by the worst and best known. It remembers the best ever and learns nothing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.core.types import Segments, Survey
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.methods import ircr
from apportion.training.offline import chunk_of
from builders import SPEC, batch, lane, segments, transitions

METHOD = ircr.make(ircr.Config(best=2))


def _state(method: Any = METHOD) -> ircr.State:
    return method.init(jax.random.key(0), SPEC)


def _survey(
    totals: list[float], lengths: list[int], live: list[bool] | None = None, first: int = 0
) -> Survey:
    """Segments with these totals and lengths, numbered from `first` on."""
    total, length = jnp.asarray(totals, jnp.float32), jnp.asarray(lengths, jnp.int32)

    def gather(places: jax.Array) -> Segments:
        found = jax.tree.map(lambda x: x[places], segments(0, len(totals)))
        return found._replace(total=total[places], length=length[places], number=first + places)

    return Survey(total, length, jnp.ones(len(totals), bool) if live is None else jnp.asarray(live), gather)


def _rewards(method: Any, state: ircr.State, totals: list[float], lengths: list[int]) -> np.ndarray:
    steps = transitions(0, len(totals))._replace(
        segment_total=jnp.asarray(totals, jnp.float32), segment_length=jnp.asarray(lengths, jnp.int32)
    )
    return np.asarray(method.reward(state, steps))


# --- The reward


def test_rewards_equal_numpy() -> None:
    totals, lengths = [3.0, -2.0, 8.0, 0.5], [3, 1, 4, 2]
    state = METHOD.memory.survey(_state(), _survey(totals, lengths))
    mean = np.array(totals) / np.array(lengths)
    expected = (mean - mean.min()) / (mean.max() - mean.min())
    np.testing.assert_allclose(_rewards(METHOD, state, totals, lengths), expected, rtol=1e-6)


def test_the_rrd_authors_variant_scales_the_plain_sum() -> None:
    method = ircr.make(ircr.Config(credit="sum"))
    totals, lengths = [3.0, -2.0, 8.0, 0.5], [3, 1, 4, 2]
    state = method.memory.survey(_state(method), _survey(totals, lengths))
    found = _rewards(method, state, totals, lengths)
    np.testing.assert_allclose(found, (np.array(totals) + 2) / 10, rtol=1e-6)


def test_only_whole_segments_of_the_replay_set_the_scale() -> None:
    live = [True, True, False, False]
    state = METHOD.memory.survey(_state(), _survey([1.0, 2.0, 99.0, -99.0], [1, 1, 1, 0], live))
    np.testing.assert_allclose(_rewards(METHOD, state, [1.0, 1.5, 2.0], [1, 1, 1]), [0, 0.5, 1])


def test_the_memory_sets_the_scale_with_the_replay() -> None:
    """The best ever has left the replay, and still is what 1 means. The worst is forgotten."""
    state = METHOD.memory.survey(_state(), _survey([10.0, -10.0, 5.0, 1.0], [1, 1, 1, 1]))
    state = METHOD.memory.survey(state, _survey([0.0, 1.0, 2.0, 4.0], [1, 1, 1, 1], first=100))
    np.testing.assert_allclose(_rewards(METHOD, state, [10.0, 5.0, 0.0], [1, 1, 1]), [1, 0.5, 0])


@pytest.mark.parametrize("pay", [1.0, 0.1, -1.0, 0.0])
def test_where_all_segments_are_worth_the_same_the_sign_remains(pay: float) -> None:
    """CartPole pays 1 for each step: total / T is 1 for all, up to rounding. A long life stays worth it."""
    lengths = list(range(1, 300))
    totals = [float(np.sum(np.full(n, pay, np.float32))) for n in lengths]
    state = METHOD.memory.survey(_state(), _survey(totals, lengths))
    np.testing.assert_array_equal(_rewards(METHOD, state, totals, lengths), np.sign(pay))


def test_rewards_before_any_survey_and_of_padding_are_finite() -> None:
    assert np.isfinite(_rewards(METHOD, _state(), [1.0, -3.0, 0.0], [2, 1, 0])).all()


# --- The memory


def _chunk(totals: list[float], length: int, seed: int) -> replays.Chunk:
    """Episodes of one segment, `length` steps each, that pay these totals."""
    episodes = [builders.episode(10 * seed + number, [length]) for number in range(len(totals))]
    last = np.arange(length) == length - 1
    for episode, total in zip(episodes, totals, strict=True):
        paid = np.where(last, total, 0).astype(np.float32)
        episode |= {"paid": paid, "terminated": np.asarray(total > 0)}
    chunk = chunk_of(episodes, len(totals) * (length + 1) + 1, len(totals))
    return jax.tree.map(jnp.asarray, chunk)


@jax.jit
def _iterate(state: ircr.State, replay: Replay, chunk: replays.Chunk) -> tuple[ircr.State, Replay]:
    replay = replays.insert(replay, chunk)
    return METHOD.memory.survey(state, replays.survey(replay, SPEC.max_segment_steps)), replay


def test_the_best_ever_outlive_the_replay() -> None:
    """Three episodes at a time through a replay that holds six: in the end, the two best of thirty."""
    totals = np.random.default_rng(3).permutation(30).astype(np.float32) - 15
    state, replay = _state(), replays.init(SPEC, 24)
    for turn in range(10):
        state, replay = _iterate(state, replay, _chunk(totals[3 * turn : 3 * turn + 3].tolist(), 3, turn))
    np.testing.assert_array_equal(state.best.total, [14, 13])
    numbers = [int(np.flatnonzero(totals == total)[0]) for total in (14, 13)]
    np.testing.assert_array_equal(state.best.number, numbers)
    assert state.highest == pytest.approx(14 / 3)
    for place, number in enumerate(numbers):  # the steps are those of that episode
        original = _chunk([0.0, 0.0, 0.0], 3, number // 3).observation
        start = 4 * (number % 3)
        np.testing.assert_array_equal(state.best.observations[place, :4], original[start : start + 4])
        assert state.best.terminated[place]


def test_rewards_of_all_that_the_policy_learns_from_lie_between_0_and_1() -> None:
    state, replay = _state(), replays.init(SPEC, 24)
    for turn in range(6):
        totals = np.random.default_rng(turn).normal(size=3).tolist()
        state, replay = _iterate(state, replay, _chunk(totals, 1 + turn % 2, turn))
    drawn = replays.draw(replay, jax.random.key(0), METHOD.sampling, 200, 1)
    steps = replays.gather(replay, lane(drawn, 0), 1).transitions
    for found in (steps, METHOD.memory.recall(state, 200, jax.random.key(1))):
        rewards = METHOD.reward(state, found)
        assert rewards.min() >= 0
        assert rewards.max() <= 1
    assert METHOD.reward(state, METHOD.memory.recall(state, 200, jax.random.key(1))).max() == 1


@pytest.mark.parametrize(("share", "more"), [(0.5, 256), (0.2, 64), (0.75, 768)])
def test_the_memory_gives_its_share_of_the_batch(share: float, more: int) -> None:
    method = ircr.make(ircr.Config(best_share=share))
    found = method.memory.recall(_state(method), 256, jax.random.key(0))
    assert found.paid.shape == (more,)


# --- Learning


def test_nothing_is_learned() -> None:
    """An update returns the state it was given, and no loss; a survey knows totals and lengths only."""
    state = METHOD.memory.survey(_state(), _survey([1.0, 2.0], [1, 2]))
    after, metrics = METHOD.update(state, batch(0, 6, 0), jax.random.key(0))
    assert after is state
    assert metrics == {}
    assert METHOD.sampling.segments == 0
