"""Stable-Baselines3's SAC on an episodic task, with and without our replay buffer, beside our own trainer.

    python benchmarks/sb3.py --out results/sb3-greenhouse.json

All have the same networks, learning rates, discount, steps, and updates for each step. The scores are true
returns of the policies' best guesses, which no learner saw.
"""

import itertools
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import torch
import tyro
from apportion.sb3 import DecomposedReplayBuffer, PolicyView
from rich.console import Console
from rich.table import Table
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from apportion.cli.display import remember_compilations
from apportion.core.config import to_dict
from apportion.envs.delayed import DelayedReward
from apportion.report import statistics
from apportion.runs import recording
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions
from apportion.runs.settings import Checkpoints
from apportion.runs.summary import summarise
from apportion.training.presets import GREENHOUSE, preset

EPISODE = 40  # steps of the greenhouse
ENVIRONMENTS = 4  # that SB3 plays side by side

VARIANTS = {
    "SB3 SAC": "the delayed reward as it is",
    "SB3 SAC + buffer": "the same with DecomposedReplayBuffer",
    "apportion": "our own trainer",
    "SB3 SAC + buffer + view": "and PolicyView: standardised observations behind the policy mask",
}


@dataclass(frozen=True)
class Sb3:
    """Train each variant with the same seeds, and compare the returns."""

    out: Path
    """JSON file to write."""
    seeds: int = 5
    """Seeds of each variant."""
    steps: int = 16_000
    """Environment steps per seed."""
    warmup_steps: int = 4_000
    """Steps with random actions before the first update."""
    steps_per_update: int = 8
    """Environment steps for each update."""
    evaluations: int = 4
    """How often policies are evaluated, the last time at the end."""
    episodes: int = 20
    """Episodes of each evaluation."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    """Which of them."""


def main(args: Sb3) -> None:
    torch.set_num_threads(1)
    console, results, made_with = Console(), {}, versions()
    made_with |= {name: version(name) for name in ("stable_baselines3", "torch")}
    for name in args.variants:
        began = time.monotonic()
        console.print(f"{name} ...")
        returns = (
            ours(args) if name == "apportion" else [theirs(args, name, seed) for seed in range(args.seeds)]
        )
        results[name] = {"returns": returns, "seconds": round(time.monotonic() - began)}
        write_json(args.out, record(args, made_with, results))
    console.print(table(results))


def theirs(args: Sb3, name: str, seed: int) -> list[float]:
    """The mean return at each evaluation of one training of SB3."""
    settings, method = config(args)
    buffer = "buffer" in name
    model = SAC(
        "MlpPolicy",
        environments("view" in name),
        learning_rate=settings.learning_rate,
        batch_size=settings.batch_size,
        gamma=settings.discount,
        buffer_size=100_000,
        learning_starts=args.warmup_steps,
        train_freq=args.steps_per_update // ENVIRONMENTS,
        gradient_steps=1,
        policy_kwargs={"net_arch": list(settings.hidden)},
        replay_buffer_class=DecomposedReplayBuffer if buffer else None,
        replay_buffer_kwargs={"max_episode_steps": EPISODE, "settings": asdict(method)} if buffer else None,
        seed=seed,
        device="cpu",
    )
    returns = []
    for number in range(args.evaluations):
        model.learn(args.steps // args.evaluations, reset_num_timesteps=False)
        judge = environments("view" in name)
        judge.seed(10_000 + 100 * seed + number)
        if isinstance(judge, PolicyView):
            judge.obs_rms = model.get_env().obs_rms
        returns.append(float(evaluate_policy(model, judge, args.episodes, warn=False)[0]))
    return returns


def ours(args: Sb3) -> list[list[float]]:
    """[seeds][evaluations] of our own trainer, all seeds in one run."""
    start = preset(GREENHOUSE, "grd", "sac")
    rounds = args.steps // args.evaluations // 10
    schedule = replace(
        start.schedule,
        steps=args.steps,
        warmup_steps=args.warmup_steps,
        steps_per_iteration=rounds,
        updates_per_iteration=rounds // args.steps_per_update,
        evaluate_every=args.steps // args.evaluations,
        evaluation_episodes=args.episodes,
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = replace(start, lanes=args.seeds, schedule=schedule)
        run = recording.train(settings, Checkpoints(), Path(folder) / "run", quiet=True).run
        found: list[list[float]] = summarise(run)["returns"]
    return found


def config(args: Sb3) -> tuple[Any, Any]:
    """The settings of policy and method that all variants share: those of our own greenhouse preset."""
    start = preset(GREENHOUSE, "grd", "sac")
    return start.backbone_config, start.method_config


def environments(view: bool) -> VecEnv:
    made = DummyVecEnv([lambda: DelayedReward(gymnasium.make(GREENHOUSE))] * ENVIRONMENTS)
    return PolicyView(made) if view else made


def record(args: Sb3, made_with: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    policy, method = config(args)
    flags = {name: value for name, value in asdict(args).items() if name not in ("out", "variants")}
    return {
        "command": f"python benchmarks/sb3.py --out {args.out}",
        "config": flags
        | {"environments": ENVIRONMENTS, "policy": to_dict(policy), "method": to_dict(method)},
        "versions": made_with,
        "variants": {name: VARIANTS[name] for name in results},
        "results": results,
    }


def table(results: dict[str, Any]) -> Table:
    printed = Table(title="Return at the end, over seeds", title_justify="left")
    for column in ("variant", "median [95%]", "each seed", "seconds"):
        printed.add_column(column)
    for name, result in results.items():
        last = [curve[-1] for curve in result["returns"]]
        middle = statistics.interval(last, statistics.median).known()
        numbers = [f"{number:.1f}" for number in middle]
        interval = f"{numbers[0]} [{numbers[1]}, {numbers[2]}]" if len(numbers) == 3 else numbers[0]
        printed.add_row(name, interval, " ".join(f"{value:.1f}" for value in last), str(result["seconds"]))
    for one, other in itertools.pairwise(results):
        pairs = zip(results[one]["returns"], results[other]["returns"], strict=True)
        better = sum(b[-1] > a[-1] for a, b in pairs)
        printed.caption = f"{printed.caption or ''}{other} above {one} in {better} seeds\n"
    return printed


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(Sb3))
