"""RBT: rewards look both ways, foretold states do not; both losses are the formula's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.methods import rbt
from apportion.methods.regression import State
from builders import as_if_learned, initial, numpy, segments

METHOD = rbt.make(rbt.Config(width=8, heads=2, layers=1))
predict = jax.jit(rbt.predict)


@pytest.fixture(scope="module")
def state() -> State:
    """As if it had learned: attention, which starts at 0, has a say."""
    start = initial(METHOD)
    return start._replace(network=as_if_learned(start.network))


def test_the_losses_equal_numpy(state: State) -> None:
    data = segments(1, 4)  # 1 to 4 steps
    rewards, foretold = map(numpy, predict(state.network, data))
    sums, squares = [], []
    for m, length in enumerate(np.asarray(data.length)):
        sums.append(((rewards[m, :length].sum() - float(data.total[m])) / length) ** 2)
        squares.append((foretold[m, :length] - numpy(data.observations)[m, 1 : length + 1]) ** 2)
    reward_loss, state_loss = rbt.bag_losses(state.network, data)
    np.testing.assert_allclose(reward_loss, np.mean(sums), rtol=1e-4)
    np.testing.assert_allclose(state_loss, np.concatenate(squares).mean(), rtol=1e-4)


def test_a_reward_knows_what_comes_after_it_and_a_foretold_state_does_not(state: State) -> None:
    data = segments(1, 4)
    other = data._replace(actions=data.actions.at[:, 2].add(1.0))
    (rewards, states), (new_rewards, new_states) = (predict(state.network, d) for d in (data, other))
    assert (new_rewards[3] != rewards[3]).all()
    np.testing.assert_array_equal(new_states[3, :2], states[3, :2])
    assert (new_states[3, 2:] != states[3, 2:]).all()


def test_a_segment_is_judged_as_if_it_had_no_padding(state: State) -> None:
    data = segments(1, 4)
    rewards, _ = predict(state.network, data)
    tokens = jnp.concatenate([data.observations[2, :3], data.actions[2, :3]], axis=1)
    expected, _ = jax.jit(lambda network, tokens: network(tokens, jnp.asarray(3)))(state.network, tokens)
    np.testing.assert_allclose(rewards[2, :3], expected, rtol=1e-4, atol=1e-6)
    assert not np.asarray(rewards)[~np.asarray(data.mask)].any()
