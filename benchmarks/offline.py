"""From a log to a policy: what is learned on learned and on true rewards, played; and who said it is better.

    python benchmarks/offline.py --out results/offline.json
    python benchmarks/offline.py --tasks Crane Kiln --learners iql rebrac --rewards grd rd true --seeds 5
    python benchmarks/offline.py --tasks HalfCheetah --half-trained runs/half --episodes 1000
    python benchmarks/offline.py --tasks Pendulum Greenhouse --learners d3rlpy-iql d3rlpy-rebrac --seeds 5
    python benchmarks/offline.py --show results/offline.json

A log holds episodes of mediocre behaviour, paid once an episode: half of a rule's action, a random one on
Greenhouse, and noise; on HalfCheetah of a half-trained policy that explores. Every policy is played in the
simulator, which `evaluate-offline` has not seen. Learners of d3rlpy read what `apportion relabel` wrote; the
interpreter that has d3rlpy is named by D3RLPY_PYTHON, else it is that of `make peers`.
"""

import itertools
import multiprocessing
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import h5py
import jax
import numpy as np

import apportion
from apportion import backbones
from apportion.core.config import check
from apportion.core.types import Record
from apportion.envs.acting import act
from apportion.envs.spaces import learners_actions, own_action, spec_of
from apportion.runs.atomic import read_json, write_json
from apportion.runs.folder import versions
from apportion.training import scaling as scales
from apportion.training.offline import all_steps, learn_policy
from apportion.training.presets import logged
from lib.command import given, start
from suite_tasks import env_id

OTHERS = {"Greenhouse": "apportion/Greenhouse-v0", "Pendulum": "Pendulum-v1", "HalfCheetah": "HalfCheetah-v4"}
TRUE = "true"
NOISE = 0.5  # standard deviation on logged actions, which are in [-1, 1]
PLAYED = 100  # fresh episodes of every policy
PLAYERS = 4  # processes that play a log
FRESH = 1_000_000  # where their seeds begin
D3RLPY = "d3rlpy-"  # before its learners' names
D3RLPY_PYTHON = os.environ.get("D3RLPY_PYTHON", str(Path(__file__).parents[1] / ".venv/d3rlpy/bin/python"))
PEER = Path(__file__).parent / "lib/d3rlpy_peer.py"

Policy = Callable[[Any], Any]


@dataclass(frozen=True)
class Offline:
    """Which logs, and who learns from them."""

    tasks: tuple[str, ...] = ("Greenhouse", "Pendulum", "Crane", "Kiln")
    """Greenhouse, Pendulum, HalfCheetah, or tasks of the suite."""
    half_trained: Path | None = None
    """Who plays HalfCheetah: the run of a training."""
    learners: tuple[str, ...] = ("iql", "rebrac")
    """Ours, or d3rlpy-iql and d3rlpy-rebrac."""
    rewards: tuple[str, ...] = ("grd", "rd", TRUE)
    """Methods of `apportion fit`, or `true`: those that the simulator gives."""
    episodes: int = 300
    """In each log, a multiple of four."""
    seeds: int = 1
    """Logs of each task, and learners."""
    first: int = 0
    """The first of them."""
    updates: int = 10_000
    """Of each policy."""
    out: Path | None = None
    """Where to write the results, as JSON; what is there already is kept."""
    show: Path | None = None
    """Print results that were written before, and measure nothing."""


class Played(NamedTuple):
    """An episode with what is hidden in it."""

    observations: Any  # [T+1, S]
    actions: Any  # [T, A] in the environment's range
    rewards: Any  # [T]
    terminated: bool


def main(flags: Offline) -> None:
    if flags.show is not None:
        return table(read_json(flags.show)["policies"])
    kept = read_json(flags.out)["policies"] if flags.out is not None and flags.out.is_file() else []
    seeds = range(flags.first, flags.first + flags.seeds)
    for task, seed in itertools.product(flags.tasks, seeds):
        for row in of_log(task, seed, flags):
            kept.append(row)
            table([row])
            if flags.out is not None:
                write_json(flags.out, {"command": given(), "versions": versions(), "policies": kept})
    table(kept)
    return None


def make(task: str) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(OTHERS.get(task) or env_id(task, False))


