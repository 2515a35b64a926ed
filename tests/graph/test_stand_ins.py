"""Two sensors of one thing: neither would be missed beside the other, and both together are."""

import numpy as np
import pytest

from apportion.graph.dynamics import DynamicsEdges, DynamicsEvidence, dynamics_edges
from apportion.graph.features import MAX_PAIRED, Dictionary, Scale
from apportion.graph.stand_ins import told_by_others
from apportion.graph.verdict import words


def transitions(noise: float, seed: int = 0, rows: int = 8_000) -> tuple[np.ndarray, np.ndarray]:
    """Heat, a second thermometer, the oven that heat warms, a bystander; and a valve of the oven."""
    rng = np.random.default_rng(seed)
    heat, oven, valve = np.zeros(rows + 1), np.zeros(rows + 1), rng.uniform(-1, 1, rows + 1)
    for now in range(rows):
        heat[now + 1] = 0.9 * heat[now] + 0.43 * rng.normal()
        oven[now + 1] = 0.7 * oven[now] + 0.4 * heat[now] + 0.5 * valve[now] + 0.2 * rng.normal()
    second = heat + noise * rng.normal(size=rows + 1)
    states = np.stack([heat, second, oven, rng.normal(size=rows + 1)], axis=1)
    return np.concatenate([states, valve[:, None]], axis=1)[:-1], states[1:]


def found_in(x: np.ndarray, following: np.ndarray) -> DynamicsEdges:
    evidence = DynamicsEvidence(Dictionary.over(Scale.fit(x)), Scale.fit(following))
    evidence.add(x, following)
    return dynamics_edges(evidence)


@pytest.mark.parametrize("noise", [0.0003, 0.003, 0.03, 0.3])
def test_what_two_sensors_move_is_never_said_to_be_moved_by_neither(noise: float) -> None:
    found = found_in(*transitions(noise))
    verdicts = words(found.edges, found.confidence)
    assert found.edges[:2, :3].any(axis=0).all()
    assert not np.any(np.all(verdicts[:2, :3] == "absent", axis=0))
    assert found.edges[2:, 2].tolist() == [True, False, True]
    assert not found.edges[:, 3].any()
    assert np.all(verdicts[:, 3] == "absent")


def test_which_of_two_sensors_it_is_stays_open_until_the_data_tell() -> None:
    alike, apart = (found_in(*transitions(noise)) for noise in (0.0003, 0.03))
    assert np.all(words(alike.edges, alike.confidence)[:2, :3] == "undecided")
    assert np.all(words(apart.edges, apart.confidence)[0, :3] == "present")
    assert np.all(words(apart.edges, apart.confidence)[1, :3] == "absent")
    assert apart.confidence[:2, :3].max() <= 0.9


def test_who_is_told_by_others() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000, 8))
    x[:, 1] = x[:, 0] + 0.01 * x[:, 1]
    x[:, 4:7] = np.eye(3)[rng.integers(3, size=2_000)]

    def told(rows: np.ndarray) -> list[int]:
        evidence = DynamicsEvidence(Dictionary.over(Scale.fit(rows)), Scale.fit(rows))
        evidence.add(rows, rows)
        return told_by_others(evidence.dictionary, evidence.gram / evidence.count).tolist()

    assert told(x) == [0, 1]  # and no entry of the one-hot vector
    assert told(x[:, 2:]) == []
    assert told(np.concatenate([x, rng.normal(size=(2_000, MAX_PAIRED))], axis=1)) == []
    assert told(x[:, :1]) == []
