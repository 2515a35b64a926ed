"""Hopfield-RUDDER: it retrieves what it says, never itself, and its rewards sum to what was paid."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.types import Batch
from apportion.methods import foresight
from apportion.methods import hopfield_rudder as hopfield
from builders import SPEC, batch, initial, normal, numpy, segments, transitions

METHOD = hopfield.make(hopfield.Config(segments=4, stored=3, width=6, learning_rate=3e-3))
update, credit = jax.jit(METHOD.update), jax.jit(METHOD.credit)


@pytest.fixture(scope="module")
def fresh() -> foresight.State:
    return initial(METHOD)


@pytest.fixture(scope="module")
def trained(fresh: foresight.State) -> foresight.State:
    state = fresh
    for turn in range(20):
        state, _ = update(state, batch(turn % 3, 6, 4), jax.random.key(turn))
    return state


def test_retrieval_equals_numpy() -> None:
    rng = np.random.default_rng(0)
    queries, keys, values = normal(rng, 2, 3, 4), normal(rng, 5, 3, 4), normal(rng, 5)
    useful = jnp.asarray(rng.random((2, 5)) < 0.7)
    found = hopfield.retrieve(queries, keys, values, useful, jnp.asarray(1.7))
    for m, t in np.ndindex(2, 3):
        on = np.asarray(useful[m])
        away = ((numpy(queries)[m, t] - numpy(keys)[on, t]) ** 2).sum(axis=1)
        weights = np.exp(-1.7 * away / 2)
        expected = weights @ numpy(values)[on] / weights.sum()
        np.testing.assert_allclose(found[m, t], expected, rtol=1e-4)


def test_a_history_holds_sums_and_highest_values(trained: foresight.State) -> None:
    data = segments(7, 4)
    each = np.tanh(trained.network.encoder(hopfield.inputs_of(trained.statistics, data)))
    found = hopfield.histories(trained.network.encoder, trained.statistics, data)
    for t in range(4):
        np.testing.assert_allclose(found[3, t, :3], each[3, : t + 1, :3].sum(axis=0) / 2, atol=1e-5)
        np.testing.assert_allclose(found[3, t, 3:], each[3, : t + 1, 3:].max(axis=0), atol=1e-5)


def test_nobody_is_asked_about_himself(trained: foresight.State) -> None:
    """What a stored segment paid has a say in what is expected of others only."""
    stored = trained.memory
    changed = trained._replace(memory=stored._replace(total=stored.total.at[0].add(100.0)))
    data = segments(7, 2)._replace(number=jnp.stack([stored.number[0], jnp.asarray(99, jnp.int32)]))

    def foreseen(state: foresight.State) -> np.ndarray:
        return np.asarray(hopfield.foresee(state, data))

    np.testing.assert_array_equal(foreseen(changed)[0], foreseen(trained)[0])
    assert (foreseen(changed)[1] != foreseen(trained)[1]).any()


def test_with_nothing_stored_each_step_gets_the_mean(fresh: foresight.State) -> None:
    data = segments(7, 4)
    mean = (np.asarray(data.total) / np.asarray(data.length))[:, None]
    np.testing.assert_allclose(credit(fresh, data), np.where(data.mask, mean, 0.0), atol=1e-6)


def test_all_segments_have_the_same_chance_to_stay(fresh: foresight.State) -> None:
    """Ten offered one after the other, three stay: of 60 trials the first is among them in about 18."""
    early = 0

    @jax.jit
    def offer(memory: Any, data: Any, key: jax.Array) -> Any:
        return hopfield.memories.offer(memory, data, jax.random.uniform(key, (1,)))

    for trial in range(60):
        memory = fresh.memory
        for number in range(10):
            one = segments(0, 1)._replace(number=jnp.asarray([number], jnp.int32))
            memory = offer(memory, one, jax.random.key(100 * trial + number))
        early += int(np.isin(0, memory.number))
    assert 8 <= early <= 30


def test_an_early_event_is_paid_when_it_happens() -> None:
    """The key of it all: what happens at the second step decides the total, which the last step pays."""
    rng = np.random.default_rng(0)
    data = segments(1, 64)
    data = data._replace(
        observations=normal(rng, 64, 5, 3), length=jnp.full(64, 4, jnp.int32), mask=jnp.ones((64, 4), bool)
    )
    data = data._replace(total=jnp.sign(data.actions[:, 1, 0]))
    method = hopfield.make(hopfield.Config(stored=32, learning_rate=1e-2, width=16))

    @jax.jit
    def train(key: jax.Array, keys: jax.Array) -> jax.Array:
        start = method.init(key, SPEC)
        state, _ = jax.lax.scan(lambda s, k: method.update(s, Batch(data, transitions(2, 4)), k), start, keys)
        return method.credit(state, data)

    given = np.asarray(train(jax.random.key(0), jax.random.split(jax.random.key(1), 150)))
    paid_then = given[:, 1] * np.asarray(data.total)
    others = np.abs(given[:, [0, 2, 3]]).mean()
    assert paid_then.mean() > 3 * others
