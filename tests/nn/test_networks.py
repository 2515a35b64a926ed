"""The networks equal plain NumPy; the dynamics network sees, for each target, its parents only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.nn.networks import MLP, NORM_EPSILON, MixtureDynamics, NormedMLP, init_dense
from builders import numpy

STATES, ACTIONS, COMPONENTS = 3, 2, 4


def plain_mlp(weights: list[np.ndarray], biases: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return x @ weights[-1] + biases[-1]


@pytest.mark.parametrize("shape", [(), (5,), (4, 5)])
def test_mlp_equals_numpy_over_any_leading_axes(shape: tuple[int, ...]) -> None:
    network = MLP.init(jax.random.key(0), (3, 8, 7, 2))
    x = np.random.default_rng(0).normal(size=(*shape, 3))
    plain = numpy(network)
    found = network(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, plain_mlp(plain.weights, plain.biases, x), rtol=1e-4, atol=1e-6)


def plain_normed(weights: list[np.ndarray], biases: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        hidden = np.zeros((len(x), weight.shape[1]))
        for row, inputs in enumerate(x):
            sums = inputs @ weight
            variance = np.mean((sums - np.mean(sums)) ** 2)
            hidden[row] = np.maximum((sums - np.mean(sums)) / np.sqrt(variance + NORM_EPSILON) + bias, 0)
        x = hidden
    return x @ weights[-1] + biases[-1]


def test_normed_layers_equal_a_plain_loop() -> None:
    network = NormedMLP.init(jax.random.key(0), (3, 8, 7, 2))
    x = np.random.default_rng(0).normal(size=(5, 3))
    plain = numpy(network)
    found = network(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, plain_normed(plain.weights, plain.biases, x), rtol=1e-4, atol=1e-5)


def test_normed_layers_do_not_reach_far_however_far_the_input_is() -> None:
    near = np.random.default_rng(1).normal(size=(50, 3))
    sizes, key = (3, 16, 16, 1), jax.random.key(2)
    for kind, grows in ((MLP, True), (NormedMLP, False)):
        network = kind.init(key, sizes)
        found = [float(np.abs(network(jnp.asarray(far * near, jnp.float32))).max()) for far in (10, 10_000)]
        assert (found[1] > 100 * found[0]) == grows
        assert grows or found[1] < np.sqrt(16) + 1  # of 16 numbers with variance 1, and weights up to 1/4


def test_layers_start_small_and_apart() -> None:
    """Uniform in ±1/sqrt(inputs), every number drawn by itself."""
    layers = init_dense(jax.random.key(1), (16, 64, 4))
    assert [(w.shape, b.shape) for w, b in layers] == [((16, 64), (64,)), ((64, 4), (4,))]
    for (weight, bias), bound in zip(layers, (0.25, 0.125), strict=True):
        numbers = np.concatenate([np.ravel(weight), bias]) / bound
        assert np.abs(numbers).max() <= 1
        assert abs(np.mean(numbers)) < 5 / np.sqrt(3 * numbers.size)
        assert np.std(numbers) == pytest.approx(1 / np.sqrt(3), abs=0.06)
    everything = np.concatenate([np.ravel(array) for layer in layers for array in layer])
    assert len(np.unique(everything)) == everything.size


@pytest.fixture(scope="module")
def dynamics() -> MixtureDynamics:
    return MixtureDynamics.init(jax.random.key(2), STATES, ACTIONS, (8, 6), COMPONENTS)


@pytest.fixture(scope="module")
def inputs() -> tuple[jax.Array, ...]:
    """Observation, action, and the two masks."""
    rng = np.random.default_rng(3)
    observation, action = rng.normal(size=(5, STATES)), rng.normal(size=(5, ACTIONS))
    to_state = rng.random((STATES + ACTIONS, STATES)) < 0.5
    return tuple(
        jnp.asarray(x, jnp.float32) for x in (observation, action, to_state[:STATES], to_state[STATES:])
    )


@pytest.mark.parametrize("use_identity", [True, False])
def test_dynamics_equal_a_loop_that_masks_the_inputs_of_each_target(
    dynamics: MixtureDynamics, inputs: tuple[jax.Array, ...], use_identity: bool
) -> None:
    plain = numpy(dynamics)
    observation, action, state_to_state, action_to_state = numpy(inputs)
    expected = np.zeros((5, STATES, 3 * COMPONENTS))
    for b in range(5):
        for i in range(STATES):
            seen = np.concatenate([state_to_state[:, i] * observation[b], action_to_state[:, i] * action[b]])
            first = seen @ plain.weight + plain.bias + (plain.identity[i] if use_identity else 0)
            expected[b, i] = plain_mlp(plain.body.weights, plain.body.biases, np.maximum(first, 0))
    found = dynamics(*inputs, use_identity=use_identity)
    for part, block in zip(found, np.split(expected, 3, axis=-1), strict=True):
        assert part.shape == (5, STATES, COMPONENTS)
        np.testing.assert_allclose(part, block, rtol=1e-4, atol=1e-5)


def test_without_identity_targets_with_the_same_parents_cannot_be_told_apart(
    dynamics: MixtureDynamics, inputs: tuple[jax.Array, ...]
) -> None:
    observation, action, *_ = inputs
    ones = (jnp.ones((STATES, STATES)), jnp.ones((ACTIONS, STATES)))
    blind, *_ = dynamics(observation, action, *ones, use_identity=False)
    told, *_ = dynamics(observation, action, *ones, use_identity=True)
    np.testing.assert_allclose(blind[:, 0], blind[:, 1], rtol=1e-5, atol=1e-6)
    assert not np.allclose(told[:, 0], told[:, 1])


def test_a_masked_input_has_exactly_no_effect_on_that_target(dynamics: MixtureDynamics) -> None:
    rng = np.random.default_rng(4)
    source, target = 1, 2
    state_to_state = jnp.ones((STATES, STATES)).at[source, target].set(0.0)
    action = jnp.asarray(rng.normal(size=(5, ACTIONS)), jnp.float32)

    def outputs(observation: jax.Array) -> jax.Array:
        parts = dynamics(observation, action, state_to_state, jnp.ones((ACTIONS, STATES)), use_identity=True)
        return jnp.concatenate(parts, axis=-1)

    observation = jnp.asarray(rng.normal(size=(5, STATES)), jnp.float32)
    before, after = outputs(observation), outputs(observation.at[:, source].add(100.0))
    np.testing.assert_array_equal(before[:, target], after[:, target])
    assert not np.allclose(before[:, 0], after[:, 0])
    # Nor has it a slope there, whereas its parents do.
    slope = jax.grad(lambda x: jnp.sum(outputs(x)[:, target]))(observation)
    assert not slope[:, source].any()
    assert slope[:, 0].any()
