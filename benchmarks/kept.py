"""What can a reward say that sees only the dimensions which searches leave?

    apportion train HalfCheetah-v4 --method oracle --seeds 1 --steps 150000 --out runs/run
    python benchmarks/kept.py runs/run --out results/kept-dimensions.json

A search sees totals alone. What is left, where every dimension goes that is absent from totals; where only
those go that single steps exclude as well, the first thing that GRD asks for; and where these stay off that
any search has excluded, of those that GRD makes whenever segments have doubled. Of each, two rewards are told
in episodes at the end: the best one, from true rewards of single steps (lines and parabolas of each
dimension, learned in every other one of these episodes), and the additive one that GRD starts from, fitted to
all totals.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from searches import any_excludes, whenever_doubled

from apportion.envs.wire import strip_prefix
from apportion.graph import additive_fit, identify
from apportion.graph.features import Floats
from apportion.graph.looking import Seen
from apportion.runs import checkpoint
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, versions

WAYS = ("all", "absent from totals go", "absent from steps go", "and stay off")


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
    table = Table(title="Correlation with true rewards of steps: the best, the additive one; dimensions left")
    for column in ("run", "episodes", *WAYS):
        table.add_column(column)
    for row in rows:
        cells = [
            f"{row[way]['best']:.3f}, {row[way]['additive']:.3f} ({row[way]['dimensions']})" for way in WAYS
        ]
        table.add_row(row["run"], str(row["episodes"]), *cells)
    Console().print(table)


def study(run: Path, last: int) -> dict[str, Any]:
    """Of one training."""
    seen, paid = replayed(run)
    rows, paid = seen.rows(np.ones(len(paid), np.bool_)), paid[-last:]
    found = identify(*seen[:3], terminated=seen.terminated)
    absent = np.concatenate([found.verdict.state_to_reward, found.verdict.action_to_reward]) == "absent"
    left = (np.ones_like(absent), ~absent, ~(absent & found.nowhere), ever_left(seen, len(absent)))
    return {
        "episodes": len(rows),
        "certified": found.certificate.reward,
        **{
            way: {
                "best": best([each[:, :-1][:, on] for each in rows[-last:]], paid),
                "additive": additive(rows, seen.totals, on, paid),
                "dimensions": int(on.sum()),
            }
            for way, on in zip(WAYS, left, strict=True)
        },
    }


def replayed(run: Path) -> tuple[Seen, list[NDArray[Any]]]:
    """All segments in the replay of a training's first lane, and the rewards of their steps."""
    stored = strip_prefix(checkpoint.load_arrays(RunFolder(run).checkpoints).raw, "replay/")
    column = {name: values[0] for name, values in stored.items()}
    starts, lengths = column["segment_start"], column["segment_length"]
    parts = [slice(start, start + n) for start, n in zip(starts, lengths, strict=True) if n > 0]
    seen = Seen(
        [column["observation"][p.start : p.stop + 1] for p in parts],
        [column["action"][p] for p in parts],
        column["segment_total"][lengths > 0],
        np.array([column["terminated"][p].any() for p in parts]),
    )
    return seen, [column["true_reward"][p] for p in parts]


def ever_left(seen: Seen, dims: int) -> NDArray[np.bool_]:
    """What no search has excluded, or a later one has found."""
    left = np.ones(dims, np.float32)
    for found in whenever_doubled(seen):
        left = any_excludes(found, left)
    return left > 0


def additive(
    rows: list[NDArray[Any]], totals: NDArray[Any], on: NDArray[np.bool_], paid: list[NDArray[Any]]
) -> float:
    """Correlation of rewards, paid in the last segments, with the additive reward of these dimensions that
    fits the totals; 0 where either is constant."""
    model = additive_fit.fit(rows, totals, np.append(on, True))
    z = (np.concatenate(rows[-len(paid) :]) - model.mean) / model.std
    told = np.sum(np.stack(additive_fit.functions(z, np), axis=-1) * model.weights, axis=(1, 2))
    true = np.concatenate(paid)
    return float(np.corrcoef(told, true)[0, 1]) if told.std() > 0 and true.std() > 0 else 0.0


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
