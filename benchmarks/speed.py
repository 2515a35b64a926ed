"""How fast is this program on this machine, beside other libraries where they are installed?

    python benchmarks/speed.py --quick
    python benchmarks/speed.py --out results/speed-cpu.json
    python benchmarks/speed.py --parts backbones --lanes 1 --out results/backbones-cpu.json

One full step beside the peers' (PyTorch eager, Stable-Baselines3, SBX), environments alone, whole trainings,
updates of every method and backbone on made-up data, and memory. Tables are Markdown; the JSON file is
written after each measurement.
"""

import os
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import numpy as np

from apportion.cli.display import remember_compilations
from apportion.core.config import check
from apportion.envs.make import EnvConfig
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions
from apportion.training import loop as train
from apportion.training.settings import Config
from lib import command, flops, memory, peers, timing, updates, workload
from lib.command import markdown, number, tell

TASK = "HalfCheetah-v4"
ENVIRONMENTS = ("HalfCheetah-v4", "Ant-v4", "Humanoid-v4")
LANES = (1, 5, 20)
REPLAY_STEPS = 1_000_000
WIDTH = 132  # of prose on pages
# Iterations from one wait to the next. Where they are short, waiting for the end of each would keep the next
# one from beginning meanwhile, as it does in a training.
TOGETHER = {"gpu": 20, "tpu": 20}
NAMES = {
    "apportion_grd": "apportion, GRD+SAC by default",
    "apportion_grd_published": "apportion, GRD+SAC as published",
    "torch_eager_grd": "PyTorch eager, GRD+SAC",
    "sb3_sac": "Stable-Baselines3, SAC",
    "sbx_sac": "SBX, SAC",
}

