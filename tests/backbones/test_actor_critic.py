"""What the actor-critic backbones share equals its formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import actor_critic
from apportion.nn.networks import MLP
from builders import SPEC, assert_equal, numpy, transitions
from probes import plain_values

S, A = SPEC.observation_size, SPEC.action_size


@pytest.fixture(scope="module")
def critics() -> MLP:
    return actor_critic.init_critics(jax.random.key(0), 2, S + A, (8, 8))


def test_only_a_true_end_stops_the_bootstrap() -> None:
    rewards, next_values = jnp.asarray([1.0, 2.0]), jnp.asarray([10.0, jnp.nan])
    target = actor_critic.bellman_target(rewards, jnp.asarray([False, True]), next_values, 0.9)
    np.testing.assert_allclose(target, [1 + 0.9 * 10, 2])


def test_values_are_those_of_each_critic(critics: MLP) -> None:
    steps = transitions(0, 6)
    found = actor_critic.values(critics, steps.observation, steps.action)
    expected = plain_values(numpy(critics), *numpy((steps.observation, steps.action)))
    assert found.shape == (2, 6)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert not np.allclose(found[0], found[1])  # each starts from its own key


def test_layers_are_named_in_order() -> None:
    actor = MLP.init(jax.random.key(1), (S, 8, A))
    named = actor_critic.arrays(actor)
    assert list(named) == ["w0", "b0", "w1", "b1"]
    assert_equal([named["w0"], named["w1"]], actor.weights)
    assert_equal([named["b0"], named["b1"]], actor.biases)
