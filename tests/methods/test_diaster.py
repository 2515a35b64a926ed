"""Diaster: both losses are the formula's, differences sum to what was paid, and a known reward is found."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.types import Batch, Segments
from apportion.methods import diaster
from apportion.methods.foresight import target_of
from builders import SPEC, numpy, segments, transitions

METHOD = diaster.make(diaster.Config(cells=5, hidden=(6,), segments=4, learning_rate=3e-3))


@pytest.fixture(scope="module")
def state() -> diaster.State:
    """After some updates: neither the statistics nor the networks are those of the start."""

    @jax.jit
    def train(key: jax.Array, keys: jax.Array) -> diaster.State:
        batch = Batch(segments(1, 4), transitions(2, 4))
        start = METHOD.init(key, SPEC)
        found, _ = jax.lax.scan(lambda s, k: METHOD.update(s, batch, k), start, keys)
        return found

    return train(jax.random.key(0), jax.random.split(jax.random.key(1), 20))


def _alone(state: diaster.State, data: Segments, m: int, start: int, end: int) -> float:
    """f of a run of steps by itself: the network has seen nothing else."""
    inputs = diaster.inputs_of(state.statistics, data)[m : m + 1]
    padded = jnp.zeros_like(inputs).at[:, : end - start].set(inputs[:, start:end])
    return float(state.networks.part(padded, state.per_step)[0, end - start - 1])


def test_the_parts_of_a_cut_segment_are_valued_apart(state: diaster.State) -> None:
    data, cut = segments(5, 4), jnp.asarray([1, 1, 3, 2])  # of 1 to 4 steps; the first and third stay whole
    targets, errors = np.asarray(target_of(state.statistics, data)), []
    for m, (length, place) in enumerate(zip([1, 2, 3, 4], [1, 1, 3, 2], strict=True)):
        value = _alone(state, data, m, 0, place)
        if place < length:
            value += _alone(state, data, m, place, length)
        errors.append((value - targets[m]) ** 2)
    found = diaster.part_loss(state.networks.part, state.statistics, state.per_step, data, cut)
    np.testing.assert_allclose(found, np.mean(errors), rtol=1e-4)


def test_differences_sum_to_what_was_paid(state: diaster.State) -> None:
    data = segments(5, 8)
    found = np.asarray(diaster.differences(state.networks.part, state.statistics, state.per_step, data))
    np.testing.assert_allclose(found.sum(axis=1), data.total, rtol=1e-4, atol=1e-5)
    assert not found[~np.asarray(data.mask)].any()


def test_the_loss_of_single_steps_equals_numpy(state: diaster.State) -> None:
    data = segments(5, 4)
    worth = np.asarray(diaster.differences(state.networks.part, state.statistics, state.per_step, data))
    steps = numpy(METHOD.reward(state, _as_steps(data)))
    scale = float(state.per_step) * (float(state.statistics.surplus) ** 0.5 + 1e-6)
    errors = ((steps - worth) / scale)[np.asarray(data.mask)]
    found = diaster.step_loss(state.networks, state.statistics, state.per_step, data)
    np.testing.assert_allclose(found, np.mean(errors**2), rtol=1e-4)


def _as_steps(data: Segments) -> Any:
    steps = transitions(0, 16)
    steps = jax.tree.map(lambda x: x.reshape(4, 4, *x.shape[1:]), steps)
    return steps._replace(observation=data.observations[:, :-1], action=data.actions)
