"""Errors that a user can mend, and data from outside held against the types that it must have.

Configs are frozen dataclasses beside the code they set; here they are checked, read from JSON and written.
"""

import dataclasses
import difflib
import importlib
import json
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from apportion.core.files import JSON_DEPTH, LARGEST_WHOLE, read_bytes


class UserError(Exception):
    """Something outside the package is wrong; the message says what, and what to change."""

    def __init__(self, message: str, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage  # the command line itself is wrong


def one_line(error: BaseException) -> str:
    """What an error says, without line breaks, numbers of the system and names of files."""
    return " ".join(str(getattr(error, "strerror", None) or error).split())


def check(condition: bool, message: str) -> None:
    """Raise a one-line UserError unless the condition holds."""
    if not condition:
        raise UserError(message)


def at_least(config: Any, part: str, **least: float) -> None:
    """Complain of settings below their least, but for None; `part` is what their flags begin with."""
    for name, bound in least.items():
        value = getattr(config, name)
        wanted = f"be at least {bound}" if bound else "not be negative"
        check(value is None or value >= bound, f"{part}{name}={value} must {wanted}")


def positive(config: Any, part: str, *names: str) -> None:
    """Complain of settings that are neither None nor above 0."""
    for name in names:
        value = getattr(config, name)
        check(value is None or value > 0, f"{part}{name}={value} must be positive")


def extra(module: str, why: str, name: str) -> Any:
    """A package of one of our extras, or how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{why}: pip install 'apportion[{name}]'") from error


T = TypeVar("T")

_NAMES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text"}


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean X?)' for the closest known name, or the list of them when none is close."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(sorted(known))})"


def parse_json(content: bytes | str) -> Any:
    """JSON by the letter of its standard; ValueError, in a few words, for all that is ambiguous or hostile:
    keys given twice, NaN, numbers that no array holds, nesting without end."""
    text = content.decode() if isinstance(content, bytes) else content
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:  # of thousands of digits Python itself makes no number
        raise ValueError("a number is too large") if "integer string" in str(error) else error from None
    _check_inside([data], JSON_DEPTH)
    return data


def read_json_of_others(path: Path, missing: str = "", mend: str = "correct it") -> Any:
    """The JSON in a file that a user names."""
    try:
        return parse_json(read_bytes(path, linked=True))
    except FileNotFoundError as error:
        raise UserError(f"no file {path}{missing}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): {mend}") from error


def conform(hint: Any, value: Any, where: str) -> Any:
    """The value in its type: lists become tuples, whole numbers floats. UserError where it has another."""
    origin = get_origin(hint)
    if hint is Any:
        return value
    if hint is None or hint is type(None):
        return _need(value is None, value, where, "null")
    if origin is Literal:
        options = get_args(hint)
        same = [option for option in options if type(option) is type(value) and option == value]
        return same[0] if same else _refuse(value, where, f"one of {', '.join(map(str, options))}")
    if origin in (typing.Union, types.UnionType):
        return _one_of(get_args(hint), value, where)
    if origin is tuple:
        return _tuple(get_args(hint), value, where)
    if origin is np.ndarray:
        return _array(value, where)
    if origin is dict:
        given = _need(isinstance(value, Mapping), value, where, "an object").items()
        return {str(key): conform(get_args(hint)[1], each, f"{where}.{key}") for key, each in given}
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        return from_dict(typing.cast(type[Any], hint), value, where)
    return _scalar(hint, value, where)


def from_dict(schema: type[T], value: Any, where: str = "") -> T:
    """A dataclass, or a dict in the form of a TypedDict, from plain data: each key known, none missing."""
    if dataclasses.is_dataclass(schema) and isinstance(value, schema):
        return value
    _need(isinstance(value, Mapping), value, where or "the whole", "an object")
    hints = get_type_hints(schema)
    inside = f"{where}." if where and not where.endswith((".", ": ")) else where
    for key in value:
        if key not in hints:
            thing = "setting" if dataclasses.is_dataclass(schema) else "key"
            raise UserError(f"unknown {thing} {inside}{key}{nearest(str(key), hints)}")
    found = {key: conform(hints[key], item, f"{inside}{key}") for key, item in value.items()}
    absent = sorted(required(schema) - found.keys())
    if absent:
        raise UserError(f"{inside}{absent[0]} is missing")
    return schema(**found)


def required(schema: type[Any]) -> frozenset[str]:
    """Fields that have no default."""
    if not dataclasses.is_dataclass(schema):
        return frozenset(schema.__required_keys__)
    missing = dataclasses.MISSING
    listed = dataclasses.fields(schema)
    return frozenset(
        each.name for each in listed if each.default is missing and each.default_factory is missing
    )


# --- Types


def _scalar(hint: Any, value: Any, where: str) -> Any:
    wanted = _NAMES[hint]
    truth = isinstance(value, bool | np.bool_)
    if hint is bool:
        return bool(_need(truth, value, where, wanted))
    if hint is str:
        return _need(isinstance(value, str), value, where, wanted)
    if hint is int:
        whole = isinstance(value, numbers.Integral) and not truth and abs(int(value)) < LARGEST_WHOLE
        return int(_need(whole, value, where, wanted))
    number = isinstance(value, numbers.Real) and not truth and math.isfinite(value)
    return float(_need(number, value, where, wanted))


def _one_of(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    # Whole numbers before others, so that 3 stays 3 where both will do.
    others = sorted((each for each in options if each is not type(None)), key=lambda each: each is float)
    for option in others[:-1]:
        try:
            return conform(option, value, where)
        except UserError:
            continue
    return conform(others[-1], value, where)


def _tuple(items: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    _need(isinstance(value, list | tuple), value, where, "a list")
    if items[1:] == (...,):
        return _alike(items[0], value, where)
    _need(len(value) == len(items), value, where, f"a list of {len(items)}")
    return tuple(conform(item, each, where) for item, each in zip(items, value, strict=True))


def _alike(item: Any, values: Sequence[Any], where: str) -> tuple[Any, ...]:
    """Whole numbers, truths and texts are looked at once each: a wide graph is 0 and 1 a million times."""
    known: dict[tuple[type[Any], Any], Any] = {}
    found = []
    for each in values:
        if type(each) in (int, bool, str):
            key = type(each), each
            if key not in known:
                known[key] = conform(item, each, where)
            found.append(known[key])
        else:
            found.append(conform(item, each, where))
    return tuple(found)


def _array(value: Any, where: str) -> Any:
    try:
        found = np.asarray(value)
    except ValueError:  # lists of several lengths
        found = np.array(None)
    return found if found.dtype.kind in "bif" else _refuse(value, where, "numbers in rows alike")


def _need(good: bool, value: Any, where: str, wanted: str) -> Any:
    return value if good else _refuse(value, where, wanted)


def _refuse(value: Any, where: str, wanted: str) -> Any:
    raise UserError(f"{where}={_shown(value)} must be {wanted}")


def _shown(value: Any) -> str:
    """Short enough for a line, whatever it is."""
    if isinstance(value, int) and abs(value) >= LARGEST_WHOLE:
        return "a huge number"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- JSON


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice[:40]!r} is given twice")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _check_inside(value: Any, left: int) -> None:
    """Numbers that are too large, and nesting. By kinds: of numbers there may be a million."""
    if left == 0:
        raise ValueError("nested too deeply")
    items = value.values() if isinstance(value, dict) else value
    kinds = set(map(type, items))
    floats = items if len(kinds) == 1 else [item for item in items if type(item) is float]
    if float in kinds and not all(map(math.isfinite, floats)):
        raise ValueError("a number is too large")
    large = (item for item in items if type(item) is int and abs(item) >= LARGEST_WHOLE)
    for item in large if int in kinds else ():
        raise ValueError(f"{str(item)[:20]} is too large")
    for item in items if kinds & {dict, list} else ():
        if type(item) in (dict, list) and item:
            _check_inside(item, left - 1)


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON data."""
    data: dict[str, Any] = dataclasses.asdict(config)
    return data


# --- Progress of something that takes long


Tell = Callable[[int, int], None]  # told how much is done, of how much


def silent(done: int, of: int) -> None:
    """Is told, and says nothing."""
