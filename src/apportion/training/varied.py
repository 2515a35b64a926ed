"""Lanes that differ in a setting, in one process: a setting that the method's state holds as plain numbers.

All lanes run the same program. What it reads from the state may differ between them, and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apportion import methods
from apportion.core.config import check, from_dict, to_dict
from apportion.core.errors import UserError
from apportion.core.schema import parse_json

PREFIX = "method."  # of the flags of a method's settings


@dataclass(frozen=True)
class Varied:
    """A setting of the method, and its values: the first for the first lanes, each for equally many."""

    setting: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _frozen(self.values))
        check(len(self.values) > 0, f"{PREFIX}{self.setting} has no value to vary over: give it some")
        twice = [value for value in self.values if self.values.count(value) > 1]
        check(not twice, f"{PREFIX}{self.setting} has the value {twice[0] if twice else ''} twice")

    @property
    def flag(self) -> str:
        return f"{PREFIX}{self.setting}"

    def shares(self, lanes: int) -> list[slice]:
        """The lanes of each value, of so many in all."""
        count = len(self.values)
        check(lanes % count == 0, f"{lanes} lanes do not divide over {count} values of {self.flag}")
        each = lanes // count
        return [slice(first, first + each) for first in range(0, lanes, each)]


def parse(given: str | Mapping[str, Any]) -> Varied:
    """From what a caller says: {"method.sparsity": [value, value]}, as data or as JSON."""
    if isinstance(given, str):
        try:
            data = parse_json(given)
        except ValueError as error:
            raise UserError(f"--vary {given!r} is not JSON: {error}") from error
    else:
        data = given
    fit = isinstance(data, Mapping) and len(data) == 1
    fit = fit and all(isinstance(each, Sequence) and not isinstance(each, str) for each in data.values())
    check(fit, """--vary takes one setting and a list of values: '{"method.sparsity": [VALUE, VALUE]}'""")
    [(flag, values)] = data.items()
    return Varied(str(flag).replace("-", "_").removeprefix(PREFIX), tuple(values))


def lanes_for(seeds: int, varied: Varied | None) -> int:
    """So many seeds for each value."""
    return seeds if varied is None else seeds * len(varied.values)


def flags_of_lanes(method: str) -> list[str]:
    """The settings in which lanes of a method may differ, by the names of their flags."""
    return [f"{PREFIX}{name}" for name in methods.find(method).in_state]


def method_configs(method: str, config: Any, varied: Varied) -> list[Any]:
    """The method's settings for each value; UserError where its lanes cannot differ in this."""
    known = flags_of_lanes(method)
    possible = f"lanes of {method} cannot differ in {varied.flag} (known: {', '.join(known) or 'none'})"
    check(varied.flag in known, f"{possible}: make it a run for each value")
    data = to_dict(config)
    found = [from_dict(type(config), {**data, varied.setting: value}, PREFIX) for value in varied.values]
    idle = getattr(config, "without_effect", {}).get(varied.setting)
    check(idle is None, f"all values of {varied.flag} would do the same: {idle}")
    return found


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
