"""Greenhouse: who grew the tomatoes?

A grower sets a heater, a valve and a shade for 40 steps and then weighs one harvest. Ten gauges hang on the
wall. Temperature, moisture, light, CO2 and leaf mass decide each step's growth; the weather outside acts only
through them; the heater's current, the street's traffic and the radio look busy and earn nothing.

Step reward: r = 1 - Σ w (gauge - best)² + Σ w tanh(gauge) - 0.08 (1 + heater). It is smooth and additive, and
no gauge adds up past reward, so the reward of each step can be recovered from harvests alone.

Levels: mean return ± its standard error over 2,000 episodes each, reset with seeds 0 to 1999:
    uniformly random actions     6.0 ± 0.15
    the best constant           20.3 ± 0.09   found by a cross-entropy search over constant actions
    an expert                   33.1 ± 0.03   linear feedback, found likewise, then rounded by hand
Constant and expert stand in tests/envs/test_greenhouse.py.
"""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import Graph

Vector = NDArray[np.float32]

ACTION_NAMES = ("heater", "valve", "shade")

# What each gauge becomes: the weighted sum of its causes, and noise, squashed. This table is the true graph.
CAUSES = {
    "temperature": {"temperature": 0.6, "light": 0.15, "outside temperature": 0.4, "heater": 0.6},
    "moisture": {"moisture": 0.7, "temperature": -0.25, "leaf mass": -0.2, "valve": 0.5},
    "light": {"light": 0.3, "sunlight": 0.7, "shade": -0.6},
    # Leaves breathe it in, the gas heater gives it off.
    "co2": {"co2": 0.7, "leaf mass": -0.2, "heater": 0.3},
    "leaf mass": {"leaf mass": 0.8, "moisture": 0.1, "light": 0.2},
    "outside temperature": {"outside temperature": 0.95},
    "sunlight": {"sunlight": 0.9},
    "heater current": {"heater current": 0.2, "heater": 0.8},
    "street traffic": {"street traffic": 0.8},
    "radio volume": {"radio volume": -0.5, "street traffic": 0.5},  # somebody keeps turning the knob
}
OBSERVATION_NAMES = tuple(CAUSES)
NOISE = np.array([0.2, 0.25, 0.2, 0.2, 0.2, 0.4, 0.5, 0.4, 0.6, 0.5])  # standard deviation, per gauge
START = np.array([0.8, 0.8, 0.8, 0.8, 0.8, 0.9, 0.8, 0.8, 0.9, 0.9])  # the same, of the first observation

# Of each gauge its best value, and a weight.
COMFORT = {"temperature": (0.4, 0.5), "moisture": (0.3, 0.5), "light": (0.3, 0.4)}
BENEFIT = {"co2": 0.15, "leaf mass": 0.1}  # more is better, less and less so
GAS_PRICE = 0.08

LIMIT = 2.0  # gauges stay inside ±LIMIT


def _indices(names: dict[str, Any]) -> NDArray[np.int64]:
    return np.array([OBSERVATION_NAMES.index(name) for name in names])


def _weights(sources: tuple[str, ...]) -> NDArray[np.float64]:
    """CAUSES as a matrix: rows are sources, columns are gauges."""
    return np.array([[CAUSES[target].get(source, 0.0) for target in OBSERVATION_NAMES] for source in sources])


_STATE_WEIGHTS = _weights(OBSERVATION_NAMES)  # [S, S]
_ACTION_WEIGHTS = _weights(ACTION_NAMES)  # [A, S]
_COMFORT_DIMS = _indices(COMFORT)
_COMFORT_BEST, _COMFORT_WEIGHTS = np.array(list(COMFORT.values())).T
_BENEFIT_DIMS = _indices(BENEFIT)
_BENEFIT_WEIGHTS = np.array(list(BENEFIT.values()))


class Greenhouse(gymnasium.Env[Vector, Vector]):
    """The tomato grower's task. Episodes end only by their time limit, set at registration: 40 steps."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012 - Gymnasium's
    observation_names = OBSERVATION_NAMES
    action_names = ACTION_NAMES
    true_graph = Graph(
        state_to_reward=np.isin(OBSERVATION_NAMES, [*COMFORT, *BENEFIT]),
        action_to_reward=np.array([name == "heater" for name in ACTION_NAMES]),
        state_to_state=_STATE_WEIGHTS != 0,
        action_to_state=_ACTION_WEIGHTS != 0,
    )

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-LIMIT, LIMIT, (len(OBSERVATION_NAMES),), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (len(ACTION_NAMES),), np.float32)
        self._observation = np.zeros(len(OBSERVATION_NAMES), np.float32)
        self._action = np.zeros(len(ACTION_NAMES), np.float32)
        self._harvest = 0.0  # so far; for pictures only

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self._observation = _squash(START * self.np_random.standard_normal(START.size))
        self._action, self._harvest = np.zeros(len(ACTION_NAMES), np.float32), 0.0
        return self._observation.copy(), {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        reward = self.true_reward(self._observation, action)
        disturbance = NOISE * self.np_random.standard_normal(NOISE.size)
        self._observation = self.transition(self._observation, action, disturbance)
        self._action, self._harvest = np.asarray(action, np.float32), self._harvest + reward
        return self._observation.copy(), reward, False, False, {}

    def render(self) -> Any:
        """A picture [240, 320, 3] of the greenhouse as it is now, in render_mode "rgb_array"; else None."""
        if self.render_mode != "rgb_array":
            return None
        from apportion.envs.greenhouse_picture import draw

        gauges = dict(zip(OBSERVATION_NAMES, map(float, self._observation), strict=True))
        levers = dict(zip(ACTION_NAMES, map(float, self._action), strict=True))
        return draw(gauges, levers, self._harvest)

    def transition(
        self, observation: NDArray[Any], action: NDArray[Any], disturbance: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """The gauges one step later; `disturbance` is what the noise adds to each."""
        acting = np.clip(action, -1.0, 1.0)
        gauges = np.asarray(observation, np.float64)
        return _squash(gauges @ _STATE_WEIGHTS + acting @ _ACTION_WEIGHTS + disturbance)

    def true_reward(self, observation: NDArray[Any], action: NDArray[Any]) -> float:
        """Growth in this step minus the gas for the heater."""
        gauges = np.asarray(observation, np.float64)
        heater = float(np.clip(action[0], -1.0, 1.0))
        discomfort = _COMFORT_WEIGHTS @ (gauges[_COMFORT_DIMS] - _COMFORT_BEST) ** 2
        benefit = _BENEFIT_WEIGHTS @ np.tanh(gauges[_BENEFIT_DIMS])
        return float(1.0 - discomfort + benefit - GAS_PRICE * (1.0 + heater))


def _squash(value: NDArray[np.float64]) -> NDArray[np.float32]:
    """Close to the identity for small values, and always inside ±LIMIT."""
    return (LIMIT * np.tanh(value / LIMIT)).astype(np.float32)
