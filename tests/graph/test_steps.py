"""What totals exclude, single steps may still have."""

import numpy as np
import pytest
from numpy.typing import NDArray

from apportion.graph import identify
from apportion.graph.candidates import Candidates
from apportion.graph.features import Dictionary, Floats, Scale
from apportion.graph.looking import Seen, search
from apportion.graph.refine import refine
from apportion.graph.screen import Segments
from apportion.graph.steps import MOST, Steps

EPISODES, LENGTH = 160, 30


def swinging(swing: float) -> tuple[list[Floats], list[Floats], Floats]:
    """What a step pays is a level, which episodes differ in, and how far a pendulum moves, which over an
    episode adds up to next to nothing. A third observation differs between episodes and does nothing."""
    rng = np.random.default_rng(0)
    observations, actions, totals = [], [], []
    for _ in range(EPISODES):
        times = np.arange(LENGTH + 2)
        pendulum = np.sin(0.9 * times + rng.uniform(0, 6)) + 0.05 * rng.normal(size=len(times))
        moved = np.diff(pendulum)
        level, idle = rng.normal(size=(2, 1)) + 0.3 * rng.normal(size=(2, LENGTH + 1))
        observations.append(np.stack([level, moved, idle], axis=1))
        actions.append(rng.uniform(-1, 1, (LENGTH, 1)) + rng.normal())
        totals.append(np.sum(level[:-1] + swing * moved[:-1]))
    noise = 0.1 * np.std(totals) * rng.normal(size=EPISODES)
    return observations, actions, np.array(totals) + noise


def test_what_cancels_out_in_totals_may_be_there_in_steps() -> None:
    observations, actions, totals = swinging(swing=0.5)
    result = identify(observations, actions, totals)
    assert result.verdict.state_to_reward.tolist() == ["present", "absent", "absent"]
    assert result.nowhere.tolist() == [False, False, True, True]
    assert result.certificate.reward
    assert "1 absent from totals may be worth more in single steps" in result.certificate.scope


def test_grd_leaves_such_an_edge_on() -> None:
    observations, actions, totals = swinging(swing=0.5)
    known = search(Seen(observations, actions, totals, np.zeros(EPISODES, np.bool_))).known
    assert known[0].tolist() == [1.0, 0.5, 0.0]
    assert known[1].tolist() == [0.0]


def parts() -> tuple[Segments, Dictionary, Candidates, Steps, Floats, Floats]:
    """With all features of all steps, and what the model pays for them."""
    observations, actions, totals = swinging(swing=0.0)
    rows = [np.concatenate([o[:-1], a], axis=1) for o, a in zip(observations, actions, strict=True)][:60]
    dictionary = Dictionary.over(Scale.over(rows))
    segments = Segments(rows, totals[:60], dictionary.scale)
    refined = refine(segments, {0: 1.0}, np.random.default_rng(0))
    candidates = Candidates(segments, dictionary, dictionary.sums(rows), refined.parents)
    steps = Steps.of(segments, dictionary, candidates, refined.model)
    every = np.concatenate(rows)
    return segments, dictionary, candidates, steps, dictionary.features(every), refined.model.predict(every)


def plain_ratio(segments: Segments, values: list[Floats], rewards: Floats) -> float:
    """Of an effect: its share of the steps' variance over its share of the totals'."""
    lengths, ones = segments.lengths.astype(float), np.ones(segments.count)
    offsets = np.stack([lengths, ones], axis=1)

    def spread(sums: Floats) -> float:
        return float(np.sum((sums - offsets @ np.linalg.lstsq(offsets, sums, rcond=None)[0]) ** 2))

    in_totals = spread(np.array([each.sum() for each in values])) / spread(segments.totals)
    return float(np.var(np.concatenate(values)) / np.var(rewards) / in_totals)


def split(segments: Segments, column: NDArray[np.floating]) -> list[Floats]:
    return np.split(column, np.cumsum(segments.lengths)[:-1])


def test_ratios_are_those_of_a_plain_computation() -> None:
    segments, dictionary, _, steps, features, rewards = parts()
    least = steps.least(0.01)
    assert len(least) == dictionary.size
    for column in range(dictionary.size):
        ratio = plain_ratio(segments, split(segments, features[:, column]), rewards)
        assert least[column] == pytest.approx(0.01 / np.clip(ratio, 1, MOST), rel=1e-6)


def test_ratios_of_mixtures_are_those_of_a_plain_computation() -> None:
    segments, _, candidates, steps, features, rewards = parts()
    block = candidates.alone(np.array([1]))
    mixtures = np.random.default_rng(1).normal(size=(3, len(block)))
    unit = candidates.columns.unit[:, block]
    lengths = np.sqrt(np.einsum("mi,ei,ej,mj->m", mixtures, unit, unit, mixtures))
    found = steps.least_of_mixtures(0.01, block, mixtures, lengths)
    for mixture, least in zip(mixtures, found, strict=True):
        curve = features[:, block] @ (mixture * candidates.columns.per_sum[block])
        ratio = plain_ratio(segments, split(segments, curve), rewards)
        assert least == pytest.approx(0.01 / np.clip(ratio, 1, MOST), rel=1e-6)
