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
    parents, found = refined.fit.basis.dims, dict[int, Dims]()
    many = len(parents) > EFFORT.rich
    for team in segments.scale.teams:  # entries of a one-hot vector tell what each of them is
        mine = np.intersect1d(team, parents)
        if not len(mine) or mine[0] >= moves.shape[1]:
            continue
        movers = np.setdiff1d(np.flatnonzero(moves[:, mine].any(axis=1)), team)
        if len(movers) and (many or not _reads_before(segments, refined.fit, observations, mine)):
            found |= {int(dim): movers for dim in mine}
    return found


def _reads_before(segments: Segments, fit: Fit, observations: list[NDArray[Any]], dims: Dims) -> bool:
    """Whether left-out totals are predicted worse, by more than chance, from the next values of a parent."""
    places = np.searchsorted(fit.basis.dims, dims)
    sums = fit.sums.copy()
    sums[:, fit.basis.owners[places].any(axis=0)] = fit.basis.touching(places).sums(
        _a_step_later(segments.rows, observations, dims)
    )
    return growth(ridge(sums, segments.totals, segments.offsets), fit.ridge)[1] > STAYING.standard_errors


def _a_step_later(
    rows: list[NDArray[Any]], observations: list[NDArray[Any]], dims: Dims
) -> Iterator[NDArray[Any]]:
    """The rows of each segment, with the next values of some dimensions; the last ones stay where no later
    ones are known. One segment at a time, for all of them may be large."""
    for before, states in zip(rows, observations, strict=True):
        moved, after = before.copy(), states[1:, dims]
        moved[: len(after), dims] = after
        yield moved
