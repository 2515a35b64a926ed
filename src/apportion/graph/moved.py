"""What moves a parent may feed the reward in its stead.

Where d is a parent, Σ_t f(d_t) and Σ_t f(d_{t+1}) differ by the first and the last step alone; and the second
sum is one of whatever moves d. So totals seldom tell a reward that reads a dimension from one that reads what
makes it, though the two are far apart in single steps: a drum's load lags behind the flow of corn that is
paid for. Where they do not tell, the parent is not beyond doubt, and nothing that moves it is known to be
absent; it may be unseen, too. Nor is a parent beyond doubt that such a one moves, a gauge of a gauge, or that
is missed beside such a one alone: it may but help to tell what moves them both.

Where c is a running sum of x, Σ_t c_t = Σ_t (T - t) x_t: a clock and x may stand together for what adds up.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph.dictionary import Dims
from apportion.graph.dynamics import DynamicsEdges
from apportion.graph.priors import CHANCE, DOUBT, MISFIT, RICH, SURE
from apportion.graph.refine import Fit, growth
from apportion.graph.ridge import ridge
from apportion.graph.segments import Segments


def in_their_stead(
    segments: Segments, fit: Fit, weak: Dims, observations: list[NDArray[Any]], dynamics: DynamicsEdges
) -> dict[int, Dims]:
    """Of each parent in doubt, as weak ones are: what may feed the reward in its stead, if that is seen."""
    moves = dynamics.edges | (dynamics.confidence < SURE)
    others = (moves & ~np.eye(*moves.shape, dtype=np.bool_)).any(axis=0)
    # What goes on by itself, as a clock does, nothing unseen moves.
    by_itself = np.flatnonzero(~others & (dynamics.explained > 1 - MISFIT))
    parents, clocks = fit.basis.dims, np.intersect1d(fit.basis.dims, by_itself)
    tested = np.setdiff1d(parents[parents < moves.shape[1]], clocks)
    lagging = _lagging(segments, fit, observations, moves, tested)
    # A state that may be a running sum is told by those that move it, but for a little.
    sums = _running_sums(parents, clocks, moves & (dynamics.explained > 1 - DOUBT / 2))
    none = np.zeros(0, np.int64)
    found = {dim: np.union1d(lagging.get(dim, none), sums.get(dim, none)) for dim in {*lagging, *sums}}
    return {int(dim): none for dim in (*weak, *_beside(segments, fit, [*found]))} | found


def _lagging(
    segments: Segments, fit: Fit, observations: list[NDArray[Any]], moves: NDArray[np.bool_], tested: Dims
) -> dict[int, Dims]:
    """Of each parent that explains totals as well one step later, and of those that it moves: what else moves
    it, or may. Of very many parents none is put to this test: totals would hardly tell."""
    found, told = dict[int, Dims](), dict[int, Dims]()
    for team in segments.scale.teams:  # entries of a one-hot vector tell what each of them is
        mine = np.intersect1d(team, tested)
        if len(mine):
            movers = np.setdiff1d(np.flatnonzero(moves[:, mine].any(axis=1)), team)
            clear = len(fit.parents) <= RICH and _reads_before(segments, fit, observations, mine)
            (told if clear else found).update({int(dim): movers for dim in mine})
    while further := [dim for dim, movers in told.items() if np.isin(movers, list(found)).any()]:
        found |= {dim: told.pop(dim) for dim in further}
    return found


def _beside(segments: Segments, fit: Fit, doubtful: list[int]) -> list[int]:
    """Parents that are missed in products with those in doubt alone: a clock mends what a gauge that lags
    behind the true cause says too late."""
    owners, team, left = fit.basis.owners, segments.scale.team, list[int]()
    for dim in np.setdiff1d(fit.basis.dims, doubtful) if doubtful else ():
        mine = owners[team == team[dim]].any(axis=0)
        apart, without = (
            ridge(fit.sums[:, ~some], segments.totals, segments.offsets)
            for some in (mine & owners[doubtful].any(axis=0), mine)
        )
        if growth(without, apart)[1] <= CHANCE:
            left.append(int(dim))
    return left


def _running_sums(parents: Dims, clocks: Dims, moves: NDArray[np.bool_]) -> dict[int, Dims]:
    """Of each parent that is a clock, or beside it moves states that are no parents: these states."""
    others = np.setdiff1d(parents, clocks)
    moved = np.setdiff1d(np.flatnonzero(moves[others].any(axis=0)), parents)
    if not len(clocks) or not len(moved):
        return {}
    return {int(dim): moved for dim in (*clocks, *others[moves[np.ix_(others, moved)].any(axis=1)])}


def _reads_before(segments: Segments, fit: Fit, observations: list[NDArray[Any]], dims: Dims) -> bool:
    """Whether left-out totals are predicted worse, by more than chance, from the next values of a parent."""
    sums = fit.sums.copy()
    sums[:, fit.basis.touching(dims)] = fit.basis.restricted(dims).sums(
        _a_step_later(segments.rows, observations, dims)
    )
    return growth(ridge(sums, segments.totals, segments.offsets), fit.ridge)[1] > CHANCE


def _a_step_later(
    rows: list[NDArray[Any]], observations: list[NDArray[Any]], dims: Dims
) -> Iterator[NDArray[Any]]:
    """The rows of each segment, with the next values of some dimensions; the last ones stay where no later
    ones are known. One segment at a time, for all of them may be large."""
    for before, states in zip(rows, observations, strict=True):
        moved, after = before.copy(), states[1:, dims]
        moved[: len(after), dims] = after
        yield moved
