"""The paper's eight MuJoCo tasks: their settings, and what each number in an observation means.

Gymnasium's v4 tasks are the closest to the paper's v2. One difference matters to structure learning: the
paper's Ant and Humanoids carried 84 contact forces that were always zero. The wrappers bring these back.
"""

from dataclasses import dataclass

from apportion.envs.spaces import AXES, Names, each_named


@dataclass(frozen=True)
class MujocoTask:
    """How the paper set a task up, in episodes of 1000 steps."""

    summary: str
    names: Names  # of Gymnasium's own dimensions, before padding
    pad_to: int | None = None  # append zeros up to this size
    zero_from: int | None = None  # overwrite with zeros from this dimension on


def _free(joints: tuple[str, ...]) -> tuple[str, ...]:
    """A body in space: height, orientation and angles, then their rates."""
    return (
        "z position of torso",
        *(f"{axis} orientation of torso" for axis in ("w", *AXES)),
        *each_named("angle of", joints),
        *(f"{axis} {kind} of torso" for kind in ("velocity", "angular velocity") for axis in AXES),
        *each_named("angular velocity of", joints),
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


_CHEETAH = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
_HOPPER = ("thigh", "leg", "foot")
_WALKER = ("right thigh", "right leg", "right foot", "left thigh", "left leg", "left foot")
_ANT_LEGS = ("front left", "front right", "back left", "back right")
_ANT = tuple(f"{leg} {joint}" for leg in _ANT_LEGS for joint in ("hip", "ankle"))
_ANT_ACTUATORS = _ANT[6:] + _ANT[:6]  # the model's file lists the back right leg first

_ARM = ("shoulder 1", "shoulder 2", "elbow")
_LIMBS = tuple(
    f"{side} {joint}"
    for limb in (("hip x", "hip z", "hip y", "knee"), _ARM)
    for side in ("right", "left")
    for joint in limb
)
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


# 84, dead in the paper's version of MuJoCo.
_CONTACTS = _per_body(_spatial("contact torque", "contact force"))
_HUMANOID_ALIVE = (
    *_free(_HUMANOID_JOINTS),
    *_per_body(_INERTIAL),
    *_per_body(_spatial("com angular velocity", "com velocity")),
    *each_named("actuator force on root", tuple("012345")),  # unactuated: always zero
    *each_named("actuator force on", _HUMANOID_JOINTS),
)
_HUMANOID = Names((*_HUMANOID_ALIVE, *_CONTACTS), each_named("torque on", _HUMANOID_ACTUATORS))
_SWIMMER = ("front tip", "first rotor", "second rotor")
_SWIMMER_NAMES = (
    *each_named("angle of", _SWIMMER),
    *("x velocity of front tip", "y velocity of front tip"),
    *each_named("angular velocity of", _SWIMMER),
)
_REACHER = ("first arm", "second arm")
_REACHER_NAMES = (
    *each_named("cosine of", _REACHER),
    *each_named("sine of", _REACHER),
    *("x position of target", "y position of target"),
    *each_named("angular velocity of", _REACHER),
    *(f"{axis} from target to fingertip" for axis in AXES),
)


def _task(
    summary: str, observation: tuple[str, ...], joints: tuple[str, ...], pad_to: int | None = None
) -> MujocoTask:
    return MujocoTask(summary, Names(observation, each_named("torque on", joints)), pad_to)


TASKS = {
    "HalfCheetah-v4": _task("run forward on two legs", _planar("front tip", _CHEETAH), _CHEETAH),
    "Ant-v4": _task(
        "walk forward on four legs", _free(_ANT), _ANT_ACTUATORS, pad_to=len(_free(_ANT)) + len(_CONTACTS)
    ),
    "Walker2d-v4": _task("walk forward on two legs without falling", _planar("torso", _WALKER), _WALKER),
    "Humanoid-v4": MujocoTask(
        "walk forward like a human without falling", _HUMANOID, zero_from=len(_HUMANOID_ALIVE)
    ),
    "Swimmer-v4": _task("swim forward with two rotors", _SWIMMER_NAMES, _SWIMMER[1:]),
    "Hopper-v4": _task("hop forward on one leg without falling", _planar("torso", _HOPPER), _HOPPER),
    "HumanoidStandup-v4": MujocoTask(
        "stand up from lying on the back", _HUMANOID, zero_from=len(_HUMANOID_ALIVE)
    ),
    "Reacher-v4": _task("bring the fingertip of a two-link arm to a target", _REACHER_NAMES, _REACHER),
}
