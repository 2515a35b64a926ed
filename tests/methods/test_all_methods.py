"""Facts that methods share, as tables over them: padding, sums, what the policy sees, what can be found."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.types import Batch, Method, Segments
from apportion.methods import METHODS
from builders import (
    SPEC,
    assert_equal,
    batch,
    learned_correlation,
    learned_credit_correlation,
    segments,
    surprising_segments,
    transitions,
)

SMALL: dict[str, dict[str, Any]] = {
    "rd": {"hidden": (8,)},
    "rrd": {"hidden": (8,), "steps_per_segment": 3},
    "rrd-unbiased": {"hidden": (8,), "steps_per_segment": 3},
    "gp-lrr": {"hidden": (8,)},
    "grd": {"hidden": (8,)},
    "diaster": {"cells": 5, "hidden": (8,)},
    "transformer": {"width": 8, "layers": 1},
    "rbt": {"width": 8, "layers": 1},
    "rudder": {"cells": 5, "lessons": 3, "lessons_per_update": 2},
    "hopfield-rudder": {"width": 8, "stored": 5},
}


@cache
def _learned(name: str) -> tuple[Method, Any, Any]:
    """A method, its compiled update, and its state after some updates."""
    method = METHODS[name].make(METHODS[name].config(**SMALL[name]))
    state = jax.jit(lambda key: method.init(key, SPEC))(jax.random.key(0))
    update = jax.jit(method.update)
    for turn in range(5):
        state, _ = update(state, batch(turn, 4, 4), jax.random.key(turn))
    return method, update, state


def _with_other_padding(data: Segments) -> Segments:
    """Other numbers wherever there is no real step. (The observation after the last step is real.)"""
    after = jnp.concatenate([jnp.ones_like(data.mask[:, :1]), data.mask], axis=1)
    return data._replace(
        observations=jnp.where(after[:, :, None], data.observations, 1e3),
        actions=jnp.where(data.mask[:, :, None], data.actions, -1e3),
    )


@pytest.mark.parametrize("name", SMALL)
def test_what_lies_in_the_padding_teaches_nothing(name: str) -> None:
    method, update, state = _learned(name)
    data, steps, key = segments(7, 4), transitions(0, 4), jax.random.key(3)
    noisy = _with_other_padding(data)
    (after, found), (expected, plain) = (update(state, Batch(each, steps), key) for each in (noisy, data))
    assert_equal(found, plain)
    if method.credit is None:
        assert_equal(method.reward(after, steps), method.reward(expected, steps))
        return
    credit = method.credit(state, data)
    assert_equal(method.credit(state, noisy), credit)
    assert_equal(method.credit(after, data), method.credit(expected, data))
    assert not np.asarray(credit)[~np.asarray(data.mask)].any()
    assert_equal(method.reward(state, steps), steps.credit)  # the policy learns from what the replay keeps


@pytest.mark.parametrize("name", ["rudder", "hopfield-rudder"])
@pytest.mark.parametrize(("scale", "offset"), [(0.0, 0), (1e-3, 5), (1.0, -9), (5e3, 9)])
def test_what_is_given_sums_to_what_was_paid(name: str, scale: float, offset: int) -> None:
    """Up to rounding, for all lengths from 1 on, and whatever was foreseen."""
    method, _, state = _learned(name)
    data = segments(offset, 8) if offset >= 0 else segments(1, 8)
    data = data._replace(total=scale * (data.total + offset))
    assert method.credit is not None
    given = np.asarray(method.credit(state, data), np.float64)
    rounding = 1e-5 * np.abs(given).sum(axis=1) + 1e-6
    assert (np.abs(given.sum(axis=1) - np.asarray(data.total)) <= rounding).all()


def test_only_grd_has_a_graph_and_hides_something_from_the_policy() -> None:
    made = {name: entry.make(entry.config()) for name, entry in METHODS.items()}
    assert [name for name, method in made.items() if method.policy_mask is not None] == ["grd"]
    assert [name for name, method in made.items() if method.graph is not None] == ["grd"]
    by_length = [name for name, method in made.items() if method.sampling.weight == "length"]
    assert by_length == ["rrd", "rrd-unbiased"]


def _four_times(seed: int, count: int) -> Segments:
    """Where a step says nothing of the later ones, what it adds to the expectation is its reward: level 1."""
    return surprising_segments(seed, 4 * count)


@pytest.mark.parametrize(
    ("name", "settings", "updates", "least"),
    [
        ("rd", {"hidden": (32, 32), "learning_rate": 5e-3}, 300, 0.9),
        ("rrd", {"hidden": (32, 32), "learning_rate": 5e-3, "steps_per_segment": 5}, 300, 0.9),
        ("rrd-unbiased", {"hidden": (32, 32), "learning_rate": 5e-3, "steps_per_segment": 5}, 300, 0.9),
        ("gp-lrr", {"hidden": (32,), "learning_rate": 1e-2}, 200, 0.9),
        ("grd", {"hidden": (32, 32), "learning_rate": 3e-3}, 300, 0.9),  # without any look at the data
        ("diaster", {"cells": 8, "hidden": (32,), "learning_rate": 1e-2}, 300, 0.8),
        ("transformer", {"width": 16, "layers": 1, "learning_rate": 5e-3}, 200, 0.9),
        ("rbt", {"width": 8, "layers": 1, "learning_rate": 1e-2, "state_weight": 0.1}, 100, 0.8),
        ("rudder", {"cells": 8, "learning_rate": 1e-2, "lessons_per_update": 0}, 300, 0.9),
    ],
)
def test_a_known_reward_is_found_from_its_sums(
    name: str, settings: dict[str, Any], updates: int, least: float
) -> None:
    method = METHODS[name].make(METHODS[name].config(**settings))
    if method.credit is None:
        assert learned_correlation(method, updates) > least
    elif name == "rudder":
        assert learned_credit_correlation(method, updates, _four_times) > least
    else:
        assert learned_credit_correlation(method, updates) > least
