"""Do imagined steps help early? GRD with and without them on a pendulum that is paid every ten steps.

    python benchmarks/imagined.py --runs runs/imagined --out results/imagined.json
    python benchmarks/imagined.py --regime scarce --no-oracle --runs RUNS --out results/imagined-scarce.json

With steps at will, one update for each of them; with scarce ones, six. Small networks, 5 seeds. Runs whose
folder is there are not trained again. The file is one that curves.py reads; what is printed is its table.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import curves
import record
import tyro

from apportion.backbones import sac
from apportion.cli.output import remember_compilations
from apportion.envs.make import EnvConfig
from apportion.methods import grd
from apportion.runs import recording
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder
from apportion.runs.recording import Checkpoints
from apportion.training.settings import Config, Imagine, Schedule


class Regime(NamedTuple):
    schedule: Schedule
    imagine: Imagine
    moments: tuple[int, ...]  # steps that the table shows


REGIMES = {
    "plenty": Regime(
        Schedule(
            steps=5000,
            updates_per_iteration=100,
            steps_per_iteration=100,
            warmup_steps=500,
            evaluate_every=500,
        ),
        Imagine(share=0.5),
        (2000, 2500, 3000, 3500, 4000, 5000),
    ),
    "scarce": Regime(
        Schedule(
            steps=1200,
            updates_per_iteration=300,
            steps_per_iteration=50,
            warmup_steps=200,
            evaluate_every=100,
        ),
        Imagine(share=0.8, length=3),
        (400, 500, 600, 800, 1000, 1200),
    ),
}


@dataclass(frozen=True)
class Imagined:
    """Train with and without imagined steps, and compare the returns on the way."""

    runs: Path
    """Where run folders are kept."""
    out: Path
    """JSON file to write."""
    regime: Literal["plenty", "scarce"] = "plenty"
    """Whether steps are at will, or scarce and learned from more often."""
    seeds: int = 5
    """Seeds of each variant."""
    oracle: bool = True
    """Train the oracle, too."""


def main(args: Imagined) -> None:
    regime = REGIMES[args.regime]
    configs = variants(regime, args.seeds)
    folders = {args.runs / name: configs[name] for name in configs if args.oracle or name != "oracle"}
    for path, config in folders.items():
        if not path.exists():
            recording.train(config, Checkpoints(), path, quiet=True)
    runs = [record.record(RunFolder.open(path), None) for path in folders]
    write_json(args.out, {"runs": runs})
    print("\n".join(curves.table([curves.as_run(run) for run in runs], regime.moments)))


def variants(regime: Regime, seeds: int) -> dict[str, Config]:
    """By the names of their folders."""
    plain = Config(
        EnvConfig("Pendulum-v1", delay="10"),
        method_config=grd.Config(hidden=(64, 64), segments=16, update_every=2),
        backbone_config=sac.Config(hidden=(64, 64), batch_size=64, learning_rate=1e-3),
        schedule=replace(regime.schedule, evaluation_episodes=5, workers=0),
        lanes=seeds,
    )
    return {
        "grd": plain,
        "grd-imagined": replace(plain, imagine=regime.imagine),
        "oracle": replace(plain, method="oracle", method_config=None),
    }


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(Imagined))
