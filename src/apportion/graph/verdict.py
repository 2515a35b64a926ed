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

from apportion.graph.candidates import Candidates, Dims, Known
from apportion.graph.evidence import MIXTURES, Columns, Remainder
from apportion.graph.features import Dictionary, Floats
from apportion.graph.refine import Refined, fit_to
from apportion.graph.screen import Segments

SURE = 0.8  # a verdict needs this probability; below, it is "undecided"


class _Prior(NamedTuple):
    """What is thought before any data. Of all dimensions `parents` feed the reward, but at most half. To be
    called absent a dimension must be unlikely even if it were as likely as not. An effect comes `alone`, in a
    product `with_found` dimensions or `with_others`. What stays unexplained may be noise, or hide a given
    dimension in a way that no product of two shows: with the chance `hidden_in_some` where some is, and
    `hidden_in_much` more where half of the variance is."""

    parents: float = 3.0
    alone: float = 0.6
    with_found: float = 0.25
    with_others: float = 0.15
    hidden_in_some: float = 0.02
    hidden_in_much: float = 0.04


class _Search(NamedTuple):
    """A dimension that was overlooked comes in with the probability `enter`, at most `most` of them. So many
    `rivals` are compared with each parent; those whose log ratio is above `rival`, and not more than `close`
    below the parent's own, by putting the first `swaps` in its place. One that takes `share` of it is named
    with it."""

    enter: float = 0.9
    most: int = 8
    rivals: int = 12
    rival: float = 3.0
    close: float = 8.0
    swaps: int = 3
    share: float = 0.05


PRIOR, SEARCH = _Prior(), _Search()


class Judged(NamedTuple):
    """For each dimension, alone or as part of its one-hot vector."""

    edges: NDArray[np.bool_]  # [D]
    confidence: Floats  # [D] the probability that the edge, or its absence, is right
    strength: Floats  # [D] share of the totals' variance that an edge is worth
    groups: list[tuple[int, ...]]  # of each one feeds the reward, and the data cannot tell which


def judge(
    segments: Segments,
    dictionary: Dictionary,
    sums: Floats,
    refined: Refined,
    negligible: float,
    rng: np.random.Generator,
) -> Judged:
    """`sums` are the dictionary's features, summed over each segment."""
    scale = dictionary.scale
    candidates = Candidates(segments, dictionary, sums, refined.parents)
    known, whole, added = _overlooked(segments, candidates, Known.of(refined.fit), scale.teams)
    found = known.found
    others = [team for team in scale.teams if not found[team].any()]
    presence, absence = np.zeros(len(found)), np.ones(len(found))
    hidden = _hidden(refined.error)
    for team in others:
        excluded = special.expit(-_log_odds_of_worth(whole, candidates, team, found, negligible, rng))
        absence[team] = excluded * (1 - hidden)
    groups = []
    for team in scale.teams:
        if not found[team].any():
            continue
        log_ratio, share, rivals = _place(segments, candidates, known, refined, team, others, rng)
        some = float(special.expit(log_ratio + special.logit(_prior(scale.teams))))
        presence[team] = some * share[0]
        absence[team] = 1 - some * max(share[0], 1 - SURE)  # something is there, and it may well be this
        for rival, part in zip(rivals, share[1:], strict=True):
            absence[rival] *= 1 - some * part
        alike = [rival for rival, part in zip(rivals, share[1:], strict=True) if part > SEARCH.share]
        if alike and some > SURE:
            groups.append(tuple(sorted(int(dim) for each in (team, *alike) for dim in each)))
    edges = presence >= 0.5
    strength = np.zeros(len(edges))
    for team in scale.teams:
        worth = max((refined.strength.get(int(dim), 0.0) for dim in team), default=0.0)
        strength[team] = worth or added.get(int(team[0]), 0.0)
    strength = np.where(edges, strength, 0.0)
    return Judged(edges, np.where(edges, presence, absence), strength, groups)


def words(edges: NDArray[np.bool_], confidence: Floats) -> NDArray[np.str_]:
    """Verdicts, of any shape."""
    return np.where(confidence < SURE, "undecided", np.where(edges, "present", "absent"))


def with_copies(judged: Judged, copies: dict[int, int]) -> list[tuple[int, ...]]:
    """Groups, with equal dimensions in them, and of equal dimensions alone."""
    groups = [
        {*group, *(copy for copy, first in copies.items() if first in group)} for group in judged.groups
    ]
    named = set().union(*groups)
    groups += [
        {first, *(copy for copy, original in copies.items() if original == first)}
        for first in {*copies.values()} - named
        if judged.edges[first]
    ]
    return sorted(tuple(sorted(group)) for group in groups)


