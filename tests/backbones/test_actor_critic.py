"""What the actor-critic backbones share equals its formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import actor_critic
from apportion.nn import optimise
from apportion.nn.networks import MLP
from builders import SPEC, assert_equal, numpy, transitions
from probes import plain_outputs, plain_values

S, A = SPEC.observation_size, SPEC.action_size


@pytest.fixture(scope="module")
def critics() -> MLP:
    return actor_critic.init_critics(jax.random.key(0), 2, S + A, (8, 8))


@pytest.fixture(scope="module")
def actor() -> MLP:
    return MLP.init(jax.random.key(1), (S, 8, A))


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


def test_critics_step_towards_their_target(critics: MLP) -> None:
    steps, target = transitions(0, 6), jnp.arange(6.0)
    optimiser = optimise.start(critics, 1e-3)
    after, _, metrics = jax.jit(actor_critic.step_critics)(critics, optimiser, steps, target)
    data = numpy((steps.observation, steps.action))
    losses = [
        ((plain_values(numpy(c), *data) - np.arange(6)) ** 2).mean(axis=1).sum() for c in (critics, after)
    ]
    np.testing.assert_allclose(metrics["critic_loss"], losses[0], rtol=1e-4)
    np.testing.assert_allclose(metrics["value"], plain_values(numpy(critics), *data).mean(), rtol=1e-4)
    assert losses[1] < losses[0]


def test_targets_follow_by_the_polyak_step(critics: MLP) -> None:
    halves = jax.tree.map(lambda array: 0.5 * array, critics)
    for polyak, share in ((0.1, 0.5 + 0.1 * 0.5), (1.0, 1.0)):
        followed = actor_critic.follow(halves, critics, polyak)
        pairs = zip(jax.tree.leaves(followed), jax.tree.leaves(critics), strict=True)
        for found, array in pairs:
            np.testing.assert_allclose(found, share * array, rtol=1e-5)


def test_the_first_critic_teaches_a_deterministic_actor(actor: MLP, critics: MLP) -> None:
    observation = transitions(0, 6).observation
    loss, gradients = jax.jit(jax.value_and_grad(actor_critic.deterministic_loss, argnums=(0, 1)))(
        actor, critics, observation
    )
    plain = numpy(observation)
    action = np.tanh(plain_outputs(numpy(actor), plain))
    np.testing.assert_allclose(loss, -plain_values(numpy(critics), plain, action)[0].mean(), rtol=1e-4)
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(gradients[0]))
    assert all(np.all(leaf[1] == 0) for leaf in jax.tree.leaves(gradients[1]))


def test_noise_is_added_to_the_action_only_to_explore(actor: MLP) -> None:
    observation, keys = jnp.asarray([0.5, -1.0, 2.0]), jax.random.split(jax.random.key(0), 2000)

    def act(key: jax.Array, noise: float, explore: bool) -> jax.Array:
        return actor_critic.act_with_noise(actor, observation, key, explore, noise)

    best = np.tanh(plain_outputs(numpy(actor), numpy(observation)))
    np.testing.assert_allclose(act(keys[0], 0.1, False), best, rtol=1e-5)
    explored = np.asarray(jax.vmap(lambda key: act(key, 0.1, True))(keys))
    np.testing.assert_allclose(explored.mean(axis=0), best, atol=0.01)
    np.testing.assert_allclose(explored.std(axis=0), 0.1, atol=0.01)  # before the tanh it would be less
    wild = np.asarray(jax.vmap(lambda key: act(key, 10.0, True))(keys))
    assert set(np.unique(np.abs(wild))) >= {1.0}
    assert (np.abs(wild) <= 1).all()


def test_layers_are_named_in_order(actor: MLP) -> None:
    named = actor_critic.arrays(actor)
    assert list(named) == ["w0", "b0", "w1", "b1"]
    assert_equal([named["w0"], named["w1"]], actor.weights)
    assert_equal([named["b0"], named["b1"]], actor.biases)
