"""Lanes are islands: which of them learn in an iteration, and which are frozen because their losses are gone.

Whether an update left numbers is decided on the device, where the update is taken back. The host hears of it
two iterations later, when that costs no waiting: by then the environments have acted on what came of it.
"""

from collections import deque

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool
from numpy.typing import NDArray

from apportion.core.types import Metrics
from apportion.envs.faults import Faults
from apportion.nn.lanes import choose
from apportion.training import devices
from apportion.training.agent import AgentState

_UNREAD = 2  # iterations that may be under way

LOST = "its losses are no numbers any more (NaN): a smaller --backbone.learning-rate may help"


class Islands:
    """Follows all lanes through a training."""

    def __init__(self, faults: Faults, lanes: int) -> None:
        self.faults = faults
        self.lanes = lanes
        self.sound: Array = devices.spread(jnp.ones(lanes, bool), lanes)  # [L] False: its losses are gone
        self._unread: deque[tuple[int, Array]] = deque()  # of each iteration, `sound` after it

    def learning(self, iteration: int, segments: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[L] which lanes learn in this iteration: those that have something to learn from."""
        return (segments > 0) & ~self.frozen(iteration)

    def frozen(self, iteration: int) -> NDArray[np.bool_]:
        """[L] which lanes stand still in this iteration, as far as the host knows."""
        return np.isin(np.arange(self.lanes), list(self.faults.frozen_by(iteration)))

    def updated(self, iteration: int, sound: Bool[Array, "L"]) -> None:
        """What an iteration's updates left behind."""
        self.sound = sound
        self._unread.append((iteration, sound))
        self._read(_UNREAD)

    def settle(self) -> None:
        """Wait until all that was computed is known here, too."""
        self._read(0)

    def _read(self, leave: int) -> None:
        while len(self._unread) > leave:
            iteration, sound = self._unread.popleft()
            for lane in np.flatnonzero(~np.asarray(sound)).tolist():
                self.faults.freeze(lane, iteration, LOST)


def kept_or_taken_back(
    before: AgentState, after: AgentState, metrics: Metrics, learns: Bool[Array, ""], sound: Bool[Array, ""]
) -> tuple[AgentState, Metrics, Bool[Array, ""]]:
    """One lane after its updates: as before, if it was not to learn or its losses are no numbers.

    `sound` is False from then on. Metrics of a lane that does not learn are NaN.
    """
    losses = [value for name, value in metrics.items() if name.endswith("loss")]
    finite = jnp.all(jnp.array([jnp.isfinite(loss) for loss in losses], bool))
    sound = sound & (finite | ~learns)
    learned = learns & sound

    agent = choose(learned, after, before)
    shown = {name: jnp.where(learned, value, jnp.nan) for name, value in metrics.items()}
    return agent, shown, sound
