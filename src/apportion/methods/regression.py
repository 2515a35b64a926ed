"""What methods share that fit one network to what segments paid, and judge by it: settings, state, update."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from apportion.core.config import check
from apportion.core.types import Batch, Metrics, Repaid, Segments
from apportion.nn import optimise
from apportion.nn.networks import MLP
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class NetworkConfig:
    """The settings of a reward network, and of how it is fitted."""

    segments: int = 4
    """Segments (whole episodes when the reward comes at the end) per update: M."""
    update_every: int = 1
    """Updates of the policy for one of the reward model; fewer where these do not divide an iteration's."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward network."""
    learning_rate: float = 3e-4
    """Adam's step."""

    def __post_init__(self) -> None:
        check(self.segments >= 1, f"method.segments={self.segments} must be at least 1")
        check(self.update_every >= 1, f"method.update_every={self.update_every} must be at least 1")
        check(len(self.hidden) >= 1, "method.hidden needs at least one layer")
        check(min(self.hidden) >= 1, f"method.hidden={self.hidden} must be at least 1 each")
        check(self.learning_rate > 0, f"method.learning_rate={self.learning_rate} must be positive")


def check_transformer(config: Any) -> None:
    """Complain of a transformer's settings that cannot work."""
    for name in ("segments", "update_every", "width", "heads", "layers"):
        check(getattr(config, name) >= 1, f"method.{name}={getattr(config, name)} must be at least 1")
    check(
        config.width % config.heads == 0,
        f"method.width={config.width} is no multiple of method.heads={config.heads}: change either",
    )
    check(config.learning_rate > 0, f"method.learning_rate={config.learning_rate} must be positive")


class State(NamedTuple):
    network: Any
    optimiser: Optimiser


def start(network: Any, learning_rate: float) -> State:
    """A fresh network."""
    return State(network, optimise.start(network, learning_rate))


def fit(
    state: State, batch: Batch, loss: Callable[[Any, Segments], Float[Array, ""]]
) -> tuple[State, Metrics]:
    """One step down the loss of the network on a batch's segments."""
    segments = batch.segments
    assert segments is not None
    network, optimiser, value = optimise.descend(
        state.optimiser, state.network, lambda network: loss(network, segments)
    )
    return state._replace(network=network, optimiser=optimiser), {"reward_loss": value}


def repaid_by(last: Callable[[Any], MLP]) -> Repaid:
    """Of networks whose rewards come from one MLP: where what is paid counts so many times more, and each
    step earns so much more, so do they."""

    def repaid(state: State, factor: Float[Array, ""], more: Float[Array, ""]) -> State:
        network = eqx.tree_at(last, state.network, last(state.network).moved(factor, more))
        return state._replace(network=network)

    return repaid
