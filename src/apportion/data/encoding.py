"""From columns as people log them to numbers that can be learned from, and the same way again later.

A missing number becomes the column's mean, and a column of its own says where that was; texts become
categories, a missing one among them; earlier steps become columns where lags are asked for, and another says
where there was none. Numbers that single precision could not tell apart, such as seconds since 1970, are
counted from their mean.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from apportion.core.config import UserError, check, nearest
from apportion.data.columns import words
from apportion.data.rows import Column, Floats, Log, Rows, twice

MOST_CATEGORIES = 50  # more are names of things, not kinds of them
UNKNOWN = "(missing)"


@dataclass(frozen=True)
class Coded:
    """How one column becomes numbers."""

    name: str
    levels: tuple[str, ...] = ()  # its categories; none: it holds numbers
    fill: float = 0.0  # what stands for a missing number, or before the first step: there also for categories
    marked: bool = False  # whether another column says where one was missing
    origin: float = 0.0  # what numbers are counted from
    part_of: str = ""  # the vector that it belongs to

    @classmethod
    def of(cls, source: str, name: str, column: Column) -> "Coded":
        """As a column needs it."""
        if column.dtype == object and any(value is not None for value in column):
            levels = sorted({UNKNOWN if value is None else str(value) for value in column})
            example = next(value for value in column if value is not None)
            many = f"column {name!r} holds {len(levels):,} different texts, as {example!r}, more than"
            fix = "leave it aside by --without, --embed hashing for texts, or write numbers as 1234.5"
            check(len(levels) <= MOST_CATEGORIES, f"{source}: {many} {MOST_CATEGORIES}: {fix}")
            coded = cls(name, tuple(levels))
            counts = np.bincount(coded._codes(source, column).astype(int))
            return replace(coded, fill=float(np.argmax(counts)))
        values = np.asarray(column, np.float64)
        known = values[~np.isnan(values)]
        check(bool(known.size), f"{source}: column {name!r} holds no value: leave it out")
        mean, spread = float(known.mean()), float(known.std())
        # Less than this share of the mean is rounding. Farther than so many spreads from zero, single
        # precision would keep less than a column's first three digits.
        lost = 1e-12 * abs(mean) < spread < abs(mean) / 1e4
        return cls(name, (), mean, known.size < values.size, mean if lost else 0.0)

    @property
    def start(self) -> float:
        """What stands for it before the first step: the mean, or the commonest category."""
        return self.fill - self.origin

    def numbers(self, source: str, column: Column) -> Floats:
        """[N] values, or numbers of categories."""
        if self.levels:
            return self._codes(source, column)
        if column.dtype == object and any(value is not None for value in column):
            raise UserError(f"{source}: column {self.name!r} holds texts, but the run was fitted to numbers")
        values = np.asarray(column, np.float64)
        return np.where(np.isnan(values), self.fill, values) - self.origin

    def _codes(self, source: str, column: Column) -> Floats:
        place, values = {level: number for number, level in enumerate(self.levels)}, column.tolist()
        texts = {value: UNKNOWN if value is None or value != value else str(value) for value in values}
        for value in (value for value, text in texts.items() if text not in place):
            wrong = f"column {self.name!r} holds {texts[value]!r}, the run knows {', '.join(self.levels)}"
            raise UserError(f"{source}, row {values.index(value) + 1}: {wrong}")
        return np.array([place[texts[value]] for value in values], np.float64)


class _Dimension(NamedTuple):
    """An observed dimension that is made of a column."""

    name: str
    coded: Coded
    kind: Literal["value", "missing", "before"] = "value"
    level: int = 0  # the category that may have come before

    @property
    def input(self) -> str:
        """Of which it is a part."""
        column = self.coded.part_of or self.coded.name
        return {"value": column, "missing": self.name, "before": f"{self.coded.name} before"}[self.kind]

    @property
    def start(self) -> float:
        """What stands for it before the first step: no mark of a missing one, and no category."""
        return self.coded.start if self.kind == "value" else 0.0

    def values(self, rows: Rows, column: Column, numbers: Floats) -> Floats:
        """[N] of a column, which is these numbers."""
        if self.kind == "value":
            return numbers
        if self.kind == "missing":
            return np.isnan(np.asarray(column, np.float64)).astype(np.float64)
        now = (numbers == self.level).astype(np.float64)
        past = np.cumsum(now) - now  # before each row of the table, other episodes included
        return np.asarray(past > np.repeat(past[rows.starts], rows.lengths), np.float64)

    def after(self, rows: Rows) -> Floats:
        """[E] after the last steps."""
        if self.kind == "value" and rows.last is not None:
            return self.coded.numbers(rows.source, rows.last[self.coded.name])
        return np.zeros(len(rows.lengths))


@dataclass(frozen=True)
class Encoding:
    """How all columns become numbers: written beside a run, and used again on other data."""

    states: tuple[Coded, ...]
    actions: tuple[Coded, ...]
    lags: int = 0
    followed: bool = False  # whether what was observed after an episode's last step is known, and used;
    ended: bool = False  # and whether it is known which episodes ended by themselves
    seen: tuple[str, ...] = ()  # columns of which it counts which categories came before
    texts: tuple[str, ...] = ()  # columns whose texts became vectors,
    embed: str = ""  # and by which embedder

    @classmethod
    def of(cls, rows: Rows, lags: int, seen: str | None = None) -> "Encoding":
        """As these rows need it."""
        states, actions = (
            tuple(
                replace(Coded.of(rows.source, name, column), part_of=rows.parts.get(name, ""))
                for name, column in part.items()
            )
            for part in (rows.states, rows.actions)
        )
        told = rows.terminated is not None and not rows.may_be_cuts
        remembered = tuple(words(seen))
        kinds = [coded.name for coded in (*states, *actions) if coded.levels]
        for name in remembered:
            known = f"--seen takes columns of categories{nearest(name, kinds)}"
            check(name in kinds, f"{rows.source}: {name!r} is none: {known}")
        return cls(states, actions, lags, rows.last is not None, told, remembered)

    def apply(self, rows: Rows) -> Log:
        """The episodes as numbers, with notes on what was done to them."""
        unsaid = (
            f"{rows.source} does not say which episodes ended by themselves, as the data that the run was"
        )
        fix = "add terminated, 1 or 0 for each (in a table on its last row)"
        check(not self.ended or rows.terminated is not None, f"{unsaid} fitted to did: {fix}")
        rows = rows.of_columns(*(tuple(coded.name for coded in part) for part in (self.states, self.actions)))
        columns, dimensions = {**rows.states, **rows.actions}, self._dimensions()
        # A column at a time, for all at once would be a second copy of the log.
        numbers = lru_cache(1)(lambda coded: coded.numbers(rows.source, columns[coded.name]))
        seen, acted = (np.empty((rows.lengths.sum(), len(part))) for part in (dimensions, self.actions))
        for place, each in enumerate(dimensions):
            seen[:, place] = each.values(rows, columns[each.coded.name], numbers(each.coded))
        for place, coded in enumerate(self.actions):
            acted[:, place] = numbers(coded)
        observations, done = rows.split(seen), rows.split(acted)
        if rows.last is not None and self.followed:
            after = np.column_stack([each.after(rows) for each in dimensions])
            pairs = zip(observations, after, strict=True)
            observations = [np.concatenate([each, row[None]]) for each, row in pairs]
        names, action_names = [each.name for each in dimensions], [coded.name for coded in self.actions]
        every = (*names, *action_names, "no")  # "no": there is no such step
        late_names = tuple(f"{name} t-{lag}" for lag in range(1, self.lags + 1) for name in every)
        again = twice((*names, *late_names, *action_names))  # whose credit would be mixed up
        made = "for missing values and lags become dimensions, too"
        fix = "rename that column, or leave it out of --states and --actions"
        check(again is None, f"{rows.source}: two dimensions would be called {again!r}, {made}: {fix}")
        if self.lags:
            start = (np.array([each.start for each in dimensions]), np.array([c.start for c in self.actions]))
            pairs = zip(observations, done, strict=True)
            observations = [_with_lags(each, acts, start, self.lags) for each, acts in pairs]
        levels = [len(each.coded.levels) if each.kind == "value" else 0 for each in dimensions]
        action_levels = [len(coded.levels) for coded in self.actions]
        action_inputs = [coded.part_of or coded.name for coded in self.actions]
        return Log(
            observations=observations,
            actions=done,
            totals=rows.totals,
            observation_names=(*names, *late_names),
            action_names=tuple(action_names),
            levels=(*levels, *[*levels, *action_levels, 0] * self.lags, *action_levels),
            inputs=(*(each.input for each in dimensions), *late_names, *action_inputs),
            terminated=rows.terminated if self.ended else None,
            notes=(*rows.notes, *self._notes(columns), *self._equals(rows, columns)),
        )

    def origins(self) -> tuple[Floats, Floats]:
        """[S'] and [A'] what the observed dimensions of a log, and the actions, are counted from."""
        states = [each.coded.origin if each.kind == "value" else 0.0 for each in self._dimensions()]
        actions = [coded.origin for coded in self.actions]
        return np.array(states + [*states, *actions, 0.0] * self.lags), np.array(actions)

    def _all(self) -> list[Coded]:
        return [*self.states, *self.actions]

    def _dimensions(self) -> list[_Dimension]:
        """What is observed, but for lags: columns, where one was missing, which categories came before."""
        return [
            *(_Dimension(coded.name, coded) for coded in self.states),
            *(_Dimension(f"{coded.name} missing", coded, "missing") for coded in self._all() if coded.marked),
            *(
                _Dimension(f"{coded.name}={level} before", coded, "before", place)
                for coded in self._all()
                if coded.name in self.seen
                for place, level in enumerate(coded.levels)
            ),
        ]

    def _equals(self, rows: Rows, table: dict[str, Column]) -> list[str]:
        """Sentences on columns of numbers that go along with each other, or with the outcome."""
        names = [coded.name for coded in self._all() if not coded.levels]
        if not names:
            return []
        longer = rows.lengths > 1
        last = (rows.starts + rows.lengths - 1)[longer]  # in a single step, a cause tells it as well
        some = np.arange(0, rows.lengths.sum(), -(-rows.lengths.sum() // 50_000))  # so many rows tell
        values = np.column_stack([table[name][np.append(some, last)].astype(np.float64) for name in names])
        few = longer.sum() <= 5  # episodes, in which anything may go along with the outcomes
        told = [] if few else _outcomes_told(names, values[len(some) :], rows.totals[longer])
        return [*_equal_groups(names, values[: len(some)]), *told]

    def _notes(self, table: dict[str, Column]) -> list[str]:
        notes = []
        for coded in self._all():
            if coded.levels:
                notes.append(f"{coded.name!r} is one dimension of {len(coded.levels)} categories")
                continue
            if coded.origin:
                far = "is far from zero beside its spread"
                notes.append(f"{coded.name!r} {far}: it is counted from {coded.origin:.10g}")
            column = np.asarray(table[coded.name], np.float64)
            if missing := int(np.isnan(column).sum()):
                marked = f", marked in '{coded.name} missing'" if coded.marked else ""
                filled = f"the mean {coded.fill:.4g} stands there{marked}"
                notes.append(f"{coded.name!r} is missing in {missing:,} of {len(column):,} rows: {filled}")
        return notes


def _with_lags(observations: Floats, actions: Floats, before: tuple[Floats, Floats], lags: int) -> Floats:
    """[T or T+1, S'] with what was seen and done in earlier steps, and where there was none. Before the first
    nothing stands that differs between episodes: it would be taken for a cause, or hide one."""
    steps, parts = np.arange(len(observations)), [observations]
    for lag in range(1, lags + 1):
        earlier, none = np.maximum(steps - lag, 0), (steps < lag)[:, None]
        seen, done = observations[earlier], actions[np.minimum(earlier, len(actions) - 1)]
        parts += [np.where(none, before[0], seen), np.where(none, before[1], done), none.astype(np.float64)]
    return np.concatenate(parts, axis=1)


# --- Columns that say nearly the same: which of them feeds the reward, no data can tell

ALIKE = 0.995  # correlation


def _equal_groups(names: list[str], values: Floats) -> list[str]:
    """A sentence for each group of columns [N, D] that go along with each other; NaN where one is missing."""
    alike = np.abs(_correlations(values)) > ALIKE
    sentences, left = [], set(range(len(names)))
    for first in range(len(names)):
        group = [other for other in range(first, len(names)) if other in left and alike[first, other]]
        if len(group) > 1:
            left -= set(group)
            members = ", ".join(names[dim] for dim in group)
            sentences.append(f"{members} say nearly the same: credit of one may belong to another")
    return sentences


def _outcomes_told(names: list[str], last: Floats, totals: Floats) -> list[str]:
    """A sentence for each column that goes along with the outcomes [E] of episodes on their last rows [E, D]:
    one that was written afterwards explains all, and what truly earned it nothing."""
    told = np.abs(_correlations(np.column_stack([last, totals]))[-1, :-1]) > ALIKE
    tells = "on the last row of an episode tells the outcome: leave it out if it was known afterwards"
    return [f"{names[dim]!r} {tells}" for dim in np.flatnonzero(told)]


def _correlations(values: Floats) -> Floats:
    """[D, D], of each pair over the rows where neither is missing; 0 where one does not vary."""
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, values, 0.0).sum(axis=0) / count
    x = np.where(known, values - centre, 0.0)
    size = np.sqrt((x**2).sum(axis=0) / count)
    x *= np.where(size > 1e-9 * np.abs(centre), 1 / np.where(size > 0, size, 1.0), 0.0)
    here = known.astype(np.float64)
    both = np.maximum(here.T @ here, 1.0)
    mean, square = x.T @ here / both, (x**2).T @ here / both
    spread = np.maximum(square - mean**2, 0.0)
    scale = np.sqrt(spread * spread.T)
    return np.where(scale > 1e-9, (x.T @ x / both - mean * mean.T) / np.maximum(scale, 1e-9), 0.0)