def _hidden(unexplained: float) -> float:
    """The chance that a dimension has a part in what is unexplained, and that no product of two shows it."""
    some, much = np.clip([unexplained / 0.05, (unexplained - 0.1) / 0.4], 0.0, 1.0)
    return float(PRIOR.hidden_in_some * some + PRIOR.hidden_in_much * much)


def _prior(teams: list[Dims]) -> float:
    return min(0.5, PRIOR.parents / max(len(teams), 1))


def _overlooked(
    segments: Segments, candidates: Candidates, known: Known, teams: list[Dims]
) -> tuple[Known, Remainder, dict[int, float]]:
    """Add dimensions that clearly have an effect on what is left, one by one, the clearest first. Also what
    each of them is worth, by the first of its entries."""
    prior = special.logit(_prior(teams))
    whole, added = known.remainder(segments, candidates.columns), dict[int, float]()
    for _ in range(SEARCH.most):
        found = known.found
        others = [team for team in teams if not found[team].any()]
        effects = [whole.for_effect(candidates.families(team, found)) for team in others]
        if not effects or special.expit(max(effects) + prior) < SEARCH.enter:
            break
        team = others[int(np.argmax(effects))]
        added[int(team[0])] = whole.worth(candidates.alone(team))
        known = known.also(candidates, team)
        whole = known.remainder(segments, candidates.columns)
    return known, whole, added


def _log_odds_of_worth(
    remainder: Remainder,
    candidates: Candidates,
    team: Dims,
    found: NDArray[np.bool_],
    least: float,
    rng: np.random.Generator,
) -> float:
    """Log odds that the team is worth at least so much, where it was as likely as not to begin with."""
    ratios, alone = remainder.against(least), candidates.alone(team)
    mixtures = rng.normal(size=(MIXTURES, len(alone)))
    curves = remainder.against_mixtures(alone, mixtures, least) if len(alone) else np.zeros(0)
    ways = [
        (PRIOR.alone, np.concatenate([ratios[alone], curves])),
        (PRIOR.with_found, ratios[candidates.products(team, found)]),
        (PRIOR.with_others, ratios[candidates.products(team, ~found)]),
    ]
    ways = [(weight, each) for weight, each in ways if len(each)]
    if not ways:
        return -np.inf
    logs = [np.log(weight) + special.logsumexp(each) - np.log(len(each)) for weight, each in ways]
    return float(special.logsumexp(logs) - np.log(sum(weight for weight, _ in ways)))


def _place(
    segments: Segments,
    candidates: Candidates,
    known: Known,
    refined: Refined,
    team: Dims,
    others: list[Dims],
    rng: np.random.Generator,
) -> tuple[float, Floats, list[Dims]]:
    """The log ratio of something being where a parent stands to nothing, how the place is shared between the
    parent and its rivals, and the rivals: dimensions that would explain what is left without the parent."""
    rest = known.without(team)
    without = rest.remainder(segments, candidates.columns)
    mine = without.for_effect(candidates.families(team, rest.found))
    own = known.sums[:, known.owners[team].any(axis=0)]
    rich = max(mine, rest.remainder(segments, Columns.of(own, segments.offsets)).for_any())
    fits = without.linear**2 / np.maximum(without.curvature, 1e-9)
    best = [float(np.max(fits[candidates.alone(other)], initial=0.0)) for other in others]
    rivals = [others[place] for place in np.argsort(best)[::-1][: SEARCH.rivals]]
    effects = np.array([without.for_effect(candidates.families(rival, rest.found)) for rival in rivals])
    close = effects > max(mine - SEARCH.close, SEARCH.rival)
    if np.isin(team, refined.parents).any():
        for place in np.flatnonzero(close)[np.argsort(-effects[close])][: SEARCH.swaps]:
            effects[place] = rich - _advantage(segments, refined, team, rivals[place], rng)
    elif close.any():
        rich = mine
    return rich, np.asarray(special.softmax([rich, *effects])), rivals


def _advantage(
    segments: Segments, refined: Refined, team: Dims, rival: Dims, rng: np.random.Generator
) -> float:
    """Log ratio of the chances of all totals, each predicted from all others, with a parent and with its
    rival in its place: both with rich features, so that a curve is not taken for another cause."""
    kept = np.setdiff1d(refined.parents, team)
    swapped = fit_to(segments, np.union1d(kept, rival), rng, refined.fit.noted).ridge.error
    least = 1e-9 * segments.variance
    ratio = max(swapped, least) / max(refined.fit.ridge.error, least)
    return segments.count / 2 * float(np.log(ratio))
