"""The front door for logged episodes: `apportion.fit` and `apportion.relabel`. The verbs call the same."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from apportion.core.config import Tell, check, silent
from apportion.core.terminal import say
from apportion.data.columns import Columns
from apportion.data.minari_sets import relabelled_id
from apportion.data.reading import Read, check_target, read_log, write_copy
from apportion.front.choosing import with_settings
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
    path: str | None = None,
    count: str | None = None,
    null: str | None = None,
    value: str | None = None,
    embed: str | None = None,
    seeds: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Run:
    """Learn a decomposition from logged episodes, and with a `backbone` (iql, rebrac or bc) a policy, into a
    run folder.

    `data` is a CSV, Parquet, JSON Lines, NPZ or HDF5 file, or the id of a Minari data set; what follows up to
    `seen` says which columns are what, `outcome_kind` whether outcomes are amounts, or yes and no, and `path`
    and what follows up to `value` what stands where in a table with a row for each path. `embed` turns free
    texts into vectors.
    `settings` are other flags of `apportion fit` by name: {"updates": 2_000, "method.hidden": (64, 64)}.
    """
    of_steps = (episode, step, states, actions, outcome, terminated, without, lags, steps, seen)
    columns = Columns(*of_steps, outcome_kind, path, count, null, value, embed)
    config = logged(os.fspath(data), method, backbone)
    parts = {"method": config.method_config, "fitting": Fitting()}
    if config.has_policy:
        parts["backbone"] = config.backbone_config
    parts = with_settings(parts, settings or {})
    fitting = parts.pop("fitting")
    groups = {f"{name}_config": part for name, part in parts.items()}
    config = dataclasses.replace(config, seed=seed, lanes=seeds, **groups)
    read = read_log(config.env.id, columns)
    return start_fit(config, fitting, read, None if out is None else Path(out), quiet)


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
    decided: bool = False,
    exact: bool = False,
    precision: Precision | None = None,
    embed: str | None = None,
    tell: Tell = silent,
) -> str:
    """Write logged episodes again with the learned reward of each step, and say where: to `out`, which has
    the format of `data`; a Minari data set gets a new id where none is given.

    Beside the reward stand `reward_low` and `reward_high`, between which it is in 90% of cases. With
    `credit`, each dimension's Shapley share is written, too, or, with `decided`, of those alone of which the
    log tells whether they matter; with `exact`, rewards of an episode sum up to its outcome, a level that all
    outcomes have in common included. `embed` names the embedder of the fit again, where it was one's own.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    name, suffix = os.fspath(data), Path(data).suffix
    check(out is not None or not suffix, f"where should the new {suffix} file be written? Give --out")
    target = relabelled_id(name, opened.config["method"]["name"]) if out is None else os.fspath(out)
    check_target(name, target)
    precision = precision or Precision()
    earned = relabel_rows(opened.folder, name, exact, credit, precision, tell, embed, decided)
    write_copy(name, target, earned)
    return target
