"""Factored: synthetic tasks whose causal graph is drawn first, so that a learned graph can be scored.

Dynamics: s'_j = tanh(Σ_{i→j} W_ij s_i + Σ_{k→j} V_kj a_k + noise). The absolute weights in a column of W or V
add up to a fixed gain, so states stay inside ±1 and unsaturated. Each live state also remembers itself.
Reward: Σ w f(s_i) + Σ w f(a_k) over the reward's parents, with Σ|w| = 1 and f the identity ("linear") or a
sine with a phase of its own ("nonlinear").
"""

from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.spec import Graph

Floats = NDArray[np.float64]
Vector = NDArray[np.float32]
Reward = Literal["linear", "nonlinear"]

GAIN = 0.9  # Σ_i |W_ij|: below one, so that the past fades; Σ_k |V_kj|: as strong, so that acting matters


class Factored(gymnasium.Env[Vector, Vector]):
    """A task drawn from the family. `problem` picks graph and weights; reset's seed picks starts and noise.

    `density` is the chance of each possible edge, and the last `dead` of the `state_size` dimensions never
    change and cause nothing. Episodes are truncated, never terminated, after `episode_steps` steps.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own declaration

    def __init__(
        self,
        state_size: int = 8,
        action_size: int = 2,
        density: float = 0.25,
        reward: Reward = "linear",
        noise: float = 0.1,
        dead: int = 0,
        problem: int = 0,
        episode_steps: int = 40,
    ) -> None:
        for good, need in (
            (state_size >= 1, "state_size must be at least 1"),
            (action_size >= 1, "action_size must be at least 1"),
            (0.0 <= density <= 1.0, "density is a probability: choose it between 0 and 1"),
            (reward in ("linear", "nonlinear"), 'reward must be "linear" or "nonlinear"'),
            (noise >= 0.0, "noise must not be negative"),
            (0 <= dead < state_size, "dead must leave one live dimension: choose 0 to state_size - 1"),
            (episode_steps >= 1, "episode_steps must be at least 1"),
        ):
            check(good, f"apportion/Factored-v0: {need}")
        rng = np.random.default_rng(problem)
        graph = _draw_graph(rng, state_size, action_size, density, dead)
        parents = np.concatenate([graph.state_to_reward, graph.action_to_reward])
        self._state_weights = _draw_weights(rng, graph.state_to_state, GAIN)  # [S, S]
        self._action_weights = _draw_weights(rng, graph.action_to_state, GAIN)  # [A, S]
        self._reward_weights = _draw_weights(rng, parents[:, None], 1.0)[:, 0]  # [S + A]
        self._phases = rng.uniform(0.0, 2.0 * np.pi, parents.size)
        self._constants = rng.uniform(-1.0, 1.0, state_size)  # read on dead dimensions only
        self._sine = reward == "nonlinear"
        self._noise = noise
        self._live = np.arange(state_size) < state_size - dead
        self.max_episode_steps = episode_steps
        self.observation_names = tuple(f"s{i}" if live else f"dead{i}" for i, live in enumerate(self._live))
        self.action_names = tuple(f"a{i}" for i in range(action_size))
        self.true_graph = graph
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (state_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action_size,), np.float32)
        self._observation = np.zeros(state_size, np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        start = self.np_random.uniform(-1.0, 1.0, self._live.size)
        self._observation = np.where(self._live, start, self._constants).astype(np.float32)
        return self._observation.copy(), {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        reward = self.true_reward(self._observation, action)
        disturbance = self._noise * self.np_random.standard_normal(self._live.size)
        self._observation = self.transition(self._observation, action, disturbance)
        self._steps += 1
        return self._observation.copy(), reward, False, self._steps >= self.max_episode_steps, {}

    def transition(
        self, observation: NDArray[Any], action: NDArray[Any], disturbance: Floats
    ) -> NDArray[np.float32]:
        """The state one step later; `disturbance` is what the noise adds to each dimension."""
        pushed = (
            np.asarray(observation, np.float64) @ self._state_weights
            + np.clip(action, -1.0, 1.0) @ self._action_weights
            + disturbance
        )
        return np.where(self._live, np.tanh(pushed), self._constants).astype(np.float32)

    def true_reward(self, observation: NDArray[Any], action: NDArray[Any]) -> float:
        """The reward of one step; it looks at the reward's parents only."""
        causes = np.concatenate([observation, np.clip(action, -1.0, 1.0)]).astype(np.float64)
        if self._sine:
            causes = np.sin(2.5 * causes + self._phases)  # over [-1, 1] the reward rises and falls
        return float(self._reward_weights @ causes)


def _draw_graph(
    rng: np.random.Generator, state_size: int, action_size: int, density: float, dead: int
) -> Graph:
    live = state_size - dead
    state_to_reward = rng.random(state_size) < density
    action_to_reward = rng.random(action_size) < density
    state_to_state = (rng.random((state_size, state_size)) < density) | np.eye(state_size, dtype=bool)
    action_to_state = rng.random((action_size, state_size)) < density
    state_to_reward[rng.integers(live)] = True
    state_to_reward[live:] = False
    state_to_state[live:] = state_to_state[:, live:] = False
    # What earns reward can be steered, and no action is idle.
    for parent in np.flatnonzero(state_to_reward):
        action_to_state[rng.integers(action_size), parent] = True
    for action in np.flatnonzero(~action_to_state[:, :live].any(axis=1)):
        action_to_state[action, rng.integers(live)] = True
    action_to_state[:, live:] = False
    return Graph(state_to_reward, action_to_reward, state_to_state, action_to_state)


def _draw_weights(rng: np.random.Generator, edges: NDArray[np.bool_], gain: float) -> Floats:
    """Weights of either sign, of like size, and exactly zero off the graph; columns add up to `gain`."""
    weights = np.where(edges, rng.uniform(0.5, 1.0, edges.shape) * rng.choice([-1.0, 1.0], edges.shape), 0.0)
    totals = np.abs(weights).sum(axis=0, keepdims=True)
    return np.asarray(gain * weights / np.where(totals > 0, totals, 1.0))
