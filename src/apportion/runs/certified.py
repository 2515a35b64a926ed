"""Whether the graphs of a run are certified, and why not: from its numbers into words."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph.certificate import Doubt, marked

UNDECIDED = 0.5  # what stands for an edge of which the data cannot tell, where edges have a certificate

_WORDS = {
    (True, True): "The edges are certified",
    (True, False): "Edges to the reward are certified, those to next states are not",
    (False, True): "Edges to next states are certified, those to the reward are not",
    (False, False): "The edges are not certified",
}


def certificates(edges: dict[str, NDArray[np.float32]]) -> list[dict[str, Any]] | None:
    """For each lane, which edges may be relied on, and what speaks against the others; None where the
    method certifies none."""
    if "doubts" not in edges:
        return None
    return [_certificate(marked(lane.tolist())) for lane in edges["doubts"]]


def _certificate(doubts: list[Doubt]) -> dict[str, Any]:
    return {
        "reward": not any(doubt.of_reward for doubt in doubts),
        "dynamics": not any(doubt.of_dynamics for doubt in doubts),
        "doubts": [doubt.value for doubt in doubts],
    }


def in_words(found: list[dict[str, Any]] | None, seeds: list[int]) -> list[str]:
    """A sentence for all seeds with the same certificate."""
    if found is None:
        return ["The edges are not certified: those that are learned by gradient have no certificate."]
    alike: dict[tuple[str, ...], list[int]] = {}
    for lane, each in enumerate(found):
        alike.setdefault(tuple(each["doubts"]), []).append(lane)
    return [_sentence(found[lanes[0]], [seeds[lane] for lane in lanes]) for lanes in alike.values()]


def _sentence(certificate: dict[str, Any], seeds: list[int]) -> str:
    who = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    what = _WORDS[certificate["reward"], certificate["dynamics"]]
    reasons = "; ".join(certificate["doubts"])
    return f"{what} ({who}){': ' if reasons else ''}{reasons}."
