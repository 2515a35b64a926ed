"""One training by another library, in a process of its own: what benchmarks/validation.py compares with.

It takes the settings of one of our trainings and uses them under the other library's names. The environment
is made as a user of that library makes it, so that our wrappers are compared, too.
"""

import importlib
import importlib.metadata
import json
import signal
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import gymnasium
import numpy as np
import tyro

from apportion.runs.atomic import write_json
from apportion.runs.folder import read_json

CLASSES = {"crossq": "CrossQ"}  # of those not named by capitals
PACKAGES = ("torch", "stable-baselines3", "sbx-rl", "flax")


@dataclass(frozen=True)
class Peer:
    """Train with another library and write the returns of its evaluations."""

    settings: str
    """JSON: `library` (stable_baselines3 or sbx), `task`, `seed`, and our `backbone` and `schedule`."""
    out: Path
    """JSON file to write."""
    keep: Path | None = None
    """Folder to save to at every evaluation and when terminated, emptied of it at the end: after a stop, the
    same command goes on from there, in a new episode."""


def main(args: Peer) -> None:
    settings = json.loads(args.settings)
    began = time.monotonic()
    stop = Event()
    if args.keep is not None:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    curve = train(settings, args.keep, stop)
    if stop.is_set():
        sys.exit(f"stopped; the same command goes on from {args.keep}")
    seconds = round(time.monotonic() - began, 1)
    write_json(args.out, {"settings": settings, "seconds": seconds, "versions": versions(), **curve})
    if args.keep is not None:
        remove(args.keep)


def train(settings: dict[str, Any], keep: Path | None = None, stop: Event | None = None) -> dict[str, Any]:
    """Evaluations of one seed: at which steps, and the mean return of each. Once `stop` is set, it saves and
    ends with those that it has."""
    task, seed, schedule = settings["task"], settings["seed"], settings["schedule"]
    model, returns = kept(settings, keep) if keep is not None else (make_model(settings), [])
    env = make_env(task)
    steps, stop = evaluation_steps(schedule), stop or Event()
    for step in steps[len(returns) :]:
        while model.num_timesteps < step and not stop.is_set():  # its episode goes on from call to call
            model.learn(schedule["steps_per_iteration"], reset_num_timesteps=False)
        if stop.is_set() and keep is not None:
            save(model, settings, returns, keep)
            break
        assert model.num_timesteps == step
        seeds = np.random.SeedSequence([seed, step]).generate_state(schedule["evaluation_episodes"])
        returns.append(float(np.mean([play(model, env, int(each)) for each in seeds])))
        if keep is not None:
            save(model, settings, returns, keep)
    return {"steps": steps[: len(returns)], "returns": returns}


def save(model: Any, settings: dict[str, Any], returns: list[float], keep: Path) -> None:
    """Learner and replay by their own means, then the curve, which names them; those before go last."""
    step = model.num_timesteps
    keep.mkdir(parents=True, exist_ok=True)
    model.save(keep / f"model-{step}.zip")
    if hasattr(model, "save_replay_buffer"):
        model.save_replay_buffer(keep / f"replay-{step}.pkl")
    write_json(keep / "curve.json", {"settings": settings, "step": step, "returns": returns})
    for path in learners(keep):
        if path.stem.rpartition("-")[2] != str(step):
            path.unlink()


def learners(keep: Path) -> list[Path]:
    return [*keep.glob("model-*.zip"), *keep.glob("replay-*.pkl")]


def remove(keep: Path) -> None:
    """What was saved, the curve first; and the folder, unless it holds anything else."""
    for path in [keep / "curve.json", *learners(keep)]:
        path.unlink(missing_ok=True)
    if not any(keep.iterdir()):
        keep.rmdir()


def kept(settings: dict[str, Any], keep: Path) -> tuple[Any, list[float]]:
    """What was saved at the last evaluation, and all returns until then; a new learner where nothing was, or
    with other settings."""
    model, file = make_model(settings), keep / "curve.json"
    curve = read_json(file) if file.exists() else {}
    if curve.get("settings") != settings:
        return model, []
    model = model.load(keep / f"model-{curve['step']}.zip", env=make_env(settings["task"]), device="cpu")
    if hasattr(model, "load_replay_buffer"):
        model.load_replay_buffer(keep / f"replay-{curve['step']}.pkl")
    return model, curve["returns"]


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
