"""Configs are frozen dataclasses beside the code they set; this file checks them and reads them from JSON."""

import dataclasses
import difflib
import types
import typing
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from apportion.core.errors import UserError

C = TypeVar("C")


def check(condition: bool, message: str) -> None:
    """Raise a one-line UserError unless the condition holds."""
    if not condition:
        raise UserError(message)


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """' (did you mean X?)' for the closest known name, or the list of them when none is close."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(sorted(known))})"


def from_dict(cls: type[C], data: dict[str, Any], path: str = "") -> C:
    """Build a config dataclass from plain JSON data; unknown keys fail with the nearest known one."""
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in data:
        check(key in names, f"unknown setting {path}{key}{nearest(key, names)}")
    return cls(**{key: _convert(hints[key], value, f"{path}{key}.") for key, value in data.items()})


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON data."""
    data: dict[str, Any] = dataclasses.asdict(config)
    return data


def _convert(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_dict(typing.cast(type[Any], hint), value, path)
    if get_origin(hint) in (typing.Union, types.UnionType):
        return value if value is None else _convert(_first_matching(hint, value), value, path)
    if get_origin(hint) is tuple:
        return tuple(value)
    return value


def _first_matching(hint: Any, value: Any) -> Any:
    wants_tuple = isinstance(value, list | tuple)
    options = [option for option in get_args(hint) if (get_origin(option) is tuple) == wants_tuple]
    return options[0] if options else hint
