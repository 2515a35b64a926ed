"""The paper's eight MuJoCo tasks: their settings, and what each number in an observation means.

Gymnasium's v4 tasks are the closest to the paper's v2. One difference matters to structure learning: the
paper's Ant and Humanoids carried 84 contact forces that were always zero. The wrappers bring these back.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from apportion.core.config import UserError


@dataclass(frozen=True)
class MujocoTask:
    """How the paper set a task up."""

    summary: str
    observation_names: tuple[str, ...]  # of Gymnasium's observation, before padding
    action_names: tuple[str, ...]
    max_episode_steps: int = 1000
    pad_to: int | None = None  # append zeros up to this size
    zero_from: int | None = None  # overwrite with zeros from this dimension on


class PadObservation(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Append dimensions that are always zero."""

    def __init__(self, env: gymnasium.Env[Any, Any], size: int) -> None:
        RecordConstructorArgs.__init__(self, size=size)
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        self._missing = size - space.shape[0]
        if self._missing < 0:
            raise UserError(
                f"cannot pad an observation of {space.shape[0]} dimensions to {size}: "
                "pass --env.no-paper to keep it as it is"
            )
        dtype = space.low.dtype
        self.observation_space = gymnasium.spaces.Box(
            self._pad(space.low), self._pad(space.high), dtype=dtype
        )

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        return self._pad(observation)

    def _pad(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([values, np.zeros(self._missing, values.dtype)])


class ZeroObservation(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Overwrite the dimensions from `start` on with zeros."""

    def __init__(self, env: gymnasium.Env[Any, Any], start: int) -> None:
        RecordConstructorArgs.__init__(self, start=start)
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        if not 0 <= start < space.shape[0]:
            raise UserError(
                f"cannot zero an observation of {space.shape[0]} dimensions from {start} on: "
                "pass --env.no-paper to keep it as it is"
            )
        self._start = start
        dtype = space.low.dtype
        self.observation_space = gymnasium.spaces.Box(
            self._zero(space.low), self._zero(space.high), dtype=dtype
        )

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        return self._zero(observation)

    def _zero(self, values: NDArray[Any]) -> NDArray[Any]:
        zeroed = values.copy()
        zeroed[self._start :] = 0
        return zeroed


def _each(phrase: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{phrase} {part}" for part in parts)


_AXES = ("x", "y", "z")
_FREE_BODY_POSITION = ("z position of torso", *(f"{axis} orientation of torso" for axis in ("w", *_AXES)))
_FREE_BODY_VELOCITY = tuple(
    f"{axis} {kind} of torso" for kind in ("velocity", "angular velocity") for axis in _AXES
)


def _planar(root: str, joints: tuple[str, ...]) -> tuple[str, ...]:
    """A body in the vertical plane: height and angles, then their rates and the forward speed."""
    return (
        f"z position of {root}",
        *_each("angle of", (root, *joints)),
        f"x velocity of {root}",
        f"z velocity of {root}",
        *_each("angular velocity of", (root, *joints)),
    )


_CHEETAH_JOINTS = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
_HOPPER_JOINTS = ("thigh", "leg", "foot")
_WALKER_JOINTS = ("right thigh", "right leg", "right foot", "left thigh", "left leg", "left foot")
_ANT_LEGS = ("front left", "front right", "back left", "back right")
_ANT_JOINTS = tuple(f"{leg} {joint}" for leg in _ANT_LEGS for joint in ("hip", "ankle"))
_ANT_ACTUATORS = _ANT_JOINTS[6:] + _ANT_JOINTS[:6]  # the model's file lists the back right leg first

_RIGHT_LEG, _LEFT_LEG = (
    (f"{side} hip x", f"{side} hip z", f"{side} hip y", f"{side} knee") for side in ("right", "left")
)
_ARMS = tuple(
    f"{side} {joint}" for side in ("right", "left") for joint in ("shoulder 1", "shoulder 2", "elbow")
)
_LIMBS = (*_RIGHT_LEG, *_LEFT_LEG, *_ARMS)
_HUMANOID_JOINTS = ("abdomen z", "abdomen y", "abdomen x", *_LIMBS)
_HUMANOID_ACTUATORS = ("abdomen y", "abdomen z", "abdomen x", *_LIMBS)  # another order than the joints'
_HUMANOID_BODIES = (
    *("world", "torso", "lower waist", "pelvis"),
    *("right thigh", "right shin", "right foot", "left thigh", "left shin", "left foot"),
    *("right upper arm", "right lower arm", "left upper arm", "left lower arm"),
)
# MuJoCo's layouts: cinert is inertia, mass times offset, mass; spatial vectors put the rotation first.
_INERTIA = ("inertia xx", "inertia yy", "inertia zz", "inertia xy", "inertia xz", "inertia yz")
_INERTIAL = (*_INERTIA, *_each("mass offset", _AXES), "mass")


def _per_body(quantities: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{quantity} of {body}" for body in _HUMANOID_BODIES for quantity in quantities)


def _spatial(rotation: str, translation: str) -> tuple[str, ...]:
    return tuple(f"{axis} {kind}" for kind in (rotation, translation) for axis in _AXES)


_ANT_NAMES = (
    *_FREE_BODY_POSITION,
    *_each("angle of", _ANT_JOINTS),
    *_FREE_BODY_VELOCITY,
    *_each("angular velocity of", _ANT_JOINTS),
)
_HUMANOID_NAMES = (
    *_FREE_BODY_POSITION,
    *_each("angle of", _HUMANOID_JOINTS),
    *_FREE_BODY_VELOCITY,
    *_each("angular velocity of", _HUMANOID_JOINTS),
    *_per_body(_INERTIAL),
    *_per_body(_spatial("com angular velocity", "com velocity")),
    *_each("actuator force on root", tuple(str(index) for index in range(6))),  # unactuated: always zero
    *_each("actuator force on", _HUMANOID_JOINTS),
    *_per_body(_spatial("contact torque", "contact force")),
)
_SWIMMER_JOINTS = ("front tip", "first rotor", "second rotor")
_SWIMMER_NAMES = (
    *_each("angle of", _SWIMMER_JOINTS),
    "x velocity of front tip",
    "y velocity of front tip",
    *_each("angular velocity of", _SWIMMER_JOINTS),
)
_REACHER_NAMES = (
    *_each("cosine of", ("first arm", "second arm")),
    *_each("sine of", ("first arm", "second arm")),
    *("x position of target", "y position of target"),
    *_each("angular velocity of", ("first arm", "second arm")),
    *(f"{axis} from target to fingertip" for axis in _AXES),
)


def _torques(joints: tuple[str, ...]) -> tuple[str, ...]:
    return _each("torque on", joints)


_CONTACT_FORCES = 84  # 14 bodies × 6: dead in the paper's version of MuJoCo
_FIRST_CONTACT_FORCE = len(_HUMANOID_NAMES) - _CONTACT_FORCES  # 292 of 376

TASKS = {
    "HalfCheetah-v4": MujocoTask(
        "run forward on two legs", _planar("front tip", _CHEETAH_JOINTS), _torques(_CHEETAH_JOINTS)
    ),
    "Ant-v4": MujocoTask(
        "walk forward on four legs",
        _ANT_NAMES,
        _torques(_ANT_ACTUATORS),
        pad_to=len(_ANT_NAMES) + _CONTACT_FORCES,
    ),
    "Walker2d-v4": MujocoTask(
        "walk forward on two legs without falling", _planar("torso", _WALKER_JOINTS), _torques(_WALKER_JOINTS)
    ),
    "Humanoid-v4": MujocoTask(
        "walk forward like a human without falling",
        _HUMANOID_NAMES,
        _torques(_HUMANOID_ACTUATORS),
        zero_from=_FIRST_CONTACT_FORCE,
    ),
    "Swimmer-v4": MujocoTask(
        "swim forward with two rotors", _SWIMMER_NAMES, _torques(("first rotor", "second rotor"))
    ),
    "Hopper-v4": MujocoTask(
        "hop forward on one leg without falling", _planar("torso", _HOPPER_JOINTS), _torques(_HOPPER_JOINTS)
    ),
    "HumanoidStandup-v4": MujocoTask(
        "stand up from lying on the back",
        _HUMANOID_NAMES,
        _torques(_HUMANOID_ACTUATORS),
        zero_from=_FIRST_CONTACT_FORCE,
    ),
    "Reacher-v4": MujocoTask(
        "bring the fingertip of a two-link arm to a target",
        _REACHER_NAMES,
        _torques(("first arm", "second arm")),
    ),
}
