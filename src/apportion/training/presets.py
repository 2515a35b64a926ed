"""Settings that suit a task: what `apportion train ID` starts from, each of them open to a flag.

A preset is changes by part: of the schedule, and of a method's or backbone's settings under its name. The
sparsity weights λ1..λ5 of the MuJoCo tasks are those of the GRD paper's appendix.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from apportion.backbones import BACKBONES
from apportion.core.config import check
from apportion.envs.make import EnvConfig
from apportion.training.settings import NO_POLICY, Config

GREENHOUSE = "apportion/Greenhouse-v0"
KEY_DOOR = "apportion/KeyDoor-v0"
KEY_DOOR_LOTTERY = "apportion/KeyDoorLottery-v0"
CARTPOLE = "CartPole-v1"
SWIMMER = "Swimmer-v4"
HUMANOID = "Humanoid-v4"
ROLLOUT_STEPS = 2_048  # of an on-policy backbone, in one iteration

Preset = Mapping[str, Mapping[str, Any]]

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

_NARROW: Any = {"hidden": (64, 64)}
_SMALL_POLICY: Any = {"batch_size": 64, "learning_rate": 1e-3, "discount": 0.95}
_SMALL_BLOCKS = {**_SMALL_POLICY, "hidden": (32,), "critic_hidden": (64,)}
_SMALL_BACKBONES: Preset = {
    **dict.fromkeys(("sac", "td3", "ddpg"), _SMALL_POLICY | _NARROW),
    **dict.fromkeys(("simba", "flashsac"), _SMALL_BLOCKS),
    "crossq": {"hidden": (64, 64), "critic_hidden": (64, 64), "batch_size": 64, "discount": 0.95},
}

_SMALL_MODEL: Any = {"segments": 16, "learning_rate": 3e-3}
_SMALL_METHODS: Preset = {
    **dict.fromkeys(("rd", "rrd", "rrd-unbiased"), _SMALL_MODEL | _NARROW),
    **dict.fromkeys(("grd", "gp-lrr"), _SMALL_MODEL | _NARROW | {"update_every": 1}),
    **dict.fromkeys(("transformer", "rbt"), _SMALL_MODEL | {"width": 32, "layers": 1, "update_every": 1}),
    "rudder": _SMALL_MODEL | {"cells": 32, "lessons_per_update": 8, "update_every": 1},
    "hopfield-rudder": _SMALL_MODEL | {"update_every": 1},
    "align-rudder": {"segments": 16, "update_every": 1},
    "diaster": _SMALL_MODEL | _NARROW | {"cells": 32, "update_every": 1},
}

# Small networks and few updates: 40-step episodes of a smooth task, minutes on a laptop.
_SMALL: Preset = {
    **_SMALL_BACKBONES,
    **_SMALL_METHODS,
    "schedule": {
        "steps": 48_000,
        "steps_per_iteration": 600,
        "updates_per_iteration": 50,
        "warmup_steps": 12_000,
        "evaluate_every": 6_000,
        "evaluation_episodes": 20,
        "replay_steps": 100_000,
    },
}
_FAR_SIGHTED: Preset = {name: {"discount": 0.99} for name in _SMALL_BACKBONES}  # 30 steps later counts
# Who reads whole episodes must find the lottery out before key and door.
_PATIENT: Preset = {"schedule": {"steps": 96_000}}

_CARTPOLE: Preset = {
    # One update for every two steps, and short rounds: a fresh policy keeps DQN steady.
    "schedule": {
        "steps": 50_000,
        "steps_per_iteration": 50,
        "updates_per_iteration": 25,
        "warmup_steps": 2_000,
        "evaluate_every": 5_000,
        "evaluation_episodes": 10,
        "replay_steps": 50_000,
    },
    # The ends of the track must be felt hundreds of steps before: targets that move fast carry them there.
    "dqn": {
        "hidden": (64, 64),
        "batch_size": 128,
        "learning_rate": 1e-3,
        "polyak": 0.05,
        "exploration_updates": 5_000,
    },
    # Its reward is the same at every step, so a graph of the reward leaves the policy nothing to look at.
    "grd": {"hidden": (64, 64), "update_every": 5, "learning_rate": 1e-3, "compact": "none"},
    "rd": {"hidden": (64, 64), "update_every": 5, "learning_rate": 1e-3},
}

# A stroke pays a second later, which a discount of 0.99 hides. But what is wrong at each step of a thousand
# adds up: the lower of two critics, and entropy at a temperature that rewards do not reach.
_SWIMMER: Any = {"discount": 0.999, "critic_pool": "mean", "initial_temperature": 0.01}

TASKS: dict[str, list[Preset]] = {
    **{task: [{"grd": {"sparsity": sparsity}}] for task, sparsity in PAPER_SPARSITY.items()},
    GREENHOUSE: [_SMALL],
    KEY_DOOR: [_SMALL, _FAR_SIGHTED],
    KEY_DOOR_LOTTERY: [_SMALL, _FAR_SIGHTED, _PATIENT],
    CARTPOLE: [_CARTPOLE],
}
MUJOCO_BACKBONES: dict[str, Preset] = {
    SWIMMER: {"sac": _SWIMMER, "crossq": _SWIMMER},
    HUMANOID: {"crossq": {"critic_hidden": (1024, 1024)}},  # 376 dimensions want wider critics
}

# A method learns from many episodes at once, for all of them are there.
LOGGED: Preset = {
    **_SMALL_METHODS,
    "grd": {"hidden": (64, 64), "segments": 32, "learning_rate": 1e-3, "update_every": 1},
    **{name: _NARROW | {"learning_rate": 1e-3} for name in ("iql", "rebrac", "bc")},
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
        config = replace(config, backbone_config=None)
    return with_preset(config, {"grd": {"structure": "gradient", "update_every": 1}})


def preset(env_id: str, method: str, backbone: str) -> Config:
    """The settings that a training on this environment starts from."""
    config, name = Config(env=EnvConfig(env_id), method=method, backbone=backbone), _name(env_id)
    for changes in (*TASKS.get(name, ()), MUJOCO_BACKBONES.get(name, {})):
        config = with_preset(config, changes)
    if backbone != "ppo":
        return config
    # Steps enough for an on-policy update, none of them at random, and as many updates of the method.
    schedule = config.schedule
    updates = round(schedule.updates_per_iteration * ROLLOUT_STEPS / schedule.steps_per_iteration)
    rollouts = {"steps_per_iteration": ROLLOUT_STEPS, "updates_per_iteration": updates, "warmup_steps": 0}
    return with_preset(config, {"schedule": rollouts})


def logged(data: str, method: str, backbone: str = NO_POLICY) -> Config:
    """The settings that fitting to logged episodes starts from; no policy unless a backbone for logs is
    named."""
    config = Config(env=EnvConfig(data), method=method, backbone=backbone)
    offline = [name for name, entry in BACKBONES.items() if entry.make(entry.config()).offline]
    acts = f"{backbone} learns by acting: from a log, choose --backbone {', '.join(offline)}"
    check(config.from_log, acts)
    return with_preset(config, LOGGED)


def with_preset(config: Config, changes: Preset) -> Config:
    """With the changes of those parts that it has; others are left alone."""
    parts = {
        "schedule": ("schedule", config.schedule),
        config.method: ("method_config", config.method_config),
        config.backbone: ("backbone_config", config.backbone_config),
    }
    found = {
        field: replace(part, **changes[name]) for name, (field, part) in parts.items() if name in changes
    }
    return replace(config, **found)


def _name(env_id: str) -> str:
    """Without the module that registers it."""
    return env_id.rpartition(":")[2]
