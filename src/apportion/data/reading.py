"""Logged episodes from wherever they are: the ending of a file's name says how they are written, and a name
without one is that of a Minari data set."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, UserError, check, silent
from apportion.data import d3rlpy, json_lines, minari_sets, tables
from apportion.data.columns import FIELDS, Choice, Columns
from apportion.data.encoding import Encoding
from apportion.data.logged import Log, load_npz, read_npz
from apportion.data.rows import Rows

NPZ = (".npz",)
SIZES = (1e-30, 1e36)  # of the largest outcome: what single precision holds, with room for rewards of steps
ENDINGS = (*tables.CSV, *tables.PARQUET, *json_lines.JSON_LINES, *NPZ, *d3rlpy.HDF5)


class Source(NamedTuple):
    """Where steps were read from, and which columns, where there are such."""

    data: str
    choice: Choice | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {"data": self.data, "columns": None if self.choice is None else self.choice._asdict()}


def read_rows(
    data: str, columns: Columns | Choice, tell: Tell = silent, paid: bool = True
) -> tuple[Source, Rows]:
    """The steps in a file or data set; of a table those columns that are named, or were chosen before. Unless
    it must be known what was `paid`, tables and arrays of episodes need no outcomes."""
    path = Path(data)
    if path.suffix in (*tables.CSV, *tables.PARQUET):
        choice, rows = tables.read_table(path, columns, tell, paid)
        return Source(data, choice), rows
    if path.suffix in json_lines.JSON_LINES:
        choice, rows = json_lines.read_json_lines(path, columns, tell, paid)
        return Source(data, choice), rows
    if (path / "config.json").exists():
        raise UserError(f"{data} is a run: apportion show has its graph; give logged episodes here")
    if path.suffix not in ENDINGS and (path.suffix or path.exists()):
        raise UserError(f"{data} is none of {', '.join(ENDINGS)}, nor a Minari data set: convert it")
    for field in (*FIELDS, "without") if isinstance(columns, Columns) else ():
        given = getattr(columns, field)
        check(
            given is None, f"--{field} {given} names a column of a table, which {data} is not: leave it out"
        )
    if path.suffix in NPZ:
        return Source(data, None), _npz_rows(path, paid)
    if path.suffix in d3rlpy.HDF5:
        return Source(data, None), d3rlpy.read(path)
    return Source(data, None), minari_sets.read(data, tell)


class Read(NamedTuple):
    """Episodes as numbers, and how they became those."""

    source: Source
    encoding: Encoding
    log: Log


def read_log(data: str, columns: Columns, tell: Tell = silent) -> Read:
    """The episodes in a file or data set."""
    source, rows = read_rows(data, columns, tell)
    wrong = np.flatnonzero(~np.isfinite(rows.totals))
    check(not wrong.size, f"{data}: the outcome of episode {wrong[:1]} is NaN or infinite: mend or remove it")
    largest = float(np.abs(rows.totals).max())
    held = largest == 0 or SIZES[0] <= largest <= SIZES[1]
    check(held, f"{data}: the largest outcome is {largest:.2g}, which rewards cannot hold: give another unit")
    check(
        rows.last is not None or bool((rows.lengths > 1).any()),
        f"{data}: every episode has one step, whose reward is its outcome: there is nothing to divide",
    )
    encoding = Encoding.of(rows, columns.lags, columns.seen)
    answers = _answers(rows, columns.outcome_kind)
    log = encoding.apply(rows).answered(answers, data)
    guessed = None if source.choice is None else source.choice.in_words()
    notes = (*([guessed] if guessed else []), *_on_answers(log, columns.outcome_kind), *log.notes)
    return Read(source, encoding, log._replace(notes=notes))


def _answers(rows: Rows, kind: str) -> tuple[float, float] | None:
    """What no and yes are, where outcomes are that; None where they are amounts."""
    values = np.unique(rows.totals)
    two = len(values) == 2
    check(
        kind != "yes-no" or two,
        f"{rows.source} has {len(values):,} different outcomes, and yes-no takes two: --outcome-kind amount",
    )
    check(kind != "amount" or not rows.yes_no, f"{rows.source}: outcomes are words: --outcome-kind yes-no")
    check(not rows.yes_no or two, f"{rows.source}: every outcome is the same: there is nothing to divide")
    return (float(values[0]), float(values[1])) if two and kind != "amount" else None


def _on_answers(log: Log, kind: str) -> list[str]:
    if log.answers is None:
        return []
    no, yes = log.answers
    chosen = "" if kind == "yes-no" else "; --outcome-kind amount if they are amounts"
    count = int(log.totals.sum())
    return [
        f"Outcomes are yes ({yes:g}: {count:,} episodes) or no ({no:g}: {len(log.totals) - count:,}): "
        f"rewards are log odds of yes{chosen}"
    ]


def _npz_rows(path: Path, paid: bool) -> Rows:
    arrays = load_npz(path)
    if d3rlpy.is_flat(arrays):
        return d3rlpy.flat_rows(str(path), arrays)
    log = read_npz(path, paid)
    lengths = np.array([len(each) for each in log.actions], np.int64)
    after = np.stack([each[-1] for each in log.observations])
    return Rows(
        source=str(path),
        lengths=lengths,
        states=by_name(log.observation_names, np.concatenate([each[:-1] for each in log.observations])),
        actions=by_name(log.action_names, np.concatenate(log.actions)),
        totals=log.totals,
        last=by_name(log.observation_names, after),
        terminated=log.terminated,
        named="observation_names" in arrays and "action_names" in arrays,
    )


def by_name(names: tuple[str, ...], values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Columns [N, D] under their names."""
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    check(not twice, f"two dimensions are called {twice[0] if twice else ''!r}: rename one")
    return {name: values[:, place] for place, name in enumerate(names)}
