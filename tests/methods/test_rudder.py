"""RUDDER: what it gives sums to what was paid, its loss is the formula's, its lessons are hard ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.spec import Spec
from apportion.core.types import Batch, Segments
from apportion.methods import foresight, rudder
from builders import assert_close, assert_equal, batch, initial, numpy, segments, transitions

METHOD = rudder.make(rudder.Config(cells=5, segments=4, lessons=3, lessons_per_update=2, learning_rate=3e-3))
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


# --- The credit


def test_the_credit_equals_numpy(trained: foresight.State) -> None:
    data = segments(5, 4)
    plain, statistics = numpy(data), numpy(trained.statistics)
    unit = np.sqrt(statistics.surplus) + 1e-6
    found = credit(trained, data)
    for m, length in enumerate(plain.length):
        foreseen = statistics.rate * np.arange(1, length + 1) + unit * _plain_outputs(trained, plain, m)
        rewards = np.diff(foreseen, prepend=0.0)
        rewards += (plain.total[m] - rewards.sum()) / length
        np.testing.assert_allclose(found[m, :length], rewards, rtol=1e-3, atol=1e-4)


def _plain_outputs(state: foresight.State, data: Segments, m: int) -> np.ndarray:
    """y_t after each real step, in NumPy."""
    network, statistics = numpy(state.network), numpy(state.statistics)
    cells, found = np.zeros(network.bias.shape), []
    for t in range(int(data.length[m])):
        s, after = data.observations[m, t], data.observations[m, t + 1]
        x = np.concatenate([s, data.actions[m, t], after - s])
        x = np.clip((x - statistics.mean) / (np.sqrt(statistics.variance) + 1e-6), -10, 10)
        gate = 1 / (1 + np.exp(-(np.tanh(cells) @ network.gate_weight + network.gate_bias)))
        taken = np.tanh(x @ network.weight + network.bias) / np.sqrt(data.actions.shape[1])
        cells = cells + gate * taken
        found.append((cells @ network.out_weight + network.out_bias)[0])
    return np.array(found)


# --- The loss


def test_the_loss_equals_numpy(fresh: foresight.State) -> None:
    """At the last step and, with half the weight, at all: squares first, means second, so that errors of
    opposite sign do not cancel, as in three public copies."""
    data = segments(1, 4)
    state, metrics = update(fresh, Batch(data, transitions(0, 4)), jax.random.key(0))
    plain, statistics = numpy(data), numpy(state.statistics)
    before = fresh._replace(statistics=state.statistics)  # the weights of before, the statistics of now
    last, prefix = [], []
    for m, length in enumerate(plain.length):
        target = (plain.total[m] - length * statistics.rate) / (np.sqrt(statistics.surplus) + 1e-6)
        errors = (_plain_outputs(before, plain, m) - target) ** 2
        last.append(errors[-1])
        prefix.append(errors.mean())
    np.testing.assert_allclose(metrics["last_loss"], np.mean(last), rtol=1e-4)
    np.testing.assert_allclose(metrics["prefix_loss"], np.mean(prefix), rtol=1e-4)


def test_statistics_are_those_of_all_steps_seen(fresh: foresight.State) -> None:
    """Means over updates at first; here of one and the same batch, so those of the batch."""
    data = segments(1, 4)
    statistics = fresh.statistics
    for _ in range(3):
        statistics = foresight.follow(statistics, data)
    real, plain = np.asarray(data.mask), numpy(data)
    inputs = np.asarray(foresight.steps_of(data))[real]
    np.testing.assert_allclose(statistics.mean, inputs.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics.variance, inputs.var(axis=0), rtol=1e-4)
    rate = plain.total.sum() / plain.length.sum()
    assert float(statistics.rate) == pytest.approx(rate, rel=1e-4)
    assert float(statistics.surplus) == pytest.approx(
        np.mean((plain.total - rate * plain.length) ** 2), rel=1e-4
    )
    assert int(statistics.updates) == 3


@pytest.mark.parametrize("total", [0.0, 7.0])
def test_constant_inputs_and_totals_do_no_harm(fresh: foresight.State, total: float) -> None:
    data = segments(1, 4)
    data = data._replace(
        observations=jnp.full_like(data.observations, 1e6),
        actions=jnp.zeros_like(data.actions),
        total=total * data.length.astype(jnp.float32),  # the same per step, as CartPole pays
    )
    state = fresh
    for turn in range(5):
        state, metrics = update(state, Batch(data, transitions(0, 4)), jax.random.key(turn))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, metrics)))
    np.testing.assert_allclose(credit(state, data)[data.mask], total, atol=1e-4)


# --- The lessons


def test_lessons_teach_with_the_batch(fresh: foresight.State) -> None:
    """Before there are any, the key decides nothing; later another draw is another step."""
    data, steps = segments(1, 4), transitions(0, 4)
    state, _ = update(fresh, Batch(data, steps), jax.random.key(0))
    assert_equal(update(fresh, Batch(data, steps), jax.random.key(7))[0], state)
    others = [update(state, Batch(segments(2, 4), steps), jax.random.key(seed))[0] for seed in range(4)]
    weights = {np.asarray(other.network.weight).tobytes() for other in others}
    assert len(weights) > 1
    alone = rudder.make(
        rudder.Config(cells=5, segments=4, lessons=3, lessons_per_update=0, learning_rate=3e-3)
    )
    without, _ = jax.jit(alone.update)(fresh, Batch(data, steps), jax.random.key(0))
    assert_close(without.network, state.network)


def test_a_lesson_learned_makes_room(fresh: foresight.State) -> None:
    """Scores are renewed whenever a lesson is seen, so none stays for what it once was."""
    state, data = fresh, Batch(segments(1, 4), transitions(0, 4))
    for turn in range(300):
        state, _ = update(state, data, jax.random.key(turn))
    first = update(fresh, data, jax.random.key(0))[0].memory.score
    assert state.memory.score.max() < first.max()


# --- Learning


def test_a_thousand_steps_fit_in_memory_and_stay_finite() -> None:
    """One update at HalfCheetah's size needs some megabytes for the way back through time."""
    spec = Spec("long", tuple("abcdefghijklmnopq"), tuple("uvwxyz"), 1000, 1000)
    method = rudder.make(rudder.Config())
    shapes = jax.eval_shape(lambda key: method.init(key, spec), jax.random.key(0))
    data = jax.eval_shape(lambda: batch(0, 4, 8, spec))
    compiled = jax.jit(method.update).lower(shapes, data, jax.random.key(0)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 100e6
