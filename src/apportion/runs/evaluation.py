"""Evaluate the policies of a run: fresh episodes, with or without noise on what the policy sees."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.envs.lane import Noise
from apportion.envs.messages import Arrays
from apportion.envs.supervisor import Pool, default_workers
from apportion.runs.atomic import plain
from apportion.runs.folder import RunFolder
from apportion.runs.learned import Learned, read_learned
from apportion.training.evaluate import judge, make_redistribute


@dataclass(frozen=True)
class EvaluationSettings:
    """Which fresh episodes to play."""

    episodes: int = 10
    """Episodes for each seed of the run."""
    seed: int = 10_000
    """Where the episodes' own seeds start."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise on what the policy sees."""
    noise_dims: tuple[str, ...] = ()
    """Which dimensions get the noise, by number or name; all when not given."""

    def __post_init__(self) -> None:
        check(self.episodes >= 1, f"--episodes {self.episodes} must be at least 1")
        check(self.seed >= 0, f"--seed {self.seed} must not be negative")
        check(self.noise >= 0, f"--noise {self.noise} must not be negative")
        check(self.noise > 0 or not self.noise_dims, "--noise-dims needs a --noise above 0")

    def perturbation(self, spec: Spec) -> Noise | None:
        """The noise that is asked for."""
        dims = tuple(_dimension(spec, word) for word in self.noise_dims)
        return Noise(self.noise, dims) if self.noise > 0 else None


class Evaluated(NamedTuple):
    """How each lane's policy did in fresh episodes."""

    data: dict[str, Any]  # the scores, ready for JSON
    episodes: list[list[Arrays]]  # of each lane, with `redistributed`


def evaluate_run(run: RunFolder, playing: EvaluationSettings, best: bool = False) -> Evaluated:
    """Scores of each lane over fresh episodes of its newest policy, or of its best one."""
    run.need_trust("the environment")
    noise = playing.perturbation(run.read_spec())
    learned = read_learned(run, best)
    played = play(learned, playing.episodes, playing.seed, noise)
    redistributed = make_redistribute(learned.method, learned.spec)(learned.models, played)
    # The replay is not loaded: correlate over the episodes instead.
    scores = judge(played, redistributed, np.full(learned.config.lanes, np.nan))
    data: dict[str, Any] = plain(
        {
            "run": str(run.path),
            **learned.moment(),
            "episodes": playing.episodes,
            "seed": playing.seed,
            "training_seeds": learned.config.seeds,
            "noise": None if noise is None else noise._asdict(),
            "returns": scores.returns,
            "return_std": scores.return_std,
            "lengths": scores.lengths,
            "success": scores.success,
            "episode_correlation": scores.episode_correlation,
            "return_error": scores.return_error,
            "constant_error": scores.constant_error,
            "step_rewards": scores.step_rewards,
            "skipped": learned.skipped,
        }
    )
    return Evaluated(data, scores.episodes)


def play(learned: Learned, episodes: int, seed: int, noise: Noise | None) -> list[list[Arrays]]:
    """Fresh episodes of every lane's policy. Lane i plays those of seed + i."""
    config = learned.config
    config.check_environment()
    seeds = [seed + lane for lane in range(config.lanes)]
    with Pool(config.env, seeds, config.make_backbone().head, default_workers(config.lanes)) as pool:
        learned.spec.check_same(pool.spec)
        return pool.episodes(learned.actors, 0, episodes, noise)


def _dimension(spec: Spec, word: str) -> int:
    """By name or by number."""
    if word in spec.observation_names:
        return spec.observation_names.index(word)
    inside = word.isdigit() and int(word) < spec.observation_size
    names = ", ".join(spec.observation_names[:20])
    check(inside, f"no dimension {word!r}: give numbers 0 to {spec.observation_size - 1}, or names ({names})")
    return int(word)
