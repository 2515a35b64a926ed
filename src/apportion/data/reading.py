"""Logged episodes from wherever they are, and written again with what steps earned: the ending of a file's
name says how they are written, and a name without one is that of a Minari data set."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from apportion.core import files
from apportion.core.config import Tell, UserError, check, silent
from apportion.data import csv_files, d3rlpy, json_lines, minari_sets, npz, tables
from apportion.data.columns import FIELDS, Choice, Columns
from apportion.data.encoding import MOST_CATEGORIES, Encoding
from apportion.data.rows import Earned, Log, Rows
from apportion.data.texts import free_texts, with_vectors

SIZES = (1e-30, 1e36)  # of a column's largest: what single precision holds, with room for rewards of steps


class Format(NamedTuple):
    """How logged episodes lie in a file."""

    # The steps; of a table those columns that are named, or were chosen before. Unless it must be known what
    # was paid, tables and arrays of episodes need no outcomes.
    read: Callable[[str, Columns | Choice, Tell, bool], Rows]
    write: Callable[[str, Path, Earned], None]  # a copy of a file in another place, with what steps earned
    table: bool  # whether its columns have names of their own


FORMATS = {
    ".csv": Format(tables.read, csv_files.write, True),
    ".parquet": Format(tables.read, tables.write_parquet, True),
    ".pq": Format(tables.read, tables.write_parquet, True),
    ".jsonl": Format(json_lines.read, json_lines.write, True),
    ".ndjson": Format(json_lines.read, json_lines.write, True),
    ".npz": Format(npz.read, npz.write, False),
    ".h5": Format(d3rlpy.read, d3rlpy.write, False),
    ".hdf5": Format(d3rlpy.read, d3rlpy.write, False),
    "": Format(minari_sets.read, minari_sets.write, False),
}


# --- Reading


def read_rows(data: str, columns: Columns | Choice, tell: Tell = silent, paid: bool = True) -> Rows:
    """The steps in a file or data set."""
    rows = _format(data, columns).read(data, columns, tell, paid)
    for name, column in (*rows.states.items(), *rows.actions.items(), *(rows.last or {}).items()):
        if column.dtype != object:
            size = np.abs(np.asarray(column, np.float64))
            largest = float(np.nanmax(size, initial=0.0))
            small = f"{data}: {name!r} is {largest:.2g} at the most, which learners cannot tell from zero"
            check(largest == 0 or largest >= SIZES[0], f"{small}: give another unit")
            row = int(np.argmax(size > SIZES[1]))  # not a number is one that is missing
            what = "infinity" if np.isinf(size[row]) else f"{column[row]:.2g}, more than learners can hold"
            said = f"{data}, row {row + 1}: column {name!r} holds {what}: mend it, or leave it empty"
            check(not size[row] > SIZES[1], said)
    return rows


def _format(data: str, columns: Columns | Choice) -> Format:
    """That of a file that can be read, with the columns that are named."""
    check("\0" not in data, f"{data!r} is no name of a file")
    path = Path(data)
    known = FORMATS.get(path.suffix)
    odd = bool(path.suffix) and known is not None and path.exists() and not path.is_file()
    check(not odd, f"{data} is no regular file: write the episodes into one")
    large = path.is_file() and path.stat().st_size > files.memory()
    check(not large, f"{data} is larger than this machine's memory: take a part of the episodes")
    if known is not None and known.table:
        return known
    run = (path / "config.json").exists()
    check(not run, f"{data} is a run: apportion show has its graph; give logged episodes here")
    if known is None or (not path.suffix and path.exists()):
        endings = ", ".join(filter(None, FORMATS))
        raise UserError(f"{data} is none of {endings}, nor a Minari data set: convert it")
    for field in (*FIELDS, "without", "path") if isinstance(columns, Columns) else ():
        given = getattr(columns, field)
        no_table = f"names a column of a table, which {data} is not: leave it out"
        check(given is None, f"--{field} {given} {no_table}")
    return known


class Read(NamedTuple):
    """Episodes as numbers, and how they became those."""

    data: str
    choice: Choice | None  # of the columns of a table
    encoding: Encoding
    log: Log


def read_log(data: str, columns: Columns, tell: Tell = silent) -> Read:
    """The episodes in a file or data set."""
    rows = read_rows(data, columns, tell)
    wrong = np.flatnonzero(~np.isfinite(rows.totals))
    check(not wrong.size, f"{data}: the outcome of episode {wrong[:1]} is NaN or infinite: mend or remove it")
    largest = float(np.abs(rows.totals).max())
    held = largest == 0 or SIZES[0] <= largest <= SIZES[1]
    check(held, f"{data}: the largest outcome is {largest:.2g}, which rewards cannot hold: give another unit")
    single = rows.last is None and bool((rows.lengths == 1).all())
    said = f"{data}: every episode has one step, whose reward is its outcome"
    check(not single, f"{said}: there is nothing to divide")
    embed = columns.embed or ""
    texts = free_texts(rows, MOST_CATEGORIES) if embed else ()
    none = f"{data}: no column has more than {MOST_CATEGORIES} different texts: leave out --embed {embed}"
    check(bool(texts) or not embed, none)
    rows = with_vectors(rows, texts, embed)
    encoding = replace(Encoding.of(rows, columns.lags, columns.seen), texts=texts, embed=embed)
    answers = _answers(rows, columns.outcome_kind)
    log = encoding.apply(rows).answered(answers, data)
    guessed = None if rows.choice is None else rows.choice.in_words()
    notes = (*([guessed] if guessed else []), *_on_answers(log, columns.outcome_kind), *log.notes)
    return Read(data, rows.choice, encoding, log._replace(notes=notes))


def _answers(rows: Rows, kind: str) -> tuple[float, float] | None:
    """What no and yes are, where outcomes are that; None where they are amounts."""
    values = np.unique(rows.totals)
    two = len(values) == 2
    many = f"{rows.source} has {len(values):,} different outcomes, and yes-no takes two"
    check(kind != "yes-no" or two, f"{many}: --outcome-kind amount")
    check(kind != "amount" or not rows.yes_no, f"{rows.source}: outcomes are words: --outcome-kind yes-no")
    check(not rows.yes_no or two, f"{rows.source}: every outcome is the same: there is nothing to divide")
    return (float(values[0]), float(values[1])) if two and kind != "amount" else None


def _on_answers(log: Log, kind: str) -> list[str]:
    if log.answers is None:
        return []
    no, yes = log.answers
    chosen = "" if kind == "yes-no" else "; --outcome-kind amount if they are amounts"
    count = int(log.totals.sum())
    said = f"yes ({yes:g}: {count:,} episodes) or no ({no:g}: {len(log.totals) - count:,})"
    return [f"Outcomes are {said}: rewards are log odds of yes{chosen}"]


# --- Writing


def write_copy(data: str, out: str, earned: Earned) -> None:
    """A copy of a file or data set with the reward of each step, who earned it, and between which bounds."""
    known, target = FORMATS[Path(data).suffix], Path(out)
    if not target.suffix:
        known.write(data, target, earned)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    files.replace(target, lambda temp: known.write(data, temp, earned))


def check_target(data: str, out: str) -> None:
    """Before the work begins: the same format, and another place."""
    one, other = Path(data), Path(out)
    ending = f"its name must end in {one.suffix or 'nothing'!r}, as {data}"
    check(one.suffix == other.suffix, f"--out {out}: {ending}")
    check(one.resolve() != other.resolve(), f"--out {out} is the data itself: name another file")
