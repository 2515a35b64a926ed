"""The page about some runs, with all that can be said about their newest episodes."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from apportion.core.config import check
from apportion.report.episodes import Extras as EpisodeExtras
from apportion.report.extras import make_extras
from apportion.report.names import Names
from apportion.report.page import Written, write_report
from apportion.runs.folder import RunFolder
from apportion.runs.notes import notes

LANES_EXPLAINED = 3  # of all runs together, but one of each at least

Extras = Literal["auto", "all", "none"]


def make_page(
    runs: Sequence[RunFolder],
    out: Path | None = None,
    names: Names | None = None,
    extras: Extras = "auto",
    say: Callable[[str], None] | None = None,
) -> Written:
    """Writes it, by default to report.html: of a single run in its own folder, of several ones here.

    `say` is told what is damaged, and why a run has no contributions or pictures, each reason once.
    """
    page = page_of(runs, out)
    if say is not None:
        for line in (line for run in runs for line in notes(run)):
            say(line)

    def of_run(run: RunFolder) -> EpisodeExtras:
        @cache
        def explain(reason: str) -> None:
            if say is not None:
                say(f"{run.path}: {reason}")

        return make_extras(run, max(1, LANES_EXPLAINED // len(runs)), extras == "all", explain)

    return write_report(runs, page, names or {}, None if extras == "none" else of_run)


def page_of(runs: Sequence[RunFolder], out: Path | None) -> Path:
    """Where the page goes, which must not be a folder."""
    page = out or (runs[0].path / "report.html" if len(runs) == 1 else Path("report.html"))
    check(not page.is_dir(), f"{page} is a folder: give --out a file name, such as {page / 'report.html'}")
    return page
