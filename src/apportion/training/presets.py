"""Settings that suit a task: what `apportion train ID` starts from, each of them open to a flag.

The sparsity weights λ1..λ5 of the MuJoCo tasks are those of the GRD paper's appendix.
"""

from dataclasses import replace
from typing import Any

from apportion import backbones
from apportion.backbones import bc, crossq, dqn, flashsac, iql, rebrac, sac, simba, td3
from apportion.core.config import check
from apportion.envs.make import EnvConfig
from apportion.methods import (
    align_rudder,
    diaster,
    gp_lrr,
    grd,
    hopfield_rudder,
    rbt,
    rd,
    rrd,
    rudder,
    transformer,
)
from apportion.training.settings import NO_POLICY, Config, Schedule

GREENHOUSE = "apportion/Greenhouse-v0"
KEY_DOOR = "apportion/KeyDoor-v0"
KEY_DOOR_LOTTERY = "apportion/KeyDoorLottery-v0"
CARTPOLE = "CartPole-v1"
SWIMMER = "Swimmer-v4"
HUMANOID = "Humanoid-v4"
ROLLOUT_STEPS = 2_048  # of an on-policy backbone, in one iteration

PAPER_SPARSITY: dict[str, tuple[float, float, float, float, float]] = {
    "Ant-v4": (1e-5, 0.0, 1e-7, 1e-8, 1e-8),
    "HalfCheetah-v4": (1e-5, 1e-5, 1e-5, 1e-6, 1e-5),
    "Walker2d-v4": (1e-5, 1e-5, 1e-6, 1e-6, 1e-7),
    "Humanoid-v4": (1e-5, 1e-8, 1e-5, 1e-7, 1e-8),
    "Reacher-v4": (5e-7, 1e-8, 1e-8, 1e-8, 1e-8),
    "Swimmer-v4": (1e-7, 1e-9, 1e-9, 0.0, 1e-9),
    "Hopper-v4": (1e-6, 1e-6, 1e-6, 1e-7, 1e-6),
    "HumanoidStandup-v4": (1e-5, 1e-4, 1e-6, 1e-7, 1e-7),
}

SMALL_BACKBONES: dict[str, Any] = {
    "sac": sac.Config(hidden=(64, 64), batch_size=64, learning_rate=1e-3, discount=0.95),
    "crossq": crossq.Config(hidden=(64, 64), critic_hidden=(64, 64), batch_size=64, discount=0.95),
    "simba": simba.Config(
        hidden=(32,), critic_hidden=(64,), batch_size=64, learning_rate=1e-3, discount=0.95
    ),
    "flashsac": flashsac.Config(
        hidden=(32,), critic_hidden=(64,), batch_size=64, learning_rate=1e-3, discount=0.95
    ),
    "td3": td3.Config(hidden=(64, 64), batch_size=64, learning_rate=1e-3, discount=0.95),
    "ddpg": td3.DDPGConfig(hidden=(64, 64), batch_size=64, learning_rate=1e-3, discount=0.95),
}

SMALL_METHODS: dict[str, Any] = {
    "grd": grd.Config(hidden=(64, 64), segments=16, learning_rate=3e-3, update_every=1),
    "rd": rd.Config(hidden=(64, 64), segments=16, learning_rate=3e-3),
    "rrd": rrd.Config(hidden=(64, 64), segments=16, learning_rate=3e-3),
    "rrd-unbiased": rrd.UnbiasedConfig(hidden=(64, 64), segments=16, learning_rate=3e-3),
    "transformer": transformer.Config(width=32, layers=1, segments=16, update_every=1, learning_rate=3e-3),
    "rudder": rudder.Config(cells=32, segments=16, lessons_per_update=8, update_every=1, learning_rate=3e-3),
    "hopfield-rudder": hopfield_rudder.Config(segments=16, update_every=1, learning_rate=3e-3),
    "align-rudder": align_rudder.Config(segments=16, update_every=1),
    "gp-lrr": gp_lrr.Config(hidden=(64, 64), segments=16, update_every=1, learning_rate=3e-3),
    "rbt": rbt.Config(width=32, layers=1, segments=16, update_every=1, learning_rate=3e-3),
    "diaster": diaster.Config(cells=32, hidden=(64, 64), segments=16, update_every=1, learning_rate=3e-3),
}

MUJOCO_BACKBONES: dict[str, dict[str, Any]] = {
    # A stroke pays a second later, which a discount of 0.99 hides. But what is wrong at each step of a
    # thousand adds up: the lower of two critics, and entropy at a temperature that rewards do not reach.
    SWIMMER: {
        "sac": sac.Config(discount=0.999, critic_pool="mean", initial_temperature=0.01),
        "crossq": crossq.Config(discount=0.999, critic_pool="mean", initial_temperature=0.01),
    },
    # 376 dimensions want wider critics.
    HUMANOID: {"crossq": crossq.Config(critic_hidden=(1024, 1024))},
}

# The ends of the track must be felt hundreds of steps before: targets that move fast carry them there.
CARTPOLE_DQN = dqn.Config(
    hidden=(64, 64), batch_size=128, learning_rate=1e-3, polyak=0.05, exploration_updates=5_000
)

CARTPOLE_METHODS: dict[str, Any] = {
    # Its reward is the same at every step, so a graph of the reward leaves the policy nothing to look at.
    "grd": grd.Config(hidden=(64, 64), update_every=5, learning_rate=1e-3, compact="none"),
    "rd": rd.Config(hidden=(64, 64), update_every=5, learning_rate=1e-3),
}