Data = dict[str, Any]
Part = Literal["peers", "environment", "training", "updates", "backbones"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Speed:
    """Measure how fast this program is on this machine, beside other libraries where they are installed."""

    quick: bool = False
    """Only the most telling measurements, in less than a minute."""
    lanes: tuple[int, ...] = LANES
    """Numbers of lanes to measure, without --quick."""
    methods: tuple[str, ...] = ()
    """Methods to measure, without --quick; all when none is named."""
    parts: tuple[Part, ...] = PARTS
    """What to measure, without --quick."""
    out: Path | None = None
    """Also write the result, as JSON, to this file: what there is so far, after each measurement."""

    def __post_init__(self) -> None:
        check(len(self.lanes) > 0 and min(self.lanes) >= 1, f"--lanes {self.lanes} must be at least 1 each")
        updates.chosen(self.methods)


def main(args: Speed) -> None:
    if args.quick:
        remember_compilations()  # a full measurement tells how long compiling takes
    data: Data = {}
    for data in quick() if args.quick else full(args):
        if args.out is not None:
            write_json(args.out, data)
    print(shown(data))


# --- Measurements


def quick() -> Iterator[Data]:
    """One full step beside the peers' on one task, and what it is made of: under a minute on two cores."""
    found = {**head(seconds=0.5), "quick": True}
    found |= compared(steps=10, rounds=3, peak=found["peak"]["float32"])
    found["environment"] = [environment(peers.our_config(TASK), steps=500, seconds=0.5)]
    yield found | in_memory()


def full(args: Speed) -> Iterator[Data]:
    """Every method (or those named), three sizes, several lanes, environments, trainings, peers."""
    found = {**head(seconds=2.0), "quick": False}
    yield found
    peak = found["peak"]["float32"]
    on_cpu = jax.default_backend() == "cpu"
    if "peers" in args.parts:
        found |= compared(steps=20 if on_cpu else 200, rounds=7, peak=peak, published=True)
        yield found
    tables: dict[Part, Iterator[Data]] = {
        "environment": environments(args.lanes),
        # On a CPU all lanes share the same cores: there one says enough.
        "training": trainings(args.lanes[:1] if on_cpu else args.lanes, seconds=10.0 if on_cpu else 5.0),
        "updates": updates.table(updates.chosen(args.methods), args.lanes, peak, tell),
        "backbones": updates.of_backbones(args.lanes, peak, tell),
    }
    for name, rows in tables.items():
        if name not in args.parts:
            continue
        found[name] = []
        for row in rows:
            found[name].append(row)
            yield found
    yield found | in_memory()


def head(seconds: float) -> Data:
    """The machine, and what it can do."""
    tell("the machine's peak")
    kinds = ("float32",) if jax.default_backend() == "cpu" else ("float32", "bfloat16")
    return {
        "command": command.given(),
        "versions": versions(),
        "cores": os.cpu_count(),
        "backend": jax.default_backend(),
        "compilation_cache": jax.config.values["jax_compilation_cache_dir"] is not None,
        "peak": {dtype: flops.peak(dtype, seconds) for dtype in kinds},
    }


def compared(steps: int, rounds: int, peak: float, published: bool = False) -> Data:
    """Peers beside ours, and the arithmetic in our step."""
    found = peers.compare(TASK, steps, rounds, tell, published=published)
    tell("counting operations")
    work = workload.shapes(peers.our_config(TASK), workload.made_up_spec(workload.SIZES["HalfCheetah"]))
    per_update = flops.products(work.program, *work.arguments) / work.updates
    seconds = timing.median(found["milliseconds"][peers.OURS]) / 1e3
    step = {
        "gflop_per_update": per_update / 1e9,
        "gflop_per_second": per_update / seconds / 1e9,
        "share_of_peak": per_update / seconds / peak,
    }
    return {"ratios": found.pop("ratios"), "peers": {"env": TASK, **found}, "our_step": step}


def environments(lanes: tuple[int, ...]) -> Iterator[Data]:
    """One row for each task and number of lanes, with as many workers as a training would have."""
    for env_id in ENVIRONMENTS:
        for count in lanes:
            tell(f"environment: {env_id}, {count} lanes")
            yield environment(Config(EnvConfig(env_id), method="oracle", lanes=count), steps=500, seconds=2.0)


def environment(config: Config, steps: int, seconds: float) -> Data:
    """Steps per second in chunks of `steps` per lane, by a policy of the usual size, nobody learning."""
    with train.open_pool(config) as pool:
        agent, _ = train.start(config, pool.spec)
        actors = train._compile(config, pool.spec)[2](agent)
        arrays = {name: np.asarray(array) for name, array in actors.items()}
        chunks = iter(range(sys.maxsize))

        def run() -> None:
            pool.start_chunk(arrays, steps, next(chunks))
            pool.finish_chunk()

        run()
        taken = timing.repeated(run, seconds)
    return {
        "env": config.env.id,
        "lanes": config.lanes,
        "workers": len(pool.groups),
        "steps_per_second": steps * config.lanes / timing.median(taken),
    }


def trainings(lanes: tuple[int, ...], seconds: float) -> Iterator[Data]:
    """Real trainings with the default settings, timed once they have begun to learn."""
    ours = peers.our_config(TASK)
    for config in (ours, replace(ours, method="oracle", method_config=None)):
        for count in lanes:
            tell(f"training: {TASK}, {config.method}, {count} lanes")
            yield training(replace(config, lanes=count), seconds)


def training(config: Config, seconds: float) -> Data:
    """An iteration is the schedule's steps and updates in every lane; both overlap as in a training."""
    schedule = config.schedule
    together = TOGETHER.get(jax.default_backend(), 1)
    with peers.our_training(config) as steps:
        taken = timing.repeated(lambda: steps(together * schedule.steps_per_iteration), seconds, least=2)
    second = timing.median(taken) / together
    return {
        "env": config.env.id,
        "method": config.method,
        "lanes": config.lanes,
        "iterations_per_second": 1 / second,
        "lane_steps_per_second": config.lanes * schedule.steps_per_iteration / second,
        "lane_updates_per_second": config.lanes * schedule.updates_per_iteration / second,
    }


def in_memory() -> Data:
    return {"memory": {"lanes": memory.table(REPLAY_STEPS), "peak": memory.peaks()}}


# --- Tables


def shown(data: Data) -> str:
    """Every table whose part was measured."""
    parts = {
        "peers": peers_table,
        "updates": updates_table,
        "backbones": backbones_table,
        "environment": environments_table,
        "training": trainings_table,
        "memory": memory_table,
    }
    return "\n\n".join(make(data) for part, make in parts.items() if part in data)


def peers_table(data: Data) -> str:
    rows = []
    for name, taken in data["peers"]["milliseconds"].items():
        ratio = 1.0 if name == peers.OURS else data["ratios"].get(name, data["peers"].get("published_ratio"))
        spread = f"{number(min(taken))} to {number(max(taken))}"
        rows.append(
            (NAMES[name], number(timing.median(taken)), spread, "-" if ratio is None else f"{ratio:.2f}")
        )
    step = data["our_step"]
    text = markdown(("step of", "ms (median)", "range", "times ours"), rows)
    said = (
        f"Our update has {step['gflop_per_update']:.2f} GFLOP in its matrix products: with the "
        f"environment {step['gflop_per_second']:,.0f} GFLOP/s, {step['share_of_peak']:.0%} of the "
        f"{data['peak']['float32'] / 1e9:,.0f} GFLOP/s that this machine reaches in one large product."
    )
    return f"{text}\n\n{textwrap.fill(said, WIDTH)}"


def updates_table(data: Data, of: str = "method") -> str:
    """Of methods, or of backbones."""
    rows = []
    for row in data["updates" if of == "method" else "backbones"]:
        measured = "left_out" not in row
        rows.append(
            (
                f"`{row[of]}`",
                row["size"],
                str(row["lanes"]),
                number(row["milliseconds"]) if measured else f"left out: {row['left_out']}",
                number(row.get("lane_updates_per_second")),
                number(row["gflop_per_lane_update"]),
                f"{row['share_of_peak']:.0%}" if measured else "-",
                number(row["program_bytes"] / 1e9 if "program_bytes" in row else None),
                number(row.get("compile_seconds")),
            )
        )
    columns = (of, "size", "lanes", "ms per update", "lane updates/s", "GFLOP per lane", "of peak", "GB")
    return markdown((*columns, "compile s"), rows, texts=2)


def backbones_table(data: Data) -> str:
    return updates_table(data, of="backbone")


def trainings_table(data: Data) -> str:
    rows = [
        (
            row["env"],
            f"`{row['method']}`",
            str(row["lanes"]),
            number(row["iterations_per_second"]),
            number(row["lane_steps_per_second"]),
        )
        for row in data["training"]
    ]
    return markdown(("task", "method", "lanes", "iterations/s", "lane steps/s"), rows, texts=2)


def environments_table(data: Data) -> str:
    rows = [
        (row["env"], str(row["lanes"]), str(row["workers"]), number(row["steps_per_second"]))
        for row in data["environment"]
    ]
    return markdown(("task", "lanes", "workers", "steps/s"), rows)


def memory_table(data: Data) -> str:
    rows = [
        (
            row["size"],
            f"{row['states']} / {row['actions']}",
            f"{row['replay_steps']:,}",
            f"{row['replay_bytes'] / 1e9:.2f}",
            f"{row['agent_bytes'] / 1e6:.1f}",
        )
        for row in data["memory"]["lanes"]
    ]
    return markdown(("size", "S / A", "steps kept", "replay GB", "agent MB"), rows)


if __name__ == "__main__":
    command.start(main, Speed)
