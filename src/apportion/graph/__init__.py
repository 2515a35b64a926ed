"""Recover the causal graph from data in closed form: no network, no gradient, seconds on one core.

Reward edges come from segment totals alone, dynamics edges from transitions; see reward.py, refine.py and
dynamics.py. Usable on its own: `identify(observations, actions, totals)`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.errors import UserError
from apportion.core.spec import Graph
from apportion.graph.certificate import ENOUGH_SEGMENTS as ENOUGH_SEGMENTS
from apportion.graph.certificate import Certificate, certify
from apportion.graph.dynamics import DynamicsEdges, DynamicsEvidence, dynamics_edges
from apportion.graph.endings import ending_dimensions as ending_dimensions
from apportion.graph.features import Dictionary, Floats, Scale
from apportion.graph.model import RewardModel as RewardModel
from apportion.graph.refine import Refined, refine
from apportion.graph.reward import RewardEdges, RewardEvidence, reward_edges
from apportion.graph.ridge import ridge
from apportion.graph.screen import Segments

MAX_TRANSITIONS = 30_000


class Identification(NamedTuple):
    """The graph that the data support, and how well. All are blocks of edges as in Graph."""

    graph: Graph  # booleans
    strength: Graph  # reward: share of variance lost without the edge; dynamics: log growth of the error
    confidence: Graph  # of each verdict, edge or no edge
    explained: float  # share of the totals' variance that the found parents explain, segments left out
    certificate: Certificate
    reward_model: RewardModel  # of rows [N, S + A]
    copies: dict[int, int]  # dimension (actions after states) to the earlier one that stands for it


def identify(
    observations: list[NDArray[Any]], actions: list[NDArray[Any]], totals: NDArray[Any], seed: int = 0
) -> Identification:
    """From segments: observations [T+1, S] and actions [T, A] of each, and what each was paid."""
    rows = [np.concatenate([o[:-1], a], axis=1) for o, a in zip(observations, actions, strict=True)]
    totals = np.asarray(totals, np.float64)
    _check(rows, observations, totals)
    x, following = np.concatenate(rows), np.concatenate([o[1:] for o in observations])
    states, rng = following.shape[1], np.random.default_rng(seed)
    dictionary = Dictionary.over(Scale.fit(x))
    segments = Segments(rows, totals, dictionary.scale)
    sums = dictionary.sums(rows)
    evidence = RewardEvidence(dictionary)
    evidence.add_sums(sums, segments.lengths, totals)
    first = reward_edges(evidence, seed)
    del evidence  # with many dimensions it is large
    claims = {int(dim): float(first.strength[dim]) for dim in np.flatnonzero(first.edges)}
    refined = refine(segments, claims, rng)
    everything = ridge(sums, totals, segments.offsets).error / segments.variance
    edges, strength, confidence = _verdict(first, refined)
    dynamics = _dynamics(dictionary, x, following, rng)
    return Identification(
        graph=_graph(edges, dynamics.edges, states),
        strength=_graph(strength, dynamics.strength, states),
        confidence=_graph(confidence, dynamics.confidence, states),
        explained=max(0.0, 1 - refined.error) if refined.parents.size else 0.0,
        certificate=certify(refined, everything, len(rows), len(x), dictionary),
        reward_model=refined.model,
        copies=dictionary.scale.copies,
    )


def _verdict(first: RewardEdges, refined: Refined) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Edges, strengths and confidences [D]: what was refined by its error, the rest by halves of the data."""
    share = np.where(first.edges, first.confidence, 1 - first.confidence)
    edges, strength = np.zeros_like(first.edges), np.zeros(len(share))
    edges[refined.parents] = True
    for dim, probability in refined.probability.items():
        share[dim] = probability
    for dim, worth in refined.strength.items():
        strength[dim] = worth
    return edges, strength, np.where(edges, share, 1 - share)


def _dynamics(
    dictionary: Dictionary, x: NDArray[Any], following: NDArray[Any], rng: np.random.Generator
) -> DynamicsEdges:
    if len(x) > MAX_TRANSITIONS:
        chosen = rng.choice(len(x), MAX_TRANSITIONS, replace=False)
        x, following = x[chosen], following[chosen]
    evidence = DynamicsEvidence(dictionary, Scale.fit(following))
    evidence.add(x, following)
    return dynamics_edges(evidence)


def _check(rows: list[NDArray[Any]], observations: list[NDArray[Any]], totals: Floats) -> None:
    if len(rows) != len(totals):
        raise UserError(f"{len(rows)} segments but {len(totals)} totals: give one total per segment")
    if not rows or min(len(each) for each in rows) < 1:
        raise UserError("a segment without any step tells nothing: remove it first")
    for number, parts in enumerate(zip(rows, observations, totals, strict=True)):
        if not all(np.isfinite(part).all() for part in parts):
            raise UserError(f"segment {number} holds NaN or infinity: remove it, and all others like it")


def _graph(reward: NDArray[Any], dynamics: NDArray[Any], states: int) -> Graph:
    """Blocks from vectors and matrices over states and actions together."""
    return Graph(reward[:states], reward[states:], dynamics[:states], dynamics[states:])
