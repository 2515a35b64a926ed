"""Where the time goes: JAX's profiler, summed by kind of operation."""

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax

# How XLA names matrix products: its library's on a CPU, and on a GPU.
PRODUCTS = ("dot", "ynn_fusion", "onednn", "gemm", "cublas", "custom-call", "cutlass", "triton_gemm")
_GRAPH = "command_buffer"
_AROUND = ("while", "call", "conditional")  # whose time is that of what they contain


def by_kind(run: Callable[[], None]) -> dict[str, float]:
    """Seconds by kind of operation of compiled programs during one run, the longest first.

    Operations that run at the same time are all counted, so the sum may exceed the run's time.
    """
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        [file] = Path(folder).rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    seconds: Counter[str] = Counter()
    for event in events:
        kind = event.get("args", {}).get("hlo_op", "").split(".")[0]
        if kind.startswith(_GRAPH):  # of which its kernels have names of their own
            kind = event["name"].split(".")[0]
        if kind and kind not in _AROUND:
            seconds[kind] += event["dur"] / 1e6
    return dict(seconds.most_common())


def share_of_products(seconds: dict[str, float]) -> float | None:
    """How much of the time went into matrix products; None where nothing was seen."""
    products = sum(time for kind, time in seconds.items() if kind.startswith(PRODUCTS))
    return products / sum(seconds.values()) if seconds else None
