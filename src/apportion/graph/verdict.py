"""What is known about each dimension's part in the reward: present, absent (worth less than a negligible
share of the totals' variance), or undecided; with the probability that it is so.

Absence needs evidence: the data must exclude every effect of some worth, as a function of the dimension
alone and in a product with any other. Presence needs evidence beyond chance among all dimensions, and that no
other dimension could stand in its place.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.candidates import Candidates, Dims
from apportion.graph.evidence import MIXTURES, log_mean
from apportion.graph.features import Dictionary, Floats
from apportion.graph.places import Contest, Place, Settled
from apportion.graph.refine import Refined
from apportion.graph.screen import Segments
from apportion.graph.steps import Steps

SURE = 0.8  # a verdict needs this probability; below, it is "undecided"
_UNSURE = 0.79  # the most that is known of a dimension for which another may stand


class _Prior(NamedTuple):
    """What is thought before any data. To be called absent a dimension must have become unlikely, though it
    was `likely` to have an effect, `alone`, in a product `with_found` dimensions or `with_others`.
    What stays unexplained may be noise, or hide a given dimension in a way that no product of two shows: with
    the chance `hidden_in_some` where some is, and `hidden_in_much` more where a third of the variance is.
    It may also be a curve that no feature follows, which makes a bystander look useful that moves with a
    cause: with the chance `bystander` where much is unexplained; and always possible for one that is worth
    little, and less than `faint` of what is unexplained. Where totals do not tell a parent from what moves
    it, that feeds the reward `instead`, by this chance."""

    likely: float = 0.4
    alone: float = 0.6
    with_found: float = 0.25
    with_others: float = 0.15
    hidden_in_some: float = 0.06
    hidden_in_much: float = 0.045
    bystander: float = 0.02
    faint: float = 0.1
    instead: float = 0.1


PRIOR = _Prior()


class Judged(NamedTuple):
    """For each dimension, alone or as part of its one-hot vector."""

    edges: NDArray[np.bool_]  # [D]
    confidence: Floats  # [D] the probability that the edge, or its absence, is right
    strength: Floats  # [D] share of the totals' variance that an edge is worth
    groups: list[tuple[int, ...]]  # of each one feeds the reward, and the data cannot tell which
    nowhere: NDArray[np.bool_]  # [D] absent, and surely worth no more in single steps

    def or_instead(self, others: dict[int, Dims]) -> "Judged":
        """Where others may feed the reward instead of a parent: it is less sure, and they are not absent."""
        confidence, nowhere = self.confidence.copy(), self.nowhere.copy()
        for parent, those in others.items():
            missed = those[~self.edges[those]]
            confidence[parent] = min(confidence[parent], 1 - PRIOR.instead)
            confidence[missed] = np.minimum(confidence[missed], _UNSURE)
            nowhere[missed] = False
        return self._replace(confidence=confidence, nowhere=nowhere)


def judge(
    segments: Segments,
    dictionary: Dictionary,
    sums: Floats,
    refined: Refined,
    negligible: float,
    rng: np.random.Generator,
) -> Judged:
    """`sums` are the dictionary's features, summed over each segment."""
    candidates = Candidates(segments, dictionary, sums, refined.parents)
    settled = Contest(segments, candidates, refined, dictionary.scale.teams, rng).settle()
    presence, strength = np.zeros((2, len(settled.found)))
    absence = np.ones((2, len(settled.found)))  # from totals, and from single steps as well
    edges, groups = np.zeros(len(settled.found), np.bool_), list[tuple[int, ...]]()
    steps = Steps.of(segments, dictionary, candidates, refined.model)
    least = np.stack([np.full(len(candidates.owners), negligible), steps.least(negligible)])
    ratios = np.stack([settled.remainder.against(each) for each in least])
    for team in settled.others:
        mixtures = rng.normal(size=(MIXTURES, len(candidates.alone(team))))
        curves = _curves(settled, candidates.alone(team), mixtures, steps, negligible)
        odds = _log_odds_of_worth(settled, candidates, ratios, curves, team)
        absence[:, team] = special.expit(-odds)[:, None] * (1 - _hidden(refined.error))
    for place in settled.places:
        # Something is there, and it may well be this, even if a rival is likelier.
        edges[place.team] = place.some >= 0.5
        absence[:, place.team] = 1 - place.some * max(float(place.share[0]), 1 - SURE)
        worth = max(refined.strength.get(int(dim), 0.0) for dim in place.team)
        strength[place.team] = worth or settled.added.get(int(place.team[0]), 0.0)
        known = place.presence * (1 - PRIOR.bystander * _much(refined.error))
        faint = strength[place.team[0]] < min(negligible, PRIOR.faint * refined.error)
        presence[place.team] = min(known, _UNSURE) if faint else known
        for rival, part in zip(place.rivals, place.share[1:], strict=True):
            absence[:, rival] *= 1 - place.some * part
    for members in map(_group, settled.places):
        if len(members) > 1:
            together = np.sort(np.concatenate(members))
            groups.append(tuple(together.tolist()))
            absence[:, together] = np.minimum(absence[:, together], _UNSURE)
    confidence, nowhere = np.where(edges, presence, absence[0]), ~edges & np.all(absence >= SURE, axis=0)
    return Judged(edges, confidence, np.where(edges, strength, 0.0), groups, nowhere)


