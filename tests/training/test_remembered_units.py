"""What a method remembers follows the units: a segment is the same to it, remembered or drawn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.backbones import BACKBONES
from apportion.core.types import Batch, Survey
from apportion.data.memory import Centres, Memory, all_segments, filled
from apportion.envs import acting
from apportion.methods import METHODS
from apportion.methods.align_rudder import symbols_of
from apportion.training import agent as agents
from apportion.training import scaling
from apportion.training.agent import AgentState

BEFORE = scaling.unknown(builders.SPEC)._replace(unit=jnp.asarray(2.0))
NOW = BEFORE._replace(mean=BEFORE.mean + 0.5, scale=BEFORE.scale * 0.1, unit=jnp.asarray(100.0))
SEGMENTS = builders.segments(0, 4)._replace(number=jnp.arange(4, dtype=jnp.int32))


def _moved(name: str) -> AgentState:
    """A method that has remembered some segments, in other units."""
    method = METHODS[name].make(METHODS[name].config())
    state = AgentState(method.init(jax.random.key(0), builders.SPEC), None, BEFORE)
    seen = scaling.batch(BEFORE, Batch(SEGMENTS, builders.transitions(0, 4)))
    assert seen.segments is not None
    if method.memory is None:
        state, _ = agents.update_model(method, state, seen, jax.random.key(1))
    else:
        total, length = seen.segments.total, seen.segments.length
        survey = Survey(total, length, jnp.ones(4, bool), lambda places: builders.lane(seen.segments, places))
        state = state._replace(method=method.memory.survey(state.method, survey))
    return agents.rescaled(method, state, NOW)


def _memory(state: AgentState) -> Memory:
    found = jax.tree.leaves(state.method, is_leaf=lambda node: isinstance(node, Memory))
    [memory] = [node for node in found if isinstance(node, Memory)]
    return memory


@pytest.mark.parametrize("name", ["rudder", "hopfield-rudder", "ircr"])
def test_remembered_segments_are_those_of_the_replay(name: str) -> None:
    """RUDDER drew lessons in the units of the moment at which it had remembered them, for good."""
    memory = _memory(_moved(name))
    assert np.sum(filled(memory)) == 4
    kept, drawn = all_segments(memory), scaling.segments(NOW, SEGMENTS)
    for place, number in enumerate(np.asarray(memory.number)[:4]):
        length = int(kept.length[place])
        rows: Any = (kept.observations[place, : length + 1], drawn.observations[number, : length + 1])
        np.testing.assert_allclose(*rows, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(kept.total[place], drawn.total[number], rtol=1e-5)


def test_what_is_told_apart_stays_so_in_other_units() -> None:
    """Align-RUDDER's centres stayed in the units of the look that found them."""
    method = METHODS["align-rudder"].make(METHODS["align-rudder"].config())
    centres = Centres(jax.random.normal(jax.random.key(1), (8, 3)), jnp.ones(3))
    found = method.init(jax.random.key(0), builders.SPEC)._replace(centres=centres, scale=jnp.asarray(3.0))
    now = NOW._replace(scale=NOW.scale * jnp.asarray([1.0, 5.0, 20.0]))
    moved: Any = agents.rescaled(method, AgentState(found, None, BEFORE), now).method
    before, after = (scaling.segments(each, builders.segments(0, 40)) for each in (BEFORE, now))
    real = np.asarray(before.mask)
    expected = np.asarray(symbols_of(centres, before))[real]
    assert len(set(expected.tolist())) > 4
    np.testing.assert_array_equal(np.asarray(symbols_of(moved.centres, after))[real], expected)
    np.testing.assert_allclose(moved.scale, 3.0 * 2 / 100)


def test_the_best_are_compared_in_the_new_unit() -> None:
    state: Any = _moved("ircr").method
    np.testing.assert_allclose(state.best.score[:4], state.best.total[:4], rtol=1e-5)
    worth = np.asarray(state.best.total[:4]) / np.asarray(state.best.length[:4])
    np.testing.assert_allclose((state.lowest, state.highest), (worth.min(), worth.max()), rtol=1e-5)


def test_what_is_foreseen_is_measured_in_the_new_unit() -> None:
    state: Any = _moved("rudder").method
    rate = np.asarray(SEGMENTS.total).sum() / np.asarray(SEGMENTS.length).sum() / 100
    np.testing.assert_allclose(state.statistics.rate, rate, rtol=1e-4)


@pytest.mark.parametrize("name", ["crossq", "flashsac"])
def test_a_policy_with_running_statistics_acts_the_same_in_other_units(name: str) -> None:
    """Until its statistics had come there, it acted as if all observations had moved."""
    sizes = {"hidden": (8, 8), "critic_hidden": (8, 8), "batch_size": 6}
    backbone = BACKBONES[name].make(BACKBONES[name].config(**sizes))
    hidden = jnp.ones(builders.SPEC.observation_size).at[0].set(0.0)
    method = METHODS["oracle"].make(METHODS["oracle"].config())._replace(policy_mask=lambda _: hidden)
    start = agents.init(method, backbone, jax.random.key(0), builders.SPEC, BEFORE)
    builders.assert_equal(
        agents.rescaled(method, start, NOW).backbone, start.backbone
    )  # nothing was seen yet
    lesson = agents.policy_batch(
        method, scaling.Limit(9, "pause"), start, builders.transitions(0, 6), jax.random.key(1)
    )
    learn = jax.jit(lambda state: agents.update_policy(backbone, state, lesson)[0])
    learned = learn(learn(learn(start)))  # CrossQ's actor waits for its third

    def actions(state: AgentState) -> Any:
        actor = builders.numpy(agents.actor(method, backbone, state, builders.SPEC.observation_size))
        rows = np.asarray(builders.transitions(1, 7).observation)
        return [acting.act(actor, backbone.head, row, None) for row in rows]

    units = BEFORE._replace(mean=BEFORE.mean + 0.5, scale=BEFORE.scale * 0.8)
    moved = agents.rescaled(method, learned, units)
    # All but for what is added to variances.
    np.testing.assert_allclose(actions(moved), actions(learned), atol=1e-3)
    judges: Any = (learned.backbone, moved.backbone)
    before, after = (state.critic_statistics.means[0] for state in judges)
    np.testing.assert_allclose(after[..., 1:3], 0.8 * (before[..., 1:3] - 0.5), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(after[..., 3:], before[..., 3:])
