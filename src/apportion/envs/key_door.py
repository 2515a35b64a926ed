"""KeyDoor: a key taken early opens a door late, and nothing in between tells who has it.

A walker in a corridor from -1 to 1 has 40 steps. In the first ten a key lies at the left end: whoever comes
there has it. In the last ten a door at the right end can be opened, once, with the key. In between there is
only a firefly, which pays a little to who stays near it, and a draught, which means nothing.

Whether the walker has the key is not observed, unless `show_key` is set. So what the door pays depends on
the order of things seen, not on what is seen at the time: no reward of single steps can say it, and a critic
of single steps, even with the true reward, cannot carry the door's value back to the key, for a moment later
nothing tells those apart who were there. A method that reads the whole episode can pay at the key. The best
policy needs no memory, though: a clock is observed, and who always fetches the key always has it.

With a `lottery`, two fair coins are shown besides, each for one step only: one after the key is gone, one
before the door opens. When the second is shown, equal coins pay the stake and different ones cost it. No
action changes that and its mean is zero, whatever either coin shows, so the best policy and its mean return
stay as they are. But most of what an episode pays now depends on two moments together. A sum of rewards of
single steps cannot explain that and has to find key and door through it; who reads the whole episode can.

Levels: mean return ± its standard error over 2,000 episodes each, reset with seeds 0 to 1999:
    uniformly random actions     1.01 ± 0.04    every seventh opens the door
    who stays with the firefly   1.95 ± 0.001   and never fetches the key
    an expert                    6.40 ± 0.001   key, firefly, door
Both stand in tests/envs/test_key_door.py.

An episode succeeds when the door is opened, which tells good policies from bad ones despite the lottery.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

STEPS = 40
KEY_UNTIL, DOOR_FROM = STEPS // 4, STEPS - STEPS // 4  # the key is gone from the first, the door shut before
NEAR = 0.6  # key at the left end and door at the right are reached by who stands so far out, or farther
SPEED = 0.4  # of a full step
DOOR_PAYS = 5.0
COINS_AT = (14, 26)  # steps at which the first and the second coin are seen
STAKE = 20.0  # of the lottery in KeyDoorLottery: an episode without it seldom pays more than 5
FIREFLY_PAYS = 0.05  # at its place, less around it


class KeyDoor(gymnasium.Env[Vector, Vector]):
    """The walker's task. Episodes end only by their time limit, set at registration: 40 steps."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own declaration
    action_names = ("walk",)

    def __init__(self, show_key: bool = False, lottery: float = 0.0) -> None:
        shown = (("key",) if show_key else ()) + (("coin",) if lottery else ())
        self.observation_names = ("place", "clock", "firefly", "draught", *shown)
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (len(self.observation_names),), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._show_key, self._lottery = show_key, lottery
        self._coins: dict[int, float] = {}  # by the step that shows them

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._draught = self.np_random.uniform(-1.0, 1.0, 2).tolist()
        self._firefly = float(self.np_random.uniform(-0.4, 0.4))
        self._steps, self._key, self._opened = 0, False, False
        if self._lottery:
            # From a generator of their own, so that a seed is the same walk with and without the lottery.
            tossed = self.np_random.spawn(1)[0].choice((-1.0, 1.0), len(COINS_AT)).tolist()
            self._coins = dict(zip(COINS_AT, tossed, strict=True))
        return self._observation(), {}

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        slip, flutter, draught = self.np_random.standard_normal(3).tolist()
        walked = SPEED * float(np.clip(action[0], -1.0, 1.0)) + 0.02 * slip
        self._place = float(np.clip(self._place + walked, -1.0, 1.0))
        reward = FIREFLY_PAYS * float(np.exp(-(((self._place - self._firefly) / 0.2) ** 2)))
        self._key = self._key or (self._steps < KEY_UNTIL and self._place <= -NEAR)
        if self._key and not self._opened and self._steps >= DOOR_FROM and self._place >= NEAR:
            self._opened = True
            reward += DOOR_PAYS
        if self._steps == COINS_AT[1]:
            reward += self._lottery * math.prod(self._coins.values())
        self._firefly = float(np.clip(0.9 * self._firefly + 0.1 * flutter, -1.0, 1.0))
        self._draught = float(np.clip(0.5 * self._draught + 0.5 * draught, -1.0, 1.0))
        self._steps += 1
        return self._observation(), reward, False, False, {"success": self._opened}

    def _observation(self) -> NDArray[np.float32]:
        clock = min(2.0 * self._steps / STEPS - 1.0, 1.0)
        shown = [self._place, clock, self._firefly, self._draught]
        if self._show_key:
            shown.append(float(self._key))
        if self._lottery:
            shown.append(self._coins.get(self._steps, 0.0))
        return np.array(shown, np.float32)
