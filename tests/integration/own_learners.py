"""A method and a backbone as a user brings them, and some that break their contracts."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from apportion.backbones import sac
from apportion.core.types import Backbone, Method
from apportion.methods import rd


@dataclass(frozen=True)
class Doubled(rd.Config):
    """Twice what RD says."""

    factor: float = 2.0
    """What its rewards are multiplied with."""


def make(config: Doubled) -> Method:
    plain = rd.make(config)
    return plain._replace(reward=lambda state, steps: config.factor * plain.reward(state, steps))


@dataclass(frozen=True)
class Calm(sac.Config):
    """SAC that acts half as far."""


def make_backbone(config: Calm) -> Backbone:
    plain = sac.make(config)
    return plain._replace(
        act=lambda state, seen, key, explore: plain.act(state, seen, key, explore) / 2, head="own_head:halved"
    )


# --- Broken ones


@dataclass(frozen=True)
class Needy:
    """Has a setting without a default."""

    rate: float


def needy(config: Needy) -> Method:
    return rd.make(rd.Config())


def undocumented(config: Any) -> Method:
    return rd.make(rd.Config())


def nothing(config: Doubled) -> Method:
    return None  # type: ignore[return-value]


def column(config: Doubled) -> Method:
    """Its rewards are [B, 1]."""
    plain = rd.make(config)
    return plain._replace(reward=lambda state, steps: plain.reward(state, steps)[:, None])


def growing(config: Doubled) -> Method:
    """Its memory gets longer with each update."""
    plain = rd.make(config)

    def update(state: Any, batch: Any, key: Any) -> Any:
        return state | {"memory": jnp.append(state["memory"], 1.0)}, {}

    return plain._replace(init=_memory, update=update, reward=lambda state, steps: steps.paid, rescale=None)


def _memory(key: Any, spec: Any) -> dict[str, Any]:
    return {"memory": jnp.ones(spec.observation_size)}


def shrinking(config: Doubled) -> Method:
    """It forgets what it knew when the unit of pay moves."""
    return rd.make(config)._replace(
        init=_memory,
        update=lambda state, batch, key: (state, {}),
        reward=lambda state, steps: steps.paid,
        rescale=lambda state, *_: {"memory": jnp.zeros(())},
    )


def failing(config: Doubled) -> Method:
    return rd.make(config)._replace(reward=lambda state, steps: steps.profit)


def crooked(config: Calm) -> Backbone:
    return sac.make(config)._replace(head="own_head:crooked")


def headless(config: Calm) -> Backbone:
    return sac.make(config)._replace(head="own_head:cut_off")
