"""Recover the causal graph from data in closed form: no network, no gradient, seconds on one core.

Reward edges come from segment totals alone: refine.py finds parents, places.py compares each with its
rivals. Dynamics edges come from transitions (dynamics.py). What is known about each is said by verdict.py;
what is believed before any data is in priors.py. It is usable on its own, as
`identify(observations, actions, totals)`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apportion.core.config import UserError, check
from apportion.core.spec import BLOCKS, Graph
from apportion.graph.certificate import Certificate, certify
from apportion.graph.dynamics import Moments, dynamics_edges
from apportion.graph.endings import Endings as Endings
from apportion.graph.endings import find_endings as find_endings
from apportion.graph.features import SAMPLE, Floats, Scale, evenly, rows_of
from apportion.graph.moved import in_their_stead
from apportion.graph.priors import DOUBT, NEGLIGIBLE
from apportion.graph.priors import ENOUGH_SEGMENTS as ENOUGH_SEGMENTS
from apportion.graph.refine import RewardModel as RewardModel
from apportion.graph.refine import candidates, refine, refit
from apportion.graph.ridge import ridge
from apportion.graph.segments import Segments
from apportion.graph.verdict import Reason as Reason
from apportion.graph.verdict import judge, with_copies, words


class Identification(NamedTuple):
    """The graph that the data support, and how well. All are blocks of edges as in Graph."""

    graph: Graph  # booleans
    strength: Graph  # reward: share of variance lost without the edge; dynamics: log growth of the error
    confidence: Graph  # the probability that the edge in `graph`, or its absence, is right
    verdict: Graph  # "present", "absent" (worth less than the negligible share) or "undecided"
    groups: list[tuple[int, ...]]  # dimensions (actions after states) of which one feeds the reward
    explained: float  # share of the totals' variance that the found parents explain, segments left out
    certificate: Certificate
    reward_model: RewardModel  # of rows [N, S + A]
    copies: dict[int, int]  # dimension (actions after states) to the earlier one that stands for it
    nowhere: NDArray[np.bool_]  # [S + A] of the absent edges to the reward: absent from single steps as well
    reasons: dict[int, Reason]  # of each dimension that varies and is no copy: what its verdict comes from


def identify(
    observations: list[NDArray[Any]],
    actions: list[NDArray[Any]],
    totals: NDArray[Any],
    seed: int = 0,
    negligible: float = NEGLIGIBLE,
    terminated: NDArray[Any] | None = None,
    names: Sequence[str] = (),
) -> Identification:
    """From segments: observations [T+1, S] and actions [T, A] of each, and what each was paid; and whether
    each ended by itself, so that what an end pays is not taken for some dimension's merit. Where that is not
    known, segments count as ended that are shorter than the longest, if many have just that length. [T, S]
    will do where the observation after the last step is not known.

    An edge to the reward is absent if it is worth less than `negligible` of the totals' variance, as a
    function of the dimension alone or in a product of two; one to a next state, if the part of its variance
    that stays unexplained grows by less than that without the edge. Notes call dimensions (actions after
    states) by their `names`, or count them from 0.
    """
    rows = [np.concatenate([o[: len(a)], a], axis=1) for o, a in zip(observations, actions, strict=True)]
    totals = np.asarray(totals, np.float64)
    ends = _cut_short(rows) if terminated is None else np.asarray(terminated, np.bool_)
    _check(rows, observations, totals, negligible, ends)
    # On a busy machine two threads of linear algebra take 40 times as long as one for so small matrices.
    with threadpool_limits(1, user_api="blas"):
        segments = Segments(rows, totals, Scale.over(rows), ends)
        return _identify(segments, observations, np.random.default_rng(seed), negligible, names)


def _identify(
    segments: Segments,
    observations: list[NDArray[Any]],
    rng: np.random.Generator,
    negligible: float,
    names: Sequence[str],
) -> Identification:
    rows, totals, states = segments.rows, segments.totals, observations[0].shape[1]
    dictionary = segments.columns.dictionaries[0]
    fit = refine(segments, candidates(segments), rng)
    everything = ridge(segments.columns.sums, totals, segments.offsets).error / segments.variance
    reward = judge(segments, fit, negligible, rng)
    edges, team = np.flatnonzero(reward.edges), dictionary.scale.team
    fit = refit(segments, fit, edges, rng)
    x, following = _transitions(rows, observations)
    dynamics = dynamics_edges(Moments.of(dictionary.shortened(), x, following), negligible)
    # Totals are predicted better without these, or features may miss as much of the others.
    useless = ~np.isin(team[edges], team[fit.basis.dims])
    weak = edges[useless | (reward.strength[edges] < min(negligible, fit.unexplained))]
    instead = in_their_stead(segments, fit, weak, observations, dynamics)
    reward = reward.or_instead(instead)
    copies, nowhere = dictionary.scale.copies, reward.nowhere[dictionary.scale.original]
    of_reward, of_dynamics = (_shared(each.edges, each.confidence, copies) for each in (reward, dynamics))
    confidence = _graph(of_reward, of_dynamics, states)
    graph = _graph(reward.edges, dynamics.edges, states)
    only_from_totals = int(np.sum((words(reward.edges, of_reward) == "absent") & ~nowhere))
    return Identification(
        graph=graph,
        strength=_graph(reward.strength, dynamics.strength, states),
        confidence=confidence,
        verdict=Graph(*(words(getattr(graph, name), getattr(confidence, name)) for name in BLOCKS)),
        groups=with_copies(reward, copies),
        explained=max(0.0, 1 - fit.unexplained) if fit.parents else 0.0,
        certificate=certify(
            fit, everything, len(rows), len(x), dictionary, negligible, only_from_totals, len(instead), names
        ),
        nowhere=nowhere,
        reasons=reward.reasons,
        reward_model=fit.model,
        copies=copies,
    )


def _transitions(
    rows: list[NDArray[Any]], observations: list[NDArray[Any]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """State-action rows [N, D] and what came next [N, S]: all, or some of all episodes."""
    following = [each[1:] for each in observations]
    followed = [row[: len(after)] for row, after in zip(rows, following, strict=True)]
    chosen = evenly(SAMPLE, sum(map(len, following)))
    return rows_of(followed, chosen), rows_of(following, chosen)


def _check(
    rows: list[NDArray[Any]],
    observations: list[NDArray[Any]],
    totals: Floats,
    negligible: float,
    ends: NDArray[np.bool_],
) -> None:
    check(0 < negligible < 1, f"negligible={negligible} must be between 0 and 1: a share of the variance")
    if len(rows) != len(totals):
        raise UserError(f"{len(rows)} segments but {len(totals)} totals: give one total per segment")
    if len(rows) != len(ends):
        raise UserError(f"{len(rows)} segments but {len(ends)} entries in terminated: give one per segment")
    if not rows or min(len(each) for each in rows) < 1:
        raise UserError("a segment without any step tells nothing: remove it first")
    if max(map(len, observations)) < 2:
        raise UserError("no segment has two observations: give the one after the last step as well")
    for number, parts in enumerate(zip(rows, observations, totals, strict=True)):
        if not all(np.isfinite(part).all() for part in parts):
            raise UserError(f"segment {number} holds NaN or infinity: remove it, and all others like it")


def _cut_short(rows: list[NDArray[Any]]) -> NDArray[np.bool_]:
    """Which segments a time limit seems not to have ended: those shorter than a length that many share."""
    lengths = np.array([len(each) for each in rows])
    short = lengths < lengths.max(initial=0)
    return short if np.sum(~short) >= DOUBT * len(short) else np.zeros_like(short)


def _shared(edges: NDArray[np.bool_], confidence: Floats, copies: dict[int, int]) -> Floats:
    """Confidences where equal dimensions share what is known: which of them it is cannot be told."""
    shared = confidence.copy()
    for copy, first in copies.items():
        alike = 1 + sum(other == first for other in copies.values())
        known = np.minimum(confidence[first], 1 / alike)
        shared[[copy, first]] = np.where(edges[first], known, confidence[first])
    return shared


def _graph(reward: NDArray[Any], dynamics: NDArray[Any], states: int) -> Graph:
    """Blocks from vectors and matrices over states and actions together."""
    return Graph(reward[:states], reward[states:], dynamics[:states], dynamics[states:])
