"""One training by another library, in a process of its own: what benchmarks/validation.py compares with.

It takes the settings of one of our trainings and uses them under the other library's names. The environment
is made as a user of that library makes it, so that our wrappers are compared, too.
"""

import importlib
import importlib.metadata
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro

from apportion.runs.atomic import write_json

CLASSES = {"crossq": "CrossQ"}  # of those not named by capitals
PACKAGES = ("torch", "stable-baselines3", "sbx-rl", "flax")


@dataclass(frozen=True)
class Peer:
    """Train with another library and write the returns of its evaluations."""

    settings: str
    """JSON: `library` (stable_baselines3 or sbx), `task`, `seed`, and our `backbone` and `schedule`."""
    out: Path
    """JSON file to write."""


def main(args: Peer) -> None:
    settings, began = json.loads(args.settings), time.monotonic()
    steps, returns = train(settings)
    made = {"seconds": round(time.monotonic() - began, 1), "versions": versions()}
    write_json(args.out, {"settings": settings, **made, "steps": steps, "returns": returns})


def train(settings: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Evaluations of one seed: at which steps, and the mean return of each."""
    seed, schedule, returns = settings["seed"], settings["schedule"], []
    model, env = make_model(settings), make_env(settings["task"])
    steps = evaluation_steps(schedule)
    for step in steps:
        while model.num_timesteps < step:  # its episode goes on from call to call
            model.learn(schedule["steps_per_iteration"], reset_num_timesteps=False)
        assert model.num_timesteps == step
        seeds = np.random.SeedSequence([seed, step]).generate_state(schedule["evaluation_episodes"])
        returns.append(float(np.mean([play(model, env, int(each)) for each in seeds])))
    return steps, returns


def make_model(settings: dict[str, Any]) -> Any:
    """The other library's learner with our settings."""
    import torch
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(1)
    module = importlib.import_module(settings["library"])
    backbone, env = settings["backbone"], make_env(settings["task"])
    chosen = arguments(settings)
    if "exploration_noise" in backbone:
        size = env.action_space.shape
        chosen["action_noise"] = NormalActionNoise(
            np.zeros(size), np.full(size, backbone["exploration_noise"])
        )
    algorithm = getattr(module, CLASSES.get(backbone["name"], backbone["name"].upper()))
    return algorithm("MlpPolicy", env, seed=settings["seed"], device="cpu", **chosen)


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """Our settings under the names that Stable-Baselines3 and SBX share."""
    on_policy = settings["backbone"]["name"] == "ppo"
    return rollout_arguments(settings) if on_policy else replay_arguments(settings)


def rollout_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    import torch

    backbone = settings["backbone"]
    return {
        "learning_rate": backbone["learning_rate"],
        "batch_size": backbone["batch_size"],
        "gamma": backbone["discount"],
        "n_steps": settings["schedule"]["steps_per_iteration"],
        "n_epochs": backbone["epochs"],
        "gae_lambda": backbone["trace"],
        "clip_range": backbone["clip"],
        "vf_coef": backbone["value_weight"],
        "ent_coef": backbone["entropy_weight"],
        "max_grad_norm": backbone["largest_gradient"],
        "policy_kwargs": {"net_arch": list(backbone["hidden"]), "activation_fn": torch.nn.ReLU},
    }


def replay_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    backbone, schedule = settings["backbone"], settings["schedule"]
    chosen = {
        "learning_rate": backbone["learning_rate"],
        "batch_size": backbone["batch_size"],
        "gamma": backbone["discount"],
        "buffer_size": schedule["replay_steps"],
        # Theirs learn only past this number, ours at it: with one less, both make the same updates.
        "learning_starts": schedule["warmup_steps"] - 1,
        "train_freq": schedule["steps_per_iteration"],
        "gradient_steps": schedule["updates_per_iteration"],
        "policy_kwargs": {"net_arch": list(backbone["hidden"])},
    }
    if "polyak" in backbone:
        chosen["tau"] = backbone["polyak"]
    critics = backbone.get("critic_learning_rate") or backbone["learning_rate"]
    if settings["library"] == "sbx":
        chosen["qf_learning_rate"] = critics
    elif critics != backbone["learning_rate"]:
        raise ValueError("Stable-Baselines3 has one learning rate for actor and critics")
    if backbone.get("critic_pool", "min") != "min":
        raise ValueError("the peers' value is the lower one of their critics'")
    if backbone.get("critic_norm", False):
        raise ValueError("the peers' SAC has no norm in its critics")
    if "initial_temperature" in backbone:
        target = backbone["target_entropy"]
        chosen["ent_coef"] = f"auto_{backbone['initial_temperature']}"
        chosen["target_entropy"] = "auto" if target is None else target
    if backbone["name"] == "td3":
        chosen["policy_delay"] = backbone["actor_every"]
        chosen["target_policy_noise"] = backbone["smoothing_noise"]
        chosen["target_noise_clip"] = backbone["smoothing_clip"]
    if backbone["name"] == "crossq":
        chosen["policy_delay"] = backbone["actor_every"]
        chosen["policy_kwargs"] = {
            "net_arch": {"pi": list(backbone["hidden"]), "qf": list(backbone["critic_hidden"])},
            "optimizer_kwargs": {"b1": backbone["momentum"]},
            "batch_norm_momentum": 1 - backbone["statistics_rate"],
            "renorm_warmup_steps": backbone["renorm_after"],
        }
    return chosen


def evaluation_steps(schedule: dict[str, Any]) -> list[int]:
    """After every `evaluate_every` steps, and at the end: as our trainings do."""
    steps, every = schedule["steps"], schedule["evaluate_every"]
    return sorted({*range(every, steps + 1, every), steps})


def play(model: Any, env: gymnasium.Env[Any, Any], seed: int) -> float:
    """The return of one episode without exploration."""
    observation, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        action, _ = model.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        ended = terminated or truncated
    return total


def make_env(task: str) -> gymnasium.Env[Any, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)
        return gymnasium.make(task)


def versions() -> dict[str, str | None]:
    """Of the other libraries, where they are installed."""
    installed: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for package in PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


if __name__ == "__main__":
    main(tyro.cli(Peer))
