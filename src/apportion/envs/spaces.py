"""What the spaces of an environment say by themselves, where somebody else makes the environment."""

from typing import Any

from gymnasium import spaces

from apportion.core.spec import Spec
from apportion.envs.checks import check_action_space, check_observation_space


def spec_of(
    whose: str, observations: spaces.Space[Any], actions: spaces.Space[Any], max_episode_steps: int
) -> Spec:
    """The facts about an environment with these spaces; `whose` they are is said in complaints."""
    check_observation_space(whose, observations)
    check_action_space(whose, actions)
    assert observations.shape
    taken = int(actions.n) if isinstance(actions, spaces.Discrete) else (actions.shape or (0,))[0]
    return Spec(
        env_id=whose,
        observation_names=tuple(f"s{index}" for index in range(observations.shape[0])),
        action_names=tuple(f"a{index}" for index in range(taken)),
        max_episode_steps=max_episode_steps,
        max_segment_steps=max_episode_steps,
        **action_facts(actions),
    )


def action_facts(space: spaces.Space[Any]) -> dict[str, Any]:
    """How the environment itself knows its actions."""
    if isinstance(space, spaces.Discrete):
        return {"discrete": True, "first_action": int(space.start)}
    assert isinstance(space, spaces.Box)
    return {"action_low": tuple(map(float, space.low)), "action_high": tuple(map(float, space.high))}
