"""Evaluate the policies of a run: fresh episodes, with or without noise on what the policy sees."""

from typing import Any, NamedTuple

import jax
import numpy as np

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.envs.lane import Noise
from apportion.envs.wire import Arrays
from apportion.envs.workers import Pool, default_workers
from apportion.runs import saved as saving
from apportion.runs.atomic import plain
from apportion.runs.folder import RunFolder
from apportion.runs.recording import read_settings
from apportion.training import agent as agents
from apportion.training.agent import AgentState
from apportion.training.evaluate import judge, make_redistribute
from apportion.training.settings import Config


class Evaluated(NamedTuple):
    """How each lane's policy did in fresh episodes."""

    data: dict[str, Any]  # the scores, ready for JSON
    episodes: list[list[Arrays]]  # of each lane, with `redistributed`


def evaluate_run(run: RunFolder, episodes: int, seed: int, noise: Noise | None) -> Evaluated:
    """Scores of each lane over `episodes` fresh episodes of the newest checkpoint."""
    config, _ = read_settings(run)
    spec = run.read_spec()
    state, loaded = saving.read_agent(run.checkpoints, config, spec)
    played = play(config, state, episodes, seed, noise)
    method = agents.in_own_units(config.make_method())
    redistributed = make_redistribute(method, spec)(state._replace(backbone=None), played)
    unknown = np.full(config.lanes, np.nan)  # the replay is not loaded: correlate over the episodes instead
    scores = judge(played, redistributed, unknown)
    data: dict[str, Any] = plain(
        {
            "run": str(run.path),
            "step": loaded.step,
            "episodes": episodes,
            "seed": seed,
            "training_seeds": config.seeds,
            "noise": None if noise is None else noise._asdict(),
            "returns": scores.returns,
            "return_std": scores.return_std,
            "lengths": scores.lengths,
            "episode_correlation": scores.episode_correlation,
            "return_error": scores.return_error,
            "skipped": loaded.skipped,
        }
    )
    return Evaluated(data, scores.episodes)


def play(
    config: Config, state: AgentState, episodes: int, seed: int, noise: Noise | None
) -> list[list[Arrays]]:
    """Fresh episodes of every lane's policy. Lane i plays those of seed + i."""
    method, backbone = config.make_method(), config.make_backbone()
    actor = jax.jit(jax.vmap(lambda agent: agents.actor(method, backbone, agent)))(state)
    arrays = {name: np.asarray(array) for name, array in actor.items()}
    seeds = [seed + lane for lane in range(config.lanes)]
    with Pool(config.env, seeds, backbone.head, default_workers(config.lanes)) as pool:
        return pool.episodes(arrays, 0, episodes, noise)


def noisy_dimensions(spec: Spec, wanted: tuple[str, ...]) -> tuple[int, ...]:
    """Dimensions given by name or by number."""
    return tuple(_dimension(spec, word) for word in wanted)


def _dimension(spec: Spec, word: str) -> int:
    if word in spec.observation_names:
        return spec.observation_names.index(word)
    inside = word.isdigit() and int(word) < spec.observation_size
    names = ", ".join(spec.observation_names[:20])
    check(inside, f"no dimension {word!r}: give numbers 0 to {spec.observation_size - 1}, or names ({names})")
    return int(word)
