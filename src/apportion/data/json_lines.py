"""JSON Lines: a line for each episode, an object with a list of its steps, as logs of agents have it.

Fields of a step and of the episode are columns, those of nested objects under dotted names; a list of numbers
is a vector, one input of as many columns. Lines are read one by one, and only columns that are needed kept.
"""

import json
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, UserError, check, parse_json
from apportion.data.columns import Choice, Columns, choose
from apportion.data.rows import PAID, REWARD, Column, Earned, Rows, check_room
from apportion.data.tables import of_columns

LINE = "line"  # the column that names each episode by its line
_DECODER, _BETWEEN = json.JSONDecoder(), re.compile(r"[ \t\r\n,:]*")

Fields = dict[str, Any]  # of a step, under dotted names


def read(data: str, columns: Columns | Choice, tell: Tell, paid: bool) -> Rows:
    """The steps of all episodes. What was chosen before is kept while the file is looked at; else another
    look follows."""
    path = Path(data)
    check(path.exists(), f"no file {path}")
    of_table = f"--path names a column of a table, which {data} is not: leave it out"
    check(isinstance(columns, Choice) or columns.path is None, of_table)
    given, known = columns, columns.names if isinstance(columns, Choice) else []
    found = _Found.of(path, columns.steps, known, tell)
    if isinstance(columns, Columns):
        given = replace(columns, episode=columns.episode or LINE, step=columns.step or "")
    choice = replace(choose(data, given, [LINE, *found.columns], paid), steps=found.steps)
    if isinstance(columns, Columns):
        choice = replace(choice, guessed=tuple(set(choice.guessed) - {"episode", "step"}))
        wanted = [name for name in choice.names if name in found.columns]
        check_room(data, sum(found.lengths) * len(wanted))
        found = _Found.of(path, found.steps, wanted, tell)
    lengths = np.array(found.lengths, np.int64)
    table = {**found.table, LINE: np.repeat(np.arange(len(lengths)), lengths)}
    return of_columns(data, choice, table, lengths, paid)._replace(parts=found.parts, notes=found.notes)


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Each line that is not empty, and which one it is."""
    with path.open("rb") as file:
        yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())


def episodes_of(path: Path, tell: Tell) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object in each line, and which line it is."""
    done, whole = 0, path.stat().st_size
    for number, line in lines_of(path):
        try:
            episode = parse_json(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number} is no JSON ({error}): mend it") from error
        check(isinstance(episode, dict), f"{path}, line {number} is no object: write one an episode")
        yield number, episode
        done += len(line)
        tell(done, whole)


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
    notes: tuple[str, ...]
    table: dict[str, Column]  # [N] of each column that is wanted

    @classmethod
    def of(cls, path: Path, steps: str | None, wanted: Collection[str], tell: Tell) -> "_Found":
        """By a look at every line."""
        columns, aside = dict[str, None](), dict[str, str]()
        absent = dict[str, NDArray[np.float32]]()  # of each vector one that is not there
        lengths, kept = list[int](), dict[str, list[Any]]()  # [N] of fields that are wanted
        fields = {*wanted, *(name.rpartition("[")[0] for name in wanted)}
        for number, episode in episodes_of(path, tell):
            steps = steps or _guessed(path, episode)
            listed = [flat(step) for step in steps_of(path, number, episode, steps)]
            common = flat(episode, steps)
            for name, value in chain(common.items(), *(step.items() for step in listed)):
                if isinstance(value, np.ndarray):
                    before = len(absent.setdefault(name, np.full_like(value, np.nan)))
                    sizes = f"{name!r} has {len(value)} numbers, and {before} before"
                    check(before == len(value), f"{path}, line {number}: {sizes}: mend it")
                elif isinstance(value, list):
                    aside[name] = f"{name!r} is a list, but no vector of numbers, and left aside"
                else:
                    columns[name] = None
                if name in fields and name not in kept:
                    kept[name] = [None] * sum(lengths)
            for name, values in kept.items():
                here = [step.get(name, common.get(name)) for step in listed]
                if name in absent:  # an array for all steps: one for each would take up far more
                    here = [np.stack([x if isinstance(x, np.ndarray) else absent[name] for x in here])]
                values += here
            lengths.append(len(listed))
            if len(lengths).bit_count() == 1:  # now and then
                check_room(str(path), sum(lengths) * len(wanted))
        check(bool(lengths), f"{path} holds no episode")
        for name in columns.keys() & absent.keys():
            raise UserError(f"{path}: {name!r} is sometimes a vector and sometimes not: mend it")
        parts = {f"{name}[{place}]": name for name, each in absent.items() for place in range(len(each))}
        plain = [name for name in columns if name not in absent and name not in aside]
        table = {name: _column(path, name, kept[name]) for name in plain if name in wanted}
        for name in absent.keys() & kept.keys():
            blocks = [x if isinstance(x, np.ndarray) else absent[name][None] for x in kept.pop(name)]
            whole = np.concatenate([block.T for block in blocks], axis=1)
            table |= {f"{name}[{place}]": each for place, each in enumerate(whole)}
        return cls(steps or "", (*plain, *parts), parts, lengths, tuple(aside.values()), table)


