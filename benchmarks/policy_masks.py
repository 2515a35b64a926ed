"""How much should the policy see? GRD with each kind of policy mask, on tasks whose graph is known.

    python benchmarks/policy_masks.py --out results/policy-masks.json

The greenhouse and drawn tasks, each with the reward's parents only, those and theirs (one hop), all ancestors
(closure), and every dimension. Beside them the oracle, whose policy sees every dimension.
"""

import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from apportion.bench import drawn
from apportion.cli.output import remember_compilations
from apportion.methods import grd
from apportion.report.statistics import band, mean
from apportion.runs import recording
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions
from apportion.runs.recording import Checkpoints
from apportion.runs.summary import summarise
from apportion.training.presets import GREENHOUSE, preset
from apportion.training.settings import Config

MASKS = get_args(get_type_hints(grd.Config)["compact"])


@dataclass(frozen=True)
class PolicyMasks:
    """Train GRD with each kind of policy mask, and the oracle."""

    out: Path
    """JSON file to write, after every training."""
    problems: int = 3
    """Drawn tasks, beside the greenhouse."""
    seeds: int = 5
    """Seeds per task and mask."""


def main(args: PolicyMasks) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for task, configs in tasks(args).items():
        rows[task] = {}
        for name, config in configs.items():
            rows[task][name] = trained(config)
            data = {"config": {**asdict(args), "out": str(args.out)}, "versions": versions(), "rows": rows}
            write_json(args.out, data)
    table = Table(title="Mean return over seeds [95% interval]", title_justify="left")
    for column in ("task", *MASKS, "oracle"):
        table.add_column(column)
    for task, row in rows.items():
        table.add_row(task, *(shown(row[name]["return"]) for name in (*MASKS, "oracle")))
    Console(width=160).print(table)


def tasks(args: PolicyMasks) -> dict[str, dict[str, Config]]:
    """For each task what is trained on it."""
    pairs = {
        "greenhouse": [
            replace(preset(GREENHOUSE, name, "sac"), lanes=args.seeds) for name in ("grd", "oracle")
        ]
    }
    for problem in range(args.problems):
        pairs[f"drawn {problem}"] = [drawn.training(problem, name, args.seeds) for name in ("grd", "oracle")]
    return {task: {**with_masks(ours), "oracle": oracle} for task, (ours, oracle) in pairs.items()}


def with_masks(config: Config) -> dict[str, Config]:
    return {
        mask: replace(config, method_config=replace(config.method_config, compact=mask)) for mask in MASKS
    }


def trained(config: Config) -> dict[str, Any]:
    """Scores of one training."""
    with tempfile.TemporaryDirectory() as folder:
        summary = summarise(recording.train(config, Checkpoints(), Path(folder) / "run", quiet=True).run)
    return {"return": summary["final_return"], "policy_mask": summary["graph"]["policy_mask"]}


def shown(returns: list[float]) -> str:
    centre, low, high = (float(number[0]) for number in band(np.array([returns]), mean))
    return f"{centre:.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    remember_compilations()
    main(tyro.cli(PolicyMasks))
