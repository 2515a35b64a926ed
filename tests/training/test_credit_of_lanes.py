"""A lane is an island: what it keeps of its steps does not depend on whether its neighbours learn already."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from apportion.backbones import sac
from apportion.envs.factories import name_factory
from apportion.envs.make import EnvConfig
from apportion.methods import transformer
from apportion.training import loop
from apportion.training.settings import Config, Schedule


class Uneven(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """Pays what is seen, for as many steps as the episode's seed says."""

    max_episode_steps = 40
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(8, 40))
        return self._seen(), {}

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        self.left -= 1
        seen = self._seen()
        return seen, float(seen[0]), self.left == 0, False, {}

    def _seen(self) -> NDArray[np.float32]:
        return self.np_random.normal(size=2).astype(np.float32)


def test_a_lane_that_does_not_learn_yet_keeps_no_credit() -> None:
    config = Config(
        EnvConfig(name_factory(Uneven)),
        method="transformer",
        method_config=transformer.Config(width=4, layers=1, segments=2, update_every=1),
        backbone_config=sac.Config(hidden=(4,), batch_size=8),
        lanes=4,
        schedule=Schedule(
            steps=60, steps_per_iteration=20, updates_per_iteration=2, warmup_steps=0, replay_steps=200
        ),
    )
    before, late = np.zeros(4, np.int64), 0
    with loop.open_pool(config) as pool:
        for snapshot in loop.online(config, pool):
            replay = snapshot.save().replay
            credit, segments = np.asarray(replay.credit), np.array(replay.segments)
            waits = before == 0  # units are measured when the first segments have come
            assert not credit[waits].any()
            late += int(np.sum(waits & (segments > 0) & (before.max() > 0)))
            before = segments
    assert late > 0, "no lane began later than another"
    assert np.all((credit != 0).any(axis=1) == (before > 0))
