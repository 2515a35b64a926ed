"""Logged steps as a file has them, whatever its format: one row for each, episodes one after the other."""

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.core.files import COMPRESSED, UNPACKED, free_bytes, memory
from apportion.data.columns import Choice

REAL = "biuf"  # kinds of NumPy types: truth values and real numbers

Floats = NDArray[np.float64]
Column = NDArray[Any]  # [N] numbers with NaN where one is missing, or texts with None there

_TRUE, _FALSE = ("true", "t", "yes", "y", "1", "1.0"), ("false", "f", "no", "n", "0", "0.0")
_TRUTHS = {**dict.fromkeys(_TRUE, 1.0), **dict.fromkeys(_FALSE, 0.0), "": np.nan}
_GOOD = ("won", "win", "success", "succeeded", "solved", "passed", "pass", "converted", "survived", "alive")
_BAD = ("lost", "loss", "failure", "failed", "unsolved", "fail", "not converted", "died", "dead")
_OUTCOMES = {**_TRUTHS, **dict.fromkeys(_GOOD, 1.0), **dict.fromkeys(_BAD, 0.0)}


class Rows(NamedTuple):
    """N steps of E episodes. Rows are counted from 1 where people read of them."""

    source: str
    lengths: NDArray[np.int64]  # [E]
    states: dict[str, Column]
    actions: dict[str, Column]
    totals: NDArray[np.float64]  # [E] NaN where it is not known, and nobody asks
    last: dict[str, Column] | None  # [E] the states after each episode's last step, where they are known
    terminated: NDArray[np.bool_] | None  # [E] which episodes ended by themselves, where that is known
    named: bool  # False: dimensions have no names of their own, but are counted
    may_be_cuts: bool = False  # whether ends that count as by themselves here may be mere ends, cuts as well
    notes: tuple[str, ...] = ()  # on how the file is written
    yes_no: bool = False  # whether outcomes were words for yes (1) and no (0)
    parts: Mapping[str, str] = MappingProxyType({})  # columns that are parts of a vector, and which
    choice: Choice | None = None  # of the columns of a table

    @property
    def starts(self) -> NDArray[np.int64]:
        """[E] the first row of each episode."""
        return np.cumsum(self.lengths) - self.lengths

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """[N, ...] by episode."""
        return cut(values, self.lengths)

    def some(self, episodes: slice) -> "Rows":
        """These episodes alone."""
        first = int(self.lengths[: episodes.start].sum())
        steps = slice(first, first + int(self.lengths[episodes].sum()))
        return self._replace(
            lengths=self.lengths[episodes],
            states={name: column[steps] for name, column in self.states.items()},
            actions={name: column[steps] for name, column in self.actions.items()},
            totals=self.totals[episodes],
            last=self.last and {name: column[episodes] for name, column in self.last.items()},
            terminated=None if self.terminated is None else self.terminated[episodes],
        )

    def of_columns(self, states: tuple[str, ...], actions: tuple[str, ...]) -> "Rows":
        """The same with these columns only: by name, or by place where dimensions have no names."""
        own, done = (states, actions) if self.named else (tuple(self.states), tuple(self.actions))
        for what, mine, wanted in (("states", own, states), ("actions", done, actions)):
            sizes = f"{len(mine)} {what}, but the run was fitted to {len(wanted)}"
            check(len(mine) == len(wanted), f"{self.source} has {sizes}: give the same ones")
            for name in mine:
                absent = f"{self.source} has no column {name!r}, which the run was fitted to: add it"
                check(name in getattr(self, what), absent)
        last = self.last
        return self._replace(
            states={name: self.states[mine] for name, mine in zip(states, own, strict=True)},
            actions={name: self.actions[mine] for name, mine in zip(actions, done, strict=True)},
            last=None if last is None else {n: last[mine] for n, mine in zip(states, own, strict=True)},
        )


