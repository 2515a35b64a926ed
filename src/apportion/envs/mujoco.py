"""The paper's eight MuJoCo tasks: their settings, and what each number in an observation means.

Gymnasium's v4 tasks are the closest to the paper's v2. One difference matters to structure learning: the
paper's Ant and Humanoids carried 84 contact forces that were always zero. The wrappers bring these back.
"""

from dataclasses import dataclass

from apportion.envs.spaces import AXES, Names, each_named


@dataclass(frozen=True)
class MujocoTask:
    """How the paper set a task up."""

    summary: str
    names: Names  # of Gymnasium's own dimensions, before padding
    max_episode_steps: int = 1000
    pad_to: int | None = None  # append zeros up to this size
    zero_from: int | None = None  # overwrite with zeros from this dimension on


_FREE_BODY_POSITION = ("z position of torso", *(f"{axis} orientation of torso" for axis in ("w", *AXES)))
_FREE_BODY_VELOCITY = tuple(
    f"{axis} {kind} of torso" for kind in ("velocity", "angular velocity") for axis in AXES
)


def _planar(root: str, joints: tuple[str, ...]) -> tuple[str, ...]:
    """A body in the vertical plane: height and angles, then their rates and the forward speed."""
    return (
        f"z position of {root}",
        *each_named("angle of", (root, *joints)),
        f"x velocity of {root}",
        f"z velocity of {root}",
        *each_named("angular velocity of", (root, *joints)),
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
_INERTIAL = (*_INERTIA, *each_named("mass offset", AXES), "mass")


def _per_body(quantities: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{quantity} of {body}" for body in _HUMANOID_BODIES for quantity in quantities)


def _spatial(rotation: str, translation: str) -> tuple[str, ...]:
    return tuple(f"{axis} {kind}" for kind in (rotation, translation) for axis in AXES)


_ANT_NAMES = (
    *_FREE_BODY_POSITION,
    *each_named("angle of", _ANT_JOINTS),
    *_FREE_BODY_VELOCITY,
    *each_named("angular velocity of", _ANT_JOINTS),
)
_HUMANOID_NAMES = (
    *_FREE_BODY_POSITION,
    *each_named("angle of", _HUMANOID_JOINTS),
    *_FREE_BODY_VELOCITY,
    *each_named("angular velocity of", _HUMANOID_JOINTS),
    *_per_body(_INERTIAL),
    *_per_body(_spatial("com angular velocity", "com velocity")),
    *each_named("actuator force on root", tuple(str(index) for index in range(6))),  # unactuated: always zero
    *each_named("actuator force on", _HUMANOID_JOINTS),
    *_per_body(_spatial("contact torque", "contact force")),
)
_SWIMMER_JOINTS = ("front tip", "first rotor", "second rotor")
_SWIMMER_NAMES = (
    *each_named("angle of", _SWIMMER_JOINTS),
    "x velocity of front tip",
    "y velocity of front tip",
    *each_named("angular velocity of", _SWIMMER_JOINTS),
)
_REACHER_NAMES = (
    *each_named("cosine of", ("first arm", "second arm")),
    *each_named("sine of", ("first arm", "second arm")),
    *("x position of target", "y position of target"),
    *each_named("angular velocity of", ("first arm", "second arm")),
    *(f"{axis} from target to fingertip" for axis in AXES),
)


def _names(observation: tuple[str, ...], joints: tuple[str, ...]) -> Names:
    return Names(observation, each_named("torque on", joints))


_CONTACT_FORCES = 84  # 14 bodies × 6: dead in the paper's version of MuJoCo
_HUMANOID = _names(_HUMANOID_NAMES, _HUMANOID_ACTUATORS)
_FIRST_CONTACT_FORCE = len(_HUMANOID_NAMES) - _CONTACT_FORCES  # 292 of 376

TASKS = {
    "HalfCheetah-v4": MujocoTask(
        "run forward on two legs", _names(_planar("front tip", _CHEETAH_JOINTS), _CHEETAH_JOINTS)
    ),
    "Ant-v4": MujocoTask(
        "walk forward on four legs",
        _names(_ANT_NAMES, _ANT_ACTUATORS),
        pad_to=len(_ANT_NAMES) + _CONTACT_FORCES,
    ),
    "Walker2d-v4": MujocoTask(
        "walk forward on two legs without falling", _names(_planar("torso", _WALKER_JOINTS), _WALKER_JOINTS)
    ),
    "Humanoid-v4": MujocoTask(
        "walk forward like a human without falling", _HUMANOID, zero_from=_FIRST_CONTACT_FORCE
    ),
    "Swimmer-v4": MujocoTask(
        "swim forward with two rotors", _names(_SWIMMER_NAMES, ("first rotor", "second rotor"))
    ),
    "Hopper-v4": MujocoTask(
        "hop forward on one leg without falling", _names(_planar("torso", _HOPPER_JOINTS), _HOPPER_JOINTS)
    ),
    "HumanoidStandup-v4": MujocoTask(
        "stand up from lying on the back", _HUMANOID, zero_from=_FIRST_CONTACT_FORCE
    ),
    "Reacher-v4": MujocoTask(
        "bring the fingertip of a two-link arm to a target",
        _names(_REACHER_NAMES, ("first arm", "second arm")),
    ),
}
