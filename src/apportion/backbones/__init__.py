"""The registry of policy learners. Adding one: a file, and a line here."""

from collections.abc import Callable
from typing import Any, NamedTuple

from apportion.backbones import crossq, ddpg, dqn, ppo, sac, simba, td3
from apportion.core import registry
from apportion.core.types import Backbone


class Entry(NamedTuple):
    config: type[Any]  # a frozen dataclass; its docstring's first line is the backbone's summary
    make: Callable[[Any], Backbone]


BACKBONES: dict[str, Entry] = {
    "sac": Entry(sac.Config, sac.make),
    "crossq": Entry(crossq.Config, crossq.make),
    "simba": Entry(simba.Config, simba.make),
    "td3": Entry(td3.Config, td3.make),
    "ddpg": Entry(ddpg.Config, ddpg.make),
    "dqn": Entry(dqn.Config, dqn.make),
    "ppo": Entry(ppo.Config, ppo.make),
}


def find(name: str) -> Entry:
    """A backbone by its name here, or a user's own by module:name."""
    return Entry(*registry.find("backbone", name, BACKBONES, Backbone))
