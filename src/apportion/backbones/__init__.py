"""The registry of policy learners. Adding one: a file, and a line here."""

from apportion.backbones import crossq, deterministic, dqn, flashsac, imitation, iql, ppo, rebrac, sac, simba
from apportion.core import registry
from apportion.core.registry import Entry
from apportion.core.types import Backbone

BACKBONES: dict[str, Entry[Backbone]] = {
    "sac": Entry(sac.Config, sac.make),
    "crossq": Entry(crossq.Config, crossq.make),
    "simba": Entry(simba.Config, simba.make),
    "flashsac": Entry(flashsac.Config, flashsac.make),
    "td3": Entry(deterministic.Config, deterministic.make),
    "ddpg": Entry(deterministic.DDPGConfig, deterministic.make_ddpg),
    "dqn": Entry(dqn.Config, dqn.make),
    "ppo": Entry(ppo.Config, ppo.make),
    "iql": Entry(iql.Config, iql.make),
    "rebrac": Entry(rebrac.Config, rebrac.make),
    "bc": Entry(imitation.Config, imitation.make),
}


def find(name: str) -> Entry[Backbone]:
    """A backbone by its name here, or a user's own by module:name."""
    return registry.find("backbone", name, BACKBONES, Backbone)
