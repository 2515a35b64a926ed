"""MetaWorld's tasks by ids of their own, such as Meta-World/door-lock-v3, that follow the seed of a reset."""

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from apportion.core.config import check, nearest
from apportion.envs.factories import AnyEnv

PREFIX = "Meta-World/"
_SINGLE = "Meta-World/MT1"  # one task, with 50 places for its goal and its objects


def by_task(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What Gymnasium makes of Meta-World/TASK, and the constructor's arguments; other names as they are.

    The 50 places come from a seed. Without one they would be others in every process."""
    if not name.startswith(PREFIX) or name in gymnasium.registry:
        return name, arguments
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    task = name.removeprefix(PREFIX)
    check(task in ALL_V3_ENVIRONMENTS, f"MetaWorld has no task {task!r}{nearest(task, ALL_V3_ENVIRONMENTS)}")
    return _SINGLE, {"env_name": task, "seed": 0, **arguments}


class SeededTasks(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """MetaWorld draws the next place before it takes the seed: the same seed led elsewhere every time."""

    def __init__(self, env: AnyEnv) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            inner: Any = self.unwrapped
            inner.seed(seed)
        return super().reset(seed=seed, options=options)
