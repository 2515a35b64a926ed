"""Dimensions that go together from step to step."""

import numpy as np

from apportion.graph.likeness import goes_with
from apportion.graph.looking import Seen, search


def test_more_than_half_of_the_variance_is_shared() -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 5000))
    rows = np.stack([x, x + 0.9 * noise, x + 1.1 * noise, 1e-6 * x + 5e-6, -1e4 * x, np.ones_like(x)], axis=1)
    chosen = np.array([True, False, False, False, False, False])
    assert goes_with(rows, chosen).tolist() == [True, True, False, True, True, False]
    shares = [np.corrcoef(rows[:, 0], rows[:, d])[0, 1] ** 2 for d in range(5)]
    assert goes_with(rows, chosen)[:5].tolist() == [share > 0.5 for share in shares]


def test_nothing_goes_with_nothing() -> None:
    rows = np.random.default_rng(0).normal(size=(10, 3))
    assert not goes_with(rows, np.zeros(3, np.bool_)).any()


def test_an_edge_stays_where_its_dimension_goes_with_one_that_stays() -> None:
    """A blurred copy of the cause is absent, which is right, but not known so well that a reward should be
    without it; a dimension of its own is."""
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(21, 3)) for _ in range(200)]
    for each in observations:
        each[:, 1] = each[:, 0] + 0.5 * each[:, 1]
    actions = [rng.uniform(-1, 1, (20, 1)) for _ in range(200)]
    totals = np.array([each[:-1, 0].sum() for each in observations])
    found = search(Seen(observations, actions, totals, np.zeros(200, np.bool_)))
    assert found.known[0].tolist() == [1.0, 0.5, 0.0]
    assert found.known[1].tolist() == [0.0]


def many_dimensions(noise: float) -> Seen:
    """40 states, of which the first pays and the last never varies, in 160 segments."""
    rng = np.random.default_rng(0)
    observations = [rng.normal(size=(21, 40)) for _ in range(160)]
    for each in observations:
        each[:, -1] = 3.0
    actions = [rng.uniform(-1, 1, (20, 1)) for _ in range(160)]
    totals = np.array([each[:-1, 0].sum() for each in observations])
    totals += noise * totals.std() * rng.normal(size=160)
    return Seen(observations, actions, totals, np.zeros(160, np.bool_))


def test_with_few_segments_for_a_dimension_edges_stay() -> None:
    """Noise leaves as much unexplained by the cause alone as by everything."""
    found = search(many_dimensions(1.0))
    assert found.known[0][0] == 1
    assert np.all(found.known[0][1:-1] >= 0.5)
    assert found.known[0][-1] == 0  # what never varies has no say in any case


def test_unless_what_is_left_explains_far_more() -> None:
    assert search(many_dimensions(0.0)).known[0].tolist() == [1.0, *[0.0] * 39]


def test_some_steps_are_those_of_all_segments() -> None:
    observations = [np.arange(0, 4.0)[:, None], np.arange(10, 13.0)[:, None]]
    actions = [-observations[0][:3], -observations[1][:2]]
    seen = Seen(observations, actions, np.zeros(2), np.zeros(2, np.bool_))
    assert seen.some_steps(100).tolist() == [[0, 0], [1, -1], [2, -2], [10, -10], [11, -11]]
    assert len(seen.some_steps(3)) == 3
