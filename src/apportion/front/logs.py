"""The front door for logged episodes: `apportion.fit` and `apportion.relabel`. The verbs call the same."""

import csv
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from apportion.core import files
from apportion.core.config import Tell, UserError, check, nearest, silent
from apportion.core.terminal import say
from apportion.data.columns import Columns
from apportion.data.reading import Read, read_log
from apportion.data.writing import check_target, relabelled_id, write_copy, write_minari
from apportion.front.choosing import changed_learners
from apportion.front.run import Run
from apportion.runs.contributions import Precision
from apportion.runs.crediting import relabel_rows
from apportion.runs.fitting import fit_run
from apportion.runs.folder import default_path
from apportion.training.offline import Fitting
from apportion.training.presets import logged
from apportion.training.settings import NO_POLICY, Config


def fit(
    data: str | os.PathLike[str],
    method: str = "grd",
    *,
    backbone: str = NO_POLICY,
    episode: str | None = None,
    step: str | None = None,
    states: str | None = None,
    actions: str | None = None,
    outcome: str | None = None,
    terminated: str | None = None,
    without: str | None = None,
    lags: int = 0,
    steps: str | None = None,
    seen: str | None = None,
    outcome_kind: Literal["auto", "amount", "yes-no"] = "auto",
    seeds: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Run:
    """Learn a decomposition from logged episodes, and with a `backbone` (iql, rebrac or bc) a policy, into a
    run folder.

    `data` is a CSV, Parquet, JSON Lines, NPZ or HDF5 file, or the id of a Minari data set; what follows up to
    `seen` says which columns are what, and `outcome_kind` whether outcomes are amounts, or yes and no.
    `settings` are other flags of `apportion fit` by name: {"updates": 2_000, "method.hidden": (64, 64)}.
    """
    columns = Columns(
        episode, step, states, actions, outcome, terminated, without, lags, steps, seen, outcome_kind
    )
    config = dataclasses.replace(logged(os.fspath(data), method, backbone), seed=seed, lanes=seeds)
    known = [field.name for field in dataclasses.fields(Fitting)]
    given = {
        name: value for name, value in (settings or {}).items() if not name.startswith(("method", "backbone"))
    }
    for name in given:
        check(name in known, f"unknown setting {name!r}{nearest(name, known)}")
    rest = {name: value for name, value in (settings or {}).items() if name not in given}
    config = changed_learners(config, rest)
    read = read_log(config.env.id, columns)
    return start_fit(config, Fitting(**given), read, None if out is None else Path(out), quiet)


def start_fit(config: Config, fitting: Fitting, read: Read, out: Path | None, quiet: bool) -> Run:
    """Fit with settings that are ready, into a folder that is named for them where none is given."""
    for note in () if quiet else read.log.notes:
        say(note)
    folder = out or default_path(Path(config.env.id).stem, config.method)
    return Run(fit_run(config, fitting, read, folder, quiet))


def relabel(
    run: str | os.PathLike[str] | Run,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    credit: bool = False,
    exact: bool = False,
    precision: Precision | None = None,
    tell: Tell = silent,
) -> str:
    """Write logged episodes again with the learned reward of each step, and say where: to `out`, which has
    the format of `data`; a Minari data set gets a new id where none is given.

    Beside the reward stand `reward_low` and `reward_high`, between which it is in 90% of cases. With
    `credit`, each dimension's Shapley share is written, too; with `exact`, rewards of an episode sum up to
    its outcome, a level that all outcomes have in common included.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    name, suffix = os.fspath(data), Path(data).suffix
    if out is None and suffix:
        raise UserError(f"where should the new {suffix} file be written? Give --out")
    target = relabelled_id(name, opened.config["method"]["name"]) if out is None else os.fspath(out)
    check_target(name, target)
    found = relabel_rows(opened.folder, name, exact, credit, precision or Precision(), tell)
    if not suffix:
        write_minari(name, target, *found)
        return target
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    files.replace(Path(target), lambda temp: write_copy(name, temp, *found))
    return target


def write_kinds(path: Path, kinds: Sequence[Mapping[str, Any]]) -> Path:
    """What `Run.credit` found as a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(kinds[0]))
        writer.writeheader()
        writer.writerows(kinds)
    return path
