"""GRD's model as a place to act in: on a system that is known, it leads where steps really lead."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.types import Edges, Transitions
from apportion.methods import grd
from apportion.methods.grd import closed_form
from apportion.methods.grd.dynamics import State
from apportion.nn.networks import MixtureDynamics
from builders import SPEC, normal, transitions

NOISE = 0.1
CONFIG = grd.Config(hidden=(16, 16), components=2)
METHOD = grd.make(CONFIG)
assert METHOD.dynamics is not None
MODEL = METHOD.dynamics
IMAGINE = jax.jit(MODEL.imagine)
# Who feeds whom in the system below.
EDGES = Edges(
    state_to_reward=jnp.ones(3),
    action_to_reward=jnp.ones(2),
    state_to_state=jnp.asarray([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
    action_to_state=jnp.asarray([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
)


def leads_to(observation: Any, action: Any) -> Any:
    height, speed = observation[:, 0], observation[:, 1]
    after = (0.9 * height + 0.3 * speed, 0.8 * speed + 0.5 * action[:, 0], 0.5 * action[:, 1])
    return jnp.stack(after, axis=1)


def _steps(seed: int, size: int) -> Transitions:
    """An episode ends where the height is above 1."""
    drawn = transitions(seed, size)
    after = leads_to(drawn.observation, drawn.action)
    after = after + NOISE * normal(np.random.default_rng(seed), size, 3)
    return drawn._replace(next_observation=after, terminated=after[:, 0] > 1)


@pytest.fixture(scope="module")
def method_state() -> closed_form.State:
    fresh = jax.jit(lambda key: METHOD.init(key, SPEC))(jax.random.key(0))
    return fresh._replace(edges=EDGES)


@pytest.fixture(scope="module")
def learned(method_state: closed_form.State) -> State:
    data = _steps(1, 4096)

    def update(state: State, chosen: jax.Array) -> tuple[State, None]:
        return MODEL.update(state, method_state, jax.tree.map(lambda x: x[chosen], data))[0], None

    @jax.jit
    def learn(key: jax.Array) -> State:
        chosen = jax.random.randint(key, (1500, 128), 0, 4096)
        return jax.lax.scan(update, MODEL.init(key, SPEC), chosen)[0]

    return learn(jax.random.key(1))


def test_it_leads_where_steps_lead_as_widely_and_ends_where_they_end(
    learned: State, method_state: closed_form.State
) -> None:
    new = _steps(2, 500)
    found = IMAGINE(learned, method_state, new.observation, new.action, jax.random.key(0))
    error = np.asarray(found.next_observation - leads_to(new.observation, new.action))
    assert np.sqrt(np.mean(error**2)) < 1.4 * NOISE
    assert np.mean(np.abs(error), axis=0).min() > 0.5 * NOISE
    ends = np.asarray(found.next_observation[:, 0] > 1)
    assert np.mean(np.asarray(found.terminated) == ends) > 0.97


def test_what_has_no_edge_to_a_dimension_does_not_move_it(
    learned: State, method_state: closed_form.State
) -> None:
    new = _steps(2, 500)
    other = new.observation.at[:, 2].add(1.0)
    one, two = (
        IMAGINE(learned, method_state, seen, new.action, jax.random.key(0))
        for seen in (new.observation, other)
    )
    np.testing.assert_array_equal(one.next_observation, two.next_observation)


def test_as_published_the_network_is_the_methods_own() -> None:
    method, key = grd.make(replace(CONFIG, structure="gradient")), jax.random.key(0)
    model, new = method.dynamics, _steps(2, 8)
    assert model is not None
    state, beside = jax.jit(lambda key: (method.init(key, SPEC), model.init(key, SPEC)))(key)
    assert beside.networks.leads is None

    @jax.jit
    def imagined(network: MixtureDynamics) -> jax.Array:
        with_it = state._replace(model=state.model._replace(dynamics=network))
        return model.imagine(beside, with_it, new.observation, new.action, key).next_observation

    own = state.model.dynamics
    assert np.all(imagined(own) != imagined(jax.tree.map(jnp.zeros_like, own)))
