"""`apportion export`: a policy as one file that NumPy alone can run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from apportion.cli.arguments import blaming_the_command_line, parse
from apportion.cli.output import Flag, NoEnv, Output, RunPath, print_data
from apportion.core.config import check
from apportion.runs.folder import RunFolder
from apportion.runs.policy import check_export, export_policy, read_policy


@dataclass(frozen=True)
class Export:
    """Write a policy of a run into one file that NumPy alone can run, and other programs can read."""

    run: RunPath
    """The run folder."""
    out: Path
    """The file to write: .npz."""
    lane: int = 0
    """Which lane's policy, counted from 0."""
    best: Flag = False
    """The policy of the lane's best evaluation, instead of the newest."""
    no_env: NoEnv = False
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)


def export(argv: list[str]) -> int:
    """Write a policy of a run into one file."""
    args = parse(Export, argv, "apportion export")
    with blaming_the_command_line():
        check_export(args.out)
        check(args.lane >= 0, f"--lane {args.lane} must not be negative")
    policy = read_policy(RunFolder.open(args.run, trusted=not args.no_env), args.lane, args.best)
    size = export_policy(policy, args.out)
    facts = {**policy.facts, "skipped": list(policy.skipped)}
    data = {"policy": str(args.out), "bytes": size, "lane": args.lane, **facts}
    print_data(data, args.output, _line)
    return 0


def _line(console: Console, data: dict[str, Any]) -> None:
    size, whose = f"{data['bytes'] / 1e3:.0f} kB", f"the policy of seed {data['seed']}"
    console.print(Text(f"{data['policy']} ({size}): {whose} at step {data['step']:,}"))  # a path is no markup
