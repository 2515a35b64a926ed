"""What methods share that fit one network to what segments paid, and judge by it: settings, state, update."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.config import at_least, check, positive
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Segments, Transitions
from apportion.nn import optimise
from apportion.nn.networks import MLP, check_layers
from apportion.nn.optimise import Optimiser


@dataclass(frozen=True)
class FittedConfig:
    """How networks are fitted to segments."""

    segments: int = 4
    """Segments (whole episodes when the reward comes at the end) per update: M."""
    update_every: int = 10
    """Updates of the policy for one of the reward model; fewer where these do not divide an iteration's."""
    learning_rate: float = 3e-4
    """Adam's step."""

    def __post_init__(self) -> None:
        at_least(self, "method.", segments=1, update_every=1)
        positive(self, "method.", "learning_rate")


@dataclass(frozen=True)
class NetworkConfig(FittedConfig):
    """The settings of a reward network, and of how it is fitted."""

    update_every: int = 1
    """Updates of the policy for one of the reward model; fewer where these do not divide an iteration's."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers("method.hidden", self.hidden)


@dataclass(frozen=True)
class TransformerConfig(FittedConfig):
    """The settings of a transformer, and of how it is fitted."""

    width: int = 64
    """Numbers that stand for a step inside the network."""
    heads: int = 2
    """Attention heads; they share the width."""
    layers: int = 2
    """Causal layers of attention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "method.", width=1, heads=1, layers=1)
        check(
            self.width % self.heads == 0,
            f"method.width={self.width} is no multiple of method.heads={self.heads}: change either",
        )


class State(NamedTuple):
    network: Any
    optimiser: Optimiser


Loss = tuple[Float[Array, ""], Metrics]


def build(
    config: FittedConfig,
    network: Callable[[PRNGKeyArray, Spec], Any],
    loss: Callable[[Any, Segments, PRNGKeyArray], Loss],
    last: Callable[[Any], MLP],  # that the network's rewards come from
    *,
    reward: Callable[[Any, Transitions], Float[Array, "*B"]] | None = None,
    credit: Callable[[Any, Segments], Float[Array, "M T"]] | None = None,
    weight: Literal["uniform", "length"] = "uniform",
) -> Method:
    """A method that judges steps one by one (`reward`) or by their whole segment (`credit`)."""

    def init(key: PRNGKeyArray, spec: Spec) -> State:
        fresh = network(key, spec)
        return State(fresh, optimise.start(fresh, config.learning_rate))

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        segments = batch.segments
        assert segments is not None
        found = optimise.descend_with(state.optimiser, state.network, lambda net: loss(net, segments, key))
        return State(*found[:2]), found[2]

    def reward_of(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return transitions.credit if reward is None else reward(state.network, transitions)

    def rescale(state: State, factor: Float[Array, ""], shift: Float[Array, ""]) -> State:
        moved = last(state.network).moved(factor, shift)
        return state._replace(network=eqx.tree_at(last, state.network, moved))

    return Method(
        init,
        update,
        reward_of,
        Sampling(config.segments, weight, config.update_every),
        credit=None if credit is None else lambda state, segments: credit(state.network, segments),
        rescale=rescale,
    )


def alone(value: Float[Array, ""]) -> Loss:
    """A loss that has no other parts."""
    return value, {"reward_loss": value}
