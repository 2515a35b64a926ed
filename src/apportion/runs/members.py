"""A run whose lanes differ in a setting, read as several: one for each value, with lanes of its own."""

import json
from typing import Any, NamedTuple

from apportion.core.config import from_dict
from apportion.runs.logs import STORED
from apportion.training.varied import Varied


class Member(NamedTuple):
    """What would have been a run of its own."""

    config: dict[str, Any]
    lanes: slice  # of the whole run's
    setting: str | None  # with its value, where there are several

    def of(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Lines of metrics.jsonl with its lanes only."""
        if self.setting is None:
            return entries
        return [{name: self._of(name, value) for name, value in entry.items()} for entry in entries]

    def _of(self, name: str, value: Any) -> Any:
        return value[self.lanes] if isinstance(value, list) and name != STORED else value


def members(config: dict[str, Any]) -> list[Member]:
    """Of a run with these settings, as config.json has them."""
    if config.get("varied") is None:
        return [Member(config, slice(0, config["lanes"]), None)]
    varied = from_dict(Varied, config["varied"], "varied.")
    whole = {name: value for name, value in config.items() if name != "varied"}
    found = []
    for value, lanes in zip(varied.values, varied.shares(config["lanes"]), strict=True):
        method = {**config["method"], varied.setting: value}
        own = {"method": method, "seed": config["seed"] + lanes.start, "lanes": lanes.stop - lanes.start}
        found.append(Member({**whole, **own}, lanes, f"{varied.flag}={json.dumps(value)}"))
    return found


def in_words(config: dict[str, Any]) -> list[str]:
    """Which seeds have which value; nothing where all have the same."""
    said = []
    for each in members(config):
        if each.setting is not None:
            first, last = each.config["seed"], each.config["seed"] + each.config["lanes"] - 1
            seeds = f"Seed {first}" if first == last else f"Seeds {first} to {last}"
            said.append(f"{seeds}: {each.setting}")
    return said