def default_backbone(env_id: str, start: str) -> str:
    """What trains when nobody names a backbone; `start` is paper for the published settings."""
    name = _name(env_id)
    if name == CARTPOLE:
        return "dqn"
    return "crossq" if name == SWIMMER and start != "paper" else "sac"  # SAC learns to swim and forgets it


def paper(config: Config) -> Config:
    """GRD as published: edges by gradient alone, networks for everything, an update of them at every step.
    The backbone is the same on all MuJoCo tasks."""
    config = replace(config, normalise=False)
    if _name(config.env.id) in MUJOCO_BACKBONES:
        same = Config(env=config.env, method=config.method, backbone=config.backbone)
        config = replace(config, backbone_config=same.backbone_config)
    if config.method != "grd":
        return config
    return replace(config, method_config=replace(config.method_config, structure="gradient", update_every=1))


def preset(env_id: str, method: str, backbone: str) -> Config:
    """The settings that a training on this environment starts from."""
    config = _suited(Config(env=EnvConfig(env_id), method=method, backbone=backbone))
    return _in_rollouts(config) if backbone == "ppo" else config


def _suited(config: Config) -> Config:
    """By the task's name."""
    name = _name(config.env.id)
    if name in PAPER_SPARSITY:
        return _mujoco(config, name)
    if name == GREENHOUSE:
        return _small(config)
    if name == KEY_DOOR:
        return _far_sighted(_small(config))
    if name == KEY_DOOR_LOTTERY:
        return _patient(_far_sighted(_small(config)))
    if name == CARTPOLE:
        return _cartpole(config)
    return config


def _mujoco(config: Config, name: str) -> Config:
    if config.method == "grd":
        config = replace(config, method_config=grd.Config(sparsity=PAPER_SPARSITY[name]))
    backbone = MUJOCO_BACKBONES.get(name, {}).get(config.backbone)
    return config if backbone is None else replace(config, backbone_config=backbone)


LOGGED_METHODS: dict[str, Any] = {
    **SMALL_METHODS,
    "grd": grd.Config(hidden=(64, 64), segments=32, learning_rate=1e-3, update_every=1),
}


LOGGED_BACKBONES: dict[str, Any] = {
    "iql": iql.Config(hidden=(64, 64), learning_rate=1e-3),
    "rebrac": rebrac.Config(hidden=(64, 64), learning_rate=1e-3),
    "bc": bc.Config(hidden=(64, 64), learning_rate=1e-3),
}


def logged(data: str, method: str, backbone: str = NO_POLICY) -> Config:
    """The settings that fitting to logged episodes starts from: a method that learns from many episodes at
    once, for all of them are there, and no policy unless a backbone for logs is named."""
    check(
        backbone == NO_POLICY or backbones.find(backbone).make(backbones.find(backbone).config()).offline,
        f"{backbone} learns by acting: from a log, choose --backbone {', '.join(LOGGED_BACKBONES)}",
    )
    config = Config(
        env=EnvConfig(data),
        method=method,
        backbone=backbone,
        backbone_config=LOGGED_BACKBONES.get(backbone),
    )
    return replace(config, method_config=LOGGED_METHODS.get(method, config.method_config))


def _name(env_id: str) -> str:
    """Without the module that registers it."""
    return env_id.rpartition(":")[2]


def _far_sighted(config: Config) -> Config:
    """What comes thirty steps later counts."""
    if config.backbone not in SMALL_BACKBONES:  # a user's own need not have a discount
        return config
    return replace(config, backbone_config=replace(config.backbone_config, discount=0.99))


def _patient(config: Config) -> Config:
    """Twice the steps: who reads whole episodes must find the lottery out before key and door."""
    return replace(config, schedule=replace(config.schedule, steps=96_000))


def _small(config: Config) -> Config:
    """Small networks and few updates: 40-step episodes of a smooth task, minutes on a laptop."""
    schedule = Schedule(
        steps=48_000,
        steps_per_iteration=600,
        updates_per_iteration=50,
        warmup_steps=12_000,
        evaluate_every=6_000,
        evaluation_episodes=20,
        replay_steps=100_000,
    )
    config = replace(config, schedule=schedule)
    if config.backbone in SMALL_BACKBONES:
        config = replace(config, backbone_config=SMALL_BACKBONES[config.backbone])
    if config.method in SMALL_METHODS:
        config = replace(config, method_config=SMALL_METHODS[config.method])
    return config


def _in_rollouts(config: Config) -> Config:
    """Steps enough for an on-policy update, none of them at random, and as many updates of the method."""
    schedule = config.schedule
    updates = round(schedule.updates_per_iteration * ROLLOUT_STEPS / schedule.steps_per_iteration)
    schedule = replace(
        schedule, steps_per_iteration=ROLLOUT_STEPS, updates_per_iteration=updates, warmup_steps=0
    )
    return replace(config, schedule=schedule)


def _cartpole(config: Config) -> Config:
    """Small networks, one update for every two steps, and short rounds: a fresh policy keeps DQN steady."""
    schedule = Schedule(
        steps=50_000,
        steps_per_iteration=50,
        updates_per_iteration=25,
        warmup_steps=2_000,
        evaluate_every=5_000,
        evaluation_episodes=10,
        replay_steps=50_000,
    )
    config = replace(config, schedule=schedule)
    if config.backbone == "dqn":
        config = replace(config, backbone_config=CARTPOLE_DQN)
    if config.method in CARTPOLE_METHODS:
        config = replace(config, method_config=CARTPOLE_METHODS[config.method])
    return config
