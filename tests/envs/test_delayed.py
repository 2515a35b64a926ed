"""The delay wrapper's promise: payments add up to what was earned, and segments are as long as asked."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from hypothesis import given
from hypothesis import strategies as st
from toy_envs import Scripted

from apportion.core.config import UserError
from apportion.envs.delayed import DelayedReward, Every, max_segment_steps

ACTION = np.zeros(1, np.float32)

ranges = st.tuples(st.integers(1, 8), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
delays = st.one_of(st.none(), st.integers(1, 12), ranges)
rewards = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=30)
episodes = st.lists(st.tuples(rewards, st.booleans()), min_size=1, max_size=4)


def play(
    env: gymnasium.Env[Any, Any], seed: int | None = None
) -> tuple[list[float], list[float], list[bool]]:
    """One episode: payments, true rewards, and where segments end."""
    env.reset(seed=seed)
    paid, true, ends, over = [], [], [], False
    while not over:
        _, payment, terminated, truncated, info = env.step(ACTION)
        paid.append(float(payment))
        true.append(info["true_reward"])
        ends.append(info["segment_end"])
        over = terminated or truncated
    return paid, true, ends


def segment_lengths(ends: list[bool]) -> list[int]:
    return np.diff(np.flatnonzero([True, *ends])).tolist()


@given(episodes=episodes, every=delays, seed=st.none() | st.integers(0, 2**32))
def test_payments_add_up_to_what_was_earned_in_windows_as_long_as_asked(
    episodes: list[tuple[list[float], bool]], every: Every, seed: int | None
) -> None:
    env = DelayedReward(Scripted(episodes), every)
    shortest, longest = every if isinstance(every, tuple) else (every or 10**6,) * 2
    for script, _ in episodes:
        paid, true, ends = play(env, seed)
        assert true == script
        assert ends[-1]
        assert all(payment == 0 for payment, end in zip(paid, ends, strict=True) if not end)
        start, lengths = 0, segment_lengths(ends)
        assert all(shortest <= length <= longest for length in lengths[:-1])  # the last one may be cut
        assert lengths[-1] <= max_segment_steps(every, len(script)) <= longest
        for length in lengths:
            assert paid[start + length - 1] == pytest.approx(sum(true[start : start + length]), abs=1e-6)
            start += length


def test_same_seed_same_windows_and_another_seed_others() -> None:
    env = DelayedReward(Scripted([([1.0] * 400, False)] * 5), (2, 4))
    first, again, other = (play(env, seed)[2] for seed in (3, 3, 4))
    assert first == again != other
    assert play(env)[2] != play(env)[2]  # without a seed the stream runs on
    lengths = segment_lengths(first)[:-1]
    assert set(lengths) == {2, 3, 4}
    stream = gymnasium.utils.seeding.np_random(3)[0]  # the environment's own, which they do not follow
    assert lengths != [stream.integers(2, 4, endpoint=True) for _ in lengths]


def test_a_reset_in_mid_episode_forgets_what_was_owed() -> None:
    env = DelayedReward(Scripted([([5.0] * 9, True), ([1.0] * 3, True)]))
    env.reset()
    env.step(ACTION)
    assert play(env)[0] == [0.0, 0.0, 3.0]


def test_a_time_limit_that_cuts_a_window_short_pays() -> None:
    env = DelayedReward(TimeLimit(Scripted([([1.0] * 9, True)]), 4))
    assert play(env)[0] == [0.0, 0.0, 0.0, 4.0]


@pytest.mark.parametrize("reward", [None, "much", np.ones(2)])
def test_a_reward_that_is_no_number_is_shown(reward: Any) -> None:
    env = DelayedReward(Scripted([([reward], True)]))
    with pytest.raises(UserError, match=r"the reward of a step is .*: return a single number from step\(\)"):
        play(env)


@pytest.mark.parametrize("every", [0, -1, True, 2.5, "20", (3, 2), (0, 2), (1,), (1, 2, 3), (1, 2.5)])
def test_a_senseless_delay_is_refused_at_construction(every: Any) -> None:
    with pytest.raises(UserError, match=r"is no delay: use None .*, a number of steps .*, or a range"):
        DelayedReward(Scripted([]), every)


def test_the_environments_spec_can_rebuild_the_wrapper() -> None:
    env = DelayedReward(gymnasium.make("apportion/Greenhouse-v0"), (3, 5))
    assert env.spec is not None
    rebuilt = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert isinstance(rebuilt, DelayedReward)
    rebuilt.reset(seed=0)
    ends = [rebuilt.step(np.zeros(3, np.float32))[4]["segment_end"] for _ in range(40)]
    assert all(3 <= length <= 5 for length in segment_lengths(ends)[:-1])
