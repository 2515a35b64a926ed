"""Recover the causal graph from data in closed form: no network, no gradient, seconds on one core.

Reward edges come from segment totals alone, dynamics edges from transitions; see reward.py and dynamics.py.
Usable on its own: `identify(observations, actions, totals)`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.errors import UserError
from apportion.identify.dynamics import DynamicsEdges, DynamicsEvidence, dynamics_edges
from apportion.identify.features import Dictionary, Scale
from apportion.identify.reward import RewardEdges, RewardEvidence, reward_edges
from apportion.spec import Graph

MAX_TRANSITIONS = 30_000
ENOUGH_SEGMENTS = 150  # below, edges are not to be trusted
BETTER = 2.0  # all dimensions together must not leave so many times less unexplained than those found
ENOUGH_EXPLAINED = 0.5  # share of the totals' variance; below, something that feeds the reward is not seen


class Certificate(NamedTuple):
    """Whether the reward edges may be relied on, and if not, why."""

    reward: bool
    notes: list[str]


class Identification(NamedTuple):
    """The graph that the data support, and how well. All are blocks of edges as in Graph."""

    graph: Graph  # booleans
    strength: Graph  # reward: share of variance lost without the edge; dynamics: log growth of the error
    confidence: Graph  # of each verdict, edge or no edge
    explained: float  # share of the totals' variance that the found parents explain
    certificate: Certificate


def identify(
    observations: list[NDArray[Any]], actions: list[NDArray[Any]], totals: NDArray[Any], seed: int = 0
) -> Identification:
    """From segments: observations [T+1, S] and actions [T, A] of each, and what each was paid."""
    rows = [np.concatenate([o[:-1], a], axis=1) for o, a in zip(observations, actions, strict=True)]
    following = np.concatenate([o[1:] for o in observations])
    _check(rows, following, totals)
    x = np.concatenate(rows)
    states = following.shape[1]
    dictionary = Dictionary.over(Scale.fit(x))
    evidence = RewardEvidence(dictionary)
    evidence.add(rows, np.asarray(totals, np.float64))
    reward = reward_edges(evidence, seed)
    dynamics = _dynamics(dictionary, x, following, np.random.default_rng(seed))
    return Identification(
        graph=_graph(reward.edges, dynamics.edges, states),
        strength=_graph(reward.strength, dynamics.strength, states),
        confidence=_graph(reward.confidence, dynamics.confidence, states),
        explained=reward.explained,
        certificate=_certificate(evidence, reward),
    )


def _dynamics(
    dictionary: Dictionary, x: NDArray[Any], following: NDArray[Any], rng: np.random.Generator
) -> DynamicsEdges:
    if len(x) > MAX_TRANSITIONS:
        chosen = rng.choice(len(x), MAX_TRANSITIONS, replace=False)
        x, following = x[chosen], following[chosen]
    evidence = DynamicsEvidence(dictionary, Scale.fit(following))
    evidence.add(x, following)
    return dynamics_edges(evidence)


def _certificate(evidence: RewardEvidence, reward: RewardEdges) -> Certificate:
    notes = []
    if evidence.segments < ENOUGH_SEGMENTS:
        notes.append(
            f"{evidence.segments} segments are few: from {ENOUGH_SEGMENTS} on, edges can be relied on"
        )
    if not reward.edges.any():
        notes.append("no dimension explains the totals")
    elif reward.explained < ENOUGH_EXPLAINED:
        notes.append(
            f"the edges found explain only {reward.explained:.0%} of the totals' variance: "
            "noise, or a cause that these features cannot express"
        )
    if 1 - reward.held_out > BETTER * (1 - reward.held_out_all):
        notes.append(
            f"on episodes held out the edges found explain {reward.held_out:.0%} of the totals' variance, "
            f"all dimensions {reward.held_out_all:.0%}: some parent is missing; more episodes may show it"
        )
    return Certificate(not notes, notes)


def _check(rows: list[NDArray[Any]], following: NDArray[Any], totals: NDArray[Any]) -> None:
    if len(rows) != len(totals):
        raise UserError(f"{len(rows)} segments but {len(totals)} totals: give one total per segment")
    finite = all(np.isfinite(each).all() for each in (*rows, following, np.asarray(totals)))
    if not finite:
        raise UserError("the data hold NaN or infinity: remove those segments first")


def _graph(reward: NDArray[Any], dynamics: NDArray[Any], states: int) -> Graph:
    """Blocks from vectors and matrices over states and actions together."""
    return Graph(reward[:states], reward[states:], dynamics[:states], dynamics[states:])
