"""The policies of a run: to be asked, exported, or played in fresh episodes.

A lane's policy takes the environment's own observation and gives its own action. It acts in NumPy, with the
same function as the workers. `export_policy` writes all that it takes into one file, for programs that have
neither JAX nor this package.
"""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from apportion import __version__
from apportion.core.categories import expand_observations, widths
from apportion.core.config import UserError, check
from apportion.core.files import write_bytes
from apportion.core.spec import Spec
from apportion.envs.acting import Actor, act
from apportion.envs.lane import Noise
from apportion.envs.messages import Arrays
from apportion.envs.spaces import bounds, own_action
from apportion.envs.supervisor import Pool, default_workers
from apportion.runs.atomic import plain
from apportion.runs.folder import RunFolder
from apportion.runs.learned import Learned, check_lane, read_learned
from apportion.runs.logged import read_facts
from apportion.training.evaluate import judge, make_redistribute


@dataclass(frozen=True, eq=False)
class Policy:
    """Call it with one observation [S]. With a random generator it samples, as in training; else it does what
    it holds best."""

    spec: Spec
    head: str
    actor: Actor
    facts: dict[str, Any]  # whose policy it is: env, method, seed, step
    skipped: tuple[str, ...] = ()  # a line for each newer checkpoint that could not be used, or is gone

    def __call__(self, observation: Any, rng: np.random.Generator | None = None) -> Any:
        mean = self.actor.get("mean", self.actor["mask"])  # doubles, where single precision is too coarse
        seen = np.asarray(observation, mean.dtype)
        wanted = (self.spec.observation_size - self.spec.padded,)
        check(seen.shape == wanted, f"an observation of shape {seen.shape} was given: {wanted} is needed")
        bad = np.flatnonzero(~np.isfinite(seen))
        if bad.size:
            name = self.spec.observation_names[bad[0]]
            raise UserError(f"an observation with {seen[bad[0]]} in dimension {bad[0]} ({name}) was given")
        shown = expand_observations(self.spec, seen)
        return own_action(self.spec, act(self.actor, self.head, shown, rng))


def read_policy(run: RunFolder, lane: int = 0, best: bool = False) -> Policy:
    """The newest policy of a lane, or its best one."""
    learned = read_learned(run, best)
    check_lane(lane, learned.config.lanes, run)
    spec = run.read_spec()
    actor, head = learned.actor(lane)
    facts = {
        "env": spec.env_id,
        "method": learned.config.method,
        "backbone": learned.config.backbone,
        "seed": learned.config.seeds[lane],
        "step": learned.step if learned.best_steps is None else learned.best_steps[lane],
    }
    own = _own_inputs(actor, spec, learned)
    if learned.config.from_log:
        check(run.credit.exists(), f"{run.path} was stopped before its policy was learned: fit it again")
        spec, own = _from_origins(run, spec, own)
    return Policy(spec, head, own, facts, tuple(learned.skipped))


def _from_origins(run: RunFolder, spec: Spec, actor: Actor) -> tuple[Spec, Actor]:
    """For numbers as they stand in a log, some of which its run counts from their mean."""
    seen, done = read_facts(run)["encoding"].origins()
    if "mean" in actor and seen.any():
        wide = np.repeat(seen, widths(spec.levels[: len(seen)] or (0,) * len(seen)))
        far: Any = actor["mean"].astype(np.float64) + wide
        actor = actor | {"mean": far}
    low, high = ((np.array(end) + done).tolist() for end in (spec.action_low, spec.action_high))
    choices = tuple(tuple((np.array(each) + done).tolist()) for each in spec.choices)
    return replace(spec, action_low=tuple(low), action_high=tuple(high), choices=choices), actor


def export_policy(policy: Policy, path: Path) -> int:
    """Write a policy as arrays (.npz), and say how many bytes it takes."""
    check_export(path)
    spec = policy.spec
    arrays: dict[str, Any] = {
        **policy.actor,
        "head": policy.head,
        "observation_names": spec.observation_names[: spec.observation_size - spec.padded],
        "action_names": spec.action_names,
        **policy.facts,
        "apportion": __version__,
    }
    if any(spec.levels[: spec.observation_size]):
        arrays["levels"] = np.array(spec.levels[: spec.observation_size])
    if spec.choices:
        arrays["choices"] = np.array(spec.choices)
    elif spec.discrete:
        arrays["first_action"] = spec.first_action
    else:
        arrays["low"], arrays["high"] = bounds(spec)
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content.getvalue())
    return content.getbuffer().nbytes


def check_export(path: Path) -> None:
    """Complain of a file name that says another format."""
    check(path.suffix == ".npz", f"{path}: the name of an exported policy must end in .npz")


def _own_inputs(actor: Actor, spec: Spec, learned: Learned) -> Actor:
    """The actor for observations as the environment itself gives them, without our padding of zeros.

    What the paper's set-up overwrites with zeros is not looked at.
    """
    own, zero_from = learned.spec.observation_size - spec.padded, learned.config.env.zero_from
    fitted = dict(actor)
    for name in ("mask", "mean", "scale", "w0"):
        if name in actor:
            fitted[name] = actor[name][:own]
    if zero_from is not None:
        fitted["mask"] = fitted["mask"] * (np.arange(own) < zero_from)
    return fitted


# --- Fresh episodes


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


_SCORES = (
    *("returns", "return_std", "lengths", "success", "episode_correlation"),
    *("return_error", "constant_error", "step_rewards"),
)


def evaluate_run(
    run: RunFolder, playing: EvaluationSettings, best: bool = False
) -> tuple[dict[str, Any], list[list[Arrays]]]:
    """Scores of each lane over fresh episodes of its newest policy, or of its best one, ready for JSON; and
    its episodes, with `redistributed`."""
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
            **{name: getattr(scores, name) for name in _SCORES},
            "skipped": learned.skipped,
        }
    )
    return data, scores.episodes


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
