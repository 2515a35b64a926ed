"""The paper's eight tasks: shapes, names, dead dimensions and time limits as the paper had them."""

import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.envs.make import EnvConfig, make
from apportion.envs.mujoco import TASKS

SIZES = {
    "HalfCheetah-v4": (17, 6),
    "Ant-v4": (111, 8),
    "Walker2d-v4": (17, 6),
    "Humanoid-v4": (376, 17),
    "Swimmer-v4": (8, 2),
    "Hopper-v4": (11, 3),
    "HumanoidStandup-v4": (376, 17),
    "Reacher-v4": (11, 2),
}


@pytest.mark.parametrize("env_id", TASKS)
def test_the_task_is_as_the_paper_had_it(env_id: str) -> None:
    env, spec = make(EnvConfig(env_id))
    assert (spec.observation_size, spec.action_size) == SIZES[env_id]
    assert spec.max_episode_steps == spec.max_segment_steps == 1000
    assert spec.padded == (84 if env_id == "Ant-v4" else 0)
    assert len(set(spec.observation_names)) == spec.observation_size
    assert len(set(spec.action_names)) == spec.action_size
    assert (env.action_space.low == -1).all()
    assert (env.action_space.high == 1).all()
    observation, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(10):
        assert observation.dtype == np.float32
        assert observation.shape == (spec.observation_size,)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()


def test_contact_forces_are_dead_in_the_paper_and_alive_without_it() -> None:
    for paper in (True, False):
        env, spec = make(EnvConfig("HumanoidStandup-v4", paper=paper))
        env.reset(seed=0)
        for _ in range(5):
            observation, *_ = env.step(np.ones(17, np.float32))
        assert spec.observation_names[291].startswith("actuator force on")
        assert spec.observation_names[292] == "x contact torque of world"
        assert observation[292:].any() != paper
        assert observation[:292].any()


def test_names_stand_where_mujoco_puts_the_numbers() -> None:
    env, spec = make(EnvConfig("Humanoid-v4"))
    env.reset(seed=0)
    observation = dict(zip(spec.observation_names, env.step(np.full(17, 0.5, np.float32))[0], strict=True))
    data, model = env.unwrapped.data, env.unwrapped.model
    foot = model.body("left_foot").id
    expected = {
        "z position of torso": data.qpos[2],
        "angle of left knee": data.joint("left_knee").qpos[0],
        "angular velocity of right elbow": data.joint("right_elbow").qvel[0],
        "mass of left foot": model.body_mass[foot],
        "y com angular velocity of left foot": data.cvel[foot, 1],
        "z com velocity of left foot": data.cvel[foot, 5],
        "actuator force on left elbow": data.qfrc_actuator[-1],
    }
    assert {name: observation[name] for name in expected} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("env_id", ["Ant-v4", "Humanoid-v4"])
def test_torques_push_the_joint_they_name(env_id: str) -> None:
    env, spec = make(EnvConfig(env_id))
    for index, name in enumerate(spec.action_names):
        env.reset(seed=0)
        env.step(np.eye(spec.action_size, dtype=np.float32)[index])
        forces = env.unwrapped.data.qfrc_actuator[6:]  # after the free root, in the order of the joints
        joints = [label for label in spec.observation_names if label.startswith("angle of ")]
        assert joints[int(np.abs(forces).argmax())] == name.replace("torque on", "angle of")


def test_what_the_user_chooses_goes_before_the_paper() -> None:
    ant, limited, own_limit, changed = (
        make(EnvConfig(name, **chosen))[1]
        for name, chosen in (
            ("Ant-v4", {"paper": False}),
            ("Reacher-v4", {"max_episode_steps": 50}),
            ("Hopper-v4", {"paper": False}),
            ("Hopper-v4", {"kwargs": '{"exclude_current_positions_from_observation": false}'}),
        )
    )
    assert ant.observation_names == TASKS["Ant-v4"].names.observation
    assert (limited.max_episode_steps, own_limit.max_episode_steps) == (50, 1000)
    assert changed.observation_names == tuple(f"s{index}" for index in range(12))


def test_padding_refuses_what_does_not_fit() -> None:
    more = '{"use_contact_forces": true, "exclude_current_positions_from_observation": false}'
    with pytest.raises(UserError, match=r"cannot pad an observation of 113 .* to 111: pass --env\.no-paper"):
        make(EnvConfig("Ant-v4", kwargs=more))