def behaviour(task: str, env: Any, seed: int, half_trained: Path | None) -> Policy:
    """Half of what a rule does, and noise; or what a training does while it explores."""
    rng = np.random.default_rng(seed)
    if half_trained is not None:
        trained = apportion.load(half_trained).policy()
        return lambda observation: trained(observation, rng)
    low, high = env.action_space.low, env.action_space.high

    def policy(observation: Any) -> Any:
        if task == "Greenhouse":
            usual = np.zeros_like(low)
        elif task == "Pendulum":
            usual = np.array([_swing(observation)])
        else:
            rule = env.unwrapped.rule_action(observation)
            usual = ((rule - low) / (high - low) * 2 - 1) / 2
        done = np.clip(usual + NOISE * rng.normal(size=low.shape), -1, 1)
        return (low + (done + 1) / 2 * (high - low)).astype(low.dtype)

    return policy


def _swing(observation: Any) -> float:
    """Pushes along with the pendulum, and holds it half-heartedly at the top."""
    angle, speed = np.arctan2(observation[1], observation[0]), observation[2]
    return float(np.clip(-4 * angle - speed, -1, 1) if abs(angle) < 0.6 else 0.4 * np.sign(speed))


def play(env: Any, policy: Policy, episodes: int, first: int) -> list[Played]:
    found = []
    for number in range(episodes):
        observation, _ = env.reset(seed=first + number)
        seen, done, paid, over, cut = [observation], [], [], False, False
        while not (over or cut):
            done.append(policy(observation))
            observation, reward, over, cut, _ = env.step(done[-1])
            seen.append(observation)
            paid.append(float(reward))
        found.append(Played(np.array(seen, np.float32), np.array(done), np.array(paid), bool(over)))
    return found


def logged_by(task: str, half_trained: Path | None, episodes: int, first: int) -> list[Played]:
    env = make(task)
    return play(env, behaviour(task, env, first, half_trained), episodes, first)


