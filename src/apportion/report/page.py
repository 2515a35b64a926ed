"""Run folders into one HTML file: the data, our own page around it, and Plotly's JavaScript inside."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from plotly.offline import get_plotlyjs

from apportion import __version__
from apportion.core.config import UserError, check, nearest, read_json_of_others
from apportion.core.files import write_bytes
from apportion.core.spec import BLOCKS, Spec
from apportion.report import episodes as playing
from apportion.report.overview import curves, scores, sentence
from apportion.report.packing import compressed, compressed_json
from apportion.report.structure import drivers, structure
from apportion.runs.folder import RunFolder, notes
from apportion.runs.summary import (
    certificates_in_words,
    faults_in_words,
    fit_in_words,
    misses_in_words,
    summarise,
    unlearned_in_words,
)

# --- Names of dimensions that the user prefers


FIELDS = ("observation_names", "action_names")

Names = dict[str, tuple[str, ...]]


def read_names(path: Path, specs: Sequence[Spec]) -> Names:
    """A JSON object with observation_names, action_names or both: lists of texts, which must fit a run."""
    data = read_json_of_others(path, ": --names takes a JSON file")
    check(isinstance(data, dict), f"{path} is not a JSON object: write {{{', '.join(FIELDS)}}}")
    check(bool(data), f"{path} names nothing: give {' or '.join(FIELDS)}")
    for field, names in data.items():
        check(field in FIELDS, f"{path} has {field!r}{nearest(field, FIELDS)}")
        good = isinstance(names, list) and all(isinstance(name, str) for name in names)
        check(good, f"{field} in {path} is not a list of texts: correct it")
    found = {field: tuple(names) for field, names in data.items()}
    given = ", ".join(f"{len(each)} {field}" for field, each in found.items())
    sizes = sorted({f"{spec.observation_size} and {spec.action_size} ({spec.env_id})" for spec in specs})
    wanted = f"but the runs have {' or '.join(sizes)}: give one for each observation and action"
    check(any(fits(found, spec) for spec in specs), f"{path} has {given}, {wanted}")
    return found


def fits(names: Names, spec: Spec) -> bool:
    """Whether there is a name for each dimension."""
    return all(len(given) == len(getattr(spec, field)) for field, given in names.items())


def renamed(spec: Spec, names: Names) -> Spec:
    """The spec with the user's names, where they fit."""
    new: dict[str, Any] = {**names} if fits(names, spec) else {}
    return dataclasses.replace(spec, **new)


LIMIT = 8_000_000  # bytes

Extras = Literal["auto", "all", "none"]
ExtrasOf = Callable[[RunFolder], playing.Extras]  # for each episode of a run


# --- The file


class Written(NamedTuple):
    """The page that was made."""

    path: Path
    size: int  # bytes
    seconds: float