def _guessed(path: Path, episode: dict[str, Any]) -> str:
    """The one field that is a list of objects."""
    lists = [
        name
        for name, value in episode.items()
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
    ]
    said = f"{len(lists)} fields are lists of objects ({', '.join(lists)})"
    said = said if lists else "no field is a list of objects"
    check(len(lists) == 1, f"{path}: {said}: name that with the steps by --steps")
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
        elif isinstance(value, list) and value and set(map(type, value)) <= {int, float}:
            found[name] = np.array(value, np.float32)
        else:
            found[name] = sys.intern(value) if isinstance(value, str) else value  # each text once
    return found


def _column(path: Path, name: str, values: list[Any]) -> Column:
    """Numbers with NaN where one is missing, or texts with None there."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float, bool}:
        return np.array([np.nan if value is None else float(value) for value in values])
    mixed = f"{path}: {name!r} is sometimes a text and sometimes not: mend it, or --without {name}"
    check(kinds == {str}, mixed)
    return np.array(values, object)


def write(data: str, target: Path, earned: Earned) -> None:
    """The same lines, with new fields in each step, and all its rewards in `step_rewards` of the episode. A
    reward that was there is kept as what was paid. Steps stand as they stood, to the digits of a number."""
    rows, columns = earned.rows, earned.columns
    steps = (rows.choice and rows.choice.steps) or ""
    with target.open("w", encoding="utf-8") as file:
        lengths = zip(rows.starts.tolist(), rows.lengths.tolist(), strict=True)
        for (_, line), (start, length) in zip(lines_of(Path(data)), lengths, strict=True):
            own, text = slice(start, start + length), line.decode()
            values = zip(*(column[own].tolist() for column in columns.values()), strict=True)
            place = _place_of(text, steps)
            listed, end = _extended(text, place, [dict(zip(columns, each, strict=True)) for each in values])
            episode = json.loads(f"{text[:place]}null{text[end:]}")
            episode["step_rewards"] = earned.reward[own].tolist()
            text = json.dumps(episode, ensure_ascii=False, allow_nan=False)
            place = _place_of(text, steps)
            file.write(f"{text[:place]}{listed}{text[place + len('null') :]}\n")


def _place_of(text: str, steps: str) -> int:
    """Where the list of steps begins in the text of an episode."""
    place = text.index("{")
    for wanted in steps.split("."):
        name, place = _DECODER.raw_decode(text, _next(text, place + 1))
        while name != wanted:
            behind = _DECODER.raw_decode(text, _next(text, place))[1]
            name, place = _DECODER.raw_decode(text, _next(text, behind))
        place = _next(text, place)
    return place


def _extended(text: str, place: int, new: list[Fields]) -> tuple[str, int]:
    """The list of steps that begins there, with new fields for each, and where it ended before."""
    parts, done, end = [], place, place + 1
    for fields in new:
        start = _next(text, end)
        step, end = _DECODER.raw_decode(text, start)
        if fields.keys().isdisjoint(step):
            parts += [text[done : end - 1], ", " if step else "", json.dumps(fields, allow_nan=False)[1:]]
        else:
            kept = {PAID if name == REWARD else name: value for name, value in step.items()}
            parts += [text[done:start], json.dumps(kept | fields, ensure_ascii=False, allow_nan=False)]
        done = end
    end = _next(text, done) + 1
    return "".join([*parts, text[done:end]]), end


def _next(text: str, place: int) -> int:
    """Behind blanks, commas and colons."""
    found = _BETWEEN.match(text, place)
    return place if found is None else found.end()
