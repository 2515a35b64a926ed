"""Sums over a replay by blocks are those of a plain loop, and take no copy of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.training import scaling


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 11])
def test_sums_are_those_of_a_plain_loop(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 4)
    rng = np.random.default_rng(rows)
    data, weights = (
        rng.normal(size=(rows, 3)).astype(np.float32),
        rng.normal(size=(2, rows)).astype(np.float32),
    )
    expected = np.zeros((2, 3))
    for k in range(2):
        for n in range(rows):
            expected[k] += weights[k, n] * (data[n] - 1.0) ** 2
    found = replays.summed(jnp.asarray(data), jnp.asarray(weights), lambda part: (part - 1.0) ** 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_lanes_are_summed_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 4)
    data = np.random.default_rng(0).normal(size=(2, 10, 3)).astype(np.float32)
    weights = jnp.ones((2, 1, 10))
    found = jax.vmap(lambda rows, share: replays.summed(rows, share, jnp.square))(jnp.asarray(data), weights)
    np.testing.assert_allclose(found[:, 0], (data**2).sum(axis=1), rtol=1e-5)


def test_measuring_a_replay_takes_a_small_part_of_its_memory() -> None:
    spec = Spec("wide", tuple(f"s{i}" for i in range(100)), ("a",), 50, 50)
    replay = jax.eval_shape(lambda: replays.init(spec, 200_000))
    known = jax.eval_shape(lambda: scaling.unknown(spec, clocks=True))
    used = jax.jit(scaling.measured).lower(known, replay).compile().memory_analysis()
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(replay))
    assert used.temp_size_in_bytes < size / 4
