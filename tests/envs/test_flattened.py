"""Names of what Gymnasium's FlattenObservation made a vector of: those of its parts, in its own order."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, TimeLimit, TransformObservation

from apportion.envs.factories import name_factory
from apportion.envs.make import EnvConfig, make
from apportion.envs.spaces import flattened_names

PARTS = spaces.Dict(
    {
        "queues": spaces.Box(0, 60, (2,), np.float32),
        "weather": spaces.Discrete(3),
        "flags": spaces.MultiBinary(2),
        "hour": spaces.Box(0, 24, (1,), np.float32),
        "gate": spaces.Tuple((spaces.MultiDiscrete([2, 2], start=[0, 5]), spaces.Discrete(2, start=1))),
    }
)
NAMES = (
    "flags 0",
    "flags 1",
    "gate 0 0=0",
    "gate 0 0=1",
    "gate 0 1=5",
    "gate 0 1=6",
    "gate 1=1",
    "gate 1=2",
    "hour",
    "queues 0",
    "queues 1",
    "weather=0",
    "weather=1",
    "weather=2",
)


class Crossroads(gymnasium.Env[Any, Any]):
    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any] = PARTS, names: tuple[str, ...] | None = None) -> None:
        self.observation_space = space
        self.observation_names = names

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}


def test_flattened_parts_are_named_in_the_order_that_gymnasium_has_them() -> None:
    assert flattened_names(FlattenObservation(Crossroads())) == NAMES
    seen = {
        "queues": np.array([7, 8]),
        "weather": 1,
        "flags": np.array([1, 0]),
        "hour": np.array([9]),
        "gate": (np.array([1, 5]), 2),
    }
    values = dict(zip(NAMES, spaces.flatten(PARTS, seen), strict=True))
    assert {name: value for name, value in values.items() if value} == {
        "flags 0": 1,
        "gate 0 0=1": 1,
        "gate 0 1=5": 1,
        "gate 1=2": 1,
        "hour": 9,
        "queues 0": 7,
        "queues 1": 8,
        "weather=1": 1,
    }


def test_an_environment_has_them_where_it_declares_none() -> None:
    def crossroads() -> Any:
        return TimeLimit(FlattenObservation(Crossroads()), 10)

    def named() -> Any:
        own = tuple(f"mine {place}" for place in range(len(NAMES)))
        return TimeLimit(FlattenObservation(Crossroads(names=own)), 10)

    assert make(EnvConfig(name_factory(crossroads)))[1].observation_names == NAMES
    assert make(EnvConfig(name_factory(named)))[1].observation_names[0] == "mine 0"


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
    assert flattened_names(FlattenObservation(Crossroads(space))) == names


def test_what_was_changed_since_has_no_such_names() -> None:
    flat = FlattenObservation(Crossroads())
    backwards = TransformObservation(
        flat, lambda seen: seen[::-1], spaces.Box(-np.inf, np.inf, (len(NAMES),))
    )
    assert flattened_names(backwards) is None
    assert flattened_names(Crossroads()) is None
