"""The front door: `apportion.train` and `apportion.load`. The command line calls the same functions."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from apportion.envs.factories import Factory
from apportion.front.choosing import choose
from apportion.front.run import Run
from apportion.runs import recording
from apportion.runs.folder import default_path
from apportion.runs.listening import Listener
from apportion.runs.recording import Checkpoints
from apportion.training.settings import Config


def train(
    env: str | Factory,
    method: str = "grd",
    *,
    backbone: str | None = None,
    steps: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    preset: Literal["default", "paper"] = "default",
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
    callback: Listener | None = None,
) -> Run:
    """Train on an environment, into a run folder.

    `env` is a Gymnasium id, module:id, or a function without arguments that makes a new environment.
    `settings` are flags of `apportion train` by name: {"method.hidden": (64, 64), "warmup_steps": 2_000}.
    `callback` is called with each line of metrics.jsonl as it is written; when it returns False, the training
    is saved and ends there. Ctrl-C saves, and raises `Stopped`.
    """
    given = {**(settings or {}), **({} if steps is None else {"steps": steps})}
    config, checkpoints = choose(env, method, backbone, seeds, seed, preset, given)
    folder = default_path(config.env.id, config.method) if out is None else Path(out)
    return start(config, checkpoints, folder, quiet, () if callback is None else (callback,))


def start(
    config: Config, checkpoints: Checkpoints, out: Path, quiet: bool, listeners: Sequence[Listener] = ()
) -> Run:
    """Train with settings that are ready."""
    return Run.ended(recording.train(config, checkpoints, out, quiet, listeners))


def load(run: str | os.PathLike[str], env: str | Factory | None = None) -> Run:
    """A run that was trained before. `env` takes the place of its environment: needed where that came from a
    function of a script, and useful where its module has another name now."""
    return Run.open(run, env)
