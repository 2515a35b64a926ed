"""A lane can be put back exactly, and says plainly when its environment misbehaves."""

from typing import Any

import numpy as np
import pytest
from actors import actor
from lane_envs import EndsEarlier

from apportion.core.config import UserError
from apportion.envs.acting import NOISE_SPAN, repeated_noise
from apportion.envs.lane import _REPEATED, BEFORE_THE_START, Lane, Noise, play_one
from apportion.envs.make import EnvConfig
from builders import assert_equal

HEAD = "tanh_gaussian"


def _lane(env_id: str, delay: str = "episode", seed: int = 3) -> Lane:
    lane = Lane(EnvConfig(env_id, delay=delay), seed, HEAD)
    lane.put_back(BEFORE_THE_START)
    return lane


def _collect(lane: Lane, policy: Any, steps: int, iteration: int) -> dict[str, Any]:
    writer = lane.writer(steps)
    lane.collect(policy, iteration, writer)
    return writer.finish(lane.observation)


@pytest.mark.parametrize(
    ("env_id", "delay", "before"),
    [
        *(("apportion/Greenhouse-v0", delay, 25) for delay in ("episode", "none", "7", "3-9")),
        ("HalfCheetah-v4", "3-9", 25),
        ("lane_envs:Walk-v0", "episode", 3),  # to the first step of an episode
    ],
)
def test_a_lane_put_back_goes_on_as_if_it_had_never_stopped(env_id: str, delay: str, before: int) -> None:
    """From the middle of an episode and of a segment, bit for bit; Greenhouse's episodes have 40 steps."""
    lane = _lane(env_id, delay)
    policy = actor(lane.spec.observation_size, lane.spec.action_size)
    _collect(lane, None, before, 0)
    _collect(lane, policy, 25, 1)
    where = lane.where()
    expected = [_collect(lane, policy, 25, 2), _collect(lane, policy, 45, 3)]

    other = _lane(env_id, delay)
    _collect(other, None, 5, 0)  # wherever it was before
    other.put_back(where)
    assert_equal(other.where(), where)
    for iteration, chunk in enumerate(expected, start=2):
        assert_equal(_collect(other, policy, len(chunk["segment_start"]), iteration), chunk)


def test_a_chunk_tells_the_story_in_order() -> None:
    """Three episodes of seven steps, paid every four: rows, final observations, segments, totals."""
    lane = _lane("lane_envs:Walk-v0", "4")
    chunk = _collect(lane, None, 17, 0)
    assert int(chunk["rows"]) == 17 + 2  # two episodes have ended
    assert int(chunk["segments"]) == 4
    np.testing.assert_array_equal(chunk["segment_start"][:4], [0, 4, 8, 12])
    np.testing.assert_array_equal(chunk["segment_length"][:4], [4, 3, 4, 3])
    np.testing.assert_array_equal(chunk["episode_start"][:4], [0, 0, 8, 8])
    assert not chunk["terminated"].any()  # a time limit is not an end
    for start, length, total in zip(
        chunk["segment_start"][:4], chunk["segment_length"][:4], chunk["segment_total"][:4], strict=True
    ):
        rewards = chunk["true_reward"][start : start + length]
        assert total == pytest.approx(rewards.sum(), rel=1e-5)
        assert chunk["paid"][start + length - 1] == pytest.approx(total)
        np.testing.assert_array_equal(chunk["paid"][start : start + length - 1], 0)
    np.testing.assert_allclose(  # the reward is read off the next observation, final ones included
        chunk["observation"][1:8].sum(axis=1), chunk["true_reward"][:7], rtol=1e-5
    )
    np.testing.assert_array_equal(chunk["observation"][19], lane.observation)
    later = _collect(lane, None, 1, 1)
    np.testing.assert_array_equal(later["observation"][0], chunk["observation"][19])


def test_episodes_lanes_and_iterations_differ_and_all_repeats_by_seed() -> None:
    moments = ((3, 0), (3, 0), (3, 1), (4, 0))
    chunk, again, later, elsewhere = (
        _collect(_lane("lane_envs:Walk-v0", seed=seed), None, 8, iteration) for seed, iteration in moments
    )
    assert_equal(chunk, again)
    assert not np.array_equal(chunk["observation"][0], chunk["observation"][8])
    assert not np.array_equal(chunk["observation"], elsewhere["observation"])
    assert not np.array_equal(chunk["action"], elsewhere["action"])
    assert not np.array_equal(chunk["action"], later["action"])


# --- Evaluation episodes


def test_evaluation_plays_whole_episodes_the_same_way_every_time() -> None:
    lane, policy = _lane("lane_envs:Walk-v0", "3"), actor(2, 1)
    played = [play_one(lane, policy, (0, number)) for number in range(2)]
    again = [play_one(_lane("lane_envs:Walk-v0", "3"), policy, (0, number)) for number in range(2)]
    for episode, same in zip(played, again, strict=True):
        assert_equal(episode, same)
        assert episode["observations"].shape == (8, 2)
        assert episode["segment_end"].tolist() == [False, False, True, False, False, True, True]
        assert episode["paid"].sum() == pytest.approx(episode["true_rewards"].sum(), rel=1e-4)
    assert not np.array_equal(played[0]["observations"], played[1]["observations"])
    lane.begin(int(played[0]["seed"]))
    np.testing.assert_array_equal(lane.observation, played[0]["observations"][0])
    later = play_one(lane, policy, (1, 0))
    assert not np.array_equal(later["observations"][0], played[0]["observations"][0])


