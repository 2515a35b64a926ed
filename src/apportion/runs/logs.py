"""The run's numbers over time: metrics.jsonl, which is the record of what listeners are told."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from apportion.core import files
from apportion.core.config import UserError, conform, one_line, parse_json
from apportion.runs.atomic import plain, sealed, unsealed

Kind = Literal["train", "eval"]

_NUMBERS = (float, int, bool, type(None))
SUCCESS = "success"  # the share of an evaluation's episodes, where the environment reports it
STORED = "stored"  # which files an evaluation has beside its line


class Logged(NamedTuple):
    """What a metrics file says."""

    entries: list[dict[str, Any]]  # by step
    lines: list[tuple[bytes, dict[str, Any]]]  # as they stand in the file
    notes: list[str]  # on what cannot be read


class MetricsLog:
    """Lines of JSON, only ever added to: {"step": 2000, "kind": "train", "reward_loss": [0.1, 0.2], ...}.

    Each ends with a checksum of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0  # that have been written

    def write(self, step: int, kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
        """Adds one line, and says what is in it. Values are numbers or lists over lanes [L]; NaN and
        infinities become null."""
        entry: dict[str, Any] = plain({"step": step, "kind": kind, **values})
        line = json.dumps(sealed(entry), allow_nan=False)
        files.append(self.path, f"{line}\n".encode())
        self.lines += 1
        return entry

    def content(self) -> bytes:
        """All lines so far."""
        return files.read_bytes(self.path, files.LOG_BYTES) if self.path.exists() else b""

    def restore(self, content: bytes, step: int) -> list[str]:
        """Makes the file what it was at a checkpoint of this step; says so where it had become another."""
        wanted = content.splitlines()
        found = [line for line, entry in examine(self.path).lines if entry["step"] <= step]
        files.write_bytes(self.path, b"".join(line + b"\n" for line in wanted))
        self.lines = len(wanted)
        kept = len(set(found) & set(wanted))
        if found == wanted:
            return []
        return [
            f"{self.path} had {kept} of {len(wanted)} lines up to step {step}: restored from the checkpoint"
        ]


def newest(path: Path) -> list[dict[str, Any]]:
    """The last few lines, for those who only want to know how far a run is: it may be growing, or its disk
    may be gone for now."""
    try:
        with files.opened(path, files.LOG_BYTES) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2**16))  # a few lines even of many lanes
            rows = file.read().split(b"\n")
    except OSError:
        return []
    entries = []
    for row in rows:
        with contextlib.suppress(ValueError, UserError):
            entries.append(_entry(row, None))
    return entries


def examine(path: Path, lanes: int | None = None) -> Logged:
    """All of a metrics file; a last line that a crash tore is left out without a word.

    Evaluations run beside the training, so theirs may stand behind those of later steps."""
    content, bad = b"", list[str]()
    try:
        content = files.read_bytes(path, files.LOG_BYTES)
    except FileNotFoundError:
        pass
    except OSError as error:
        bad.append(f"{path} is left out: {error.strerror}")
    lines: list[tuple[bytes, dict[str, Any]]] = []
    seen: set[tuple[int, str]] = set()
    rows = content.split(b"\n")
    for number, row in enumerate(rows, start=1):
        if not row and number == len(rows):
            break
        try:
            entry = _entry(row, lanes)
            if (entry["step"], entry["kind"]) in seen:
                raise UserError("it is there twice")
        except (ValueError, UserError) as error:
            if number < len(rows):  # else torn by a crash
                bad.append(f"{path}, line {number}, is left out: {one_line(error)}")
            continue
        seen.add((entry["step"], entry["kind"]))
        lines.append((row, entry))
    if len(bad) > 1:
        bad = [f"{bad[0]}; and {len(bad) - 1} more lines"]
    entries = sorted((entry for _, entry in lines), key=lambda each: (each["step"], each["kind"] == "eval"))
    return Logged(_with_failures(entries), lines, bad)


def _with_failures(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some environments speak of success only when there is one. Where some evaluation of a run does, one
    without a word of it had none; nor is anything known of a lane that stood still."""
    if not any(SUCCESS in entry for entry in entries):
        return entries
    return [
        {**entry, SUCCESS: [None if each is None else 0.0 for each in entry["return"]]}
        if entry["kind"] == "eval" and SUCCESS not in entry
        else entry
        for entry in entries
    ]


def _entry(row: bytes, lanes: int | None) -> dict[str, Any]:
    """What a line says; ValueError or UserError where it cannot be trusted."""
    entry = unsealed(parse_json(row))
    step = conform(int, entry.get("step"), "step")
    kind = conform(Kind, entry.get("kind"), "kind")
    if step < 0:
        raise ValueError(f"step={step} is negative")
    if kind == "eval" and not isinstance(entry.get("return"), list):
        raise ValueError("an evaluation without returns")
    for name, value in entry.items():
        if name == STORED:
            conform(tuple[str, ...], value, name)
        elif name == "seconds":
            conform(float, value, name)
        elif name not in ("step", "kind"):
            _check_value(name, value, lanes)
    return entry


def _check_value(name: str, value: Any, lanes: int | None) -> None:
    """The JSON reader lets only finite numbers through."""
    listed = value if isinstance(value, list) else [value]
    if not all(type(each) in _NUMBERS for each in listed):
        raise ValueError(f"{name} holds what is no number")
    if lanes is not None and (listed is not value or len(value) != lanes):
        raise ValueError(f"{name} has {len(listed)} values for {lanes} lanes")
