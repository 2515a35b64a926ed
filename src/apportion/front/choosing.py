"""From what a caller says in Python to the settings of a training, by the names of the command's flags."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from apportion.backbones import BACKBONES
from apportion.core.config import check, from_dict, nearest, to_dict
from apportion.runs.atomic import plain
from apportion.runs.settings import Checkpoints
from apportion.training.presets import default_backbone, paper, preset
from apportion.training.settings import NO_POLICY, Config

PRESETS = ("default", "paper")
Parts = dict[str, Any]  # groups of settings, by the first word of their flags

_UNPREFIXED = ("whole", "schedule", "checkpoints", "fitting")  # whose flags stand by themselves: --steps
# Where a Config has its groups.
_FIELDS = {name: name for name in ("env", "schedule")}
_FIELDS |= {name: f"{name}_config" for name in ("method", "backbone")}


class Chosen(NamedTuple):
    """A training, ready to start."""

    config: Config
    checkpoints: Checkpoints


@dataclass(frozen=True)
class _Whole:
    """Settings that are in no part of a training."""

    normalise: bool


@dataclass(frozen=True)
class Job:
    """What `apportion train` would be told. Seeds are lanes of one process."""

    name: str  # of the run folder, within a sweep's
    env: str
    method: str = "grd"
    backbone: str | None = None  # by default what suits the task
    seeds: int = 1
    seed: int = 0
    steps: int | None = None  # by default what suits the task
    preset: str = "default"  # paper for the published settings
    settings: Mapping[str, Any] = field(default_factory=dict)  # other flags, by name

    def chosen(self) -> Chosen:
        """Every setting of the training: those that suit the task, with those given in place. UserError where
        they do not hold up."""
        backbone = self.backbone or default_backbone(self.env, self.preset)
        config = starting_point(self.env, self.method, backbone, self.preset)
        steps = {} if self.steps is None else {"steps": self.steps}
        parts = with_settings(_parts(config), {**self.settings, **steps})
        groups = {field: parts[part] for part, field in _FIELDS.items()}
        normalise = parts["whole"].normalise
        config = replace(config, seed=self.seed, lanes=self.seeds, normalise=normalise, **groups)
        return Chosen(config, parts["checkpoints"])

    def to_dict(self) -> dict[str, Any]:
        """As plain data: two jobs with the same are the same."""
        return plain(vars(self))


def known_settings(env_id: str, method: str, backbone: str) -> list[str]:
    """Every name of a setting that such a training has."""
    return list(_places(_parts(starting_point(env_id, method, backbone, "default"))))


def with_settings(parts: Parts, settings: Mapping[str, Any]) -> Parts:
    """With some settings by their flags' names, such as {"method.hidden": (64, 64)}."""
    given, places = flat(settings), _places(parts)
    for name in given:
        check(name in places, f"unknown setting {name!r}{nearest(name, places)}")
    changes: dict[str, dict[str, Any]] = {part: {} for part in parts}
    for name, value in given.items():
        part, key = places[name]
        changes[part][key] = _as_flag(value, getattr(parts[part], key))
    return {
        part: from_dict(type(before), {**to_dict(before), **changes[part]}, f"{part}.")
        for part, before in parts.items()
    }


def starting_point(env_id: str, method: str, backbone: str, start: str) -> Config:
    """What suits the task, or what was published."""
    check(backbone != NO_POLICY, f"unknown backbone {backbone!r}{nearest(backbone, BACKBONES)}")
    check(start in PRESETS, f"unknown preset {start!r}{nearest(start, PRESETS)}")
    config = preset(env_id, method, backbone)
    logged = f"{backbone} learns from logged episodes: `apportion fit LOG --backbone {backbone}`"
    check(not config.from_log, logged)
    return paper(config) if start == "paper" else config


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names, also of settings that come in groups; hyphens as in flags are fine."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        group = isinstance(value, Mapping) and "." not in name
        for key, inner in value.items() if group else [("", value)]:
            dotted = f"{name}.{key}" if group else name
            part, _, rest = dotted.replace("-", "_").partition(".")
            flat[rest if part in _UNPREFIXED else dotted.replace("-", "_")] = inner
    return flat


def _parts(config: Config) -> Parts:
    groups = {part: getattr(config, field) for part, field in _FIELDS.items()}
    return groups | {"checkpoints": Checkpoints(), "whole": _Whole(config.normalise)}


def _places(parts: Parts) -> dict[str, tuple[str, str]]:
    """Where each setting stands, by its flag's name: part and field."""
    return {
        each.name if part in _UNPREFIXED else f"{part}.{each.name}": (part, each.name)
        for part, config in parts.items()
        for each in fields(config)
        if each.name != "id"
    }


def _as_flag(value: Any, default: Any) -> Any:
    """What the command line would make of it: 1e5 steps are a whole number, a delay of 20 steps is a text,
    constructor arguments are JSON."""
    if isinstance(value, float) and value.is_integer() and type(default) is int:
        return int(value)
    if type(value) is int and isinstance(default, str):
        return str(value)
    return json.dumps(value) if isinstance(value, Mapping) and isinstance(default, str) else value
