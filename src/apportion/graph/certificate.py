"""May the edges be relied on? What speaks against it, in words."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import NamedTuple

from apportion.graph.dictionary import Dictionary
from apportion.graph.priors import ALIKE, DOUBT, ENOUGH_SEGMENTS, NEGLIGIBLE, WORTH
from apportion.graph.refine import Fit

ENOUGH_EXPLAINED = 0.4  # share of the totals' variance; below, something that feeds the reward is not seen


class Doubt(StrEnum):
    """All that can speak against edges, in words that fit any data; the certificate's notes have numbers."""

    NOT_SEARCHED = f"edges were not searched for yet, which takes {ENOUGH_SEGMENTS} segments"
    FEW_SEGMENTS = f"there were fewer than {ENOUGH_SEGMENTS} segments"
    NOTHING_EXPLAINS = "no dimension explains the totals"
    LITTLE_EXPLAINED = "the edges found explain little of the totals: noise, or a cause they cannot express"
    PARENT_MISSING = "all dimensions explain more than the edges found: some parent is missing"
    FEW_TRANSITIONS = "there were too few transitions for edges to next states"

    @property
    def of_reward(self) -> bool:
        return self is not Doubt.FEW_TRANSITIONS

    @property
    def of_dynamics(self) -> bool:
        return self in (Doubt.NOT_SEARCHED, Doubt.FEW_TRANSITIONS)


def marks(doubts: Collection[Doubt]) -> list[float]:
    """As states hold them: 1 for each doubt that there is, 0 for the others."""
    return [float(doubt in doubts) for doubt in Doubt]


def marked(numbers: Sequence[float]) -> list[Doubt]:
    """The doubts again."""
    return [doubt for doubt, number in zip(Doubt, numbers, strict=False) if number > 0]


class Certificate(NamedTuple):
    """Whether the edges may be relied on, and if not, why."""

    reward: bool
    notes: list[str]  # what speaks against the edges, and what to know about them
    dynamics: bool = True
    scope: str = ""  # what "absent" means, and what it leaves open
    doubts: tuple[Doubt, ...] = ()  # what speaks against the edges, without numbers


def certify(
    fit: Fit,
    error_of_all: float,
    segments: int,
    transitions: int,
    dictionary: Dictionary,
    negligible: float = NEGLIGIBLE,
    only_from_totals: int = 0,
    not_told: int = 0,
    names: Sequence[str] = (),
) -> Certificate:
    """Errors are shares of the totals' variance on segments left out; `error_of_all` uses every dimension.
    `transitions` are those that the dynamics were found in. So many dimensions are absent from totals, but
    may be worth more in single steps; so many parents are not beyond doubt. Dimensions have
    `names`, or are counted from 0."""
    doubts = _reward_doubts(fit, error_of_all, segments)
    features = dictionary.shortened().size
    needed = 10 * features  # at least ten for each weight
    if transitions < needed:
        few = f"{transitions} transitions are few for {features} features: dynamics edges need {needed}"
        doubts[Doubt.FEW_TRANSITIONS] = few
    called = [repr(name) for name in names] or [
        f"dimension {dim}" for dim in range(len(dictionary.scale.live))
    ]
    remarks = [
        f"{called[copy]} equals {called[first]} up to its unit: the edges of both stand at {called[first]}"
        for copy, first in dictionary.scale.copies.items()
    ]
    return Certificate(
        reward=not any(doubt.of_reward for doubt in doubts),
        notes=[*doubts.values(), *remarks],
        dynamics=not any(doubt.of_dynamics for doubt in doubts),
        scope=_scope(fit, dictionary, negligible, only_from_totals, not_told),
        doubts=tuple(doubts),
    )


def _scope(fit: Fit, dictionary: Dictionary, negligible: float, only_from_totals: int, not_told: int) -> str:
    """In words, with the share that stays unexplained: what cannot be excluded there."""
    partner = "another dimension" if dictionary.products else "a dimension found"
    words = [
        f'"absent" means worth less than {negligible:.2g} of the totals\' variance, '
        f"as a main effect or in a pair with {partner}"
    ]
    if only_from_totals:
        words.append(
            f"{only_from_totals} absent from totals may be worth more in single steps, which add up to little"
        )
    if not_told:
        parents = f"{not_told} of {len(fit.parents)} dimensions found"
        words.append(f"totals do not tell {parents} from what moves them, or what else is missed or unseen")
    if fit.unexplained >= DOUBT:
        left = f"{min(fit.unexplained, 1.0):.0%} of the variance stays unexplained"
        words.append(f"{left}, where nothing outside of that scope can be excluded")
    return "; ".join(words)


def _reward_doubts(fit: Fit, error_of_all: float, segments: int) -> dict[Doubt, str]:
    doubts = {}
    explained = max(0.0, 1 - fit.unexplained)
    if segments < ENOUGH_SEGMENTS:
        few = f"{segments} segments are few: from {ENOUGH_SEGMENTS} on, edges can be relied on"
        doubts[Doubt.FEW_SEGMENTS] = few
    if not fit.parents:
        doubts[Doubt.NOTHING_EXPLAINS] = Doubt.NOTHING_EXPLAINS.value
    elif explained < ENOUGH_EXPLAINED:
        doubts[Doubt.LITTLE_EXPLAINED] = (
            f"the edges found explain only {explained:.0%} of the totals' variance: "
            "noise, or a cause that these features cannot express"
        )
    if fit.unexplained > max(error_of_all / ALIKE, WORTH):
        doubts[Doubt.PARENT_MISSING] = (
            f"on segments left out the edges found explain {explained:.0%} of the totals' variance, "
            f"all dimensions {1 - error_of_all:.0%}: some parent is missing; more episodes may show it"
        )
    return doubts
