"""The settings of a run: how they are read back, and which of them a resume may find changed.

config.json is for people to read and, in a few places, to edit. What the agents were trained with stands in
every checkpoint, too, and decides.
"""

from dataclasses import dataclass
from typing import Any

from apportion.core.config import UserError, at_least, check, from_dict, positive, to_dict
from apportion.runs.atomic import plain
from apportion.runs.folder import RunFolder
from apportion.training.settings import Config

# What a resume may find changed: none of it alters what the agents have learned so far.
CHANGEABLE = (
    "schedule.steps",
    "schedule.evaluate_every",
    "schedule.evaluation_episodes",
    "schedule.workers",
    "schedule.strict",
    "env.timeout",
    "env.restarts",
    "checkpoints.checkpoint_minutes",
    "checkpoints.checkpoint_every",
    "checkpoints.keep",
)


@dataclass(frozen=True)
class Checkpoints:
    """When to save. A run is also saved when it ends, and when it is asked to stop."""

    checkpoint_minutes: float = 5.0
    """Save after so many minutes."""
    checkpoint_every: int | None = None
    """Save after so many steps, too."""
    keep: int = 2
    """How many checkpoints to keep."""

    def __post_init__(self) -> None:
        positive(self, "", "checkpoint_minutes")
        at_least(self, "", checkpoint_every=1, keep=1)


def as_data(config: Config, checkpoints: Checkpoints) -> dict[str, Any]:
    """What config.json holds, and `read_settings` reads."""
    data: dict[str, Any] = plain({**config.to_dict(), "checkpoints": to_dict(checkpoints)})
    return data


def read_settings(run: RunFolder) -> tuple[Config, Checkpoints]:
    """The settings in a run's config.json, in the types that they must have."""
    data = run.read_config()
    if run.env is not None:
        data["env"]["id"] = run.env
    for part in ("method", "backbone"):
        if ":" in data[part]["name"]:
            run.need_trust(f"the {part} {data[part]['name']}")
    try:
        checkpoints = from_dict(Checkpoints, data.pop("checkpoints", {}), "checkpoints.")
        return Config.from_dict(data), checkpoints
    except UserError as error:
        raise UserError(f"{run.config}: {error}") from error


def changes(run: RunFolder, trained: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    """A line for each setting that differs from a checkpoint's and may do so; any other is refused."""
    before, after = dotted(trained or {}), dotted(now)
    differing = [name for name, value in after.items() if name in before and before[name] != value]
    if run.env is not None and "env.id" in differing:
        differing.remove("env.id")  # it was given anew, on purpose
    for name in differing:
        check(
            name in CHANGEABLE,
            f"{run.config} has {name}={after[name]}, but the run was trained with {before[name]}: put "
            f"that back (a resume may change {', '.join(CHANGEABLE)})",
        )
    return [f"{name} is {after[name]} from here on ({before[name]} before)" for name in differing]


def dotted(data: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Settings by dotted names."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{before}{key}"
        found |= dotted(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return found
