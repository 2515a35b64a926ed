"""From columns as people log them to numbers that can be learned from, and the same way again later.

A missing number becomes the column's mean, and a column of its own says where that was; texts become
categories, a missing one among them; earlier steps become columns where lags are asked for, and another says
where there was none. Numbers that single precision could not tell apart, such as seconds since 1970, are
counted from their mean.
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apportion.core.config import UserError, check, from_dict, nearest, to_dict
from apportion.data.columns import words
from apportion.data.rows import Column, Floats, Log, Rows

MOST_CATEGORIES = 50  # more are names of things, not kinds of them
UNKNOWN = "(missing)"
FAR = 1e4  # spreads from zero: farther, single precision would keep less than a column's first three digits
ROUNDING = 1e-12  # of the mean: a spread that is less is none
_FEW = 5  # episodes, in which anything may go along with the outcomes


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
            if len(levels) > MOST_CATEGORIES:
                example = next(value for value in column if value is not None)
                raise UserError(
                    f"{source}: column {name!r} holds {len(levels):,} different texts, as {example!r}, more "
                    f"than {MOST_CATEGORIES}: leave it aside by --without, or write numbers as 1234.5"
                )
            coded = cls(name, tuple(levels))
            return replace(
                coded, fill=float(np.argmax(np.bincount(coded._codes(source, column).astype(int))))
            )
        values = np.asarray(column, np.float64)
        known = values[~np.isnan(values)]
        if not known.size:
            raise UserError(f"{source}: column {name!r} holds no value: leave it out")
        mean, spread = float(known.mean()), float(known.std())
        lost = ROUNDING * abs(mean) < spread < abs(mean) / FAR
        return cls(name, (), mean, known.size < values.size, mean if lost else 0.0)

    def numbers(self, source: str, column: Column) -> Floats:
        """[N] values, or numbers of categories."""
        if self.levels:
            return self._codes(source, column)
        if column.dtype == object and any(value is not None for value in column):
            raise UserError(f"{source}: column {self.name!r} holds texts, but the run was fitted to numbers")
        values = np.asarray(column, np.float64)
        return np.where(np.isnan(values), self.fill, values) - self.origin

    def _codes(self, source: str, column: Column) -> Floats:
        place = {level: number for number, level in enumerate(self.levels)}
        codes = np.empty(len(column))
        for row, value in enumerate(column):
            text = UNKNOWN if value is None or value != value else str(value)
            if text not in place:
                known = ", ".join(self.levels)
                raise UserError(
                    f"{source}, row {row + 1}: column {self.name!r} holds {text!r}, the run knows {known}"
                )
            codes[row] = place[text]
        return codes


@dataclass(frozen=True)
class Encoding:
    """How all columns become numbers: written beside a run, and used again on other data."""

    states: tuple[Coded, ...]
    actions: tuple[Coded, ...]
    lags: int = 0
    followed: bool = False  # whether what was observed after an episode's last step is known, and used;
    ended: bool = False  # and whether it is known which episodes ended by themselves
    seen: tuple[str, ...] = ()  # columns of which it counts which categories came before

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

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Encoding":
        """What `to_dict` wrote."""
        states, actions = (
            tuple(from_dict(Coded, column) for column in data[part]) for part in ("states", "actions")
        )
        return cls(
            states, actions, data["lags"], data["followed"], data["ended"], tuple(data.get("seen", ()))
        )

    def apply(self, rows: Rows) -> Log:
        """The episodes as numbers, with notes on what was done to them."""
        if self.ended and rows.terminated is None:
            raise UserError(
                f"{rows.source} does not say which episodes ended by themselves, as the data that the run "
                "was fitted to did: add terminated, 1 or 0 for each (in a table on its last row)"
            )
        rows = rows.of_columns(*(tuple(coded.name for coded in part) for part in (self.states, self.actions)))
        states, actions = self._table(rows, self.states), self._table(rows, self.actions)
        marked = [(coded, part) for coded, part in self._columns(rows) if coded.marked]
        marks = [np.isnan(np.asarray(part[coded.name], np.float64)) for coded, part in marked]
        past = [
            self._seen(rows, coded, part) for coded, part in self._columns(rows) if coded.name in self.seen
        ]
        marks += [column for columns in past for column in columns.T]
        seen = np.column_stack([states, *marks]) if marks else states
        names = [
            *(c.name for c in self.states),
            *(f"{c.name} missing" for c, _ in marked),
            *self._past("={} before"),
        ]
        levels = [len(coded.levels) for coded in self.states] + [0] * len(marks)
        vectors = {c.name: c.part_of for c in (*self.states, *self.actions) if c.part_of}
        inputs = [*names[: len(names) - len(self._past(""))], *self._past(" before")]
        acted = [len(coded.levels) for coded in self.actions]
        after = None if rows.last is None or not self.followed else self._after(rows, len(marks))
        observations, done = rows.split(seen), rows.split(actions)
        if after is not None:
            pairs = zip(observations, after, strict=True)
            observations = [np.concatenate([each, row[None]]) for each, row in pairs]
        action_names = tuple(coded.name for coded in self.actions)
        late_names, late = _lagged_names([*names, *action_names], self.lags), [*levels, *acted, 0] * self.lags
        _check_apart(rows.source, (*names, *late_names, *action_names))
        if self.lags:
            pairs = zip(observations, done, strict=True)
            before = self._before(len(marks))
            observations = [_with_lags(each, acts, before, self.lags) for each, acts in pairs]
        return Log(
            observations=observations,
            actions=done,
            totals=rows.totals,
            observation_names=(*names, *late_names),
            action_names=action_names,
            levels=(*levels, *late, *acted),
            inputs=tuple(vectors.get(name, name) for name in (*inputs, *late_names, *action_names)),
            terminated=rows.terminated if self.ended else None,
            notes=(*rows.notes, *self._notes(rows), *self._equals(rows)),
        )

    def origins(self) -> tuple[Floats, Floats]:
        """[S'] and [A'] what the observed dimensions of a log, and the actions, are counted from."""
        states, actions = ([coded.origin for coded in part] for part in (self.states, self.actions))
        states += [0.0] * sum(coded.marked for coded in (*self.states, *self.actions))
        states += [0.0] * len(self._past(""))
        return np.array(states + [*states, *actions, 0.0] * self.lags), np.array(actions)

    def _past(self, ending: str) -> list[str]:
        """Names of what tells which categories came before."""
        remembered = [coded for coded in (*self.states, *self.actions) if coded.name in self.seen]
        return [f"{coded.name}{ending.format(level)}" for coded in remembered for level in coded.levels]

    def _seen(self, rows: Rows, coded: Coded, part: dict[str, Column]) -> Floats:
        """[N, K] whether each category came before in the episode."""
        codes = coded.numbers(rows.source, part[coded.name])
        now = codes[:, None] == np.arange(len(coded.levels))
        return np.concatenate(
            [np.cumsum(each, axis=0) - each > 0 for each in rows.split(now.astype(np.float64))]
        )

    def _columns(self, rows: Rows) -> list[tuple[Coded, dict[str, Column]]]:
        return [(c, rows.states) for c in self.states] + [(c, rows.actions) for c in self.actions]

    def _table(self, rows: Rows, coded: tuple[Coded, ...]) -> Floats:
        part = rows.states if coded is self.states else rows.actions
        columns = [each.numbers(rows.source, part[each.name]) for each in coded]
        return np.column_stack(columns) if columns else np.zeros((int(rows.lengths.sum()), 0))

    def _after(self, rows: Rows, marks: int) -> Floats:
        """[E, S] what was observed after the last steps."""
        assert rows.last is not None
        columns = [coded.numbers(rows.source, rows.last[coded.name]) for coded in self.states]
        return np.column_stack([*columns, *[np.zeros(len(rows.lengths))] * marks])

    def _before(self, marks: int) -> tuple[Floats, Floats]:
        """[S'] and [A'] before the first step: means, commonest categories, and no mark of a missing one."""
        states, actions = ([each.fill - each.origin for each in part] for part in (self.states, self.actions))
        return np.array(states + [0.0] * marks), np.array(actions)

    def _equals(self, rows: Rows) -> list[str]:
        """Sentences on columns of numbers that go along with each other, or with the outcome."""
        numbers = [(coded.name, part[coded.name]) for coded, part in self._columns(rows) if not coded.levels]
        columns = [np.asarray(column, np.float64) for _, column in numbers]
        if not columns:
            return []
        names, values, longer = [name for name, _ in numbers], np.column_stack(columns), rows.lengths > 1
        last = values[(rows.starts + rows.lengths - 1)[longer]]  # in a single step, a cause tells it as well
        told = _outcomes_told(names, last, rows.totals[longer]) if longer.sum() > _FEW else []
        return [*_equal_groups(names, values), *told]

    def _notes(self, rows: Rows) -> list[str]:
        count, notes = int(rows.lengths.sum()), []
        for coded, part in self._columns(rows):
            if coded.levels:
                notes.append(f"{coded.name!r} is one dimension of {len(coded.levels)} categories")
                continue
            if coded.origin:
                far = "is far from zero beside its spread"
                notes.append(f"{coded.name!r} {far}: it is counted from {coded.origin:.10g}")
            missing = int(np.isnan(np.asarray(part[coded.name], np.float64)).sum())
            if missing:
                marked = f", marked in '{coded.name} missing'" if coded.marked else ""
                filled = f"the mean {coded.fill:.4g} stands there{marked}"
                notes.append(f"{coded.name!r} is missing in {missing:,} of {count:,} rows: {filled}")
        return notes


def _check_apart(source: str, names: tuple[str, ...]) -> None:
    """What is made of columns may be called like another: their credit would be mixed up."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise UserError(
            f"{source}: two dimensions would be called {twice[0]!r}, for missing values and lags become "
            "dimensions, too: rename that column, or leave it out of --states and --actions"
        )


def _lagged_names(names: list[str], lags: int) -> tuple[str, ...]:
    every = ([*(f"{name} t-{lag}" for name in names), f"no t-{lag}"] for lag in range(1, lags + 1))
    return tuple(itertools.chain.from_iterable(every))


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
_ROWS = 50_000


def _equal_groups(names: list[str], values: Floats) -> list[str]:
    """A sentence for each group of columns [N, D] that go along with each other; NaN where one is missing."""
    alike = np.abs(_correlations(values[:: -(-len(values) // _ROWS)])) > ALIKE
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
    return [
        f"{name!r} on the last row of an episode tells the outcome: leave it out if it was known afterwards"
        for name, tells in zip(names, told, strict=True)
        if tells
    ]


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
