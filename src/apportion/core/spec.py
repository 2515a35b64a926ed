"""What is known about an environment, as plain NumPy data: it travels from workers to learners to reports.

Stands apart from types.py so that worker processes can use it without importing JAX.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check


@dataclass(frozen=True, eq=False)
class Graph:
    """A causal graph, as masks or as edge probabilities. Rows are sources, columns are targets.

    Equation 2 of the GRD paper: C^{s→r}, C^{a→r}, C^{s→s}, C^{a→s}.
    """

    state_to_reward: NDArray[Any]  # [S]
    action_to_reward: NDArray[Any]  # [A]
    state_to_state: NDArray[Any]  # [S, S] (source, target)
    action_to_state: NDArray[Any]  # [A, S] (source, target)

    def to_dict(self) -> dict[str, Any]:
        """Nested lists, ready for JSON."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in BLOCKS}


MOST_LEVELS = 10_000  # categories of one dimension

REWARD_BLOCKS = ("state_to_reward", "action_to_reward")
BLOCKS = (*REWARD_BLOCKS, "state_to_state", "action_to_state")


def block_shapes(states: int, actions: int) -> dict[str, tuple[int, ...]]:
    """Of each block of a graph of so many dimensions."""
    shapes = ((states,), (actions,), (states, states), (actions, states))
    return dict(zip(BLOCKS, shapes, strict=True))


@dataclass(frozen=True, eq=False)
class Spec:
    """Sizes, names and limits of one environment, and its true graph where somebody knows it."""

    env_id: str
    observation_names: tuple[str, ...]  # [S]
    action_names: tuple[str, ...]  # [A]
    max_episode_steps: int
    max_segment_steps: int  # the longest run of steps that one payment can cover
    true_graph: Graph | None = None
    discrete: bool = False  # actions are one-hot vectors: exactly one of the A is taken
    action_low: tuple[float, ...] = ()  # [A] the environment's own bounds; empty where nobody knows them
    action_high: tuple[float, ...] = ()  # [A]
    first_action: int = 0  # the environment's own number of the first discrete action
    padded: int = 0  # how many of the last dimensions are zeros that the environment itself does not give
    levels: tuple[int, ...] = ()  # [S+A] how many categories a dimension has, 0: numbers; empty: all numbers
    choices: tuple[tuple[float, ...], ...] = ()  # [K][A] all actions of a log; empty: any within the bounds
    inputs: tuple[str, ...] = ()  # [S+A] of which input each is a part, such as a vector; empty: each its own

    def __post_init__(self) -> None:
        states, actions = self.observation_size, self.action_size
        check(self.max_episode_steps >= 1, f"max_episode_steps={self.max_episode_steps} must be at least 1")
        check(
            1 <= self.max_segment_steps <= self.max_episode_steps,
            f"max_segment_steps={self.max_segment_steps} must be between 1 and "
            f"max_episode_steps={self.max_episode_steps}",
        )
        check(states > 0, "names of observations are missing")
        check(0 <= self.padded < states, f"padded={self.padded} must be from 0 to {states - 1}")
        for bounds in (self.action_low, self.action_high):
            check(len(bounds) in (0, actions), f"action_low and action_high must have {actions} numbers")
        sized = len(self.levels) in (0, states + actions) and all(0 <= n <= MOST_LEVELS for n in self.levels)
        check(sized, f"levels must be {states + actions} numbers from 0 to {MOST_LEVELS}")
        for name, shape in block_shapes(states, actions).items() if self.true_graph is not None else ():
            same = np.shape(getattr(self.true_graph, name)) == shape
            check(same, "true_graph has other sizes than the names")

    @property
    def observation_size(self) -> int:
        """How many numbers are observed: S."""
        return len(self.observation_names)

    @property
    def action_size(self) -> int:
        """How many numbers an action has: A."""
        return len(self.action_names)

    def check_same(self, now: "Spec") -> None:
        """Complain of an environment that is not what it was; names may be others."""
        facts = {
            "observed numbers": (self.observation_size, now.observation_size),
            "numbers of an action": (self.action_size, now.action_size),
            "discrete actions": (self.discrete, now.discrete),
            "lowest actions": (self.action_low, now.action_low),
            "highest actions": (self.action_high, now.action_high),
            "first action": (self.first_action, now.first_action),
            "steps of an episode": (self.max_episode_steps, now.max_episode_steps),
            "steps of a segment": (self.max_segment_steps, now.max_segment_steps),
        }
        other = [f"{what} were {was}, now {is_}" for what, (was, is_) in facts.items() if was != is_]
        if other:
            fix = "bring it back as it was, or start a new run"
            raise UserError(f"{self.env_id} has changed since the run began: {'; '.join(other)}: {fix}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON, of which `core.config.from_dict` makes it again."""
        graph = None if self.true_graph is None else self.true_graph.to_dict()
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"true_graph": graph}
