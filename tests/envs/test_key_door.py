"""The task where order matters: the door pays only who fetched the key, and what is seen does not say who."""

from typing import Any

import numpy as np
import pytest
from known_graphs import mean_return
from numpy.typing import NDArray

from apportion.envs.key_door import COINS_AT, DOOR_FROM, DOOR_PAYS, FIREFLY_PAYS, SPEED, STAKE, STEPS, KeyDoor


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


def test_an_episode_succeeds_when_the_door_is_opened() -> None:
    env = KeyDoor()
    env.reset(seed=0)
    told = [env.step(np.array([action], np.float32))[4]["success"] for action in EARLY_LEFT + LATE_RIGHT]
    assert (any(told[:30]), told[-1]) == (False, True)


def expert_action(observation: NDArray[Any]) -> NDArray[np.float32]:
    """Fetches the key, keeps the firefly company, goes to the door and back: without memory, by the clock."""
    step = round((float(observation[1]) + 1.0) / 2.0 * STEPS)
    if step < 5:  # so many steps lead from anywhere to the key
        return _towards(observation, -1.0)
    return (
        _towards(observation, 1.0) if DOOR_FROM - 2 <= step < DOOR_FROM + 2 else firefly_action(observation)
    )


def firefly_action(observation: NDArray[Any]) -> NDArray[np.float32]:
    """Stays with the firefly, whatever the time."""
    return _towards(observation, float(observation[2]))


def _towards(observation: NDArray[Any], place: float) -> NDArray[np.float32]:
    return np.array([np.clip((place - float(observation[0])) / SPEED, -1.0, 1.0)], np.float32)


def test_the_expert_beats_who_stays_with_the_firefly_and_both_beat_chance() -> None:
    env, seeds = KeyDoor(), range(100)
    random = mean_return(env, lambda _, rng: rng.uniform(-1, 1, 1), seeds, STEPS)
    firefly = mean_return(env, lambda observation, _: firefly_action(observation), seeds, STEPS)
    expert = mean_return(env, lambda observation, _: expert_action(observation), seeds, STEPS)
    assert random == pytest.approx(1.0, abs=0.6)
    assert firefly == pytest.approx(1.95, abs=0.02)
    assert expert == pytest.approx(6.4, abs=0.02)
    assert expert > 0.9 * (DOOR_PAYS + STEPS * FIREFLY_PAYS)  # which no policy can exceed


# --- The lottery


def _at_random(env: KeyDoor, seed: int, chance: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Observations [40, S] and rewards [40] with random actions; another `chance`, other actions."""
    rng = np.random.default_rng([seed, chance])
    observation, _ = env.reset(seed=seed)
    seen, rewards = [], []
    for _ in range(STEPS):
        seen.append(observation)
        observation, reward, *_ = env.step(rng.uniform(-1, 1, 1).astype(np.float32))
        rewards.append(reward)
    return np.stack(seen), np.array(rewards)


@pytest.fixture(scope="module")
def drawn() -> list[tuple[NDArray[Any], NDArray[Any]]]:
    env = KeyDoor(lottery=STAKE)
    return [_at_random(env, seed) for seed in range(400)]


def test_the_lottery_pays_or_costs_its_stake_and_no_action_changes_it(drawn: list[Any]) -> None:
    """The same seed and actions without it: the best policy of one is the best of the other."""
    shown = np.isin(np.arange(STEPS), COINS_AT)
    for seed, (seen, rewards) in enumerate(drawn[:20]):
        plain, earned = _at_random(KeyDoor(), seed)
        np.testing.assert_array_equal(seen[:, :-1], plain)
        paid = np.where(np.arange(STEPS) == COINS_AT[1], STAKE * seen[shown, -1].prod(), 0.0)
        np.testing.assert_allclose(rewards - earned, paid, atol=1e-12)
        np.testing.assert_array_equal(np.abs(seen[:, -1]), shown)
        otherwise, _ = _at_random(KeyDoor(lottery=STAKE), seed, chance=1)
        np.testing.assert_array_equal(otherwise[:, -1], seen[:, -1])


def test_either_coin_alone_tells_nothing_of_the_return_and_both_nearly_all(drawn: list[Any]) -> None:
    returns = np.array([rewards.sum() for _, rewards in drawn])
    coins = np.stack([seen[list(COINS_AT), -1] for seen, _ in drawn])
    chance = 3 / len(drawn) ** 0.5  # three standard errors of a correlation that is zero, and of a fair coin
    assert np.abs([*coins.mean(axis=0), coins.prod(axis=1).mean()]).max() < chance
    assert np.abs(np.corrcoef(returns, coins.T)[0, 1:]).max() < chance
    assert np.corrcoef(returns, coins.prod(axis=1))[0, 1] > 0.99
