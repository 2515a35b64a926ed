"""Spaces: names of what FlattenObservation made a vector of, and actions in the environment's own range."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, RescaleAction, TimeLimit, TransformObservation
from toy_envs import Toy

from apportion.core.config import UserError, from_dict
from apportion.core.spec import Spec
from apportion.envs.factories import name_factory
from apportion.envs.make import EnvConfig, make
from apportion.envs.spaces import flattened_names, learners_actions, own_action

PARTS = spaces.Dict(
    {
        "queues": spaces.Box(0, 60, (2,), np.float32),
        "weather": spaces.Discrete(3),
        "flags": spaces.MultiBinary(2),
        "hour": spaces.Box(0, 24, (1,), np.float32),
        "gate": spaces.Tuple((spaces.MultiDiscrete([2, 2], start=[0, 5]), spaces.Discrete(2, start=1))),
    }
)
GATE = ("gate 0 0=0", "gate 0 0=1", "gate 0 1=5", "gate 0 1=6", "gate 1=1", "gate 1=2")
WEATHER = ("weather=0", "weather=1", "weather=2")
NAMES = ("flags 0", "flags 1", *GATE, "hour", "queues 0", "queues 1", *WEATHER)


def flattened(space: spaces.Space[Any] = PARTS, **declared: Any) -> gymnasium.Env[Any, Any]:
    return FlattenObservation(Toy(space, **declared))


def test_flattened_parts_are_named_in_the_order_that_gymnasium_has_them() -> None:
    assert flattened_names(flattened()) == NAMES
    counts = {"queues": np.array([7, 8]), "flags": np.array([1, 0]), "hour": np.array([9])}
    seen = spaces.flatten(PARTS, {**counts, "weather": 1, "gate": (np.array([1, 5]), 2)})
    ones = dict.fromkeys(("flags 0", "gate 0 0=1", "gate 0 1=5", "gate 1=2", "weather=1"), 1)
    found = {name: value for name, value in zip(NAMES, seen, strict=True) if value}
    assert found == ones | {"hour": 9, "queues 0": 7, "queues 1": 8}


def test_an_environment_has_them_where_it_declares_none_and_nothing_changed_since() -> None:
    own = tuple(f"mine {place}" for place in range(len(NAMES)))
    for declared, expected in ((None, NAMES), (own, own)):
        named = name_factory(lambda given=declared: TimeLimit(flattened(observation_names=given), 10))
        assert make(EnvConfig(named))[1].observation_names == expected
    space = spaces.Box(-np.inf, np.inf, (len(NAMES),))
    assert flattened_names(TransformObservation(flattened(), lambda seen: seen[::-1], space)) is None
    assert flattened_names(Toy(PARTS)) is None


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (spaces.Discrete(2), ("s=0", "s=1")),
        (spaces.MultiBinary((2, 2)), ("s 0,0", "s 0,1", "s 1,0", "s 1,1")),
        (spaces.Box(0, 1, (2, 2)), None),
        (spaces.Dict({"word": spaces.Text(3), "hour": spaces.Box(0, 24, ())}), None),
    ],
)
def test_other_spaces(space: spaces.Space[Any], names: tuple[str, ...] | None) -> None:
    assert flattened_names(flattened(space)) == names


# --- Actions go to the environment's own range and back


def _spec(space: spaces.Space[Any]) -> Spec:
    return make(EnvConfig(name_factory(lambda: Toy(action_space=space)), max_episode_steps=5))[1]


BOX = spaces.Box(np.array([0, -3], np.float32), np.array([10, 5], np.float32))


@pytest.mark.parametrize("action", [(-1, -1), (1, 1), (0, 0.5), (-0.3, 0.9)])
def test_a_box_gets_what_gymnasium_s_own_wrapper_would_give_it(action: tuple[float, float]) -> None:
    given = np.array(action, np.float32)
    ones = np.ones(2, np.float32)
    expected = RescaleAction(Toy(action_space=BOX), -ones, ones).action(given)
    own = own_action(_spec(BOX), given)
    np.testing.assert_allclose(own, expected, atol=1e-6)
    assert BOX.contains(own)
    np.testing.assert_allclose(learners_actions(_spec(BOX), own[None])[0], given, atol=1e-6)


def test_bounds_that_single_precision_cannot_hold_are_kept() -> None:
    space = spaces.Box(0.1, 0.7, (1,), np.float64)
    for action in (-1.0, 1.0):
        assert space.contains(own_action(_spec(space), np.array([action], np.float32)))


def test_discrete_actions_have_the_environment_s_own_numbers() -> None:
    spec = _spec(spaces.Discrete(3, start=5))
    assert own_action(spec, np.array([0, 1, 0], np.float32)) == 6
    assert learners_actions(spec, np.array([7, 5])).tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(UserError, match=r"actions must be numbers \[T\] from 5 to 7"):
        learners_actions(spec, np.array([0]))


def test_a_spec_comes_back_from_json_with_the_range() -> None:
    spec = _spec(BOX)
    assert (spec.action_low, spec.action_high) == ((0.0, -3.0), (10.0, 5.0))
    again = from_dict(Spec, spec.to_dict())
    assert (again.action_low, again.action_high, again.padded) == (spec.action_low, spec.action_high, 0)
