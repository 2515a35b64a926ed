"""What GRD asks of a look at its segments: edges that may go, in this process or in one of its own."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import builders
from apportion.core.types import Method, Record
from apportion.graph import looking
from apportion.graph.features import together
from apportion.graph.looking import Seen, search
from apportion.methods import grd
from apportion.methods.grd.parts import Config


def test_a_look_is_bit_for_bit_the_same_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at many numbers has one. Here some episodes end by themselves."""
    rng, records = np.random.default_rng(0), []
    for number in range(160):
        actions = rng.normal(size=(12 + number % 5, 2)).astype(np.float32)
        observations = rng.normal(size=(len(actions) + 1, 3)).astype(np.float32)
        observations[1:, 1] += 0.5 * actions[:, 0]
        total = float(observations[:-1, 0].sum() - (actions[:, 1] ** 2).sum())
        records.append(Record(observations, actions, total, number % 3 == 0, number))
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


def test_what_shares_more_than_half_of_its_variance_goes_with_another() -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 5000))
    rows = np.stack([x, x + 0.9 * noise, x + 1.1 * noise, 1e-6 * x + 5e-6, -1e4 * x, np.ones_like(x)], axis=1)
    assert together(rows, np.arange(6) == 0)[:, 0].tolist() == [True, True, False, True, True, False]
    assert not together(rows, np.zeros(6, np.bool_)).any()


def seen(observations: list[np.ndarray], paid: list[np.ndarray], noise: float = 0.0) -> Seen:
    rng, episodes = np.random.default_rng(1), len(observations)
    actions = [rng.uniform(-1, 1, (len(each), 1)) + rng.normal() for each in paid]
    totals = np.array([each.sum() for each in paid])
    totals += noise * totals.std() * rng.normal(size=episodes)
    return Seen(observations, actions, totals, np.zeros(episodes, np.bool_))


def test_an_edge_stays_where_its_dimension_goes_with_one_that_stays() -> None:
    """A blurred copy of the cause is absent, which is right, but not known so well that a reward should be
    without it; a dimension of its own is."""
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(21, 3)) for _ in range(200)]
    for each in observations:
        each[:, 1] = each[:, 0] + 0.5 * each[:, 1]
    found = search(seen(observations, [each[:-1, 0] for each in observations]))
    assert found.known[0].tolist() == [1.0, 0.5, 0.0]
    assert found.known[1].tolist() == [0.0]


def test_an_edge_stays_that_only_totals_exclude() -> None:
    """A swing adds up to next to nothing over an episode, though it may decide what each step earns."""
    rng, observations = np.random.default_rng(0), []
    for _ in range(160):
        times = np.arange(32)
        moved = np.diff(np.sin(0.9 * times + rng.uniform(0, 6)) + 0.05 * rng.normal(size=32))
        level, idle = rng.normal(size=(2, 1)) + 0.3 * rng.normal(size=(2, 31))
        observations.append(np.stack([level, moved, idle], axis=1))
    found = search(seen(observations, [each[:-1, 0] + 0.5 * each[:-1, 1] for each in observations], 0.1))
    assert found.known[0].tolist() == [1.0, 0.5, 0.0]
    assert found.known[1].tolist() == [0.0]


def test_with_few_segments_for_a_dimension_no_edge_goes() -> None:
    """40 states, of which the first pays and the last never varies, in 160 segments."""
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(21, 40)) for _ in range(160)]
    for each in observations:
        each[:, -1] = 3.0
    known = search(seen(observations, [each[:-1, 0] for each in observations])).known[0]
    assert known[0] == 1
    assert np.all(known[1:-1] >= 0.5)
    assert known[-1] == 0  # what never varies has no say in any case


def test_some_steps_are_those_of_all_segments() -> None:
    observations = [np.arange(0, 4.0)[:, None], np.arange(10, 13.0)[:, None]]
    actions = [-observations[0][:3], -observations[1][:2]]
    some = Seen(observations, actions, np.zeros(2), np.zeros(2, np.bool_))
    assert some.some_steps(100).tolist() == [[0, 0], [1, -1], [2, -2], [10, -10], [11, -11]]
    assert len(some.some_steps(3)) == 3
