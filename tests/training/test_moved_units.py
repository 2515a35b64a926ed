"""When units move, what was learned or is remembered in the old ones stays what it is to the environment."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.backbones import BACKBONES
from apportion.core.types import Batch, Method, Survey
from apportion.data.memory import Centres, Memory, all_segments, filled
from apportion.envs import acting
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS
from apportion.methods.align_rudder import symbols_of
from apportion.training import agent as agents
from apportion.training import scaling
from apportion.training.agent import AgentState
from apportion.training.settings import Config

BEFORE = scaling.unknown(builders.SPEC)._replace(unit=jnp.asarray(2.0))
NOW = BEFORE._replace(mean=BEFORE.mean + 0.5, scale=BEFORE.scale * 0.1, unit=jnp.asarray(100.0))
SEGMENTS = builders.segments(0, 4)._replace(number=jnp.arange(4, dtype=jnp.int32))


@cache
def _moved(name: str) -> AgentState:
    """A method that has remembered some segments, in other units."""
    method = METHODS[name].make(METHODS[name].config())
    state = AgentState(builders.initial(method), None, BEFORE)
    seen = scaling.batch(BEFORE, Batch(SEGMENTS, builders.transitions(0, 4)))
    assert seen.segments is not None
    if method.memory is None:
        state = jax.jit(lambda state: agents.update_model(method, state, seen, jax.random.key(1))[0])(state)
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


def test_what_is_compared_or_foreseen_is_in_the_new_unit() -> None:
    state: Any = _moved("ircr").method
    np.testing.assert_allclose(state.best.score[:4], state.best.total[:4], rtol=1e-5)
    worth = np.asarray(state.best.total[:4]) / np.asarray(state.best.length[:4])
    np.testing.assert_allclose((state.lowest, state.highest), (worth.min(), worth.max()), rtol=1e-5)
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
    start = jax.jit(lambda key: agents.init(method, backbone, key, builders.SPEC, BEFORE))(jax.random.key(0))
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


# --- Where the unit of pay moves, what was learned in the old one stays what it is to the environment


SMALL = {"hidden": (8, 8)}
_SETTINGS: dict[str, dict[str, Any]] = {
    "grd by gradient": {**SMALL, "structure": "gradient"},
    "transformer": {"width": 4, "layers": 1},
    "rbt": {"width": 4, "layers": 1},
}


def _rewards(method: Method, state: AgentState) -> Any:
    """In the environment's unit, of some steps, or of segments where only these have rewards."""
    own = agents.in_own_units(method)
    if own.credit is None:
        return own.reward(state, builders.transitions(1, 7))
    segments = builders.segments(1, 4)
    return own.credit(state, segments)[np.asarray(segments.mask)]


@cache
def _learned(name: str) -> tuple[Method, AgentState]:
    """A method after some updates, in units of a thousandth."""
    method = METHODS[name.split()[0]].make(METHODS[name.split()[0]].config(**_SETTINGS.get(name, SMALL)))
    units = scaling.unknown(builders.SPEC)._replace(unit=jnp.asarray(1e-3), reward_square=jnp.asarray(4e6))
    backbone = Config(env=EnvConfig("x")).make_backbone()
    state = jax.jit(lambda key: agents.init(method, backbone, key, builders.SPEC, units))(jax.random.key(0))
    update = jax.jit(lambda state, data, key: agents.update_model(method, state, data, key)[0])
    model: Any = state.method
    if name == "grd":  # as after a look
        bases = model.rewards.bases
        bases = bases._replace(
            weights=bases.weights + 20, offset=jnp.asarray([3.0, 5.0]), error=jnp.asarray([40.0, 700.0])
        )
        model = model._replace(rewards=model.rewards._replace(bases=bases))
        model = model._replace(judge=model.judge._replace(squares=jnp.asarray([1e6, 4e6])))
    state = state._replace(method=model)
    for seed in range(3):
        state = update(state, builders.batch(seed, 6, 4), jax.random.key(seed))
    return method, state


@pytest.mark.parametrize(
    "name", ["grd", "grd by gradient", "rd", "rrd", "gp-lrr", "diaster", "transformer", "rbt"]
)
def test_rewards_do_not_move_with_the_unit_of_pay(name: str) -> None:
    """GRD's were a thousand times too large, once pay had grown to a thousand units, and stayed so."""
    method, state = _learned(name)
    assert state.scaling is not None
    moved = agents.rescaled(method, state, state.scaling._replace(unit=jnp.asarray(2.0)))
    np.testing.assert_allclose(_rewards(method, moved), _rewards(method, state), rtol=1e-4, atol=1e-5)
    assert moved.scaling is not None
    np.testing.assert_allclose(moved.scaling.reward_square, 1.0, rtol=1e-5)  # 2,000 old units are one new
    found: Any = moved.method
    optimiser = found.reward_optimiser if name == "grd by gradient" else found.optimiser
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(optimiser.moments))


@pytest.mark.parametrize("name", ["grd", "rd", "transformer"])
def test_where_the_unit_of_pay_stays_nothing_is_forgotten(name: str) -> None:
    method = METHODS[name].make(METHODS[name].config())
    backbone = Config(env=EnvConfig("x")).make_backbone()
    units = scaling.unknown(builders.SPEC)._replace(unit=jnp.asarray(0.5))
    state = agents.init(method, backbone, jax.random.key(0), builders.SPEC, units)
    state = jax.tree.map(lambda x: x + 1 if x.dtype == jnp.float32 else x, state)
    assert state.scaling is not None
    builders.assert_equal(agents.rescaled(method, state, state.scaling), state)


@pytest.mark.parametrize("name", ["grd", "rd", "rrd"])
def test_the_first_unit_finds_networks_as_they_start(name: str) -> None:
    """Kept as they were to the environment, they would start a hundred thousand times too large."""
    method, state = _learned(name)
    before = state._replace(scaling=scaling.unknown(builders.SPEC))
    assert before.scaling is not None
    moved = agents.rescaled(method, before, before.scaling._replace(unit=jnp.asarray(1e-5)))
    builders.assert_equal(moved.method, before.method)


@pytest.mark.parametrize("name", ["grd by gradient", "rd", "rrd", "gp-lrr", "diaster", "transformer", "rbt"])
def test_networks_start_from_what_every_step_earns_where_that_stands_out(name: str) -> None:
    """A network that starts at 0 and learns 3e-4 an update did not come to -1,000 in 20,000 steps."""
    method, state = _learned(name)
    before = state._replace(scaling=scaling.unknown(builders.SPEC))
    assert before.scaling is not None
    settled = before.scaling._replace(unit=jnp.asarray(2.0), settled=jnp.asarray(True))
    for_now = before._replace(scaling=settled._replace(settled=jnp.asarray(False)))
    plain = _rewards(method, before)
    for start in (before, for_now):
        moved = agents.rescaled(method, start, settled, jnp.asarray(-500.0))
        np.testing.assert_allclose(_rewards(method, moved), 2 * plain - 1_000, rtol=1e-5)
        again = agents.rescaled(method, moved, settled)
        builders.assert_equal(again, moved)
