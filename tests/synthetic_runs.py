"""Run folders without a training: made of random numbers, in any size and state."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import Graph, Spec
from apportion.graph.certificate import Doubt, marks
from apportion.runs.atomic import write_json
from apportion.runs.folder import Episode, RunFolder
from apportion.runs.logs import STORED, MetricsLog

HOSTILE = ("<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "%{x} <b>bold</b> &lt; \"'")


@dataclass(frozen=True)
class Recipe:
    """What a made-up run is like."""

    states: int = 4
    actions: int = 2
    lanes: int = 3
    evaluations: int = 5
    length: int = 30
    steps: int = 50_000
    method: str = "grd"
    env: str = "toy/Toy-v0"
    graph: bool = True
    truth: bool = True
    state: str = "finished"
    nan_lanes: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # of the first observations
    train_lines: int = 3
    episode_snapshots: int = 3
    seed: int = 5
    backbone: str = "sac"
    rate: float = 1e-3  # a setting of the method
    level: float = 100.0  # the return at the end
    success: bool = False  # whether the environment reports it
    paid_at_end: bool = False  # by the environment itself: no step has a true reward
    doubts: tuple[tuple[Doubt, ...], ...] = ()  # of each lane, whose edges are then verdicts


def make_run(path: Path, recipe: Recipe) -> RunFolder:
    """A run folder as a training of this kind would leave it."""
    rng = np.random.default_rng(7)
    config = {
        "env": {"id": recipe.env},
        "method": {"name": recipe.method, "rate": recipe.rate},
        "backbone": {"name": recipe.backbone, "hidden": [256, 256]},
        "schedule": {"steps": recipe.steps},
        "seed": recipe.seed,
        "lanes": recipe.lanes,
    }
    run = RunFolder.create(path, config, make_spec(recipe))
    steps = np.linspace(0, recipe.steps, recipe.evaluations + 1, dtype=int)[1:].tolist()
    log = MetricsLog(run.metrics)
    for number in range(recipe.train_lines):
        losses = {f"loss_{i}": rng.random(recipe.lanes) for i in range(13)}
        log.write(recipe.steps * number // recipe.train_lines, "train", losses)
    every = max(1, len(steps) // max(1, recipe.episode_snapshots))
    for number, step in enumerate(steps):
        progress = (number + 1) / len(steps)
        seen = number % every == every - 1
        stored = ["edges", "episodes"] if seen else ["edges"]
        log.write(step, "eval", {**_evaluation(recipe, progress, rng), STORED: stored})
        run.write_edges(step, _edges(recipe, progress, rng))
        if seen:
            lanes = [[_episode(recipe, rng) for _ in range(2)] for _ in range(recipe.lanes)]
            for lane in recipe.nan_lanes:
                for episode in lanes[lane]:
                    episode["redistributed"][:] = np.nan
            run.write_episodes(step, lanes)
    last = steps[-1] if steps else 0
    write_json(run.status, {"state": recipe.state, "step": last, "seconds": 12.5, "lines": log.lines})
    return run


def make_spec(recipe: Recipe) -> Spec:
    names = [*recipe.names, *(f"gauge {i}" for i in range(recipe.states))][: recipe.states]
    acted = tuple(f"lever {i}" for i in range(recipe.actions))
    return Spec(
        recipe.env, tuple(names), acted, recipe.length, recipe.length, truth(recipe) if recipe.truth else None
    )


def truth(recipe: Recipe) -> Graph:
    """The first two observations and the first action feed the reward; every observation feeds itself."""
    states, actions = recipe.states, recipe.actions
    return Graph(
        np.arange(states) < 2,
        np.arange(actions) < 1,
        np.eye(states, dtype=bool),
        np.arange(actions)[:, None] == np.arange(states)[None, :],
    )


def _evaluation(recipe: Recipe, progress: float, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    def lanes(level: float) -> NDArray[np.float64]:
        values = level + 0.05 * rng.standard_normal(recipe.lanes)
        values[list(recipe.nan_lanes)] = np.nan
        return values

    scores = {
        "return": recipe.level * lanes(progress),
        "return_std": lanes(1.0),
        "length": lanes(recipe.length),
        "reward_correlation": lanes(progress),
        "episode_correlation": lanes(progress),
        "return_error": lanes(1 - progress),
        "constant_error": lanes(0.3),
        "policy_mask_on": lanes(0.5),
        "seconds": np.float64(10 * progress),
    }
    if recipe.success:
        scores |= {"success": lanes(progress).clip(0, 1)}
    if recipe.paid_at_end:
        unknown = np.full(recipe.lanes, np.nan)
        scores |= {"reward_correlation": unknown, "episode_correlation": unknown}
        scores |= {"step_rewards": np.zeros(recipe.lanes, bool)}
    return scores


def _edges(recipe: Recipe, progress: float, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """From all on, with noise, to the truth."""
    mask = np.ones((recipe.lanes, recipe.states))
    if not recipe.graph:
        return {"policy_mask": mask}
    blocks = {}
    for name, true in vars(truth(recipe)).items():
        settled = 0.9 * np.where(true, 1.0, 1 - progress) + 0.05
        noise = 0.04 * rng.random((recipe.lanes, *true.shape))
        blocks[name] = settled + noise
        blocks[name][list(recipe.nan_lanes)] = np.nan
    if recipe.doubts:
        blocks = {name: np.round(block) for name, block in blocks.items()}
        blocks["state_to_reward"][:, 2] = 0.5
        blocks["doubts"] = np.array([marks(lane) for lane in recipe.doubts])
    mask[:, 2:] = progress < 0.6
    return {**blocks, "policy_mask": mask}


def _episode(recipe: Recipe, rng: np.random.Generator) -> Episode:
    length = recipe.length
    observations = rng.standard_normal((length + 1, recipe.states)).astype(np.float32)
    observations[:, list(recipe.dead)] = 0.25
    rewards = (observations[:-1, 0] + 1).astype(np.float32)
    ends = np.arange(length) == length - 1
    true_rewards = np.where(ends, rewards.sum(), 0).astype(np.float32) if recipe.paid_at_end else rewards
    return {
        "observations": observations,
        "actions": rng.uniform(-1, 1, (length, recipe.actions)).astype(np.float32),
        "true_rewards": true_rewards,
        "redistributed": rewards + 0.1 * rng.standard_normal(length).astype(np.float32),
        "paid": np.where(ends, rewards.sum(), 0).astype(np.float32),
        "segment_end": ends,
    }