def _group(place: Place) -> list[Dims]:
    """Who may stand in a place where something surely does: the parent, and its likeliest rivals, until their
    shares together are sure. The parent alone where it is its own."""
    if place.some < SURE:
        return [place.team]
    order = 1 + np.argsort(-place.share[1:])
    before = place.share[0] + np.cumsum(place.share[order]) - place.share[order]
    return [place.team, *(place.rivals[k - 1] for k in order[before < SURE])]


def words(edges: NDArray[np.bool_], confidence: Floats) -> NDArray[np.str_]:
    """Verdicts, of any shape."""
    return np.where(confidence < SURE, "undecided", np.where(edges, "present", "absent"))


def with_copies(judged: Judged, copies: dict[int, int]) -> list[tuple[int, ...]]:
    """Groups, with equal dimensions in them; and of equal ones alone, if one surely feeds the reward."""
    groups = [
        {*group, *(copy for copy, first in copies.items() if first in group)} for group in judged.groups
    ]
    named = set().union(*groups)
    groups += [
        {first, *(copy for copy, original in copies.items() if original == first)}
        for first in {*copies.values()} - named
        if judged.edges[first] and judged.confidence[first] >= SURE
    ]
    return sorted(tuple(sorted(group)) for group in groups)


def _hidden(unexplained: float) -> float:
    """The chance that a dimension has a part in what is unexplained, and that no product of two shows it."""
    some = min(unexplained / 0.02, 1.0)
    return PRIOR.hidden_in_some * some + PRIOR.hidden_in_much * _much(unexplained)


def _much(unexplained: float) -> float:
    """From 0 to 1: whether much of the variance stays unexplained, about a third of it."""
    return float(np.clip((unexplained - 0.15) / 0.2, 0.0, 1.0))


def _curves(settled: Settled, alone: Dims, mixtures: Floats, steps: Steps, negligible: float) -> list[Floats]:
    """Log ratios of effects along curves of a team's own, that are worth at least so much of the totals'
    variance; and of those that are worth it in totals or in steps."""
    if not len(alone):
        return [np.zeros(0)] * 2
    along = settled.remainder.along(alone, mixtures)
    least = steps.least_of_mixtures(negligible, alone, mixtures, along.length)
    return [along.against(negligible), along.against(least)]


def _log_odds_of_worth(
    settled: Settled, candidates: Candidates, ratios: Floats, curves: list[Floats], team: Dims
) -> Floats:
    """[2] log odds that the team is worth so much: from ratios [2, P] of each column alone, and of curves."""
    found, alone = settled.found, candidates.alone(team)
    ways = [
        (PRIOR.alone, np.concatenate([ratios[:, alone], np.stack(curves)], axis=1)),
        (PRIOR.with_found, ratios[:, candidates.products(team, found)]),
        (PRIOR.with_others, ratios[:, candidates.products(team, ~found)]),
    ]
    ways = [(weight, each) for weight, each in ways if each.shape[1]]
    if not ways:
        return np.full(len(ratios), -np.inf)
    logs = [np.log(weight) + log_mean(each.T) for weight, each in ways]
    ratio = np.logaddexp.reduce(logs) - np.log(sum(weight for weight, _ in ways))
    return np.asarray(ratio + special.logit(PRIOR.likely))
