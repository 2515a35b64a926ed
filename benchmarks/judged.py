"""Does it matter by what GRD's judge counts errors: by totals, or by mean rewards per step?

    apportion train Hopper-v4 --seeds 1 --steps 30000 --out runs/hopper
    python benchmarks/judged.py runs/hopper --out results/judged.json

Both rewards of a training are asked about every segment of its replay. Of those that are held out, q is the
squared error of the restricted reward by that of the free one: below 1 the judge prefers the former. What it
should prefer is told by the true rewards of single steps, which it never sees. The replay must still have all
segments, for they are held out by their numbers.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from kept import replayed
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apportion.graph.looking import Seen
from apportion.methods.grd import closed_form, judge
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, versions
from apportion.runs.learned import read_learned
from apportion.training import scaling
from apportion.training.agent import AgentState

NAMES = ("restricted", "free")  # as they stand side by side in GRD


@dataclass(frozen=True)
class Judged:
    """Compare ways to count errors on the segments that GRD holds out."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders of trainings of GRD, each with a checkpoint; their first lanes are looked at."""
    out: Path
    """JSON file to write."""
    last: int = 30
    """Segments at the end whose steps tell which reward is the truer one."""


def main(args: Judged) -> None:
    rows = [{"run": run.name, **study(run, args.last)} for run in args.runs]
    write_json(args.out, {"last": args.last, "versions": versions(), "runs": rows})
    table = Table(title="Restricted and free reward, and which of them held-out segments prefer")
    for column in ("run", "segments", "lengths", "correlations", "q by totals", "q by means"):
        table.add_column(column)
    for row in rows:
        told = ", ".join(f"{row['correlation'][name]:.3f}" for name in NAMES)
        lengths = " to ".join(f"{length}" for length in row["lengths"])
        ratios = (f"{row[way]:.2f}" for way in ("by_totals", "by_means"))
        table.add_row(row["run"], str(row["segments"]), lengths, told, *ratios)
    Console().print(table)


def study(run: Path, last: int) -> dict[str, Any]:
    """Of one training."""
    seen, paid = replayed(run)
    state: AgentState = read_learned(RunFolder(run)).model(0)
    both = told(state, seen)
    lengths = np.array([len(actions) for actions in seen.actions])
    starts = np.cumsum(lengths) - lengths
    missed = np.add.reduceat(both, starts, axis=1) - seen.totals
    held_out = np.array([judge.is_held_out(number) for number in range(len(lengths))])
    end, true = both[:, starts[-last:][0] :], np.concatenate(paid[-last:])
    return {
        "segments": len(lengths),
        "held_out": int(held_out.sum()),
        "lengths": [int(lengths.min()), int(np.median(lengths)), int(lengths.max())],
        "correlation": {
            name: float(np.corrcoef(rewards, true)[0, 1]) for name, rewards in zip(NAMES, end, strict=True)
        },
        "by_totals": ratio(missed[:, held_out]),
        "by_means": ratio((missed / lengths)[:, held_out]),
    }


def told(state: AgentState, seen: Seen) -> NDArray[np.float64]:
    """[2, N] what both rewards say of all steps, one segment after another."""
    before, after = (
        scaling.observations(state.scaling, jnp.asarray(np.concatenate(parts)))
        for parts in ([o[:-1] for o in seen.observations], [o[1:] for o in seen.observations])
    )
    ends = [
        np.arange(len(a)) == (len(a) - 1 if over else -1)
        for a, over in zip(seen.actions, seen.terminated, strict=True)
    ]
    x = closed_form.inputs(
        before, jnp.asarray(np.concatenate(seen.actions)), after, jnp.asarray(np.concatenate(ends))
    )
    masks = closed_form.input_masks(state.method.edges)
    return np.asarray(jax.jit(closed_form.predict)(state.method.rewards, masks, x), np.float64)


def ratio(errors: NDArray[np.float64]) -> float:
    squares = np.sum(errors**2, axis=1)
    return float(squares[judge.RESTRICTED] / squares[judge.FREE])


if __name__ == "__main__":
    main(tyro.cli(Judged))
