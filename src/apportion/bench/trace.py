"""Where the time goes: JAX's profiler, summed by kind of operation."""

import gzip
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax

# How XLA names matrix products: its library's on a CPU, and on a GPU.
PRODUCTS = (
    "dot",
    "ynn_fusion",
    "onednn",
    "gemm",
    "cublas",
    "custom-call",
    "cutlass",
    "triton_gemm",
    "sm90_xmma_gemm",
)
_GRAPH = "command_buffer"
_AROUND = ("while", "call", "conditional")  # whose time is that of what they contain

Event = dict[str, Any]  # as Chrome's trace format has it; times in µs


class Kernels(NamedTuple):
    """What an accelerator ran: kernels and copies, of all streams together."""

    number: int
    median_seconds: float
    busy_seconds: float  # theirs, added up
    span_seconds: float  # from the first one's start to the last one's end


def events(run: Callable[[], None]) -> list[Event]:
    """All that JAX's profiler sees during one run."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        [file] = Path(folder).rglob("*.trace.json.gz")
        return read(file)


def read(file: Path) -> list[Event]:
    found: list[Event] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return found


def by_kind(events: list[Event]) -> dict[str, float]:
    """Seconds by kind of operation of compiled programs, the longest first.

    Operations that run at the same time are all counted, so the sum may exceed the run's time.
    """
    seconds: Counter[str] = Counter()
    for event in events:
        operation = event.get("args", {}).get("hlo_op", "")
        if operation.startswith(_GRAPH):  # of which its kernels have names of their own
            operation = event["name"]
        kind = re.sub(r"_\d+$", "", operation.split(".")[0])  # of dot.4, in a graph of dot_4
        if kind and kind not in _AROUND:
            seconds[kind] += event["dur"] / 1e6
    return dict(seconds.most_common())


def kernels(events: list[Event]) -> Kernels | None:
    """None where there is no accelerator."""
    named = (event for event in events if event.get("name") == "process_name")
    devices = {event["pid"] for event in named if event["args"]["name"].startswith("/device:")}
    ran = [event for event in events if event.get("ph") == "X" and event["pid"] in devices]
    if not ran:
        return None
    taken = [event["dur"] / 1e6 for event in ran]
    begun, ended = min(event["ts"] for event in ran), max(event["ts"] + event["dur"] for event in ran)
    return Kernels(len(ran), median(taken), sum(taken), (ended - begun) / 1e6)


def share_of_products(seconds: dict[str, float]) -> float | None:
    """How much of the time went into matrix products; None where nothing was seen."""
    products = sum(time for kind, time in seconds.items() if kind.startswith(PRODUCTS))
    return products / sum(seconds.values()) if seconds else None
