"""Trainings that go wrong are told of once per lane: critics whose loss explodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

GROWTH = 1_000.0  # times its median, at which a critic's loss has exploded
ENOUGH = 20  # lines of the log before which nothing is usual
LASTING = 3  # lines in a row: one bad batch is no divergence
SMALLEST = 100.0  # a loss below may be a first reward that was found: learners get rewards of size 0.1 to 10

_NAME = "critic_loss"


class Watch:
    """Follows the training metrics of all lanes, and has something to say when a lane diverges."""

    def __init__(self, seeds: Sequence[int], normalised: bool) -> None:
        self.seeds = seeds
        self.losses: list[NDArray[np.float64]] = []  # [L] of each line so far
        self.exploded: set[int] = set()
        self.remedy = "a smaller --backbone.learning-rate may help"
        if not normalised:
            self.remedy += ", or to leave out --no-normalise"

    def remember(self, entries: list[dict[str, Any]]) -> None:
        """What a resumed run logged before."""
        before = [entry[_NAME] for entry in entries if _NAME in entry]
        self.losses = [np.array(lanes, np.float64) for lanes in before]  # None becomes NaN

    def look(self, step: int, metrics: dict[str, NDArray[Any]]) -> list[str]:
        """What to say after one more line."""
        losses = metrics.get(_NAME)
        if losses is None:
            return []
        self.losses.append(np.array(losses, np.float64))
        if len(self.losses) < ENOUGH + LASTING:
            return []
        # Of all lines so far: a loss that grows slowly, but without end, leaves their median behind as well.
        usual = np.median(np.nan_to_num(self.losses[:-LASTING], nan=np.inf), axis=0)
        now = np.min(self.losses[-LASTING:], axis=0)
        # False where a number is gone: such a lane is frozen, or has not begun to learn.
        large = now > np.maximum(GROWTH * usual, SMALLEST)
        new = sorted(set(np.flatnonzero(large).tolist()) - self.exploded)
        self.exploded |= set(new)
        return [
            f"seed {self.seeds[lane]} diverges: by step {step} its critic's loss is {now[lane]:.2g}, "
            f"{now[lane] / max(usual[lane], 1e-30):,.0f} times its median; {self.remedy}"
            for lane in new
        ]
