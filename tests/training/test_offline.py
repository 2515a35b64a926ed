"""Logged episodes in a replay: what learners draw from it is what was logged."""

import numpy as np

import builders
from apportion.core.types import Record
from apportion.data import replay as replays
from apportion.training.offline import fill, with_last

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
