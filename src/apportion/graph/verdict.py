"""What is known about each dimension's part in the reward: present, absent (worth less than a negligible
share of the totals' variance), or undecided; with the probability that it is so, and why.

Absence needs evidence: the data must exclude every effect of some worth, as a function of the dimension
alone and in a product with any other. Presence needs evidence beyond chance among all dimensions, and that no
other dimension could stand in its place.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from apportion.graph.dictionary import Dims
from apportion.graph.evidence import log_mean
from apportion.graph.features import ROWS, Floats, evenly, rows_of
from apportion.graph.places import Contest
from apportion.graph.priors import DOUBT, MISFIT, ROUNDING, SURE, UNSURE, chance_of_each
from apportion.graph.refine import Fit
from apportion.graph.segments import Columns, Segments

INTERVAL = 1 - DOUBT  # of the probability: how wide the interval of a share is


class Reason(NamedTuple):
    """Why a dimension is said to feed the reward, or not to."""

    evidence: float  # log ratio of the totals' probability with the dimension to that without
    share: float  # of the totals' variance that it is worth; on segments left out, where it has an edge
    interval: tuple[float, float] | None  # that holds it with the probability INTERVAL
    instead: int | None  # the dimension, if one is seen, that best takes its place, or whose it would take,
    chance: float  # and the probability that this is so
    worth: float  # probability that a dimension without an edge is worth more than is negligible


class Judged(NamedTuple):
    """For each dimension, alone or as part of its one-hot vector."""

    edges: NDArray[np.bool_]  # [D]
    confidence: Floats  # [D] the probability that the edge, or its absence, is right
    strength: Floats  # [D] share of the totals' variance that an edge is worth
    groups: list[tuple[int, ...]]  # of each one feeds the reward, and the data cannot tell which
    nowhere: NDArray[np.bool_]  # [D] absent, and surely worth no more in single steps
    reasons: dict[int, Reason]  # of all dimensions that were searched

    def or_instead(self, others: dict[int, Dims]) -> Self:
        """Where others may feed the reward instead of a parent: it is less sure, and they are not absent."""
        confidence, nowhere, reasons = self.confidence.copy(), self.nowhere.copy(), dict(self.reasons)
        for parent, those in others.items():
            missed = those[~self.edges[those]]
            confidence[parent] = min(confidence[parent], 1 - DOUBT)
            confidence[missed] = np.minimum(confidence[missed], UNSURE)
            nowhere[missed] = False
            _note_rival(reasons, np.array([parent]), missed, DOUBT)
        return self._replace(confidence=confidence, nowhere=nowhere, reasons=reasons)


def judge(segments: Segments, fit: Fit, negligible: float, rng: np.random.Generator) -> Judged:
    """`negligible` is a share of the totals' variance."""
    columns = segments.columns_beside(fit.basis.dims)
    contest = Contest(segments, columns, fit, rng)
    places, known = contest.settle()
    remainder, others = contest.remainder(known), contest.others(known)
    dims, worths = len(known.found), fit.worths(segments)
    presence, strength, edges = np.zeros(dims), np.zeros(dims), np.zeros(dims, np.bool_)
    reasons, groups = dict[int, Reason](), list[tuple[int, ...]]()
    least = (negligible, in_totals(segments, columns, fit, negligible))
    ratios = np.stack([remainder.against(each) for each in least])
    absence = np.ones((2, dims))  # from totals, and from single steps as well
    hidden = DOUBT * min(fit.unexplained / negligible, 1.0)  # of what is still unexplained
    for team, effect in zip(others, contest.effects(remainder, known, others), strict=True):
        odds = _log_odds_of_worth(known.found, columns, ratios, team)
        absence[:, team] = special.expit(-odds)[:, None] * (1 - hidden)
        share = remainder.share(columns.alone(team))
        reasons |= {int(dim): _reason(effect, *share, odds[0]) for dim in team}
    for place in places:
        # Something is there, and it may well be this, even if a rival is likelier.
        edges[place.team] = place.some >= 0.5
        absence[:, place.team] = 1 - place.some * max(float(place.share[0]), 1 - SURE)
        presence[place.team] = place.presence
        found = [worths[dim] for dim in place.team.tolist() if dim in worths]
        share = max(found or [contest.remainder(known.without(place.team)).share(columns.alone(place.team))])
        strength[place.team] = share[0]
        reasons |= {int(dim): _reason(place.ratio, *share, -np.inf) for dim in place.team}
        for rival, part in zip(place.rivals, place.share[1:], strict=True):
            absence[:, rival] *= 1 - place.some * part
            _note_rival(reasons, place.team, rival, place.some * float(part))
        if len(place.group) > 1:
            together = np.sort(np.concatenate(place.group))
            groups.append(tuple(together.tolist()))
            absence[:, together] = np.minimum(absence[:, together], UNSURE)
    confidence, nowhere = np.where(edges, presence, absence[0]), ~edges & np.all(absence >= SURE, axis=0)
    return Judged(edges, confidence, np.where(edges, strength, 0.0), groups, nowhere, reasons)


def _reason(evidence: float, share: float, error: float, log_odds: float) -> Reason:
    wide = float(special.ndtri((1 + INTERVAL) / 2)) * error
    worth = float(special.expit(log_odds))
    evidence = float(evidence) if np.isfinite(evidence) else 0.0  # offsets say all that it could
    ends = (max(share - wide, 0.0), min(share + wide, 1.0))
    return Reason(evidence, share, ends if error else None, None, 0.0, worth)


def _note_rival(reasons: dict[int, Reason], team: Dims, rival: Dims, chance: float) -> None:
    """Of a parent and rivals, if these are seen: by what chance one has the other's place, if likelier."""
    for mine, other in ((team, rival), (rival, team)):
        for dim in mine.tolist():
            if dim in reasons and chance > reasons[dim].chance:
                reasons[dim] = reasons[dim]._replace(instead=next(iter(other.tolist()), None), chance=chance)


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
    return sorted({tuple(sorted(group)) for group in groups})


def _log_odds_of_worth(found: NDArray[np.bool_], columns: Columns, ratios: Floats, team: Dims) -> Floats:
    """[2] log odds that the team is worth so much, in totals and in steps: from ratios [2, P] of each column,
    of its own, in products with dimensions found, or with others: one of these is as likely as the others. In
    steps, of which totals say little, an effect is as likely as not."""
    ways = (columns.alone(team), columns.products(team, found), columns.products(team, ~found))
    logs = [log_mean(ratios[:, way].T) for way in ways if len(way)]
    if not logs:
        return np.full(len(ratios), -np.inf)
    chances = [chance_of_each(1 / len(columns.dictionaries[0].scale.teams)), 0.5]
    return np.asarray(log_mean(np.stack(logs)) + special.logit(chances))


def in_totals(segments: Segments, columns: Columns, fit: Fit, share: float) -> Floats:
    """[P] the share of the totals' variance that the effect of a column has which is worth so large a share
    of the totals' variance, or of the steps', whatever is less. Over an episode swings cancel out: a leg that
    moves back and forth hardly changes a total, though it may decide what each step earns. Rewards of steps
    vary as those of the fit do."""
    rows = rows_of(segments.rows, evenly(ROWS, int(segments.lengths.sum())))
    variances = np.concatenate([each.features(rows).var(axis=0) for each in columns.dictionaries])
    paid = segments.count * segments.variance
    varied = max(float(np.var(fit.model.predict(rows))), ROUNDING * paid)
    ratios = variances * columns.per_sum**2 * paid / varied
    return share / np.clip(ratios, 1.0, 1 / MISFIT)
