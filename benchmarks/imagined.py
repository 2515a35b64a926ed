"""Do imagined steps help early? GRD with and without them, and the oracle, on a pendulum paid all ten steps.

    python benchmarks/imagined.py --runs runs/imagined --out results/imagined.json

Small networks, one update for each step, 5 seeds. Runs whose folder is there are not trained again. The file
is one that curves.py reads; what is printed is its table.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import curves
import record
import tyro

from apportion.backbones import sac
from apportion.cli.cache import remember_compilations
from apportion.envs.make import EnvConfig
from apportion.methods import grd
from apportion.runs import recording
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder
from apportion.runs.recording import Checkpoints
from apportion.training.imagination import Imagine
from apportion.training.settings import Config, Schedule

MOMENTS = (1500, 2000, 2500, 3000, 4000, 5000)
SCHEDULE = Schedule(
    steps=5000,
    steps_per_iteration=100,
    updates_per_iteration=100,
    warmup_steps=500,
    evaluate_every=500,
    evaluation_episodes=5,
    workers=0,
)


@dataclass(frozen=True)
class Imagined:
    """Train with and without imagined steps, and compare the returns on the way."""

    runs: Path
    """Where run folders are kept."""
    out: Path
    """JSON file to write."""
    seeds: int = 5
    """Seeds of each variant."""


def main(args: Imagined) -> None:
    folders = {args.runs / name: config for name, config in variants(args.seeds).items()}
    for path, config in folders.items():
        if not path.exists():
            recording.train(config, Checkpoints(), path, quiet=True)
    runs = [record.record(RunFolder.open(path), None) for path in folders]
    write_json(args.out, {"runs": runs})
    print("\n".join(curves.table([curves.as_run(run) for run in runs], MOMENTS)))


def variants(seeds: int) -> dict[str, Config]:
    """By the names of their folders."""
    plain = Config(
        EnvConfig("Pendulum-v1", delay="10"),
        method_config=grd.Config(hidden=(64, 64), segments=16, update_every=2),
        backbone_config=sac.Config(hidden=(64, 64), batch_size=64, learning_rate=1e-3),
        schedule=SCHEDULE,
        lanes=seeds,
    )
    return {
        "grd": plain,
        "grd-imagined": replace(plain, imagine=Imagine(share=0.5)),
        "oracle": replace(plain, method="oracle", method_config=None),
    }


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(Imagined))
