"""May the edges be relied on? What speaks against it, in words."""

from typing import NamedTuple

from apportion.graph.features import Dictionary
from apportion.graph.refine import STAYING, Refined

ENOUGH_SEGMENTS = 150  # below, edges are not to be trusted
BETTER = 2.0  # all dimensions together must not leave so many times less unexplained than those found
ENOUGH_EXPLAINED = 0.4  # share of the totals' variance; below, something that feeds the reward is not seen
UNEXPLAINED = 0.5  # share of the variance; above, anything may be hidden there
TRANSITIONS_PER_FEATURE = 10


class Certificate(NamedTuple):
    """Whether the edges may be relied on, and if not, why."""

    reward: bool
    notes: list[str]  # what speaks against the edges, and what to know about them
    dynamics: bool = True
    scope: str = ""  # what "absent" means, and what it leaves open


def certify(
    refined: Refined,
    error_of_all: float,
    segments: int,
    transitions: int,
    dictionary: Dictionary,
    negligible: float = 0.01,
) -> Certificate:
    """Errors are shares of the totals' variance on segments left out; `error_of_all` uses every dimension.
    `transitions` are those that the dynamics were found in."""
    doubts = _reward_doubts(refined, error_of_all, segments)
    features = dictionary.shortened().size
    needed = TRANSITIONS_PER_FEATURE * features
    few = f"{transitions} transitions are few for {features} features: dynamics edges need {needed}"
    remarks = [few] if transitions < needed else []
    remarks += [
        f"dimension {copy} equals dimension {first} up to its unit: the edges of both stand at {first}"
        for copy, first in dictionary.scale.copies.items()
    ]
    return Certificate(
        not doubts, doubts + remarks, transitions >= needed, _scope(refined, dictionary, negligible)
    )


def _scope(refined: Refined, dictionary: Dictionary, negligible: float) -> str:
    """In words, with the share that stays unexplained: what cannot be excluded there."""
    partner = "another dimension" if len(dictionary.pairs) else "a dimension found"
    words = (
        f'"absent" means worth less than {negligible:.2g} of the totals\' variance, '
        f"as a main effect or in a pair with {partner}"
    )
    if refined.error < UNEXPLAINED:
        return words
    left = f"{min(refined.error, 1.0):.0%} of the variance stays unexplained"
    return f"{words}; {left}, where nothing outside of that scope can be excluded"


def _reward_doubts(refined: Refined, error_of_all: float, segments: int) -> list[str]:
    doubts = []
    explained = max(0.0, 1 - refined.error)
    if segments < ENOUGH_SEGMENTS:
        doubts.append(f"{segments} segments are few: from {ENOUGH_SEGMENTS} on, edges can be relied on")
    if not len(refined.parents):
        doubts.append("no dimension explains the totals")
    elif explained < ENOUGH_EXPLAINED:
        doubts.append(
            f"the edges found explain only {explained:.0%} of the totals' variance: "
            "noise, or a cause that these features cannot express"
        )
    if refined.error > max(BETTER * error_of_all, STAYING.of_variance):
        doubts.append(
            f"on segments left out the edges found explain {explained:.0%} of the totals' variance, "
            f"all dimensions {1 - error_of_all:.0%}: some parent is missing; more episodes may show it"
        )
    return doubts
