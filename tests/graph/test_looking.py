"""A look at many numbers has a process of its own, and brings the same there as anywhere."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import builders
from apportion.core.types import Method, Record
from apportion.graph import looking
from apportion.methods import grd
from apportion.methods.grd.parts import Config


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Episodes of the builders' environment, some of which end by themselves."""
    rng, found = np.random.default_rng(0), []
    for number in range(160):
        actions = rng.normal(size=(12 + number % 5, 2)).astype(np.float32)
        observations = rng.normal(size=(len(actions) + 1, 3)).astype(np.float32)
        observations[1:, 1] += 0.5 * actions[:, 0]
        total = float(observations[:-1, 0].sum() - (actions[:, 1] ** 2).sum())
        found.append(Record(observations, actions, total, number % 3 == 0, number))
    return found


def test_a_look_is_bit_for_bit_the_same_in_a_process_of_its_own(
    records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    method: Method = grd.make(Config())
    assert method.revision is not None
    state = method.init(jax.random.key(0), builders.SPEC)
    here = method.revision.look(state, records, len(records))
    monkeypatch.setattr(looking, "LARGE", 1)
    monkeypatch.setattr(looking, "identify", None)  # so that nobody can search here
    there = method.revision.look(state, records, len(records))
    jax.tree.map(np.testing.assert_array_equal, here, there)


def test_the_process_of_a_look_knows_nothing_of_jax() -> None:
    code = "import apportion.graph.looking, sys; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
