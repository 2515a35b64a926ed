"""Our backbones beside those of Stable-Baselines3 (or SBX), on the dense reward: one table, kept as JSON.

    python benchmarks/validation.py --out results/validation.json

Same tasks, steps, seeds and settings on both sides. The score of a seed is the mean of its last evaluations.
Every finished run is kept in --folder at once; the same command again makes only those that are missing.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from apportion.cli.display import remember_compilations
from apportion.core.config import check, to_dict
from apportion.report import statistics
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions
from apportion.training import loop as train
from apportion.training.presets import preset
from apportion.training.settings import Config, Schedule
from lib.command import given, markdown, start, tell

OURS = "apportion"
LIBRARIES = {"sb3": "stable_baselines3", "sbx": "sbx"}  # a peer's name, and what it is imported as
# In all, and of warm-up.
STEPS = {"Pendulum-v1": (10_000, 1_000), "HalfCheetah-v4": (30_000, 5_000)}
EVALUATIONS = 10
LAST = 3  # evaluations that make a seed's score
SHARED = ("steps", "steps_per_iteration", "updates_per_iteration", "warmup_steps")
SHARED += ("evaluate_every", "evaluation_episodes", "replay_steps")
# Many trainings share the machine: one thread each, and the card is ours.
CHILD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
CHILD |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


@dataclass(frozen=True)
class Validation:
    """Train our backbones and those of other libraries side by side."""

    out: Path = Path("results/validation.json")
    """JSON file to write."""
    tasks: tuple[str, ...] = tuple(STEPS)
    """Environment ids."""
    backbones: tuple[str, ...] = ("sac", "td3", "ddpg")
    """Which of ours to compare; the peers must have them, too. Only `sbx` has `crossq`."""
    peers: tuple[Literal["sb3", "sbx"], ...] = ("sb3",)
    """Whom to compare with."""
    seeds: int = 5
    """Seeds per backbone, task and library."""
    steps: int | None = None
    """Environment steps per seed, in every task; each task's own number when not given."""
    workers: int = os.cpu_count() or 1
    """Trainings of peers at a time, each in a process with one thread. Ours run beside them."""
    critic_hidden: tuple[int, ...] | None = None
    """Hidden layers of critics, where a backbone has this setting; its own when not given."""
    folder: Path = Path("runs/validation")
    """Where finished runs are kept."""
    delay: str = "none"
    """When reward is paid to ours. With `none`, a step can be learned from at once, as with the peers."""
    overlap: bool = False
    """Let ours collect while updating, with a policy one iteration old, as `apportion train` does."""
    commit: str | None = None
    """Commit of the code, where this is run outside its repository."""


class Run(NamedTuple):
    """Evaluations of one library's training of one backbone on one task: [K] steps, returns by seed."""

    steps: list[int]
    returns: dict[int, list[float | None]]  # None: not a number, a training that diverged

    @property
    def scores(self) -> list[float]:
        """The mean of each seed's last evaluations; a diverged seed counts as its last number."""
        return [score for curve in self.returns.values() if (score := last_mean(curve)) is not None]


Case = tuple[str, str]  # task, backbone
Runs = dict[Case, dict[str, Run]]  # by library


