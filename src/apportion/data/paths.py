"""Tables with a row for each path, A > B > C, and how many journeys went it, as attribution tools have them.

Each row becomes as many episodes as journeys that converted, and then as many as did not; each touch is a
step, whose one column is the path's.
"""

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.data.columns import Choice
from apportion.data.rows import Column, Floats, Rows, check_room, episode_outcomes

MARK = ">"  # between touches
_EPISODE = 32  # numbers that an episode takes up besides those of its steps


def rows_of(data: str, choice: Choice, table: dict[str, Column], paid: bool) -> Rows:
    """The steps of all journeys."""
    assert choice.path is not None
    touches = [_touches(data, row, text) for row, text in enumerate(table[choice.path], start=1)]
    lengths = np.array([len(each) for each in touches], np.int64)
    if choice.count is None:
        whose = np.arange(len(touches))
        outcome = table.get(choice.outcome, np.full(len(touches), np.nan))
        totals = episode_outcomes(data, choice.outcome, outcome, whose, np.ones_like(whose), paid)
        words = bool(outcome.dtype == object and not np.isnan(totals).all())
    else:
        whose, totals = _journeys(data, choice, table, lengths)
        words = False
    starts = np.cumsum(lengths) - lengths
    steps = lengths[whose]
    places = np.repeat(starts[whose] - np.cumsum(steps) + steps, steps) + np.arange(steps.sum())
    kinds = np.array([touch for each in touches for touch in each], object)
    return Rows(
        source=data,
        lengths=steps,
        states={choice.path: kinds[places]},
        actions={},
        totals=totals,
        last=None,
        terminated=None,
        named=True,
        yes_no=words,
        choice=choice,
    )


def _touches(data: str, row: int, text: str | None) -> list[str]:
    touches = [touch.strip() for touch in str(text or "").split(MARK)]
    check(all(touches), f"{data}, row {row}: the path {text!r} has an empty touch: write it as A > B > C")
    return touches


def _journeys(
    data: str, choice: Choice, table: dict[str, Column], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats]:
    """[E] of which row each journey is, and its outcome: 1, or a part of the value, if it converted."""
    assert choice.count is not None
    converted = _counts(data, choice.count, table)
    lost = np.zeros_like(converted) if choice.null is None else _counts(data, choice.null, table)
    without = f"{data}: every journey converted: name the column that counts those that did not by --null"
    check(choice.value is not None or bool(lost.any()), without)
    count = converted + lost
    check_room(data, int(2 * np.sum(count * lengths) + _EPISODE * np.sum(count)))
    worth = np.ones(len(count))
    if choice.value is not None:
        values = _numbers(data, choice.value, table)
        wrong = (values != 0) & (converted == 0)
        said = f"{data}, row {np.argmax(wrong) + 1}: it has a {choice.value!r}, but no conversion: mend it"
        check(not wrong.any(), said)
        worth = values / np.maximum(converted, 1)
    order = np.repeat(np.arange(2 * len(count)), np.stack([converted, lost], axis=1).astype(np.int64).ravel())
    return order // 2, np.where(order % 2 == 0, worth[order // 2], 0.0)


def _counts(data: str, name: str, table: dict[str, Column]) -> Floats:
    values = _numbers(data, name, table)
    wrong = np.flatnonzero((values < 0) | (values != np.rint(values)))
    if wrong.size:
        found = f"column {name!r} holds {values[wrong[0]]:g}, and counts are 0, 1, 2 and so on"
        raise UserError(f"{data}, row {wrong[0] + 1}: {found}: mend it")
    return values


def _numbers(data: str, name: str, table: dict[str, Column]) -> Floats:
    column = table[name]
    texts = f"{data}: column {name!r} holds texts, and numbers are needed: name another"
    check(column.dtype != object, texts)
    values = np.asarray(column, np.float64)
    missing = ~np.isfinite(values)
    said = f"{data}, row {np.argmax(missing) + 1}: column {name!r} holds no number: write 0 for none"
    check(not missing.any(), said)
    return values
