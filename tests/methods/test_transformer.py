"""The transformer: its loss equals the formula, it finds a known reward, and it keeps to its segment."""

from typing import Any

import jax
import numpy as np
import pytest

import builders
from apportion.core.types import Batch
from apportion.methods import transformer
from apportion.methods.regression import State
from apportion.training import evaluate
from builders import EARNING, SPEC, as_if_learned, earning_segments, initial, numpy, segments, transitions

SMALL = transformer.Config(width=8, heads=2, layers=1, variance_penalty=0.3)
METHOD = transformer.make(SMALL)


@pytest.fixture(scope="module")
def state() -> State:
    """As if it had learned: attention, which starts at 0, has a say."""
    start = initial(METHOD)
    return start._replace(network=as_if_learned(start.network))


def test_the_loss_equals_numpy(state: State) -> None:
    data = segments(1, 4)  # 1 to 4 steps
    rewards, terms = numpy(METHOD.credit(state, data)), []
    for m, length in enumerate(np.asarray(data.length)):
        real = rewards[m, :length]
        error = (real.sum() - float(data.total[m])) / length
        terms.append(error**2 + 0.3 * real.var() / length)
    found = transformer.reward_loss(state.network, data, 0.3)
    np.testing.assert_allclose(found, np.mean(terms), rtol=1e-4)


def test_credit_looks_back_but_not_ahead(state: State) -> None:
    data = segments(1, 4)
    other = data._replace(actions=data.actions.at[:, 2].add(1.0))
    before, after = METHOD.credit(state, data), METHOD.credit(state, other)
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert (after[3, 2:] != before[3, 2:]).all()


def test_segments_of_one_episode_are_judged_apart(state: State) -> None:
    """Payments within an episode: the second segment's credit is that of an episode which starts there."""
    whole = builders.episode(0, [4, 6])

    def from_on(start: int) -> dict[str, Any]:
        return {name: array[start:] if array.ndim else array for name, array in whole.items()}

    redistribute = evaluate.make_redistribute(METHOD, SPEC)
    states = jax.tree.map(lambda x: x[None], state)
    [[all_of_it, end]] = redistribute(states, [[whole, from_on(4)]])
    assert [len(all_of_it), len(end)] == [6, 2]
    np.testing.assert_allclose(all_of_it[4:], end, rtol=1e-5)
    [[tail]] = redistribute(states, [[from_on(2)]])
    assert (np.abs(all_of_it[2:4] - tail[:2]) > 1e-6).any()  # while the first's remembers its own beginning


def test_a_great_penalty_leaves_the_steps_of_a_segment_alike() -> None:
    config = transformer.Config(width=8, layers=1, learning_rate=5e-3, variance_penalty=1000.0)
    method, data = transformer.make(config), earning_segments(1, 16)

    @jax.jit
    def train(key: jax.Array, keys: jax.Array) -> jax.Array:
        batch = Batch(data, transitions(2, 4, EARNING))
        start = method.init(key, EARNING)
        state, _ = jax.lax.scan(lambda s, key: method.update(s, batch, key), start, keys)
        return method.credit(state, data)

    credit = train(jax.random.key(0), jax.random.split(jax.random.key(1), 100))
    learned, true = (
        np.mean([np.std(row[:length]) for row, length in zip(rewards, data.length, strict=True)])
        for rewards in (np.asarray(credit), np.asarray(data.true_rewards))
    )
    assert learned < 0.1 * true
