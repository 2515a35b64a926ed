"""Names of dimensions, from the documentation of environments that do not carry them. MuJoCo's are beside its
tasks; an environment of your own declares `observation_names` and `action_names`."""

from typing import NamedTuple


class Names(NamedTuple):
    observation: tuple[str, ...]
    action: tuple[str, ...]


def _axes(thing: str) -> tuple[str, ...]:
    return tuple(f"{thing} {axis}" for axis in "xyz")


def _object(number: int) -> tuple[str, ...]:
    thing = f"object {number}"
    return (*_axes(thing), *(f"{thing} quaternion {part}" for part in range(4)))


_FRAME = (*_axes("hand"), "gripper opening", *_object(1), *_object(2))

# All of MetaWorld's tasks have the same dimensions: this frame and the last one, then the goal.
METAWORLD = Names(
    (*_FRAME, *(f"previous {name}" for name in _FRAME), *_axes("goal")),
    (*_axes("move"), "gripper effort"),
)
CARTPOLE = Names(
    ("cart position", "cart velocity", "pole angle", "pole angular velocity"), ("push left", "push right")
)


def documented(env_id: str) -> Names | None:
    """By the id without its module."""
    if env_id.startswith("Meta-World/"):
        return METAWORLD
    return CARTPOLE if env_id == "CartPole-v1" else None