def make_page(
    runs: Sequence[RunFolder],
    out: Path | None = None,
    names: Names | None = None,
    extras: Extras | ExtrasOf = "auto",
    say: Callable[[str], None] | None = None,
) -> Written:
    """Writes the page about some runs, by default to report.html: of a single run in its own folder, of
    several ones here. `extras` adds contributions and pictures to episodes: `all` also where that takes long.

    `say` is told what is damaged, and why a run has no contributions or pictures, each reason once.
    """
    began, page = time.monotonic(), page_of(runs, out)
    if say is not None:
        for line in (line for run in runs for line in notes(run)):
            say(line)

    def of_run(run: RunFolder) -> playing.Extras:
        @cache
        def explain(reason: str) -> None:
            if say is not None:
                say(f"{run.path}: {reason}")

        lanes = max(1, 3 // len(runs))  # three of all runs together, but one of each at least
        return playing.make_extras(run, lanes, extras == "all", explain)

    facts = [_Facts(run, label, names or {}) for run, label in zip(runs, labels(runs), strict=True)]
    added = extras if callable(extras) else of_run
    html = _within_limit(facts, [playing.no_extras if extras == "none" else added(run) for run in runs])
    page.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(page, html)
    return Written(page, len(html), time.monotonic() - began)


def page_of(runs: Sequence[RunFolder], out: Path | None) -> Path:
    """Where the page goes, which must not be a folder."""
    page = out or (runs[0].path / "report.html" if len(runs) == 1 else Path("report.html"))
    check(not page.is_dir(), f"{page} is a folder: give --out a file name, such as {page / 'report.html'}")
    return page


def labels(runs: Sequence[RunFolder]) -> list[str]:
    """A short name for each run: its folder's, with so many parents as it takes to tell them apart."""
    parts = [run.path.resolve().parts for run in runs]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-depth:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{each[-1]} ({number})" for number, each in enumerate(parts, start=1)]  # the same run twice


class _Facts:
    """What is read from a run once, however often the page is tried."""

    def __init__(self, run: RunFolder, label: str, names: Names) -> None:
        self.run = run
        self.label = label
        self.spec = renamed(run.read_spec(), names)
        self.summary = summarise(run)
        self.config = self.summary["config"]
        self.lanes = self.config["lanes"]
        self.evaluations = run.evaluations()
        self.curves = curves(self.evaluations, self.lanes)
        self.drivers = drivers(run.read_last_edges(), self.spec)
        self.dead = playing.dead_dimensions(run, self.spec)

    def data(self, budget: int, extras: playing.Extras) -> dict[str, Any]:
        """All that the page shows of this run, with so many bytes of edges and as many of episodes."""
        method = self.config["method"]["name"]
        seeds = [self.config["seed"] + lane for lane in range(self.lanes)]
        certificates, truth = self.summary["certificates"], self.summary["structure_scores"]
        certified = [] if self.drivers is None else certificates_in_words(certificates, seeds)
        missed = [*unlearned_in_words(self.summary), *misses_in_words(self.summary, seeds)]
        return {
            "label": self.label,
            "path": str(self.run.path),
            "env": self.spec.env_id,
            "method": method,
            "backbone": self.config["backbone"]["name"],
            "seeds": seeds,
            "steps_wanted": self.config["schedule"]["steps"],
            "status": self.summary["status"],
            "faults": faults_in_words(self.summary["faults"]),
            "notes": self.summary["notes"],
            "observation_names": self.spec.observation_names,
            "action_names": self.spec.action_names,
            "dead": self.dead,
            "sentence": " ".join(
                [
                    sentence(self.drivers, method, self.lanes, bool(self.evaluations)),
                    *fit_in_words(self.summary["data"], seeds),
                ]
            ),
            "step_rewards": self.summary["step_rewards"],
            "certificates": certificates,
            "certified": [*certified, *missed],
            "scores": scores(self.evaluations, self.lanes),
            "structure_scores": None if truth is None else {k: truth[k] for k in BLOCKS if k in truth},
            "curves": self.curves,
            "structure": structure(self.run, self.spec, budget),
            "player": playing.episodes(self.run, self.spec, self.dead, budget, extras),
            "config": self.config,
            "versions": self.summary["versions"],
        }


def _within_limit(facts: list[_Facts], extras: list[playing.Extras]) -> bytes:
    """The page with as many moments and episodes as there is room for."""
    # Each of both has a quarter of the page, before base64 makes four bytes of three.
    budget = LIMIT // 4 // len(facts)
    while budget > LIMIT // 512 // len(facts):
        html = _html([one.data(budget, more) for one, more in zip(facts, extras, strict=True)])
        if len(html) < LIMIT:
            return html
        budget //= 2
    # What is larger than the page even then is curves and settings.
    raise UserError(f"a page of {len(facts)} runs exceeds {LIMIT:,} bytes: give fewer runs")


def _html(runs: list[dict[str, Any]]) -> bytes:
    """Our page with everything in it. What comes from runs is compressed, so no name in it can be markup."""
    folder = files("apportion.report") / "page"
    made = f"{datetime.now():%Y-%m-%d %H:%M}"
    parts = {part.name: part.read_text("utf-8") for part in folder.iterdir()}
    html = parts.pop("page.html")
    parts["DATA"] = compressed_json({"made": made, "version": __version__, "runs": runs})
    for name, text in (parts | {"PLOTLY": _plotly()}).items():
        html = html.replace(f"/*{name}*/", text)
    return html.encode()


@cache
def _plotly() -> str:
    """5 MB of JavaScript, compressed once."""
    return compressed(get_plotlyjs())
