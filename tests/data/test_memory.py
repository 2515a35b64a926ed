"""A memory keeps the best, each once, and gives back what it was given, evenly and unharmed."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apportion.core.types import Segments
from apportion.data import memory as memories
from apportion.data.memory import Memory
from builders import SPEC, assert_equal, lane, segments

SIZE = 3
offer = jax.jit(memories.offer)


POOL = jax.tree.map(np.asarray, segments(0, 10))  # each can be told from the others


def _numbered(*numbers: int) -> Segments:
    return jax.tree.map(lambda x: jnp.asarray(x[list(numbers)]), POOL)


def _held(memory: Memory) -> dict[int, float]:
    return {int(n): float(s) for n, s in zip(memory.number, memory.score, strict=True) if n >= 0}


def _filled(*numbers: int) -> Memory:
    memory = memories.init(SPEC, SIZE)
    return offer(memory, _numbered(*numbers), jnp.ones(len(numbers)))


# --- What is kept


@settings(max_examples=30)
@given(
    offers=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3)), min_size=4, max_size=4),
        min_size=1,
        max_size=6,
    )
)
def test_the_best_are_kept_each_once_and_a_newer_score_replaces_the_older(
    offers: list[list[tuple[int, int]]],
) -> None:
    """Against a dictionary. Ties may fall either way, so scores are compared, and each number's own score."""
    memory, plain = memories.init(SPEC, SIZE), dict[int, float]()
    for pairs in offers:
        # One score per number and moment: spread them so that no two numbers tie.
        pairs = [(number, score + number / 100) for number, score in pairs]
        scores = jnp.asarray([score for _, score in pairs], jnp.float32)
        memory = offer(memory, _numbered(*(number for number, _ in pairs)), scores)
        plain |= dict(pairs)
        plain = dict(sorted(plain.items(), key=lambda pair: -pair[1])[:SIZE])
    assert _held(memory) == pytest.approx(plain, abs=1e-6)


def test_a_segment_comes_back_as_it_was_but_for_the_hidden_reward() -> None:
    given_, memory = _numbered(2, 3, 6), _filled(2, 3, 6)
    drawn = memories.draw_segments(memory, 50, jax.random.key(0))
    assert np.isnan(drawn.true_rewards).all()
    whose = jnp.asarray([[2, 3, 6].index(number) for number in drawn.number.tolist()])
    original = jax.tree.map(lambda leaf: leaf[whose], given_)
    assert_equal(drawn._replace(true_rewards=original.true_rewards), original)


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_offer_nothing(score: float) -> None:
    memory = offer(_filled(1, 2), _numbered(2, 3), jnp.full(2, score))
    assert set(_held(memory)) == {1, 2}


# --- What is drawn


def test_segments_and_steps_are_drawn_evenly_whatever_the_length_and_never_from_empty_places() -> None:
    """Segments of 1, 2 and 4 steps: seven steps, each as likely."""
    drawn = memories.draw_segments(_filled(1, 5), 4000, jax.random.key(0))
    counts = Counter(np.asarray(drawn.number).tolist())
    assert set(counts) == {1, 5}
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3
    memory = _filled(0, 1, 3)
    drawn = memories.draw_transitions(memory, 7000, jax.random.key(0))
    pairs = zip(drawn.segment_length.tolist(), drawn.step_in_segment.tolist(), strict=True)
    counts = Counter(pairs)
    assert set(counts) == {(length, step) for length in (1, 2, 4) for step in range(length)}
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_a_step_is_that_of_its_segment_and_only_the_last_is_paid_or_ends() -> None:
    data = _numbered(1, 3)._replace(terminated=jnp.asarray([True, False]))
    memory = offer(memories.init(SPEC, SIZE), data, jnp.ones(2))
    drawn = memories.draw_transitions(memory, 100, jax.random.key(0))
    for index in range(100):
        step = lane(drawn, index)
        m = 0 if step.segment_length == 2 else 1
        t, last = int(step.step_in_segment), int(step.step_in_segment) == int(data.length[m]) - 1
        np.testing.assert_array_equal(step.observation, data.observations[m, t])
        np.testing.assert_array_equal(step.action, data.actions[m, t])
        np.testing.assert_array_equal(step.next_observation, data.observations[m, t + 1])
        assert step.segment_total == data.total[m]
        assert step.paid == (data.total[m] if last else 0)
        assert bool(step.terminated) == (last and m == 0)
        assert float(step.credit) == pytest.approx(float(data.total[m]) / int(data.length[m]))


def test_drawing_from_an_empty_memory_harms_nobody() -> None:
    """Segments without a step; steps that end, pay nothing and are finite."""
    empty, key = memories.init(SPEC, SIZE), jax.random.key(0)
    assert not memories.draw_segments(empty, 5, key).mask.any()
    steps: Any = memories.draw_transitions(empty, 5, key)
    assert steps.terminated.all()
    assert not steps.segment_total.any()
    assert (steps.segment_length == 1).all()
    seen = steps._replace(true_reward=jnp.zeros(5))  # the hidden reward is not remembered
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(seen))
