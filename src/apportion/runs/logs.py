"""The run's numbers over time: metrics.jsonl, which is the record, and TensorBoard's copy of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from tensorboardX import SummaryWriter

from apportion.core.errors import UserError
from apportion.runs.atomic import plain, write_bytes

Kind = Literal["train", "eval"]


class MetricsLog:
    """Lines of JSON, only ever added to: {"step": 2000, "kind": "train", "reward_loss": [0.1, 0.2], ...}."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, step: int, kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
        """Adds one line, and says what is in it. Values are numbers or lists over lanes [L]; NaN and infinity
        become null."""
        entry: dict[str, Any] = plain({"step": step, "kind": kind, **values})
        # Opened for each line, so every line has left the process before training goes on.
        with self.path.open("a") as file:
            file.write(json.dumps(entry, allow_nan=False) + "\n")
        return entry

    def truncate_after(self, step: int) -> None:
        """Drops lines of later steps and one that a crash tore, as if the run had stopped at `step`."""
        if self.path.exists():
            kept = [line for line, entry in _entries(self.path) if entry["step"] <= step]
            write_bytes(self.path, b"".join(line + b"\n" for line in kept))


def read(path: Path) -> list[dict[str, Any]]:
    """All entries of a metrics file by step; a torn last line is left out.

    Evaluations run beside the training, so theirs may stand behind those of later steps."""
    entries = [entry for _, entry in _entries(path)] if path.exists() else []
    return sorted(entries, key=lambda entry: (entry["step"], entry.get("kind") == "eval"))


class Events:
    """TensorBoard's event files: `train/x` is the mean over lanes, `train/x/lane0` one lane.

    After a resume at `resumed_at`, TensorBoard hides what was written for later steps before.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = SummaryWriter(
            str(folder),
            purge_step=None if resumed_at is None else resumed_at + 1,
            flush_secs=10,
            # Files are named by the second; without a number a quick resume would empty the first one.
            filename_suffix=f".{len(list(folder.iterdir()))}",
        )

    def write(self, step: int, kind: Kind, values: Mapping[str, Any]) -> None:
        """Adds the numbers of one report; what is missing or not finite is left out."""
        for name, value in values.items():
            lanes = np.atleast_1d(np.asarray(value, np.float64))
            finite = lanes[np.isfinite(lanes)]
            if finite.size:
                self._writer.add_scalar(f"{kind}/{name}", float(finite.mean()), step)
            if lanes.size > 1:
                for lane in np.flatnonzero(np.isfinite(lanes)):
                    self._writer.add_scalar(f"{kind}/{name}/lane{lane}", float(lanes[lane]), step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _entries(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Each line with what it says."""
    lines = path.read_bytes().splitlines()
    entries = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break  # torn by a crash
            raise UserError(f"{path}, line {number}, is not JSON: remove that line") from error
        entries.append((line, entry))
    return entries
