"""Actions go to the environment's own range and back."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import RescaleAction
from toy_envs import Toy

from apportion.core.config import UserError, from_dict
from apportion.core.spec import Spec
from apportion.envs.factories import name_factory
from apportion.envs.make import EnvConfig, make
from apportion.envs.spaces import learners_actions, own_action


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
