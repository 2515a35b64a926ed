"""Weights & Biases: a copy of a run's numbers over time, as TensorBoard's is. All that knows the package."""

import importlib.util
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from apportion.core.config import check
from apportion.runs.logs import STORED


class WandbLog:
    """Hears of each line of metrics, inside a `with` block: `train/x` is the mean over lanes, `train/x/lane0`
    one lane. The run opens with the first line, so that a training that cannot begin leaves none.

    The package's own variables decide where to: WANDB_PROJECT, WANDB_MODE=offline, WANDB_DIR.
    """

    def __init__(self, run: Path, config: dict[str, Any]) -> None:
        there = importlib.util.find_spec("wandb") is not None
        check(there, "--wandb needs an extra: pip install 'apportion[wandb]'")
        self.run, self.config = run, config
        self._open: Any = None

    def __call__(self, line: dict[str, Any]) -> None:
        if self._open is None:
            self._open = self._begin()
        values: dict[str, float] = {"step": line["step"]}
        for name, value in line.items():
            if name not in ("step", "kind", STORED):
                values |= _named(f"{line['kind']}/{name}", value)
        # Evaluations come later than the training's own lines: steps are a number like any other.
        self._open.log(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.finish(exit_code=0 if error is None else 1)

    def _begin(self) -> Any:
        import wandb

        place = self.run.resolve()
        opened = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "apportion"),
            name=place.name,
            # The same after a resume, which then goes on in the same place.
            id=f"{place.name}-{zlib.crc32(str(place).encode()):08x}",
            resume="allow",
            config=self.config,
        )
        opened.define_metric("*", step_metric="step")
        return opened


def _named(name: str, value: Any) -> dict[str, float]:
    """A number under its name, or lanes [L] and their mean; what is missing is left out."""
    lanes = [value] if not isinstance(value, list) else value
    known = {lane: float(each) for lane, each in enumerate(lanes) if each is not None}
    if not known:
        return {}
    single = {f"{name}/lane{lane}": each for lane, each in known.items()} if len(lanes) > 1 else {}
    return {name: float(np.mean(list(known.values()))), **single}
