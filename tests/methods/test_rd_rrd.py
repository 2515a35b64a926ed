"""RRD and RD: fair draws of steps, losses that equal the formula, and which of them is unbiased."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from apportion.core.types import Segments
from apportion.methods import rd, rrd
from apportion.methods.regression import State
from apportion.nn.networks import MLP
from builders import SPEC, numpy, segments
from probes import plain_outputs

BIASED = rrd.Config(hidden=(8, 8), steps_per_segment=3)
UNBIASED = rrd.UnbiasedConfig(hidden=(8, 8), steps_per_segment=3)


@pytest.fixture(scope="module")
def network() -> MLP:
    return jax.jit(lambda key: rrd.make(BIASED).init(key, SPEC))(jax.random.key(0)).network


# --- Which steps


def _draws(lengths: list[int], longest: int, count: int, keys: int) -> np.ndarray:
    """[keys, M, K]: compiled, and over many keys at once."""
    length = jnp.asarray(lengths, jnp.int32)
    draw = jax.jit(jax.vmap(lambda key: rrd.draw_steps(key, length, longest, count)))
    return np.asarray(draw(jax.random.split(jax.random.key(0), keys)))


def test_steps_are_drawn_fairly_whatever_the_length() -> None:
    """Side by side: subsets of a long segment are all as likely, sequences of a short one likewise."""
    lengths, count, keys = [7, 4, 3, 2, 1], 3, 6000
    draws = _draws(lengths, longest=7, count=count, keys=keys)
    assert draws.shape == (keys, 5, count)
    for m, length in enumerate(lengths):
        if length >= count:
            outcomes = list(itertools.combinations(range(length), count))
            found = Counter(tuple(sorted(draw)) for draw in draws[:, m].tolist())
        else:
            outcomes = list(itertools.product(range(length), repeat=count))
            found = Counter(map(tuple, draws[:, m].tolist()))
        assert set(found) == set(outcomes)  # so nothing twice, and nothing from the padding
        if len(outcomes) > 1:
            assert stats.chisquare([found[outcome] for outcome in outcomes]).pvalue > 1e-3


# --- The loss


def _plain_reward(network: MLP, data: Segments, m: int, t: int) -> float:
    s, after = data.observations[m, t], data.observations[m, t + 1]
    x = np.concatenate([s, data.actions[m, t], s - after])
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return float((x @ network.weights[-1] + network.biases[-1])[0])


@pytest.mark.parametrize("config", [BIASED, UNBIASED], ids=["biased", "unbiased"])
def test_the_loss_equals_numpy(network: MLP, config: rrd.Config) -> None:
    data, key = segments(1, 4), jax.random.key(5)  # lengths 1 to 4, of which 3 are drawn
    chosen = np.asarray(rrd.draw_steps(key, data.length, 4, 3))
    plain, expected = numpy(data), 0.0
    for m, length in enumerate(plain.length):
        rewards = [_plain_reward(numpy(network), plain, m, t) for t in chosen[m]]
        expected += (np.mean(rewards) - plain.total[m] / length) ** 2
        factor = {1: 0, 2: 1, 3: 0, 4: 1 - 3 / 4}[int(length)] if config.unbiased else 0
        expected -= np.var(rewards, ddof=1) * factor / 3
    found = rrd.reward_loss(network, data, key, config)
    np.testing.assert_allclose(found, expected / 4, rtol=1e-4)


# --- RD, which takes all steps


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
