"""How scripts are started: flags from the command line, and a mistake in one line."""

import shlex
import sys
from collections.abc import Callable
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
