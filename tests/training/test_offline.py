"""Learning from logs: what a replay holds of them, and what a policy would earn where values are known."""

from typing import Any

import numpy as np
import pytest

import builders
from apportion.core.types import Record, Transitions
from apportion.data import replay as replays
from apportion.training import off_policy
from apportion.training.offline import all_steps, fill, in_unit, with_last


def _log(episodes: int = 150, steps: int = 5, seed: int = 0) -> tuple[Transitions, Any]:
    """The state counts what was done; a step pays its action. So whoever always does u earns u x steps."""
    rng = np.random.default_rng(seed)
    records, rewards = [], []
    for number in range(episodes):
        done = rng.uniform(-1, 1, (steps, 1)).astype(np.float32)
        seen = np.concatenate([np.zeros((1, 1)), np.cumsum(done, axis=0)]).astype(np.float32)
        records.append(Record(seen, done, float(done.sum()), False, number))
        rewards.append(done[:, 0])
    return all_steps(records), np.concatenate(rewards).astype(np.float64)


@pytest.mark.parametrize("does", [0.5, -0.25])
def test_values_are_those_of_the_policy(does: float) -> None:
    steps, rewards = _log()
    action = np.full((len(rewards), 1), does, np.float32)
    paid = np.repeat(rewards[:, None], 12, axis=1)
    found = off_policy.evaluate(steps, paid, action, action, 5, np.random.default_rng(0))
    assert np.median(found.policy) == pytest.approx(5 * does, abs=0.15)
    assert np.median(found.behaviour) == pytest.approx(rewards.sum() / 150, abs=0.15)
    assert np.ptp(found.policy) > 0


def test_early_ends_earn_nothing_more() -> None:
    """Each step pays 1, and half of the episodes are over after one of two."""
    rng = np.random.default_rng(0)
    records = [
        Record(np.ones((length + 1, 1), np.float32), rng.uniform(-1, 1, (length, 1)), length, True, number)
        for number, length in enumerate(np.tile([1, 2], 60))
    ]
    steps = all_steps(records)
    action = np.zeros((len(steps.paid), 1), np.float32)
    # All states look alike, and after one of three steps there is another.
    found = off_policy.evaluate(steps, np.ones((len(action), 8)), action, action, 2, rng)
    assert np.median(found.policy) == pytest.approx(4 / 3, abs=0.1)


def test_untried_actions_are_noticed() -> None:
    steps, rewards = _log()
    steps = steps._replace(action=np.where(np.asarray(steps.action) > 0, 1.0, -1.0))
    rng = np.random.default_rng(0)
    assert off_policy.untried(steps, np.ones((len(rewards), 1)), rng) < 0.1
    assert off_policy.untried(steps, np.zeros((len(rewards), 1)), rng) == 1.0


def test_importance_sampling_weighs_episodes_by_likelihood() -> None:
    """Two kinds of episodes of one step; the policy does the second kind three times as often."""
    own, other = np.log([0.25, 0.75]), np.log([0.5, 0.5])
    value, effective = off_policy.weighted_importance(own, other, np.array([0.0, 4.0]), np.zeros(2))
    assert value == pytest.approx(3.0)
    assert effective == pytest.approx(1 / (0.25**2 + 0.75**2))


def test_rewards_for_learning_have_variance_one() -> None:
    rewards = np.random.default_rng(0).normal(7, 3, (2, 400))
    assert in_unit(rewards, np.zeros(400, bool)).mean() == pytest.approx(0, abs=1e-6)
    ended = in_unit(rewards, np.ones(400, bool))
    assert ended.std() == pytest.approx(1, rel=0.01)
    assert ended.mean() > 2  # where episodes end, a level counts


# --- Logged episodes in a replay: what learners draw from it is what was logged


RNG = np.random.default_rng(0)
LENGTHS = [4, 1, 6]
RECORDS = [
    Record(
        observations=RNG.normal(size=(length + 1, 3)).astype(np.float32),
        actions=RNG.uniform(-1, 1, (length, 2)).astype(np.float32),
        total=float(number),
        terminated=number != 1,
        number=number,
    )
    for number, length in enumerate(LENGTHS)
]


def test_the_last_step_cannot_be_told_by_leading_nowhere() -> None:
    """Where a log does not have the last observation; a category stays what it was."""
    seen = np.array([[0.0, 5.0, 1.0], [1.0, 4.5, 0.0], [2.0, 4.0, 1.0]], np.float32)
    np.testing.assert_array_equal(with_last(seen, 3)[-1], [3.0, 3.5, 1.0])
    np.testing.assert_array_equal(with_last(seen[:1], 1)[-1], seen[0])
    assert with_last(seen, 2) is seen


def test_a_filled_replay_holds_the_episodes_and_how_they_ended() -> None:
    found = replays.records(fill(builders.SPEC, RECORDS), 1000)
    assert len(found) == len(RECORDS)
    for record, logged in zip(found, RECORDS, strict=True):
        np.testing.assert_array_equal(record.observations, logged.observations)
        np.testing.assert_array_equal(record.actions, logged.actions)
        assert (record.total, record.terminated) == (logged.total, logged.terminated)


def test_where_the_last_observation_is_not_known_the_last_move_goes_on() -> None:
    short = [record._replace(observations=record.observations[:-1]) for record in RECORDS]
    for record, logged in zip(replays.records(fill(builders.SPEC, short), 1000), short, strict=True):
        np.testing.assert_array_equal(record.observations[:-1], logged.observations)
        move = logged.observations[-1] - logged.observations[-min(2, len(logged.actions))]
        np.testing.assert_allclose(record.observations[-1], logged.observations[-1] + move, atol=1e-5)
