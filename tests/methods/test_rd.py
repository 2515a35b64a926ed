"""RD: its loss equals the formula and GRD's with every edge on; it finds a known reward from sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.methods import rd
from apportion.methods.grd import published
from apportion.methods.regression import State
from apportion.nn import losses
from builders import SPEC, numpy, segments, transitions
from probes import plain_outputs

METHOD = rd.make(rd.Config(hidden=(8, 8)))


@pytest.fixture(scope="module")
def state() -> State:
    return jax.jit(lambda key: METHOD.init(key, SPEC))(jax.random.key(0))


def test_the_loss_equals_numpy_whatever_the_padding_holds(state: State) -> None:
    data = segments(1, 4)
    network, plain, errors = numpy(state.network), numpy(data), []
    for m, length in enumerate(plain.length):
        inputs = [np.concatenate([plain.observations[m, t], plain.actions[m, t]]) for t in range(length)]
        predicted = sum(plain_outputs(network, x)[0] for x in inputs)
        errors.append(((predicted - plain.total[m]) / length) ** 2)
    padded = data._replace(actions=jnp.where(data.mask[:, :, None], data.actions, jnp.nan))
    for found in (data, padded):
        np.testing.assert_allclose(rd.reward_loss(state.network, found), np.mean(errors), rtol=1e-4)


def test_rd_is_the_published_reward_with_every_edge_on(state: State) -> None:
    steps, data = transitions(2, 6), segments(1, 4)
    x = jnp.concatenate([steps.observation, steps.action], 1)
    expected = published.predict_reward(state.network, jnp.ones(5), x)
    np.testing.assert_array_equal(METHOD.reward(state, steps), expected)
    x = jnp.concatenate([data.observations[:, :-1], data.actions], axis=-1)
    rewards = published.predict_reward(state.network, jnp.ones(5), x)
    expected = losses.return_loss(rewards, data.mask, data.total, data.length)
    np.testing.assert_array_equal(rd.reward_loss(state.network, data), expected)
