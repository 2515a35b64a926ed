"""Flags into dataclasses with tyro; whatever is wrong with them comes out as one line."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from apportion.core.config import UserError, nearest
from apportion.data.columns import Columns
from apportion.data.reading import FORMATS, Read, read_log

T = TypeVar("T")

READ: dict[tuple[str, Columns], Read] = {}  # what was read before JAX was loaded, until somebody takes it
_registry = ConstructorRegistry()


def parse(arguments: type[T], argv: list[str], program: str) -> T:
    """The flags as an instance of `arguments`. `--help` prints and leaves."""
    captured = io.StringIO()
    try:
        with _registry, contextlib.redirect_stderr(captured):
            return tyro.cli(arguments, args=argv, prog=program)
    except SystemExit as leaving:
        if leaving.code:
            message = f"{_one_line(captured.getvalue())} (see {program} --help)"
            raise UserError(message, usage=True) from None
        raise


def look(argv: list[str]) -> None:
    """Read a file of logged episodes that comes first: what is wrong with it is said before JAX is loaded,
    which takes longer than to read so few bytes. Flags that are wrong are left to who knows all of them."""
    path = Path(argv[0] if argv else "")
    if path.suffix not in FORMATS or not path.is_file() or path.stat().st_size > 1 << 26:
        return
    try:
        with _registry, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            columns, _ = tyro.cli(Columns, args=argv[1:], return_unknown_args=True)
    except (SystemExit, UserError):
        return
    READ[argv[0], columns] = read_log(argv[0], columns)


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Settings that do not hold up were typed by the user: exit code 2."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error), usage=True) from error


def flag_value(argv: list[str], flag: str, default: str) -> str:
    """The value of one flag (the last, as tyro has it), read before it is known which others there are."""
    value = default
    for position, word in enumerate(argv):
        if word == flag and position + 1 < len(argv):
            value = argv[position + 1]
        if word.startswith(f"{flag}="):
            value = word.removeprefix(f"{flag}=")
    return value


@contextlib.contextmanager
def naming_settings(argv: list[str], **chosen: tuple[str, Any]) -> Iterator[None]:
    """Where the parser does not know --method.NAME, say what the method, or whatever was chosen, has."""
    try:
        yield
    except UserError as error:
        flags = [word.partition("=")[0] for word in argv]
        strange = [flag for flag in flags if str(error).startswith("Unrecognized") and flag in str(error)]
        for part, (name, config) in chosen.items():
            for flag in strange:
                if flag.startswith(f"--{part}."):
                    setting = flag.removeprefix(f"--{part}.").replace("_", "-")
                    known = {each.name.replace("_", "-") for each in fields(config)}
                    other = nearest(setting, known) if known else ": it has none"
                    raise UserError(f"{part} {name} has no setting {setting!r}{other}", usage=True) from None
        raise


def whole_number(text: str) -> int:
    """1000, 1_000 and 1e3 are the same number."""
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not value.is_integer():
        raise ValueError(f"{text!r} is not a whole number")
    return int(value)


@_registry.primitive_rule
def _whole_numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


def _one_line(box: str) -> str:
    """The message in tyro's box, and the flag it suggests. stdout decides on the box's lines and colours."""
    colourless = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│ ") for line in colourless.splitlines()]
    lines = [line for line in lines if line.strip("─-╭╮╰╯ ")][1:]  # without rules and title
    if not lines:
        return " ".join(box.split()) or "wrong arguments"
    over = re.compile(r"(Perhaps you meant|Argument helptext|For full|---)")
    ends = [i for i, line in enumerate(lines) if over.match(line)]
    message = " ".join(lines[: ends[0]] if ends else lines)
    meant = [i for i, line in enumerate(lines) if line.startswith("Perhaps you meant")]
    if meant and meant[0] + 1 < len(lines):
        message += f": did you mean {lines[meant[0] + 1].split()[0].rstrip(',')}?"
    return message
