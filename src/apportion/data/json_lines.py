"""JSON Lines: a line for each episode, an object with a list of its steps, as logs of agents have it.

Fields of a step and of the episode are columns, those of nested objects under dotted names; a list of numbers
is a vector, one input of as many columns. Lines are read one by one, and only columns that are needed kept.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apportion.core.config import Tell, UserError, check, parse_json
from apportion.data.columns import Choice, Columns, choose
from apportion.data.rows import PAID, REWARD, Column, Earned, Rows, check_room
from apportion.data.tables import of_columns

LINE = "line"  # the column that names each episode by its line

Fields = dict[str, Any]  # of a step, under dotted names


def read(data: str, columns: Columns | Choice, tell: Tell, paid: bool) -> Rows:
    """The steps of all episodes."""
    path = Path(data)
    of_table = f"--path names a column of a table, which {data} is not: leave it out"
    check(isinstance(columns, Choice) or columns.path is None, of_table)
    found = _Found.of(path, columns.steps)
    given = columns
    if isinstance(columns, Columns):
        given = replace(columns, episode=columns.episode or LINE, step=columns.step or "")
    choice = replace(choose(data, given, [LINE, *found.columns], paid), steps=found.steps)
    if isinstance(columns, Columns):
        choice = replace(choice, guessed=tuple(set(choice.guessed) - {"episode", "step"}))
    wanted = [name for name in choice.names if name in found.columns]
    check_room(data, sum(found.lengths) * len(wanted))
    lengths = np.array(found.lengths, np.int64)
    table = {**_read(path, found, wanted, tell), LINE: np.repeat(np.arange(len(lengths)), lengths)}
    return of_columns(data, choice, table, lengths, paid)._replace(
        parts=found.parts, notes=tuple(found.notes)
    )


def lines_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object in each line that is not empty, and which line it is."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    episode = parse_json(line)
                except ValueError as error:
                    raise UserError(f"{path}, line {number} is no JSON ({error}): mend it") from error
                check(isinstance(episode, dict), f"{path}, line {number} is no object: write one an episode")
                yield number, episode
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None


def steps_of(path: Path, number: int, episode: dict[str, Any], steps: str) -> list[dict[str, Any]]:
    """The list of an episode's steps."""
    listed: Any = episode
    for part in steps.split("."):
        listed = listed.get(part) if isinstance(listed, dict) else None
    good = isinstance(listed, list) and bool(listed) and all(isinstance(step, dict) for step in listed)
    check(good, f"{path}, line {number}: {steps!r} is no list of steps: mend it, or name the list by --steps")
    return listed


class _Found(NamedTuple):
    """What a file has."""

    steps: str  # the field with the list of steps
    columns: tuple[str, ...]
    parts: dict[str, str]  # columns of vectors, and which
    lengths: list[int]  # [E]
    notes: list[str]

    @classmethod
    def of(cls, path: Path, steps: str | None) -> "_Found":
        """By a look at every line."""
        columns: dict[str, None] = {}
        widths: dict[str, int] = {}
        lengths, aside = [], {}
        for number, episode in lines_of(path):
            steps = steps or _guessed(path, episode)
            listed = steps_of(path, number, episode, steps)
            lengths.append(len(listed))
            for fields in (flat(episode, steps), *map(flat, listed)):
                for name, value in fields.items():
                    if isinstance(value, np.ndarray):
                        same = widths.setdefault(name, len(value)) == len(value)
                        sizes = f"{len(value)} numbers, and {widths[name]} before"
                        check(same, f"{path}, line {number}: {name!r} has {sizes}: mend it")
                    elif isinstance(value, list):
                        aside[name] = f"{name!r} is a list, but no vector of numbers, and left aside"
                    else:
                        columns[name] = None
        check(bool(lengths), f"{path} holds no episode")
        assert steps is not None
        parts = {f"{name}[{place}]": name for name, width in widths.items() for place in range(width)}
        plain = [name for name in columns if name not in widths and name not in aside]
        return cls(steps, (*plain, *parts), parts, lengths, list(aside.values()))


def _guessed(path: Path, episode: dict[str, Any]) -> str:
    """The one field that is a list of objects."""
    lists = [
        name
        for name, value in episode.items()
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
    ]
    said = (
        f"{path}: {len(lists)} fields are lists of objects ({', '.join(lists)})"
        if lists
        else f"{path}: no field is a list of objects"
    )
    check(len(lists) == 1, f"{said}: name that with the steps by --steps")
    return lists[0]


def flat(fields: dict[str, Any], without: str = "", before: str = "") -> Fields:
    """Under dotted names, with lists of numbers as arrays; what is null is not there."""
    found: Fields = {}
    for key, value in fields.items():
        name = f"{before}{key}"
        if name == without or value is None:
            continue
        if isinstance(value, dict):
            found |= flat(value, without, f"{name}.")
        elif isinstance(value, list) and value and all(type(each) in (int, float) for each in value):
            found[name] = np.array(value, np.float32)
        else:
            found[name] = value
    return found


def _read(path: Path, found: _Found, wanted: list[str], tell: Tell) -> dict[str, Column]:
    """[N] of each column that is wanted."""
    count, start = sum(found.lengths), 0
    vectors = {name: None for name in dict.fromkeys(found.parts.get(column) for column in wanted) if name}
    widths = {name: sum(whose == name for whose in found.parts.values()) for name in vectors}
    matrices = {name: np.full((count, width), np.nan, np.float32) for name, width in widths.items()}
    plain: dict[str, list[Any]] = {name: [None] * count for name in wanted if name not in found.parts}
    for number, episode in lines_of(path):
        listed = steps_of(path, number, episode, found.steps)
        common = flat(episode, found.steps)
        for place, step in enumerate(listed, start=start):
            fields = common | flat(step)
            for name, column in plain.items():
                value = fields.get(name)
                column[place] = sys.intern(value) if isinstance(value, str) else value  # once each
            for name, matrix in matrices.items():
                if name in fields:
                    matrix[place] = fields[name]
        start += len(listed)
        tell(start, count)
    table = {name: _column(path, name, values) for name, values in plain.items()}
    for part in wanted:
        if part in found.parts:
            vector = found.parts[part]
            place = int(part.removeprefix(f"{vector}[").removesuffix("]"))
            table[part] = matrices[vector][:, place]
    return table


def _column(path: Path, name: str, values: list[Any]) -> Column:
    """Numbers with NaN where one is missing, or texts with None there."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float, bool}:
        return np.array([np.nan if value is None else float(value) for value in values])
    check(
        kinds == {str},
        f"{path}: {name!r} is sometimes a text and sometimes not: mend it, or --without {name}",
    )
    return np.array(values, object)


def write(data: str, target: Path, earned: Earned) -> None:
    """The same lines, with new fields in each step, and all its rewards in `step_rewards` of the episode. A
    reward that was there is kept as what was paid."""
    rows, new = earned.rows, earned.columns
    assert rows.choice is not None
    assert rows.choice.steps is not None
    with target.open("w", encoding="utf-8") as file:
        lines = zip(lines_of(Path(data)), rows.starts.tolist(), strict=True)
        for (number, episode), start in lines:
            listed = steps_of(Path(data), number, episode, rows.choice.steps)
            for place, step in enumerate(listed, start=start):
                kept = {PAID if name == REWARD else name: value for name, value in step.items()}
                step.clear()
                step |= kept | {name: float(values[place]) for name, values in new.items()}
            episode["step_rewards"] = earned.reward[start : start + len(listed)].tolist()
            file.write(json.dumps(episode, ensure_ascii=False, allow_nan=False) + "\n")
