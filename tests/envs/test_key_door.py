"""The task where order matters: the door pays only who fetched the key, and what is seen does not say who."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from known_graphs import mean_return
from numpy.typing import NDArray

from apportion.envs.key_door import DOOR_PAYS, FIREFLY_PAYS, STEPS, KeyDoor, expert_action, firefly_action


def _rewards(plan: list[float], **options: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of an episode from the middle of the corridor, and what was observed in it."""
    env = KeyDoor(**options)
    env.reset(seed=0)
    env._place = 0.0
    steps = [env.step(np.array([action], np.float32)) for action in plan]
    return np.array([reward for _, reward, *_ in steps]), np.stack([observation for observation, *_ in steps])


EARLY_LEFT, LATE_RIGHT = [-1.0] * 10 + [0.0] * 20, [1.0] * 10
MIDDLE = [0.0] * 30
THERE_AND_BACK = [-1.0] * 2 + [1.0] * 2 + [0.0] * 26


@pytest.mark.parametrize(
    ("plan", "opens"),
    [
        (EARLY_LEFT + LATE_RIGHT, True),
        (THERE_AND_BACK + LATE_RIGHT, True),
        (MIDDLE + LATE_RIGHT, False),  # no key
        ([0.0] * 11 + [-1.0] * 9 + [0.0] * 10 + LATE_RIGHT, False),  # too late for it
        (EARLY_LEFT + [0.0] * 10, False),  # no door
        ([-1.0] * 4 + [1.0] * 20 + [-1.0] * 16, False),  # too early for it
        ([1.0] * 10 + [-1.0] * 30, False),  # the wrong order
    ],
)
def test_the_door_pays_once_to_who_fetched_the_key_in_time(plan: list[float], opens: bool) -> None:
    rewards, _ = _rewards(plan)
    assert len(plan) == STEPS
    assert np.sum(rewards > DOOR_PAYS / 2) == opens
    assert np.all((rewards >= 0) & (rewards <= DOOR_PAYS + FIREFLY_PAYS))


def test_nothing_observed_tells_who_has_the_key() -> None:
    """Two walkers at the same place and time, one with the key: the same observation, another reward."""
    with_key, seen = _rewards(THERE_AND_BACK + LATE_RIGHT)
    without, also_seen = _rewards([1.0] * 2 + [-1.0] * 2 + [0.0] * 26 + LATE_RIGHT)
    assert np.abs(seen[4:] - also_seen[4:]).max() < 1e-6
    assert with_key[30:].sum() - without[30:].sum() == pytest.approx(DOOR_PAYS, abs=1e-6)


def test_the_key_can_be_shown() -> None:
    _, seen = _rewards(EARLY_LEFT, show_key=True)
    assert KeyDoor(show_key=True).observation_names[-1] == "key"
    np.testing.assert_array_equal(seen[:, -1], np.arange(30) >= 1)  # the second step brings him there


def test_gymnasiums_checker_is_content() -> None:
    check_env(gymnasium.make("apportion/KeyDoor-v0").unwrapped, skip_render_check=True)


def test_the_expert_beats_who_stays_with_the_firefly_and_both_beat_chance() -> None:
    env, seeds = KeyDoor(), range(100)
    random = mean_return(env, lambda _, rng: rng.uniform(-1, 1, 1), seeds, STEPS)
    firefly = mean_return(env, lambda observation, _: firefly_action(observation), seeds, STEPS)
    expert = mean_return(env, lambda observation, _: expert_action(observation), seeds, STEPS)
    assert random == pytest.approx(1.0, abs=0.6)
    assert firefly == pytest.approx(1.95, abs=0.02)
    assert expert == pytest.approx(6.4, abs=0.02)
    assert expert > 0.9 * (DOOR_PAYS + STEPS * FIREFLY_PAYS)  # which no policy can exceed
