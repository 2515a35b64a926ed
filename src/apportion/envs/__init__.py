"""Environments: wrappers, tasks with a known causal graph, and the processes that run them.

Nothing in here imports JAX: worker processes start often and should start fast.
"""

from typing import Any

import gymnasium

from apportion.envs.key_door import STAKE

_BUILT_IN: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    # id: where the class lives, time limit (None: the environment truncates its own episodes), arguments
    "apportion/Greenhouse-v0": ("apportion.envs.greenhouse:Greenhouse", 40, {}),
    "apportion/KeyDoor-v0": ("apportion.envs.key_door:KeyDoor", 40, {}),
    "apportion/KeyDoorLottery-v0": ("apportion.envs.key_door:KeyDoor", 40, {"lottery": STAKE}),
    "apportion/Factored-v0": ("apportion.envs.factored:Factored", None, {}),
}


def register() -> None:
    """Tell Gymnasium of our environments. May be called any number of times."""
    for env_id, (entry_point, limit, arguments) in _BUILT_IN.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point, max_episode_steps=limit, kwargs=arguments)
