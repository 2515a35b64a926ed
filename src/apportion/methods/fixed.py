"""Rewards that need no learning: `observed`, the delayed reward as it comes (the paper's "None"), and
`oracle`, the hidden reward itself, which bounds every other method from above."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Sampling, Transitions

State = Float[Array, ""]  # nothing is learned


@dataclass(frozen=True)
class ObservedConfig:
    """Observed: learn from the delayed reward as it is paid."""


@dataclass(frozen=True)
class OracleConfig:
    """Oracle: learn from the true reward of every step, which no other method sees."""


def make_observed(config: ObservedConfig) -> Method:
    return _fixed(lambda transitions: transitions.paid)


def make_oracle(config: OracleConfig) -> Method:
    return _fixed(lambda transitions: transitions.true_reward)


def _fixed(read: Callable[[Transitions], Float[Array, "*B"]]) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        return jnp.zeros(())

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        return state, {}

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return read(transitions)

    return Method(init, update, reward, Sampling())
