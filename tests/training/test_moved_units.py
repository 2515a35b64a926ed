"""Where the unit of pay moves, what was learned in the old one stays what it is to the environment."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.core.types import Method
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS
from apportion.training import agent as agents
from apportion.training import scaling
from apportion.training.agent import AgentState
from apportion.training.settings import Config

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


def _learned(name: str) -> tuple[Method, AgentState]:
    """A method after some updates, in units of a thousandth."""
    method = METHODS[name.split()[0]].make(METHODS[name.split()[0]].config(**_SETTINGS.get(name, SMALL)))
    units = scaling.unknown(builders.SPEC)._replace(unit=jnp.asarray(1e-3), reward_square=jnp.asarray(4e6))
    backbone = Config(env=EnvConfig("x")).make_backbone()
    state = agents.init(method, backbone, jax.random.key(0), builders.SPEC, units)
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
        state, _ = agents.update_model(method, state, builders.batch(seed, 6, 4), jax.random.key(seed))
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
