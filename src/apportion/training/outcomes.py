"""Outcomes of logged episodes in a unit in which rewards of steps are of size one.

Outcomes may be thousandths or millions, and may start from a level that no step has earned, such as a
satisfaction of 70. What learners are paid is what is left of them; what they find is told in the log's unit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from scipy.special import expit, logit

from apportion.core.types import Method, Record, State

USUAL = (0.1, 10.0)  # spreads of rewards that learners take as they are, and how far from zero, in spreads

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcomes:
    """How outcomes become what learners are paid: (outcome - level - steps * step) / unit."""

    unit: float = 1.0
    step: float = 0.0  # what each step earns, whichever it is
    level: float = 0.0  # of an episode, however long: nobody earns it
    yes_no: bool = False  # outcomes are yes (1) or no (0): level and rewards are log odds

    def paid(self, record: Record) -> Record:
        """With what learners are paid for an episode."""
        if self.yes_no:
            return record
        rest = record.total - self.level - self.step * len(record.actions)
        return record._replace(total=rest / self.unit)

    def linear(self, record: Record) -> Record:
        """For regressions on totals: of yes and no, what a step of Newton's from the log odds of all would be
        regressed on; of amounts, what learners are paid."""
        if not self.yes_no:
            return self.paid(record)
        usual = float(expit(self.level))
        return record._replace(total=(record.total - usual) / (usual * (1 - usual)))

    def in_outcome_units(self, method: Method) -> Method:
        """A method that has learned so, with its rewards in the unit of the outcomes."""

        def told(judge: Callable[[State, Any], Array]) -> Callable[[State, Any], Array]:
            return lambda state, seen: judge(state, seen) * self.unit + self.step

        return method._replace(reward=told(method.reward), credit=method.credit and told(method.credit))


def measure(records: Sequence[Record], yes_no: bool = False) -> Outcomes:
    """Of episodes: 1, 0 and 0 where learners take them as they are."""
    totals = np.array([record.total for record in records], np.float64)
    if yes_no:
        return Outcomes(level=float(logit(totals.mean())), yes_no=True)
    lengths = np.array([len(record.actions) for record in records], np.float64)
    level = _level(totals, lengths, records)
    rest = totals - level
    mean = float(rest.sum() / lengths.sum())
    spread = float(np.sqrt(np.mean((rest - mean * lengths) ** 2) / lengths.mean()))
    if not spread > 1e-6 * np.abs(totals).max():  # all alike but for rounding
        spread = abs(mean)
    unit = 1.0 if spread == 0 or USUAL[0] <= spread <= USUAL[1] else spread
    return Outcomes(unit, mean if abs(mean) > USUAL[1] * spread else 0.0, level)


def _level(totals: Floats, lengths: Floats, records: Sequence[Record]) -> float:
    """A constant of episodes, where outcomes ask for one that no step can have earned: lengths differ, and
    held-out outcomes are told worse than by their mean without it, and much better with it, by sums over all
    that was seen and done, by first and last steps, which what is seen may tell, and by ends."""
    if np.all(lengths == lengths[0]):
        return 0.0  # as good as a constant of each step
    standard = _standardised([(each.observations[: len(each.actions)], each.actions) for each in records])
    told = [np.concatenate([each.sum(axis=0) / np.sqrt(len(each)), each[0], each[-1]]) for each in standard]
    ended = [float(record.terminated) for record in records]
    without = np.column_stack([lengths, ended, np.stack(told)])
    beside = np.column_stack([np.ones(len(totals)), without])
    ridges = (1e-4, 1e-2, 1.0)  # over the mean square of a column: the one that tells held-out outcomes best
    missed = min(_missed(without, totals, ridge) for ridge in ridges)
    found = {_missed(beside, totals, ridge): ridge for ridge in ridges}
    if missed < totals.var() or min(found) > 0.5 * missed:
        return 0.0
    return float(_weights(beside, totals, found[min(found)])[0])


def _standardised(steps: list[tuple[NDArray[Any], NDArray[Any]]]) -> list[Floats]:
    """[T, 2D] what was seen [T, S] and done [T, A] and its squares, both about their means over all steps: so
    no constant can be made of them, but where a kind of step, such as the last, is special."""
    every = np.column_stack([np.concatenate(part, dtype=np.float64) for part in zip(*steps, strict=True)])
    mean, spread = every.mean(axis=0), every.std(axis=0)
    varies = spread > 1e-9 * np.abs(mean)
    scaled = np.clip((every - mean) * np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0), -10, 10)
    both = np.column_stack([scaled, scaled**2 - np.mean(scaled**2, axis=0)])
    return np.split(both, np.cumsum([len(done) for _, done in steps])[:-1])


def _missed(seen: Floats, totals: Floats, ridge: float) -> float:
    """Squared error of each half of the episodes, by a regression on the other."""
    half = np.arange(len(totals)) % 2 == 0
    halves = (half, ~half)
    errors = [totals[part] - seen[part] @ _weights(seen[~part], totals[~part], ridge) for part in halves]
    return float(np.mean(np.concatenate(errors) ** 2))


def _weights(seen: Floats, totals: Floats, ridge: float) -> Floats:
    """Of a regression with some ridge, for there may be more columns than episodes; next to none on constants
    and lengths, which all have."""
    size = np.sqrt(np.mean(seen**2, axis=0))
    scale = np.where(size > 0, size, 1.0)
    common = np.all(seen > 0, axis=0)
    held = np.diag(np.sqrt(np.where(common, 1e-9, ridge) * len(totals)))
    rows, paid = np.vstack([seen / scale, held]), np.concatenate([totals, np.zeros(seen.shape[1])])
    return np.asarray(np.linalg.lstsq(rows, paid, rcond=None)[0]) / scale
