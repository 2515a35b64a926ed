"""What runs are called beside each other: by their method, and by as little more as tells them apart.

Runs of one task, method and settings are one: their seeds are pooled.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from apportion.runs.folder import RunFolder

# What does not make another method of a method: how long, how often looked at, and with how many hands.
_BESIDE_THE_POINT = ("steps", "evaluate_every", "evaluation_episodes", "overlap", "workers", "strict")
SECTIONS = ("method", "backbone", "schedule", "normalise", "imagine")  # beside `env`
_ENV_IN_PRACTICE = ("timeout", "restarts")
SHOWN_SETTINGS = 2  # more than these are better named by their folder


class Known(NamedTuple):
    """A run before it has a name."""

    run: RunFolder
    config: dict[str, Any]
    given: Path  # the folder of the command line in which it lies

    @property
    def seeds(self) -> set[int]:
        return set(range(self.config["seed"], self.config["seed"] + self.config["lanes"]))

    @property
    def settings(self) -> dict[str, str]:
        """All that may tell two runs of a task and method apart, by the names of their flags."""
        data = {name: self.config[name] for name in SECTIONS if name in self.config}
        flat = {name.removeprefix("schedule."): value for name, value in _flat(data).items()}
        named = ("method.name", "backbone.name", *_BESIDE_THE_POINT)
        return {name: value for name, value in flat.items() if name not in named}


def name_tasks(runs: Sequence[Known]) -> list[str]:
    """The environment's id; with its settings, where runs of one id differ in these."""
    names = [run.config["env"]["id"] for run in runs]
    facts = [_flat({k: v for k, v in run.config["env"].items() if k not in _ENV_IN_PRACTICE}) for run in runs]
    result = []
    for name, own in zip(names, facts, strict=True):
        same_id = [each for each, other in zip(facts, names, strict=True) if other == name]
        differing = _differing(same_id)
        result.append(_with(name, [f"env.{key}={own.get(key, '-')}" for key in differing]))
    return result


def name_runs(runs: Sequence[Known], tasks: Sequence[str]) -> list[str]:
    """The method; with its backbone, settings or folder, where runs of one task differ in these."""
    methods = [run.config["method"]["name"] for run in runs]
    backbones = [run.config["backbone"]["name"] for run in runs]
    pairs = list(zip(methods, tasks, backbones, strict=True))
    several = {m for m, t, b in pairs if any((m, t) == pair[:2] and b != pair[2] for pair in pairs)}
    labels = [_with(m, [b] if m in several else []) for m, b in zip(methods, backbones, strict=True)]
    result = list(labels)
    for label in dict.fromkeys(labels):
        places = [place for place, each in enumerate(labels) if each == label]
        told = _told_apart([runs[place] for place in places], [tasks[place] for place in places])
        for place, more in zip(places, told, strict=True):
            result[place] = _with(label, more)
    return result


def _told_apart(runs: list[Known], tasks: list[str]) -> list[list[str]]:
    """What to add to the name that these runs share, so that only equal ones of a task have the same."""
    grouped = [[run for run, task in zip(runs, tasks, strict=True) if task == one] for one in set(tasks)]
    keys = sorted({key for group in grouped for key in _differing([run.settings for run in group])})
    by_settings = [key for key in keys if len(keys) <= SHOWN_SETTINGS]
    options: list[Callable[[Known], list[str]]] = [
        lambda run: [f"{key}={run.settings.get(key, '-')}" for key in by_settings],
        lambda run: [run.given.name or str(run.given)],
        lambda run: [run.run.path.name],
    ]
    for option in options:
        if all(_one_each(group, option) for group in grouped):
            return [option(run) for run in runs]
    return [[str(run.run.path)] for run in runs]


def _one_each(group: list[Known], name: Callable[[Known], list[str]]) -> bool:
    """Whether runs with the same name have the same settings, and no seed twice."""
    for one in {tuple(name(run)) for run in group}:
        same = [run for run in group if tuple(name(run)) == one]
        seeds = [seed for run in same for seed in run.seeds]
        if _differing([run.settings for run in same]) or len(seeds) > len(set(seeds)):
            return False
    return True


def _differing(facts: Sequence[dict[str, str]]) -> list[str]:
    """Names under which not all have the same."""
    names = dict.fromkeys(name for each in facts for name in each)
    return [name for name in names if len({each.get(name) for each in facts}) > 1]


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Leaves by dotted names; lists and numbers as text."""
    result: dict[str, str] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            result |= _flat(value, f"{name}.")
        else:
            result[name] = value if isinstance(value, str) else json.dumps(value)
    return result


def _with(name: str, more: Iterable[str]) -> str:
    return " · ".join([name, *more])
