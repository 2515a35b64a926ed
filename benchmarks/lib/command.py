"""What all scripts share: flags from the command line, a mistake in one line, tables as pages have them."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import tyro

from apportion.core.config import UserError

Flags = TypeVar("Flags")


def start(main: Callable[[Flags], int | None], flags: type[Flags]) -> None:
    """Run a script with what its command line says."""
    try:
        sys.exit(main(tyro.cli(flags)))
    except UserError as error:
        sys.exit(f"error: {error}")


def given() -> str:
    """The command line, as results keep it: from the project's root, wherever it was typed."""
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def tell(line: str) -> None:
    """How far it is, apart from the result."""
    print(line, file=sys.stderr, flush=True)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A table whose first columns are text, the others numbers."""
    rule = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)).replace("| --- ", "|--- ")


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
