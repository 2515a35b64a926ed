"""Anatomy of an update: where its time goes, and what limits it. For CPUs and GPUs; needs no environment.

    python benchmarks/anatomy.py --out results/anatomy-h200.json
    python benchmarks/anatomy.py --cases HalfCheetah:1 --updates 20 --trace --out results/anatomy-cpu.json

The trainer's own program on made-up data. `policy` is SAC alone, `with reward network` updates that too each
time, `published` the dynamics network and the edges besides: the differences are the parts' costs. `default`
is GRD as it trains by default: its model updates are fewer.

Three lower bounds stand beside each time: its matrix products at the measured peak, its bytes at the measured
bandwidth, its launches at the measured time of an idle one.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import tyro
from rich.console import Console
from rich.table import Table

from apportion.bench import flops, hlo, timing, trace, updates, workload
from apportion.bench.workload import SIZES
from apportion.nn.networks import MLP
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions
from apportion.training.settings import Config

VARIANTS: dict[str, tuple[str, Any]] = {
    "policy": ("oracle", None),
    "with reward network": ("grd", replace(workload.PUBLISHED, structure="closed-form")),
    "published": ("grd", workload.PUBLISHED),
    "default": ("grd", None),
}
MIXED = "mixed"  # activations and weights of all networks in bfloat16, master weights in float32


@dataclass(frozen=True)
class Anatomy:
    """Measure what an update is made of."""

    out: Path
    """JSON file to write."""
    cases: tuple[str, ...] = ("HalfCheetah:5", "Ant:5", "Humanoid:1")
    """Sizes and lanes."""
    methods: tuple[str, ...] = tuple(VARIANTS)
    """What to measure."""
    precisions: tuple[str, ...] = ("default",)
    """Of matrix products: default, float32, tensorfloat32, bfloat16, a name of JAX's, or mixed."""
    updates: tuple[int, ...] = (100,)
    """Updates in one call."""
    seconds: float = 3.0
    """Measured time for each row."""
    steps: int = workload.EPISODE_STEPS
    """Steps of an episode."""
    trace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also let JAX's profiler say which operations take the time."""


class Machine(NamedTuple):
    flops: float  # per second, float32 at JAX's default precision
    bytes: float  # per second
    launch: float  # seconds


def main(args: Anatomy) -> None:
    console, machine = Console(width=150), measure_machine()
    console.print(
        f"{jax.devices()[0].device_kind}: {machine.flops / 1e9:,.0f} GFLOP/s, "
        f"{machine.bytes / 1e9:,.0f} GB/s, {machine.launch * 1e6:.1f} µs per launch"
    )
    made_with, rows = versions(), []
    for case in args.cases:
        for precision in args.precisions:
            for count in args.updates:
                found = list(measure(args, case, precision, count, machine))
                rows += found
                console.print(f"{case} {precision} {count}: " + ", ".join(map(line, found)))
                # After each, so that a run that is cut short leaves what it has.
                write_json(args.out, {"versions": made_with, "machine": machine._asdict(), "rows": rows})
    console.print(table(rows))


def measure(
    args: Anatomy, case: str, precision: str, count: int, machine: Machine
) -> Iterator[dict[str, Any]]:
    """All methods of one case, their calls in turn."""
    name, _, lanes = case.partition(":")
    runs, rows = {}, {}
    for label in args.methods:
        method, method_config = VARIANTS[label]
        config = workload.settings(method, method_config, lanes=int(lanes), updates=count)
        spec = workload.made_up_spec(SIZES[name], args.steps)
        with at_precision(precision):
            shapes = workload.shapes(config, spec)
            compiled, built = updates.compile_program(shapes)
        runs[label] = updates.runner(compiled, workload.make(config, spec))
        costs = flops.products(shapes.program, *shapes.arguments) / shapes.updates  # of all lanes
        head = {"case": case, "method": label, "precision": precision, "updates": shapes.updates}
        rows[label] = head | {"lanes": shapes.lanes, "gflop": costs / 1e9} | built | counts(compiled, config)
        runs[label]()
    rounds = max(3, round(args.seconds / max(timing.once(run) for run in runs.values())))
    taken = timing.interleaved(runs, min(rounds, 50))
    for label, row in rows.items():
        seconds = [each / row["updates"] for each in taken[label]]
        traced = kinds(runs[label], row["updates"]) if args.trace else {}
        yield row | speed(seconds, row["lanes"]) | bounds(row, machine) | traced


def counts(compiled: Any, config: Config) -> dict[str, Any]:
    """Launches of one update, and bytes by XLA's count: that takes a loop once, so it says nothing about a
    method whose updates of the model and of the policy are loops of their own."""
    found, every = compiled.cost_analysis() or {}, config.make_method().sampling.every
    launched = hlo.launches(compiled.as_text())
    counted = config.schedule.updates_per_iteration if launched["turns"] else every
    return {
        "launches": launched["total"] / counted,
        "launches_by_kind": {kind: number / counted for kind, number in launched["kinds"].items()},
        "gigabytes": found.get("bytes accessed", 0.0) / 1e9 if every == 1 else None,
    }


