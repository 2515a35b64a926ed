"""Configs are frozen dataclasses beside the code they set; this file checks them and reads them from JSON."""

import dataclasses
from typing import Any, TypeVar

from apportion.core.errors import UserError
from apportion.core.schema import fields
from apportion.core.schema import nearest as nearest

C = TypeVar("C")


def check(condition: bool, message: str) -> None:
    """Raise a one-line UserError unless the condition holds."""
    if not condition:
        raise UserError(message)


def from_dict(cls: type[C], data: dict[str, Any], path: str = "") -> C:
    """Build a config dataclass from plain JSON data; unknown keys fail with the nearest known one, and so
    does a value of another type than the field's."""
    return fields(cls, data, path)


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON data."""
    data: dict[str, Any] = dataclasses.asdict(config)
    return data
