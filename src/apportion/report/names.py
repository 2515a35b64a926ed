"""Names of dimensions that the user prefers to those of the environment."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from apportion.core.config import check, nearest
from apportion.core.errors import UserError
from apportion.core.spec import Spec

FIELDS = ("observation_names", "action_names")

Names = dict[str, tuple[str, ...]]


def read_names(path: Path) -> Names:
    """A JSON object with observation_names, action_names or both: lists of texts."""
    try:
        data: Any = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"no file {path}: --names takes a JSON file") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): correct it") from error
    check(isinstance(data, dict), f"{path} is not a JSON object: write {{{', '.join(FIELDS)}}}")
    check(bool(data), f"{path} names nothing: give {' or '.join(FIELDS)}")
    for field, names in data.items():
        check(field in FIELDS, f"{path} has {field!r}{nearest(field, FIELDS)}")
        good = isinstance(names, list) and all(isinstance(name, str) for name in names)
        check(good, f"{field} in {path} is not a list of texts: correct it")
    return {field: tuple(names) for field, names in data.items()}


def fits(names: Names, spec: Spec) -> bool:
    """Whether there is a name for each dimension."""
    return all(len(given) == len(getattr(spec, field)) for field, given in names.items())


def renamed(spec: Spec, names: Names) -> Spec:
    """The spec with the user's names, where they fit."""
    if not fits(names, spec):
        return spec
    return dataclasses.replace(
        spec,
        observation_names=names.get("observation_names", spec.observation_names),
        action_names=names.get("action_names", spec.action_names),
    )


def check_fit(names: Names, specs: list[Spec], path: Path) -> None:
    """Refuses names that fit none of the runs."""
    if not names or any(fits(names, spec) for spec in specs):
        return
    given = ", ".join(f"{len(each)} {field}" for field, each in names.items())
    wanted = " or ".join(
        sorted({f"{spec.observation_size} and {spec.action_size} ({spec.env_id})" for spec in specs})
    )
    raise UserError(
        f"{path} has {given}, but the runs have {wanted}: give one for each observation and action"
    )
