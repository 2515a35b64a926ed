"""What could a reward say that sees only the dimensions which a search leaves?

    apportion train HalfCheetah-v4 --method oracle --seeds 1 --steps 150000 --out runs/run
    python benchmarks/kept.py runs/run --out results/kept-dimensions.json

The search sees totals alone. Then true rewards of single steps are regressed on what is left (lines and
parabolas of each dimension), in every other one of the last episodes, and told in those between: once where
every absent dimension goes, and once where only those go that single steps exclude as well, as GRD does it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apportion.envs.wire import under
from apportion.graph import identify
from apportion.graph.features import Floats
from apportion.runs import checkpoint
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, versions

WAYS = ("all", "absent from totals go", "absent from steps go")


@dataclass(frozen=True)
class Kept:
    """Compare what rewards could say that see fewer dimensions."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders of trainings, each with a checkpoint; their first lanes are looked at."""
    out: Path
    """JSON file to write."""
    last: int = 20
    """Episodes at the end: the steps of one half are learned from, those of the other half are told."""


def main(args: Kept) -> None:
    rows = [{"run": run.name, **study(run, args.last)} for run in args.runs]
    write_json(args.out, {"last": args.last, "versions": versions(), "runs": rows})
    table = Table(title="Best correlation with the true rewards of steps, and dimensions left")
    for column in ("run", "episodes", *WAYS):
        table.add_column(column)
    for row in rows:
        cells = [f"{row[way]['correlation']:.3f} ({row[way]['dimensions']})" for way in WAYS]
        table.add_row(row["run"], str(row["episodes"]), *cells)
    Console().print(table)


def study(run: Path, last: int) -> dict[str, Any]:
    """Of one training."""
    stored = under(checkpoint.load_arrays(RunFolder(run).checkpoints).raw, "replay/")
    column = {name: values[0] for name, values in stored.items()}
    parts = [slice(s, s + n) for s, n in zip(column["segment_start"], column["segment_length"], strict=True)]
    observations = [column["observation"][p.start : p.stop + 1] for p in parts]
    actions = [column["action"][p] for p in parts]
    ends = np.array([column["terminated"][p].any() for p in parts])
    found = identify(observations, actions, column["segment_total"], terminated=ends)
    absent = np.concatenate([found.verdict.state_to_reward, found.verdict.action_to_reward]) == "absent"
    pairs = list(zip(observations, actions, strict=True))[-last:]
    steps = [np.concatenate([o[: len(a)], a], axis=1) for o, a in pairs]
    paid = [column["true_reward"][p] for p in parts[-last:]]
    kept = dict(zip(WAYS, (np.ones_like(absent), ~absent, ~(absent & found.nowhere)), strict=True))
    return {
        "episodes": len(parts),
        "certified": found.certificate.reward,
        **{
            way: {"correlation": best([each[:, on] for each in steps], paid), "dimensions": int(on.sum())}
            for way, on in kept.items()
        },
    }


def best(steps: list[Floats], paid: list[NDArray[Any]]) -> float:
    """Correlation of rewards with the best sum of a line and a parabola of each column, in episodes that it
    was not learned from."""
    learned, told = np.concatenate(steps[::2]), np.concatenate(steps[1::2])
    mean, scale = learned.mean(axis=0), np.maximum(learned.std(axis=0), 1e-9)
    weights = np.linalg.lstsq(features((learned - mean) / scale), np.concatenate(paid[::2]), rcond=None)[0]
    return float(np.corrcoef(features((told - mean) / scale) @ weights, np.concatenate(paid[1::2]))[0, 1])


def features(z: Floats) -> Floats:
    return np.concatenate([z, z**2, np.ones((len(z), 1))], axis=1)


if __name__ == "__main__":
    main(tyro.cli(Kept))