def test_noise_disturbs_what_the_policy_sees_and_nothing_else() -> None:
    policy = actor(2, 1)
    half = policy | {"mask": np.array([1, 0], np.float32)}
    calm, noisy, masked, masked_noisy = (
        play_one(_lane("lane_envs:Walk-v0"), each, (0, 0), noise)
        for each, noise in ((policy, None), (policy, Noise(5.0, ())), (half, None), (half, Noise(5.0, (1,))))
    )
    np.testing.assert_array_equal(calm["observations"][0], noisy["observations"][0])
    assert not np.array_equal(calm["actions"], noisy["actions"])
    assert_equal(masked_noisy, masked)  # noise on a dimension behind the mask changes nothing


# --- Complaints


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("NanObservation", r"v0, seed 3, episode 0, step 3: observation has nan in dimension 1 \(right\)"),
        ("LongObservation", r"step 1: observation has shape \(3,\), but observation_space says"),
        ("NanReset", r"step 0: observation after reset has inf in dimension 0 \(left\)"),
        ("LongReset", r"step 0: observation after reset has shape \(3,\), .* says \(2,\)"),
        ("NanReward", "step 2: reward is nan"),
        ("HugeReward", r"step 1: reward is 1e\+300: return finite numbers up to 1e\+15"),
        ("TextReward", "the reward of a step is '5': return a single number from step"),
        ("TextEnd", "step 1: terminated is 'no': return True or False"),
        ("NoInfo", "the info of a step is None: return a dictionary as step"),
        ("Outlives", "step 3: its declared max_episode_steps has passed, but it goes on"),
    ],
)
def test_complaints_name_the_step(name: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        _collect(_lane(f"lane_envs:{name}-v0"), None, 5, 0)
    with pytest.raises(UserError, match=r"gave an action of shape \(2,\): give one number for each of 1"):
        _collect(_lane("lane_envs:Walk-v0"), actor(2, 2), 5, 0)  # the head's fault


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Unseeded", r"not deterministic.*make reset\(seed=...\) fix all of its randomness"),
        ("EndsEarlier", "ended while being replayed: it is not deterministic"),
    ],
)
def test_an_environment_that_cannot_repeat_itself_cannot_be_put_back(name: str, complaint: str) -> None:
    EndsEarlier.patience = 8
    lane = _lane(f"lane_envs:{name}-v0")
    _collect(lane, None, 6, 0)
    with pytest.raises(UserError, match=complaint):
        lane.put_back(lane.where())


def test_what_was_chosen_is_stored_though_the_environment_writes_into_it() -> None:
    chunk = _collect(_lane("lane_envs:ClipsInPlace-v0"), None, 20, 0)
    assert np.abs(chunk["action"][: chunk["rows"]]).max() > 0.5


def test_noise_is_kept_for_so_many_steps_as_the_zeta_distribution_says() -> None:
    noise = repeated_noise((3, 1), 0, 200 * NOISE_SPAN, 2, 16)
    new = np.any(np.diff(noise, axis=0) != 0, axis=1)
    new[NOISE_SPAN - 1 :: NOISE_SPAN] = True  # where a run may be cut short
    runs = np.diff(np.flatnonzero(new))
    chances = 1 / np.arange(1, 17) ** 2
    shares = np.bincount(runs, minlength=17)[1:] / len(runs)
    np.testing.assert_allclose(shares, chances / chances.sum(), atol=0.01)
    assert len(shares) == 16
    draws = noise[1:][new]
    np.testing.assert_allclose([draws.mean(), draws.std()], [0, 1], atol=0.02)


@pytest.mark.parametrize("steps", [1, 25, 700])
def test_noise_does_not_depend_on_how_steps_are_asked_for(steps: int) -> None:
    """So whoever goes on elsewhere has the same, in the middle of a run, too."""
    whole = repeated_noise((3, 1), 0, 1400, 2, 16)
    parts = [repeated_noise((3, 1), first, steps, 2, 16) for first in range(0, 1400, steps)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert np.any(whole != repeated_noise((4, 1), 0, 1400, 2, 16))


def test_a_lane_put_back_keeps_its_noise() -> None:
    """Bit for bit, and from an actor that hardly looks: actions repeat as its noise does."""
    lane = Lane(EnvConfig("Pendulum-v1"), 3, "bounded_gaussian")
    policy = {**actor(3, 1), "longest_repeat": np.asarray(16, np.float32)}
    policy = {**policy, "w1": 0 * policy["w1"], "b1": np.zeros(2, np.float32)}
    lane.put_back(BEFORE_THE_START)
    _collect(lane, policy, 25, 0)
    where = lane.where()
    expected = [_collect(lane, policy, 25, iteration) for iteration in (1, 2)]

    other = Lane(EnvConfig("Pendulum-v1"), 3, "bounded_gaussian")
    other.put_back(where)
    for iteration, chunk in enumerate(expected, start=1):
        assert_equal(_collect(other, policy, 25, iteration), chunk)
    noise = repeated_noise((3, _REPEATED), 25, 50, 1, 16)
    taken = np.concatenate([chunk["action"][:25] for chunk in expected])
    np.testing.assert_allclose(taken, np.tanh(np.exp(-4) * noise), rtol=1e-4)
