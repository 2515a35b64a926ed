"""Others who hear of a run's numbers as they are written: a callback, TensorBoard, Weights & Biases."""

import contextlib
import importlib.util
import os
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from apportion.core.config import check
from apportion.core.files import append
from apportion.runs.logs import STORED


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """tensorboardX imports torch where it is installed, only to annotate: seconds at every start."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


with _without_torch():
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.record_writer import masked_crc32c


Listener = Callable[[dict[str, Any]], object]  # hears of each line of metrics; False asks for a stop


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """`train/x` is the mean over lanes, `train/x/lane0` one lane; what is no finite number is left out."""
    found: dict[str, float] = {}
    for name in line.keys() - {"step", "kind", STORED}:
        lanes = np.atleast_1d(np.asarray(line[name], np.float64))  # None becomes NaN
        known = np.flatnonzero(np.isfinite(lanes))
        if known.size:
            found[f"{line['kind']}/{name}"] = float(lanes[known].mean())
        if lanes.size > 1:
            found |= {f"{line['kind']}/{name}/lane{lane}": float(lanes[lane]) for lane in known}
    return found


class Events:
    """Writes `scalars` for TensorBoard, into an event file in its own format.

    After a resume at `resumed_at`, TensorBoard hides what was written for later steps before. Records are
    written here, not by tensorboardX's thread, which would die of a full disk.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Named by the second; the number tells the files of quick resumes apart.
        number = len(list(folder.iterdir()))
        self.path = folder / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{number}"
        self._unwritten = _record(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if resumed_at is not None:
            session = SessionLog(status=SessionLog.START)
            self._unwritten += _record(Event(wall_time=time.time(), step=resumed_at + 1, session_log=session))

    def __call__(self, line: dict[str, Any]) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(line).items()]
        summary = Summary(value=values)
        self._unwritten += _record(Event(wall_time=time.time(), step=line["step"], summary=summary))
        with contextlib.suppress(OSError):  # without room now, it goes with the next line
            append(self.path, self._unwritten)
            self._unwritten = b""


def _record(event: Event) -> bytes:
    """Length and content, each followed by its checksum."""
    content = event.SerializeToString()
    length = struct.pack("<Q", len(content))
    sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, content))
    return length + next(sums) + content + next(sums)


class WandbLog:
    """Tells Weights & Biases `scalars`, inside a `with` block. The run opens with the first line, so that
    a training that cannot begin leaves none.

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
        # Evaluations come later than the training's own lines: steps are a number like any other.
        self._open.log({"step": line["step"], **scalars(line)})

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