def main(args: Validation) -> None:
    for peer in args.peers:
        missing = importlib.util.find_spec(LIBRARIES[peer]) is None
        check(not missing, f"--peers {peer} needs a package that is missing: {LIBRARIES[peer]}")
    args.folder.mkdir(parents=True, exist_ok=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    configs = {(task, name): our_settings(args, task, name) for task in args.tasks for name in args.backbones}
    made_with = versions()
    made_with["commit"] = made_with["commit"] or args.commit
    with ThreadPoolExecutor(args.workers) as threads:
        futures = [
            threads.submit(train_peer, settings, file)
            for config in by_cost(configs)
            for settings, file in peer_runs(args, config)
        ]
        for config in by_cost(configs):
            train_ours(config, args)
    print(table(write_results(args, configs, made_with)))
    failures = [str(error) for future in futures if (error := future.exception()) is not None]
    check(not failures, "; ".join(failures))


# --- Settings


def our_settings(args: Validation, task: str, backbone: str) -> Config:
    """What `apportion train TASK --method oracle` starts from, for as many steps as the peers and, as theirs,
    with observations as they come."""
    config = preset(task, "oracle", backbone)
    env = replace(config.env, delay=args.delay)
    schedule = replace(scaled(config.schedule, task, args.steps), overlap=args.overlap)
    if args.critic_hidden is not None and "critic_hidden" in to_dict(config.backbone_config):
        narrow = replace(config.backbone_config, critic_hidden=args.critic_hidden)
        config = replace(config, backbone_config=narrow)
    return replace(config, env=env, schedule=schedule, lanes=args.seeds, normalise=False)


def scaled(schedule: Schedule, task: str, steps: int | None) -> Schedule:
    """For so many steps: ten evaluations, and a warm-up of at most a third, both in whole iterations."""
    usual, warmup = STEPS.get(task, (schedule.steps, schedule.warmup_steps))
    steps, iteration = usual if steps is None else steps, schedule.steps_per_iteration
    check(steps >= 1 and steps % iteration == 0, f"--steps {steps} must be a multiple of {iteration}")
    warmup = min(warmup, steps // 3) // iteration * iteration
    every = max(1, steps // EVALUATIONS // iteration) * iteration
    return replace(schedule, steps=steps, warmup_steps=warmup, evaluate_every=every)


def by_cost(configs: dict[Case, Config]) -> list[Config]:
    """The longest first, so that no core waits for a late one at the end."""
    return sorted(configs.values(), key=lambda config: -config.schedule.steps)


def peer_runs(args: Validation, config: Config) -> Iterator[tuple[dict[str, Any], Path]]:
    """Settings and file of every training of the peers beside one of ours."""
    for peer in args.peers:
        for seed in config.seeds:
            yield peer_settings(config, peer, seed), run_file(args, config, f"{peer}-seed{seed}")


def peer_settings(config: Config, peer: str, seed: int) -> dict[str, Any]:
    schedule = to_dict(config.schedule)
    settings = {
        "library": LIBRARIES[peer],
        "task": config.env.id,
        "seed": seed,
        "backbone": config.to_dict()["backbone"],
        "schedule": {name: schedule[name] for name in SHARED},
    }
    return as_json(settings)


def run_file(args: Validation, config: Config, who: str) -> Path:
    task = config.env.id.replace("/", "_").replace(":", "_")
    return args.folder / f"{task}-{config.backbone}-{config.schedule.steps}-{who}.json"


def as_json(data: Any) -> Any:
    """As it comes back from a file: tuples are lists."""
    return json.loads(json.dumps(data))


# --- Runs


def finished(file: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """What a finished training with these very settings left, or None."""
    try:
        result = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and result.get("settings") == settings else None


def train_ours(config: Config, args: Validation) -> None:
    """All seeds together, unless that is done."""
    file, settings = run_file(args, config, OURS), as_json(config.to_dict())
    if finished(file, settings) is not None:
        return
    began = time.monotonic()
    steps, returns = [], []
    with train.open_pool(config) as pool:
        for snapshot in train.online(config, pool):
            for report in snapshot.reports:
                steps.append(report.step)
                returns.append(report.evaluation.returns)
    seconds = round(time.monotonic() - began, 1)
    by_seed = np.transpose(returns)  # [L, K]
    write_json(file, {"settings": settings, "seconds": seconds, "steps": steps, "returns": by_seed})
    tell(f"{file.stem}, {config.lanes} seeds: {seconds:.0f} s")


def train_peer(settings: dict[str, Any], file: Path) -> None:
    """In a process of its own, unless that is done. What it prints stays beside the file if it fails."""
    if finished(file, settings) is not None:
        return
    began, log = time.monotonic(), file.with_suffix(".log")
    words = [str(Path(__file__).parent / "lib/peer.py"), "--out", str(file)]
    words += ["--settings", json.dumps(settings)]
    with log.open("wb") as output:
        code = subprocess.call(
            [sys.executable, *words], stdout=output, stderr=output, env={**os.environ, **CHILD}
        )
    check(code == 0, f"{file.stem} failed: see {log}, and run it again")
    log.unlink()
    tell(f"{file.stem}: {time.monotonic() - began:.0f} s")


# --- Results


def read_runs(args: Validation, configs: dict[Case, Config]) -> Runs:
    """All that is finished."""
    runs: Runs = {}
    for case, config in configs.items():
        runs[case] = {}
        if ours := finished(run_file(args, config, OURS), as_json(config.to_dict())):
            curves = dict(zip(config.seeds, ours["returns"], strict=True))
            runs[case][OURS] = Run(ours["steps"], curves)
        for peer in args.peers:
            files = {seed: run_file(args, config, f"{peer}-seed{seed}") for seed in config.seeds}
            found = {seed: finished(file, peer_settings(config, peer, seed)) for seed, file in files.items()}
            theirs = {seed: each for seed, each in found.items() if each is not None}
            if theirs:
                steps = next(iter(theirs.values()))["steps"]
                runs[case][peer] = Run(steps, {seed: each["returns"] for seed, each in theirs.items()})
        assert len({tuple(run.steps) for run in runs[case].values()}) <= 1, "evaluated at other steps"
    return runs


def write_results(args: Validation, configs: dict[Case, Config], made_with: dict[str, Any]) -> list[Any]:
    """Write what is there so far; gives the table's rows."""
    runs = read_runs(args, configs)
    found = rows(runs, args.peers)
    data = {
        "command": given(),
        "versions": made_with | peer_versions(args),
        "score": f"mean of the last {LAST} evaluations of a seed",
        "rows": found,
        "runs": [
            {
                "task": config.env.id,
                "settings": config.to_dict(),
                "curves": {name: run._asdict() for name, run in runs[case].items()},
            }
            for case, config in configs.items()
        ],
    }
    write_json(args.out, data)
    return found


def peer_versions(args: Validation) -> dict[str, Any]:
    """What the peers' trainings were made with: the newest one's word."""
    files = sorted(args.folder.glob("*-seed*.json"), key=lambda file: file.stat().st_mtime)
    return json.loads(files[-1].read_text())["versions"] if files else {}


def rows(runs: Runs, peers: tuple[str, ...]) -> list[dict[str, Any]]:
    """One row for each task, backbone and peer."""
    found = []
    for (task, backbone), by_library in runs.items():
        ours = by_library[OURS].scores if OURS in by_library else []
        for peer in peers:
            theirs = by_library[peer].scores if peer in by_library else []
            row = {"task": task, "backbone": backbone, "peer": peer, "seeds": [len(ours), len(theirs)]}
            row |= {"ours": mean(ours), "theirs": mean(theirs), "difference": difference(ours, theirs)}
            found.append(row | {"p": welch(ours, theirs)})
    return found


HEADS = ("task", "backbone", "peer", "seeds", "ours", "theirs", "difference", "p")


def table(rows: list[dict[str, Any]]) -> str:
    """As the page has it."""
    return markdown(HEADS, [cells(row) for row in rows], texts=3)


def cells(row: dict[str, Any]) -> list[str]:
    scores = [shown(row[name]) for name in ("ours", "theirs", "difference")]
    p = "-" if row["p"] is None else f"{row['p']:.2g}"
    return [row["task"], row["backbone"], row["peer"], " / ".join(map(str, row["seeds"])), *scores, p]


def shown(numbers: list[float] | None) -> str:
    if numbers is None:
        return "-"
    value, *interval = [f"{number:,.0f}" for number in numbers]
    return f"{value} [{', '.join(interval)}]" if interval else value


# --- Statistics


def last_mean(curve: list[float | None]) -> float | None:
    """Mean of the last evaluations that are numbers."""
    known = [value for value in curve if value is not None]
    return float(np.mean(known[-LAST:])) if known else None


def mean(scores: list[float]) -> list[float] | None:
    """Mean over seeds, and where two are there the 95% bootstrap interval of it."""
    return statistics.interval(scores, statistics.mean).known() or None


def difference(ours: list[float], theirs: list[float]) -> list[float] | None:
    """Ours minus theirs, with the interval from resampling both."""
    return statistics.difference(ours, theirs, statistics.mean).known() or None


def welch(ours: list[float], theirs: list[float]) -> float | None:
    """How likely means this far apart are by chance (Welch's t-test, two-sided)."""
    if min(len(ours), len(theirs)) < 2 or np.std(ours) + np.std(theirs) == 0:
        return None
    return float(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)


if __name__ == "__main__":
    remember_compilations()
    start(main, Validation)
