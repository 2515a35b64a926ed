"""What verbs print: tables for people, or one JSON object for programs."""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro
from rich.console import Console
from rich.progress import Progress

from apportion.core.config import Tell
from apportion.core.files import write_bytes
from apportion.core.registry import from_folder
from apportion.core.terminal import all_inert, console, say

Flag = tyro.conf.FlagCreatePairsOff[bool]
NoEnv = Annotated[Flag, tyro.conf.arg(help="Import no code that the run folder names.")]
WIDEST = 1_000  # characters of a table where nobody's screen cuts it off
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class Output:
    """What is printed."""

    quiet: Flag = False
    """Print errors only."""
    json: Flag = False
    """Print one JSON object on stdout."""


@contextmanager
def bar(what: str, output: Output) -> Iterator[Tell]:
    """A bar on a terminal while something takes long."""
    shown = not output.quiet and sys.stderr is not None and sys.stderr.isatty()
    with Progress(console=console(stderr=True), transient=True, disable=not shown) as progress:
        task = progress.add_task(what, total=None)

        def tell(done: int, of: int) -> None:
            progress.update(task, completed=done, total=of)

        yield tell


def print_data(
    data: dict[str, Any],
    output: Output,
    tables: Callable[[Console, dict[str, Any]], None],
    file: Path | None = None,
) -> None:
    """Data as tables or as JSON, and as a JSON file where one is asked for; tables also where the file cannot
    be written. What is to be said about the files it comes from goes to stderr."""
    try:
        if file is not None:
            write_data(data, file)
    finally:
        _print(data, output, tables)


def _print(data: dict[str, Any], output: Output, tables: Callable[[Console, dict[str, Any]], None]) -> None:
    if not output.quiet:
        for line in (*data.get("notes", ()), *data.get("skipped", ())):
            say(line)
    if sys.stdout is None:  # closed before the start
        return
    if output.json:
        print(json.dumps(data))
    elif not output.quiet:
        tables(_stdout(), all_inert(data))


def _stdout() -> Console:
    """Files and pipes have no edge: tables there are as wide as they need to be."""
    if sys.stdout.isatty():
        return console()
    return console(width=int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdigit() else WIDEST)


def write_data(data: dict[str, Any], file: Path) -> None:
    """Data as a JSON file, in a folder that is made where there is none."""
    file = from_folder(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, (json.dumps(data, indent=2) + "\n").encode())


# --- Compiled programs, kept between runs


def remember_compilations() -> None:
    """Use the user's cache folder, unless JAX's own variable names one. One folder per machine, since
    compiled code need not run on another."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = root / "apportion" / f"{platform.machine()}-{platform.node()}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return  # no home, or one without room for a cache, is no reason not to train
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
