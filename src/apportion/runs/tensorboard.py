"""TensorBoard's copy of the metrics: event files in its own format."""

import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from apportion.runs.atomic import append
from apportion.runs.logs import Kind


@contextmanager
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


class Events:
    """One event file: `train/x` is the mean over lanes, `train/x/lane0` one lane.

    After a resume at `resumed_at`, TensorBoard hides what was written for later steps before. Records are
    written here, not by tensorboardX's thread, which would die of a full disk.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Named by the second; the number tells the files of quick resumes apart.
        number = len(list(folder.iterdir()))
        self.path = folder / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{number}"
        start = [Event(wall_time=time.time(), file_version="brain.Event:2")]
        if resumed_at is not None:
            session = SessionLog(status=SessionLog.START)
            start.append(Event(wall_time=time.time(), step=resumed_at + 1, session_log=session))
        self._start = b"".join(map(_record, start))

    def write(self, step: int, kind: Kind, values: Mapping[str, Any]) -> None:
        """Adds the numbers of one report; what is missing or not finite is left out."""
        found: dict[str, float] = {}
        for name, value in values.items():
            lanes = np.atleast_1d(np.asarray(value, np.float64))
            finite = lanes[np.isfinite(lanes)]
            if finite.size:
                found[f"{kind}/{name}"] = float(finite.mean())
            if lanes.size > 1:
                single = np.flatnonzero(np.isfinite(lanes))
                found |= {f"{kind}/{name}/lane{lane}": float(lanes[lane]) for lane in single}
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in found.items()])
        append(self.path, self._start + _record(Event(wall_time=time.time(), step=step, summary=summary)))
        self._start = b""


def _record(event: Event) -> bytes:
    """Length and content, each followed by its checksum."""
    content = event.SerializeToString()
    length = struct.pack("<Q", len(content))
    sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, content))
    return length + next(sums) + content + next(sums)
