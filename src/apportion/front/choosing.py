"""From what a caller says in Python to the settings of a training, by the names of the command's flags."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from apportion import backbones
from apportion.backbones import BACKBONES
from apportion.core.config import check, from_dict, nearest, to_dict
from apportion.envs.factories import Factory, name_factory
from apportion.runs.settings import Checkpoints
from apportion.training.presets import default_backbone, paper, preset
from apportion.training.settings import NO_POLICY, Config

PRESETS = ("default", "paper")
_OF_THE_WHOLE = ("normalise",)  # settings that are in no part of a training
_UNPREFIXED = ("schedule", "checkpoints")  # parts whose flags stand by themselves: --steps, --keep


class Chosen(NamedTuple):
    """A training, ready to start."""

    config: Config
    checkpoints: Checkpoints


def choose(
    env: str | Factory,
    method: str,
    backbone: str | None,
    seeds: int,
    seed: int,
    start: str,
    settings: Mapping[str, Any],
) -> Chosen:
    """The settings that suit the task (`start`: paper for the published ones), with those given in place."""
    env_id = env if isinstance(env, str) else name_factory(env)
    config = starting_point(env_id, method, backbone or default_backbone(env_id, start), start)
    parts = _parts(config)
    given = flat(settings)
    places = _places(parts)
    for name in given:
        known = [*places, *_OF_THE_WHOLE]
        check(name in known, f"unknown setting {name!r}{nearest(name, known)}")
    normalise = bool(given.pop("normalise", config.normalise))
    for part, before in parts.items():
        changes = {places[name][1]: value for name, value in given.items() if places[name][0] == part}
        parts[part] = _changed(before, changes, part)
    config = dataclasses.replace(
        config,
        env=parts["env"],
        method_config=parts["method"],
        backbone_config=parts["backbone"],
        imagine=parts["imagine"],
        schedule=parts["schedule"],
        seed=seed,
        lanes=seeds,
        normalise=normalise,
    )
    return Chosen(config, parts["checkpoints"])


def known_settings(env_id: str, method: str, backbone: str) -> list[str]:
    """Every name that `choose` accepts for such a training."""
    return [*_places(_parts(starting_point(env_id, method, backbone, "default"))), *_OF_THE_WHOLE]


def changed_learners(config: Config, settings: Mapping[str, Any]) -> Config:
    """With some settings of method and backbone, by their flags' names: {"method.hidden": (64, 64)}."""
    given = flat(settings)
    parts = {"method": config.method_config} | (
        {"backbone": config.backbone_config} if config.has_policy else {}
    )
    known = [_flag(part, field) for part in parts for field in _fields(parts[part])]
    for name in given:
        check(name in known, f"unknown setting {name!r}{nearest(name, known)}")
    for part in parts:
        changes = {
            name.removeprefix(f"{part}."): given[name] for name in given if name.startswith(f"{part}.")
        }
        parts[part] = _changed(parts[part], changes, part)
    return dataclasses.replace(config, **{f"{part}_config": changed for part, changed in parts.items()})


def starting_point(env_id: str, method: str, backbone: str, start: str) -> Config:
    """What suits the task, or what was published."""
    check(backbone != NO_POLICY, f"unknown backbone {backbone!r}{nearest(backbone, BACKBONES)}")
    entry = backbones.find(backbone)
    check(
        not entry.make(entry.config()).offline,
        f"{backbone} learns from logged episodes: `apportion fit LOG --backbone {backbone}`",
    )
    check(start in PRESETS, f"unknown preset {start!r}{nearest(start, PRESETS)}")
    config = preset(env_id, method, backbone)
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


def _parts(config: Config) -> dict[str, Any]:
    """The groups of settings, by the first word of their flags."""
    return {
        "env": config.env,
        "method": config.method_config,
        "backbone": config.backbone_config,
        "imagine": config.imagine,
        "schedule": config.schedule,
        "checkpoints": Checkpoints(),
    }


def _places(parts: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Where each setting stands, by its flag's name: part and field."""
    return {_flag(part, field): (part, field) for part in parts for field in _fields(parts[part])}


def _flag(part: str, field: str) -> str:
    return field if part in _UNPREFIXED else f"{part}.{field}"


def _fields(config: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(config) if field.name != "id"]


def _changed(config: Any, changes: dict[str, Any], part: str) -> Any:
    changes = {name: _as_flag(value, getattr(config, name)) for name, value in changes.items()}
    return from_dict(type(config), {**to_dict(config), **changes}, f"{part}.")


def _as_flag(value: Any, default: Any) -> Any:
    """What the command line would make of it: 1e5 steps are a whole number, a delay of 20 steps is a text,
    constructor arguments are JSON."""
    if isinstance(value, float) and value.is_integer() and type(default) is int:
        return int(value)
    if type(value) is int and isinstance(default, str):
        return str(value)
    return json.dumps(value) if isinstance(value, Mapping) and isinstance(default, str) else value