def cut(values: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    """[N, ...] in parts of these lengths [E]; np.split takes long for many."""
    return [values[start:end] for start, end in itertools.pairwise([0, *np.cumsum(lengths).tolist()])]


class Log(NamedTuple):
    """Episodes (or segments) without padding, what each was paid, and what the dimensions are called."""

    observations: list[NDArray[Any]]  # of each episode, [T+1, S]; [T, S] where the last one is not known
    actions: list[NDArray[Any]]  # [T, A]
    totals: NDArray[np.float64]  # [E]
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    levels: tuple[int, ...] = ()  # [S+A] how many categories a dimension has, 0: numbers; empty: all numbers
    inputs: tuple[str, ...] = ()  # [S+A] of which input each dimension is a part; empty: each its own
    notes: tuple[str, ...] = ()  # what was done to the data on the way here
    terminated: NDArray[np.bool_] | None = None  # [E] which ended by themselves, where that is known
    answers: tuple[float, float] | None = None  # what no and yes are in the data, whose totals are 0 and 1

    def answered(self, answers: Sequence[float] | None, source: str) -> "Log":
        """With totals 1 for yes and 0 for no, where these two are all that outcomes can be."""
        if answers is None:
            return self
        no, yes = answers
        other = self.totals[~np.isin(self.totals, answers) & ~np.isnan(self.totals)]
        if other.size:
            said = f"an outcome is {other[0]:g}, but outcomes are {no:g} for no and {yes:g} for yes"
            raise UserError(f"{source}: {said}: mend it, or fit with --outcome-kind amount")
        totals = np.where(np.isnan(self.totals), np.nan, (self.totals == yes).astype(np.float64))
        return self._replace(totals=totals, answers=(no, yes))


REWARD, PAID, CREDIT = "reward", "paid_reward", "credit"  # columns that are written; a reward that was there


class Earned(NamedTuple):
    """What each of N rows of a log gets."""

    rows: Rows
    reward: Floats  # [N] the mean over lanes
    credit: dict[str, Floats]  # [N] of each dimension, and the baseline: they add up to the reward
    bounds: dict[str, Floats]  # [N] ends of the intervals of all these, where the run has any

    @property
    def columns(self) -> dict[str, Floats]:
        """[N] of each new column of a table."""
        shares = {f"{CREDIT}_{name}": values for name, values in self.credit.items()}
        return {REWARD: self.reward, **shares, **self.bounds}

    def renamed(self, names: list[str]) -> list[str]:
        """Names of the columns that were there: a reward is kept as what was paid."""
        before = [PAID if name == REWARD else name for name in names]
        taken = twice([*self.columns, *before])
        check(taken is None, f"{self.rows.source} has a column {taken!r} already: rename it first")
        return before

    def arrays(self) -> dict[str, NDArray[Any]]:
        """[N] and [N, D] beside the reward, where columns are arrays."""
        shares = {CREDIT: np.column_stack(list(self.credit.values()))} if self.credit else {}
        return {**shares, **self.bounds}


# --- Is there room for it in memory? Asked before it is read


def check_room(source: str, numbers: int) -> None:
    """Complain of a file whose numbers would not fit: four copies of each at the most, read, encoded, in the
    replay and on their way there."""
    need, free = 4 * 8 * numbers, free_bytes()
    room = f"take about {need / 1e9:.1f} GB here, and {free / 1e9:.1f} GB are free"
    fix = "name fewer --states, or take a part of the episodes"
    check(need <= free, f"{source} is too large: its {numbers:,} numbers {room}: {fix}")


def check_unpacked(source: str, unpacked: int, packed: int) -> None:
    """Complain of arrays that memory could not hold, or that are a trap: all of a file's together."""
    large = f"{source} has arrays of {in_bytes(unpacked)}, more than this machine's memory"
    check(unpacked <= memory(), large)
    trap = f"{source} would unpack to {in_bytes(unpacked)} from {in_bytes(packed)}"
    fix = "if that is right, write it without compression"
    check(unpacked <= max(UNPACKED, COMPRESSED * packed), f"{trap}: {fix}")


def in_bytes(count: int) -> str:
    """In words."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count:,} bytes"


# --- What the columns of a table say of episodes


def episode_lengths(source: str, episode: Column) -> NDArray[np.int64]:
    """[E] how many consecutive rows each episode has; one that comes back later is refused."""
    missing = np.flatnonzero(_absent(episode))
    if missing.size:
        raise UserError(f"{source}, row {missing[0] + 1}: no episode is named: fill it in, or remove the row")
    starts = np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
    seen: set[Any] = set()
    for start in starts:
        again = f"{source}, row {start + 1}: episode {_shown(episode[start])} goes on after another one"
        check(episode[start] not in seen, f"{again}: sort the file by episode and step")
        seen.add(episode[start])
    return np.diff(starts, append=len(episode))


def check_steps(source: str, name: str, step: Column, starts: NDArray[np.int64]) -> None:
    """Steps of an episode must rise."""
    texts = f"{source}: column {name!r} holds texts, and steps are numbers or times as 2026-01-31 08:30"
    fix = "name another --step, or give --step '' where rows stand in their order"
    check(step.dtype != object, f"{texts}: {fix}")
    wrong = ~(step[1:] > step[:-1])  # a difference would be no negative one in an unsigned type
    wrong[starts[1:] - 1] = False
    if wrong.any():
        row = int(np.argmax(wrong)) + 1
        order = f"step {_shown(step[row])} of an episode comes after {_shown(step[row - 1])}"
        raise UserError(f"{source}, row {row + 1}: {order}: sort the file by episode and step")


def episode_outcomes(
    source: str, name: str, outcome: Column, episode: Column, lengths: NDArray[np.int64], paid: bool = True
) -> NDArray[np.float64]:
    """[E] from a column that has each episode's outcome in every row, or in one of them. Where all rows but
    the last of every episode hold a zero, it is a reward that was paid at the end. NaN where it stands in
    none, unless it must be known what was `paid`."""
    if _absent(outcome).all():
        check(not paid, f"{source}: column {name!r} is empty: fill in what each episode was paid")
        return np.full(len(lengths), np.nan)
    if outcome.dtype == object:
        outcome = _said(source, name, outcome)
    starts = np.cumsum(lengths) - lengths
    before_last = np.ones(len(outcome), np.bool_)
    before_last[starts + lengths - 1] = False
    if before_last.any() and np.all(outcome[before_last] == 0):
        outcome = np.where(before_last, np.nan, outcome)
    filled, whose = ~np.isnan(outcome), np.repeat(np.arange(len(lengths)), lengths)
    first = np.minimum.reduceat(np.where(filled, np.arange(len(outcome)), len(outcome)), starts)
    known = np.append(outcome, np.nan)[first]  # NaN where there is none
    for number in np.flatnonzero(np.isnan(known)) if paid else ():
        rows = f"{source}, rows {starts[number] + 1} to {starts[number] + lengths[number]}"
        absent = f"episode {_shown(episode[starts[number]])} has no {name!r}"
        raise UserError(f"{rows}: {absent}: fill it in, or remove the episode")
    for row in np.flatnonzero(filled & ((outcome != known[whose]) | np.isinf(outcome))):
        before = known[whose[row]]
        infinite = f"{source}, row {row + 1}: {name!r} is infinite: mend it, or remove the episode"
        check(before != outcome[row], infinite)
        two = f"two outcomes that differ, {_shown(before)} and {_shown(outcome[row])}"
        said = f"{source}, row {row + 1}: episode {_shown(episode[row])} has {two}"
        several = "what is paid within an episode needs an --episode of its own for each payment"
        raise UserError(f"{said}: give one, in its last row or in all; {several}")
    return known


def _said(source: str, name: str, outcome: Column) -> NDArray[np.float64]:
    """[N] words for yes and no as 1 and 0."""
    said = outcome.tolist()
    texts = {value: "" if value is None else str(value).strip().lower() for value in said}
    for value in (value for value, text in texts.items() if text not in _OUTCOMES):
        wrong = f"column {name!r} holds {value!r}, and outcomes are numbers, or yes and no"
        raise UserError(f"{source}, row {said.index(value) + 1}: {wrong}: write 1234.5, or yes")
    return np.array([_OUTCOMES[texts[value]] for value in said])


def episode_ends(
    source: str, name: str, flags: Column, lengths: NDArray[np.int64], guessed: bool
) -> NDArray[np.bool_]:
    """[E] which episodes ended by themselves, from a column that says so in their last rows; in those before,
    it is true everywhere or nowhere."""
    way_out = ", or give --terminated '' if it means something else" if guessed else ""
    said = _truths(source, name, flags, way_out)
    last = np.cumsum(lengths) - 1
    missing = last[np.isnan(said[last])]
    if missing.size:
        fix = f"write 1 if that ended by itself, or 0 if it was cut{way_out}"
        raise UserError(f"{source}, row {missing[0] + 1}: the last of its episode has no {name!r}: {fix}")
    early = said == 1
    early[last] = False
    count = np.add.reduceat(early.astype(np.int64), last - lengths + 1)
    ended = said[last] == 1
    wrong = (count > 0) & ~(ended & (count == lengths - 1))
    if wrong.any():
        row, end = int(np.argmax(early & np.repeat(wrong, lengths))), int(last[np.argmax(wrong)])
        fix = f"give what follows another episode, or write 1 in the last row only, or in all{way_out}"
        ends = f"by {name!r} it ends before its episode does, in row {end + 1}"
        raise UserError(f"{source}, row {row + 1}: {ends}: {fix}")
    return ended


def _truths(source: str, name: str, flags: Column, way_out: str) -> NDArray[np.float64]:
    """[N] 1 where a flag is true, 0 where it is false, NaN where there is none."""
    if flags.dtype == object:
        texts = ["" if value is None else value.strip().lower() for value in flags]
        said = np.array([_TRUTHS.get(text, np.inf) for text in texts])
    else:
        said = flags.astype(np.float64)
    other = np.flatnonzero(~np.isin(said, (0, 1)) & ~np.isnan(said))
    if other.size:
        wrong = f"column {name!r} holds {_shown(flags[other[0]])}, neither true nor false"
        fix = f"write 1 or 0, true or false, yes or no{way_out}"
        raise UserError(f"{source}, row {other[0] + 1}: {wrong}: {fix}")
    return said


def _absent(column: Column) -> NDArray[np.bool_]:
    """Where nothing stands."""
    if column.dtype == object:
        return np.array([value is None for value in column.tolist()], np.bool_)
    return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), np.bool_)


def _shown(value: Any) -> str:
    """A number without a needless fraction, a text in quotes."""
    if isinstance(value, str):
        return repr(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def twice(names: Sequence[str]) -> str | None:
    """The first name that was there before; None where each is another."""
    return next((name for place, name in enumerate(names) if name in names[:place]), None)


def in_short(error: Exception) -> str:
    """What went wrong, in a few words of its first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:120]
