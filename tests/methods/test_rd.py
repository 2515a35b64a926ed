"""RD: its loss equals the formula and GRD's with every edge on; it finds a known reward from sums."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.methods import rd
from apportion.methods.grd import published
from apportion.nn import losses
from apportion.nn.networks import MLP
from builders import SPEC, learned_correlation, numpy, segments, transitions

METHOD = rd.make(rd.Config(hidden=(8, 8)))


@pytest.fixture(scope="module")
def state() -> rd.State:
    return jax.jit(lambda key: METHOD.init(key, SPEC))(jax.random.key(0))


def _mlp(network: MLP, x: np.ndarray) -> np.ndarray:
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return x @ network.weights[-1] + network.biases[-1]


def test_the_loss_equals_numpy_whatever_the_padding_holds(state: rd.State) -> None:
    data = segments(1, 4)
    network, plain, errors = numpy(state.network), numpy(data), []
    for m, length in enumerate(plain.length):
        inputs = [np.concatenate([plain.observations[m, t], plain.actions[m, t]]) for t in range(length)]
        predicted = sum(_mlp(network, x)[0] for x in inputs)
        errors.append(((predicted - plain.total[m]) / length) ** 2)
    padded = data._replace(actions=jnp.where(data.mask[:, :, None], data.actions, jnp.nan))
    for found in (data, padded):
        np.testing.assert_allclose(rd.reward_loss(state.network, found), np.mean(errors), rtol=1e-4)


def test_rd_is_the_published_reward_with_every_edge_on(state: rd.State) -> None:
    steps, data = transitions(2, 6), segments(1, 4)
    x = jnp.concatenate([steps.observation, steps.action], 1)
    expected = published.predict_reward(state.network, jnp.ones(5), x)
    np.testing.assert_array_equal(METHOD.reward(state, steps), expected)
    x = jnp.concatenate([data.observations[:, :-1], data.actions], axis=-1)
    rewards = published.predict_reward(state.network, jnp.ones(5), x)
    expected = losses.return_loss(rewards, data.mask, data.total, data.length)
    np.testing.assert_array_equal(rd.reward_loss(state.network, data), expected)


def test_the_policy_sees_everything_and_there_is_no_graph(state: rd.State) -> None:
    assert METHOD.policy_mask is None
    assert METHOD.edges is None


def test_a_known_reward_is_found_from_its_sums() -> None:
    method = rd.make(rd.Config(hidden=(32, 32), learning_rate=5e-3))
    assert learned_correlation(method, updates=300) > 0.9


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"segments": 0}, "method.segments=0 must be at least 1"),
        ({"hidden": ()}, "method.hidden needs at least one layer"),
        ({"hidden": (8, 0)}, r"method.hidden=\(8, 0\) must be at least 1 each"),
        ({"learning_rate": 0.0}, "method.learning_rate=0.0 must be positive"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        rd.Config(**change)
