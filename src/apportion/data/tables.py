"""Tables with a row for each logged step: CSV and Parquet, by polars.

Only the columns that are needed are read, in batches. Every row of a CSV is looked at once before: one that
is too short or too long would shift what it says.
"""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, UserError, check, extra
from apportion.data import paths
from apportion.data.columns import Choice, Columns, choose
from apportion.data.csv_files import Dialect, csv_shape
from apportion.data.rows import (
    Column,
    Earned,
    Rows,
    check_room,
    check_steps,
    episode_ends,
    episode_lengths,
    episode_outcomes,
    in_short,
)

CSV = ".csv"
MISSING = ["", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "-"]


def read(data: str, columns: Columns | Choice, tell: Tell, paid: bool) -> Rows:
    """The steps of a table. Unless it must be known what was `paid`, outcomes may be missing, and so may
    their column."""
    path = Path(data)
    dialect, names, count = csv_shape(path) if path.suffix == CSV else (Dialect(), *_parquet_shape(path))
    choice = choose(data, columns, names, paid)
    there = [name for name in choice.names if name in names]
    check(count > 0, f"{path} holds no row")
    check_room(data, count * len(there))
    table = _read(path, dialect, there, count, tell)
    for name in there:
        if name not in (choice.episode, choice.terminated):
            _check_kind(path, name, table[name])
    if choice.path is not None:
        return paths.rows_of(data, choice, table, paid)._replace(notes=dialect.notes(path))
    lengths = episode_lengths(data, table[choice.episode])
    if "states" in choice.guessed:
        timed = choice.step in choice.states and not np.issubdtype(table[choice.step].dtype, np.number)
        choice = replace(choice, states=tuple(n for n in choice.states if n != choice.step or not timed))
    if choice.step is not None:
        check_steps(data, choice.step, _as_times(table[choice.step]), np.cumsum(lengths) - lengths)
    rows = of_columns(data, choice, table, lengths, paid)._replace(notes=dialect.notes(path))
    if choice.terminated is None:
        return rows
    guessed = isinstance(columns, Columns) and columns.terminated is None
    terminated = episode_ends(data, choice.terminated, table[choice.terminated], lengths, guessed)
    if guessed and terminated.all():  # any end may be meant, a cut as well
        unsure = replace(choice, unsure=choice.terminated, terminated=None)
        return rows._replace(terminated=terminated, may_be_cuts=True, choice=unsure)
    return rows._replace(terminated=terminated)


def of_columns(
    data: str, choice: Choice, table: dict[str, Column], lengths: NDArray[np.int64], paid: bool
) -> Rows:
    """Rows of the columns that were chosen, without what is told of the ends of episodes."""
    outcome = table.get(choice.outcome, np.full(int(lengths.sum()), np.nan))
    totals = episode_outcomes(data, choice.outcome, outcome, table[choice.episode], lengths, paid)
    return Rows(
        source=data,
        lengths=lengths,
        states={name: table[name] for name in choice.states},
        actions={name: table[name] for name in choice.actions},
        totals=totals,
        last=None,
        terminated=None,
        named=True,
        yes_no=bool(outcome.dtype == object and not np.isnan(totals).all()),
        choice=choice,
    )


def write_parquet(data: str, target: Path, earned: Earned) -> None:
    """The same table with more columns."""
    table = polars().scan_parquet(Path(data), glob=False)
    names = table.collect_schema().names()
    before = earned.renamed(names)
    table = table.rename({old: name for old, name in zip(names, before, strict=True) if old != name})
    added = polars().LazyFrame(earned.columns)
    polars().concat([table, added], how="horizontal").sink_parquet(target)


def polars() -> Any:
    return extra("polars", "tables are read with polars", "tables")


def _parquet_shape(path: Path) -> tuple[list[str], int]:
    lazy = _scan(path, Dialect())
    try:
        return lazy.collect_schema().names(), int(lazy.select(polars().len()).collect().item())
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except (OSError, polars().exceptions.PolarsError) as error:
        raise UserError(f"{path} cannot be read as Parquet ({in_short(error)}): write it again") from error


def _scan(path: Path, dialect: Dialect) -> Any:
    """The table, not read yet."""
    if path.suffix != CSV:
        return polars().scan_parquet(path, glob=False)
    return polars().scan_csv(
        path,
        separator=dialect.mark,
        decimal_comma=dialect.decimal == ",",
        infer_schema_length=None,
        null_values=MISSING,
        glob=False,
    )


def _read(path: Path, dialect: Dialect, names: list[str], count: int, tell: Tell) -> dict[str, Column]:
    parts: dict[str, list[Column]] = {name: [] for name in names}
    seen = 0
    try:
        for batch in _scan(path, dialect).select(names).collect_batches(chunk_size=100_000):
            for name in names:
                parts[name].append(_as_array(path, name, batch[name]))
            seen += len(batch)
            tell(seen, count)
    except polars().exceptions.PolarsError as error:
        raise UserError(f"{path} cannot be read ({in_short(error)}): mend it") from error
    check(seen > 0, f"{path} holds fewer rows than it says: write it again")
    return {name: np.concatenate(part) for name, part in parts.items()}


def _as_array(path: Path, name: str, series: Any) -> Column:
    """Numbers as floats with NaN, whole ones as they are where none is missing; texts as objects."""
    kind = series.dtype
    if kind.is_integer() and series.null_count() == 0:
        return np.asarray(series.to_numpy())
    if kind.is_numeric() or kind == polars().Boolean or kind == polars().Null:
        return np.asarray(series.cast(polars().Float64).to_numpy())
    if kind in (polars().String, polars().Categorical, polars().Enum):
        return np.array(series.cast(polars().String).to_list(), object)
    if kind.is_temporal():
        return np.asarray(series.to_physical().cast(polars().Float64).to_numpy())
    wrong = f"{path}: column {name!r} holds {kind}, neither numbers nor texts"
    raise UserError(f"{wrong}: leave it aside by --without")


def _as_times(column: Column) -> Column:
    """Texts that are all dates and times in the form of ISO 8601 as seconds, anything else as it is."""
    if column.dtype != object:
        return column
    try:
        times = [datetime.fromisoformat(value.strip()) for value in column if value is not None]
    except ValueError:
        return column
    if len(times) < len(column) or len({time.tzinfo is None for time in times}) > 1:
        return column
    zones = (time if time.tzinfo is not None else time.replace(tzinfo=UTC) for time in times)
    return np.array([time.timestamp() for time in zones])


def _check_kind(path: Path, name: str, column: Column) -> None:
    """A column of texts among which most are numbers is one of numbers with an error in it."""
    if column.dtype != object:
        return
    counts = Counter(column.tolist())
    texts = [value for value in counts if value is not None and not _is_number(value)]
    odd = sum(counts[value] for value in texts)
    if texts and len(column) - counts[None] - odd > odd:  # the rest are numbers
        row = column.tolist().index(texts[0])
        fix = "mend it, or leave the cell empty if it is missing"
        raise UserError(f"{path}, row {row + 1}: column {name!r} holds {column[row]!r} among numbers: {fix}")


def _is_number(text: str) -> bool:
    """As a table has it: Python reads 1_000 as well, and blanks around a number."""
    if "_" in text or text != text.strip():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True
