"""Methods and backbones by name: those that come with the package, and a user's own as module:name.

Of one's own is named the function that makes it from its settings: `def make(config: Config) -> Method`.
Its settings are what the argument's annotation says: a frozen dataclass with a default for every field.
"""

import dataclasses
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, get_type_hints

from apportion.core.config import UserError, check, nearest, one_line, required

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Entry(Generic[T]):
    """What is known of a method or a backbone."""

    config: type[Any]  # a frozen dataclass; its docstring's first line is the summary
    make: Callable[[Any], T]


def own(name: str) -> bool:
    """Whether a method or backbone comes from a module of the user's."""
    return ":" in name


def find(kind: str, name: str, known: Mapping[str, Entry[T]], contract: type[T]) -> Entry[T]:
    """A registered entry, or what a module has; `contract` is what it must make."""
    if name in known:
        return known[name]
    check(own(name), f"unknown {kind} {name!r}{nearest(name, known)}")
    return _import(kind, name, cast(Any, contract))


@lru_cache(maxsize=32)
def _import(kind: str, name: str, contract: Any) -> Entry[Any]:
    """The function and its settings' class, once it has made something of their defaults."""
    make = import_name(name, f"--{kind}")
    config = _settings_of(make)
    example = f"def make(config: Config) -> {contract.__name__}, with a frozen dataclass of settings"
    check(config is not None, f"--{kind} {name} is no function that makes one: write {example}")
    assert config is not None
    missing = sorted(required(config))
    check(not missing, f"--{kind} {name}: give its setting {', '.join(missing)} a default")
    made = make(config())
    wanted, found = contract.__name__, type(made).__name__
    check(isinstance(made, contract), f"--{kind} {name} made no {wanted} but a {found}")
    return Entry(config, make)


def _settings_of(make: Any) -> type[Any] | None:
    """The frozen dataclass that the one argument of a function is annotated with."""
    if not inspect.isfunction(make):
        return None
    hints = get_type_hints(make)
    found = [hints.get(argument) for argument in inspect.signature(make).parameters]
    if len(found) != 1 or not isinstance(found[0], type) or not dataclasses.is_dataclass(found[0]):
        return None
    frozen: bool = found[0].__dataclass_params__.frozen  # type: ignore[attr-defined]
    return found[0] if frozen else None


# --- What users name as module:name


FOLDER = "APPORTION_FOLDER"  # in our processes' environment: the folder in which the command was given


def from_folder(path: Path) -> Path:
    """A path that was given with the command: modules that it named may have gone elsewhere since."""
    return Path(os.environ.get(FOLDER) or os.getcwd()) / path


@contextmanager
def in_this_folder() -> Iterator[None]:
    """Modules of the folder in which the command was given are found, behind all others, and only here, where
    somebody has named one: else a file of any folder could stand for a package."""
    folder = os.environ.get(FOLDER)
    if folder is None or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # a module of theirs may have cleared it away
            sys.path.remove(folder)


def import_name(given: str, what: str) -> Any:
    """What stands under module:name; `what` says in complaints what it was given as."""
    module, _, name = given.rpartition(":")
    check(bool(module and name), f"{what} {given}: say module:name")
    found: Any = import_module(module, name, f"{what} {given}")
    for part in name.split("."):
        public = [each for each in dir(found) if not each.startswith("_")]
        there = part in dir(found)
        check(there, f"{what} {given}: there is no {part!r} in {module}{nearest(part, public)}")
        found = getattr(found, part)
    return found


def import_module(module: str, name: str, whose: str) -> Any:
    """The module in which `name` is sought; `whose` it is says what was given, in complaints."""
    fix = f"say my_module:{name} in the folder of my_module.py, or put that folder on PYTHONPATH"
    check("/" not in module and not module.endswith(".py"), f"{module!r} is a path, not a module: {fix}")
    try:
        with in_this_folder():
            return importlib.import_module(module)
    except ImportError as error:
        fix = f"install it, or put its folder on PYTHONPATH ({one_line(error)})"
        raise UserError(f"cannot import the module {module!r} of {whose}: {fix}") from error
    except Exception as error:
        traceback.print_exc()  # its author wants the place
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"the module {module!r} of {whose} raised {reason}") from error
