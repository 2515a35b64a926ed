"""Environments: wrappers, tasks with a known causal graph, and the processes that run them.

Nothing in here imports JAX: worker processes start often and should start fast.
"""

import gymnasium

_BUILT_IN = {
    # id: where the class lives, time limit (None: the environment truncates its own episodes)
    "apportion/Greenhouse-v0": ("apportion.envs.greenhouse:Greenhouse", 40),
    "apportion/KeyDoor-v0": ("apportion.envs.key_door:KeyDoor", 40),
    "apportion/Factored-v0": ("apportion.envs.factored:Factored", None),
}


def register() -> None:
    """Tell Gymnasium of our environments. May be called any number of times."""
    for env_id, (entry_point, max_episode_steps) in _BUILT_IN.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(id=env_id, entry_point=entry_point, max_episode_steps=max_episode_steps)