def log_of(task: str, seed: int, flags: Offline) -> list[Played]:
    part = -(-flags.episodes // PLAYERS)
    firsts = [seed * 10_000 + number * part for number in range(PLAYERS)]
    with ProcessPoolExecutor(PLAYERS, multiprocessing.get_context("spawn")) as players:
        parts = players.map(partial(logged_by, task, flags.half_trained, part), firsts)
        return [each for played in parts for each in played]


def of_log(task: str, seed: int, flags: Offline) -> Iterator[dict[str, Any]]:
    """Every learner on every kind of reward, by one log."""
    env, log = make(task), log_of(task, seed, flags)
    head = {"task": task, "seed": seed, "episodes": flags.episodes, "updates": flags.updates}
    head["behaviour"] = float(np.mean([each.rewards.sum() for each in log]))
    for learner, rewards in itertools.product(flags.learners, flags.rewards):
        worth: dict[str, Any] = {}
        if learner.startswith(D3RLPY):
            policy: Policy = by_d3rlpy(env, log, learner.removeprefix(D3RLPY), rewards, seed, flags.updates)
        elif rewards == TRUE:
            policy = on_true(env, log, learner, seed, flags.updates)
        else:
            policy, worth = on_learned(log, learner, rewards, seed, flags)
        returns = [float(each.rewards.sum()) for each in play(env, policy, PLAYED, FRESH)]
        row = {"learner": learner, "rewards": rewards, **worth}
        error = float(np.std(returns) / np.sqrt(PLAYED))
        yield {**head, **row, "played": float(np.mean(returns)), "error": error}


def on_learned(
    log: list[Played], learner: str, method: str, seed: int, flags: Offline
) -> tuple[Policy, dict[str, Any]]:
    """By `apportion fit`, and what that says of its worth."""
    arrays = {
        "observations": np.concatenate([each.observations[:-1] for each in log]),
        "actions": np.concatenate([each.actions for each in log]),
        "rewards": np.concatenate([_at_the_end(each.rewards) for each in log]),
        "terminals": np.concatenate([_last(each, each.terminated) for each in log]),
        "timeouts": np.concatenate([_last(each, not each.terminated) for each in log]),
    }
    with tempfile.TemporaryDirectory() as folder:
        data, settings = Path(folder) / "log.npz", {"policy_updates": flags.updates}
        np.savez(data, allow_pickle=False, **arrays)
        run = apportion.fit(
            data, method, backbone=learner, seed=seed, out=data.parent / "run", settings=settings, quiet=True
        )
        [worth] = run.summary()["data"]["worth"]
        kept = ("policy", "policy_low", "policy_high", "untried", "verdict", "sentence")
        return run.policy(), {key: worth[key] for key in kept}


def by_d3rlpy(env: Any, log: list[Played], learner: str, method: str, seed: int, updates: int) -> Policy:
    """Theirs, on true rewards or on what `apportion relabel` made of one number an episode."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "log.h5"
        write_episodes(data, log, hidden=method != TRUE)
        if method != TRUE:
            run = apportion.fit(data, method, seed=seed, out=data.parent / "run", quiet=True)
            data = Path(str(apportion.relabel(run, data, data.parent / "credited.h5", exact=True)))
        words = [D3RLPY_PYTHON, str(PEER), str(data), learner, str(updates), str(seed)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        peer: Any = subprocess.Popen(words, **pipes)
        check(peer.stdout.read(1) == b"!", f"d3rlpy's {learner} did not learn: {' '.join(words)}")
    low, size = env.action_space.low, env.action_space.low.size

    def policy(observation: Any) -> Any:
        peer.stdin.write(np.asarray(observation, np.float32).tobytes())
        peer.stdin.flush()
        return np.frombuffer(peer.stdout.read(4 * size), np.float32).astype(low.dtype)

    return policy


def write_episodes(path: Path, log: list[Played], hidden: bool) -> None:
    """As d3rlpy's `ReplayBuffer.dump` does; where rewards are `hidden` the last step has their sum."""
    with h5py.File(path, "w") as file:
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"], file["version"] = len(log), "2.1"
        for number, each in enumerate(log):
            rewards = _at_the_end(each.rewards) if hidden else each.rewards
            file[f"observations_{number}"] = each.observations[:-1]
            file[f"actions_{number}"] = np.asarray(each.actions, np.float32)
            file[f"rewards_{number}"] = np.asarray(rewards, np.float32)[:, None]
            file[f"terminated_{number}"] = each.terminated


def _at_the_end(rewards: Any) -> Any:
    return np.append(np.zeros(len(rewards) - 1), rewards.sum())


def _last(played: Played, so: bool) -> Any:
    return (np.arange(len(played.actions)) == len(played.actions) - 1) & so


def on_true(env: Any, log: list[Played], learner: str, seed: int, updates: int) -> Policy:
    """The same learner, by the rewards that nobody was told."""
    spec = spec_of("log", env.observation_space, env.action_space, max(len(each.actions) for each in log))
    records = [
        Record(each.observations, learners_actions(spec, each.actions), 0.0, each.terminated, number)
        for number, each in enumerate(log)
    ]
    steps = all_steps(records)
    spread = np.asarray(steps.observation).std(axis=0)
    mean, scale = np.asarray(steps.observation).mean(axis=0), 1 / np.where(spread > 0, spread, 1.0)
    seen = scales.transitions(scales.unknown(spec)._replace(mean=mean, scale=scale), steps)
    backbone = backbones.find(learner).make(logged("", "rd", learner).backbone_config)
    rewards = np.concatenate([each.rewards for each in log])
    state, _ = learn_policy(backbone, spec, seen, rewards, [seed], updates)
    actor = {name: np.asarray(x[0]) for name, x in jax.vmap(backbone.actor)(state).items()}
    actor |= {"mask": np.ones(len(mean), np.float32), "mean": mean, "scale": scale}
    return lambda observation: own_action(
        spec, act(actor, backbone.head, np.asarray(observation, np.float32), None)
    )


def table(found: list[dict[str, Any]]) -> None:
    """A row for each policy, and how often `better` was true."""
    for row in found:
        who = f"{row['task']:12} {row['learner']:7} {row['rewards']:5} seed {row['seed']}"
        earned = f"{row['behaviour']:10.2f} -> {row['played']:10.2f} ± {row['error']:.2f}"
        print(who, earned, row.get("sentence", ""), flush=True)
    better = [row for row in found if row.get("verdict") == "better"]
    true = [row for row in better if row["played"] > row["behaviour"]]
    print(f"said to be better: {len(better)}, so when played: {len(true)}")


if __name__ == "__main__":
    start(main, Offline)
