"""Return equivalence by construction: whatever a method has learned, its rewards sum to what was paid."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.errors import UserError
from apportion.core.types import Method, Segments
from apportion.data import replay as replays
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS
from apportion.training.exact_sum import exact_sum, steps_of
from apportion.training.settings import Config
from builders import SPEC, segments

LEARNING = [name for name, entry in METHODS.items() if entry.make(entry.config()).sampling.segments]


def _fresh(name: str) -> tuple[Method, Any]:
    method = METHODS[name].make(METHODS[name].config())
    return method, jax.jit(lambda key: method.init(key, SPEC))(jax.random.key(0))


@pytest.mark.parametrize("name", LEARNING)
def test_every_segment_sums_to_what_it_paid(name: str) -> None:
    method, state = _fresh(name)
    data = segments(1, 8)
    credit = jax.jit(exact_sum(method).credit)(state, data)
    np.testing.assert_allclose(np.sum(np.asarray(credit), axis=1), data.total, atol=1e-5)
    assert not np.asarray(credit)[~np.asarray(data.mask)].any()


def test_all_steps_of_a_segment_are_moved_alike() -> None:
    method, state = _fresh("rd")
    data = segments(1, 4)
    move = exact_sum(method).credit(state, data) - method.reward(state, steps_of(data))
    for row, length in zip(np.asarray(move), np.asarray(data.length), strict=True):
        np.testing.assert_allclose(row[:length], row[0], atol=1e-6)


def test_a_sampled_step_is_moved_as_its_segment_was_when_an_update_drew_it() -> None:
    """Fresh rewards, and the replay's shift; a step whose segment was not drawn yet is not moved."""
    method, state = _fresh("rd")
    replay = _replay(segments(1, 2))
    exact = exact_sum(method)
    assert exact.kept is not None

    def rewards(method: Method, replay: replays.Replay) -> np.ndarray:
        steps = jnp.arange(3)
        drawn = replays.gather_transitions(replay, steps, jnp.asarray([0, 1, 1]))
        return np.asarray(method.reward(state, drawn))

    np.testing.assert_array_equal(rewards(exact, replay), rewards(method, replay))
    data = replays.gather_segments(replay, jnp.asarray([1]), SPEC.max_segment_steps)
    found = rewards(exact, replays.with_credit(replay, data, exact.kept(state, data)))
    assert found[0] == rewards(method, replay)[0]
    assert np.sum(found[1:]) == pytest.approx(float(data.total[0]), abs=1e-5)


def _replay(data: Segments) -> replays.Replay:
    """Two episodes, of one step and of two, paid at their ends."""
    rows = jnp.asarray([[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [1, 3]])
    chunk = replays.Chunk(
        observation=data.observations[rows[:, 0], rows[:, 1]],
        action=data.actions[rows[:, 0], rows[:, 1]],
        paid=jnp.zeros(6),
        true_reward=jnp.zeros(6),
        terminated=jnp.zeros(6, bool),
        rows=jnp.asarray(5),
        segment_start=jnp.asarray([0, 2]),
        segment_length=data.length,
        segment_total=data.total,
        episode_start=jnp.asarray([0, 2]),
        segments=jnp.asarray(2),
    )
    return replays.insert(replays.init(SPEC, 40), chunk)


def test_learning_itself_is_as_without() -> None:
    method, _ = _fresh("rd")
    assert exact_sum(method).update is method.update


@pytest.mark.parametrize("name", ["observed", "oracle", "ircr"])
def test_a_method_that_fits_no_rewards_refuses(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} fits no rewards to what segments paid: leave out"):
        Config(EnvConfig("apportion/Greenhouse-v0"), method=name, exact_sum=True)


def test_it_is_written_down_with_the_run() -> None:
    config = Config(EnvConfig("apportion/Greenhouse-v0"), method="rd", exact_sum=True)
    assert Config.from_dict(config.to_dict()) == config
    older = {name: value for name, value in config.to_dict().items() if name != "exact_sum"}
    assert not Config.from_dict(older).exact_sum
