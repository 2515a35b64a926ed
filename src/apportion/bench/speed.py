"""All speed measurements as one JSON object, which is given after each of them: `apportion bench`."""

import os
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import jax

from apportion.bench import environments, flops, memory, peers, timing, training, updates, workload
from apportion.runs.folder import versions

TASK = "HalfCheetah-v4"
LANES = (1, 5, 20)
REPLAY_STEPS = 1_000_000

Report = Callable[[str], None]
Part = Literal["peers", "environment", "training", "updates", "backbones"]
PARTS: tuple[Part, ...] = get_args(Part)


def quick(report: Report) -> Iterator[dict[str, Any]]:
    """One full step beside the peers' on one task, and what it is made of: under a minute on two cores."""
    report("the machine's peak")
    found = {**_head(seconds=0.5), "quick": True}
    found |= _compare(steps=10, rounds=3, report=report, peak=found["peak"]["float32"])
    found["environment"] = [environments.measure(peers.our_config(TASK), steps=500, seconds=0.5)]
    yield found | _memory()


def full(
    report: Report,
    lanes: tuple[int, ...] = LANES,
    methods: tuple[str, ...] = (),
    parts: tuple[Part, ...] = PARTS,
) -> Iterator[dict[str, Any]]:
    """Every method (or those named), three sizes, several lanes, environments, trainings, peers."""
    chosen = updates.chosen(methods)
    report("the machine's peak")
    found = {**_head(seconds=2.0), "quick": False}
    yield found
    peak = found["peak"]["float32"]
    on_cpu = jax.default_backend() == "cpu"
    if "peers" in parts:
        steps = 20 if on_cpu else 200
        found |= _compare(steps=steps, rounds=7, report=report, peak=peak, published=True)
        yield found
    # On a CPU all lanes share the same cores: there one says enough.
    trained = lanes[:1] if on_cpu else lanes
    tables: dict[Part, Iterator[dict[str, Any]]] = {
        "environment": environments.table(lanes, steps=500, seconds=2.0, report=report),
        "training": training.table((TASK,), trained, seconds=10.0 if on_cpu else 5.0, report=report),
        "updates": updates.table(chosen, lanes, peak, report),
        "backbones": updates.of_backbones(lanes, peak, report),
    }
    for name, rows in tables.items():
        if name not in parts:
            continue
        found[name] = []
        for row in rows:
            found[name].append(row)
            yield found
    yield found | _memory()


def _memory() -> dict[str, Any]:
    return {"memory": {"lanes": memory.table(REPLAY_STEPS), "peak": memory.peaks()}}


def _head(seconds: float) -> dict[str, Any]:
    """The machine, and what it can do."""
    kinds = ("float32",) if jax.default_backend() == "cpu" else ("float32", "bfloat16")
    return {
        "versions": versions(),
        "cores": os.cpu_count(),
        "backend": jax.default_backend(),
        "compilation_cache": jax.config.values["jax_compilation_cache_dir"] is not None,
        "peak": {dtype: flops.peak(dtype, seconds) for dtype in kinds},
    }


def _compare(steps: int, rounds: int, report: Report, peak: float, published: bool = False) -> dict[str, Any]:
    """Peers beside ours, and the arithmetic in our step."""
    found = peers.compare(TASK, steps, rounds, report, published=published)
    report("counting operations")
    per_update = _operations()
    seconds = timing.median(found["milliseconds"][peers.OURS]) / 1e3
    step = {
        "gflop_per_update": per_update / 1e9,
        "gflop_per_second": per_update / seconds / 1e9,
        "share_of_peak": per_update / seconds / peak,
    }
    return {"ratios": found.pop("ratios"), "peers": {"env": TASK, **found}, "our_step": step}


def _operations() -> float:
    """In the matrix products of one update of the default training."""
    config = peers.our_config(TASK)
    spec = workload.made_up_spec(workload.SIZES["HalfCheetah"])
    work = workload.shapes(config, spec)
    return flops.products(work.program, *work.arguments) / work.updates