def speed(seconds: list[float], lanes: int) -> dict[str, Any]:
    second = timing.median(seconds)
    return {
        "milliseconds": 1e3 * second,
        "milliseconds_range": [1e3 * min(seconds), 1e3 * max(seconds)],
        "updates_per_second": 1 / second,
        "lane_updates_per_second": lanes / second,
    }


def bounds(row: dict[str, Any], machine: Machine) -> dict[str, float | None]:
    """Milliseconds that an update needs at least, by what it asks for."""
    read = row["gigabytes"]
    return {
        "arithmetic_milliseconds": 1e12 * row["gflop"] / machine.flops,
        "memory_milliseconds": None if read is None else 1e12 * read / machine.bytes,
        "launch_milliseconds": 1e3 * row["launches"] * machine.launch,
    }


def kinds(run: Any, updates: int) -> dict[str, Any]:
    events = trace.events(run)
    seconds, kernels = trace.by_kind(events), trace.kernels(events)
    longest = {kind: 1e3 * time / updates for kind, time in list(seconds.items())[:12]}
    found = {"share_of_products": trace.share_of_products(seconds), "milliseconds_by_kind": longest}
    return found if kernels is None else found | {"kernels_of_a_call": kernels._asdict()}


# --- Precision


@contextlib.contextmanager
def at_precision(name: str) -> Iterator[None]:
    """Programs traced inside have their matrix products in this precision."""
    if name == "default":
        yield
    elif name == MIXED:
        plain = MLP.__call__
        MLP.__call__ = _mixed  # type: ignore[method-assign]
        try:
            yield
        finally:
            MLP.__call__ = plain  # type: ignore[method-assign]
    else:
        with jax.default_matmul_precision(name):
            yield


def _mixed(network: MLP, x: jax.Array) -> jax.Array:
    """An MLP in bfloat16 with a float32 result. Weights are cast here, so their gradients are float32."""
    half = jnp.bfloat16
    x = x.astype(half)
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = jax.nn.relu(x @ weight.astype(half) + bias.astype(half))
    return (x @ network.weights[-1].astype(half) + network.biases[-1].astype(half)).astype(jnp.float32)


# --- The machine


def measure_machine() -> Machine:
    return Machine(flops=flops.peak(), bytes=bandwidth(), launch=launch_seconds())


def bandwidth() -> float:
    """Bytes read and written per second while adding one to a large array."""
    array = jnp.zeros((64 if jax.default_backend() == "cpu" else 1024) * 2**20 // 4, jnp.float32)
    add = jax.jit(lambda x: x + 1)
    add(array).block_until_ready()
    return 2 * array.nbytes / min(timing.repeated(lambda: add(array).block_until_ready(), 1.0))


def launch_seconds() -> float:
    """Seconds of one tiny product inside a loop: the slope between loops with 8 and with 40 of them."""
    matrix = jnp.eye(16)

    def chain(length: int) -> Any:
        def turn(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            for _ in range(length):
                x = x @ matrix
            return x, None

        return jax.jit(lambda x: jax.lax.scan(turn, x, None, length=100)[0])

    seconds = []
    for program in (chain(8), chain(40)):
        program(matrix).block_until_ready()
        seconds.append(min(timing.repeated(lambda run=program: run(matrix).block_until_ready(), 0.5)))
    return max(0.0, seconds[1] - seconds[0]) / (32 * 100)


# --- Tables


def line(row: dict[str, Any]) -> str:
    return f"{row['method']} {row['updates_per_second']:,.0f}/s"


def table(rows: list[dict[str, Any]]) -> Table:
    printed = Table(title="One update: time, and what it needs at least (ms)", title_justify="left")
    texts = ("case", "method", "precision")
    columns = {
        "n": "updates",
        "updates/s": "updates_per_second",
        "ms": "milliseconds",
        "arithmetic": "arithmetic_milliseconds",
        "memory": "memory_milliseconds",
        "launch": "launch_milliseconds",
        "launches": "launches",
        "GFLOP": "gflop",
        "GB": "gigabytes",
        "compile s": "compile_seconds",
    }
    for column in (*texts, *columns):
        printed.add_column(column, justify="left" if column in texts else "right", no_wrap=True)
    for row in rows:
        numbers = (row[name] for name in columns.values())
        cells = (
            "-" if each is None else f"{each:,.0f}" if each >= 100 else f"{each:.3g}" for each in numbers
        )
        printed.add_row(*(row[name] for name in texts), *cells)
    return printed


if __name__ == "__main__":
    main(tyro.cli(Anatomy))
