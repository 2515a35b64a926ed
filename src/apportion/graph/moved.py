"""What moves a parent may feed the reward in its stead.

Where d is a parent, Σ_t f(d_t) and Σ_t f(d_{t+1}) differ by the first and the last step alone; and the second
sum is one of whatever moves d. So totals seldom tell a reward that reads a dimension from one that reads what
makes it, though the two are far apart in single steps: a drum's load lags behind the flow of corn that is
paid for. Where they do not tell, the parent is not beyond doubt, and nothing that moves it is known to be
absent.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph.candidates import Dims
from apportion.graph.dynamics import DynamicsEdges
from apportion.graph.refine import EFFORT, STAYING, Fit, Refined, growth
from apportion.graph.ridge import ridge
from apportion.graph.screen import Segments
from apportion.graph.verdict import SURE


def in_their_stead(
    segments: Segments, refined: Refined, observations: list[NDArray[Any]], dynamics: DynamicsEdges
) -> dict[int, Dims]:
    """Of each parent that explains totals as well one step later: what else moves it, or may. Of very many
    parents none is put to this test: totals would hardly tell."""
    moves = dynamics.edges | (dynamics.confidence < SURE)
    parents = refined.fit.basis.dims
    movers = {
        place: np.setdiff1d(np.flatnonzero(moves[:, dim]), dim)
        for place, dim in enumerate(parents)
        if dim < moves.shape[1]
    }
    many = len(parents) > EFFORT.rich
    return {
        int(parents[place]): those
        for place, those in movers.items()
        if len(those) and (many or not _reads_before(segments, refined.fit, observations, place))
    }


def _reads_before(segments: Segments, fit: Fit, observations: list[NDArray[Any]], place: int) -> bool:
    """Whether left-out totals are predicted worse, by more than chance, from a parent's next values."""
    sums, later = fit.sums.copy(), _a_step_later(segments.rows, observations, int(fit.basis.dims[place]))
    sums[:, fit.basis.owners[place]] = fit.basis.touching(place).sums(later)
    return growth(ridge(sums, segments.totals, segments.offsets), fit.ridge)[1] > STAYING.standard_errors


def _a_step_later(
    rows: list[NDArray[Any]], observations: list[NDArray[Any]], dim: int
) -> Iterator[NDArray[Any]]:
    """The rows of each segment, with the dimension's next values; its last one stays where that is the last
    that is known. One segment at a time, for all of them may be large."""
    for before, states in zip(rows, observations, strict=True):
        moved, after = before.copy(), states[1:, dim]
        moved[: len(after), dim] = after
        yield moved
