"""Update throughput: every method, at the sizes of three tasks, for some lanes at once."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, get_args, get_type_hints

import jax

from apportion.backbones import BACKBONES
from apportion.core.config import check, nearest
from apportion.methods import METHODS, grd
from apportion.training.settings import Config
from lib import flops, timing, workload
from lib.workload import SIZES, Size, Workload

Variants = dict[str, tuple[str, Any]]  # name → method and its settings, None for the defaults

_USUAL_SIZE = "HalfCheetah"  # at which backbones are compared
USUAL_SHARE = 0.3  # of the peak: how long a call will take is guessed with it
MOST_UPDATES = 100  # in one call, as in a training


class Limits(NamedTuple):
    """How much time one row of the table may take."""

    call: float = 1.0  # seconds that one call should last
    row: float = 4.0  # seconds of measured calls
    give_up: float = 15.0  # a single update that would take longer is left out


USUAL = Limits()


def variants() -> Variants:
    """Every registered method with its defaults; GRD with each way to find its edges, and as published."""
    structures = get_args(get_type_hints(grd.Config)["structure"])
    of_grd = {f"grd ({structure})": ("grd", grd.Config(structure=structure)) for structure in structures}
    published = {"grd (published)": ("grd", workload.PUBLISHED)}
    return {**of_grd, **published, **{name: (name, None) for name in METHODS if name != "grd"}}


def chosen(names: tuple[str, ...]) -> Variants:
    """Some of them; all when none is named."""
    known = variants()
    for name in names:
        check(name in known, f"unknown method {name!r}{nearest(name, known)}")
    return {name: known[name] for name in names or known}


def table(
    methods: Variants, lanes: tuple[int, ...], peak: float, report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """One row for each method, size and number of lanes."""
    for name, (method, method_config) in methods.items():
        for size_name, size in SIZES.items():
            for count in lanes:
                report(f"updates: {name}, {size_name} size, {count} lanes")
                head = {"method": name, "size": size_name, **size._asdict(), "lanes": count}
                yield {**head, **measure(method, method_config, size, count, peak)}


def of_backbones(
    lanes: tuple[int, ...], peak: float, report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """One row for each backbone for continuous actions, and number of lanes, with the dense reward.

    An on-policy backbone has no updates of this kind: it learns once from a whole rollout.
    """
    for name, entry in BACKBONES.items():
        backbone = entry.make(entry.config())
        if backbone.discrete or backbone.log_density is not None or backbone.offline:
            continue
        for count in lanes:
            report(f"updates: {name}, {count} lanes")
            head = {"backbone": name, "size": _USUAL_SIZE, "lanes": count}
            size = SIZES[_USUAL_SIZE]
            yield {**head, **measure("oracle", None, size, count, peak, backbone=name)}


def measure(
    method: str,
    method_config: Any,
    size: Size,
    lanes: int,
    peak: float,
    limits: Limits = USUAL,
    backbone: str = "sac",
) -> dict[str, Any]:
    """Time, arithmetic, memory and compile time of a method's updates."""
    spec = workload.made_up_spec(size)
    settings = partial(workload.settings, method, method_config, backbone=backbone)
    one = workload.shapes(settings(updates=1), spec)
    per_update = flops.products(one.program, *one.arguments) / one.updates
    guess = per_update * lanes / (USUAL_SHARE * peak)
    counted = {"gflop_per_lane_update": per_update / 1e9}
    if guess > limits.give_up:
        return {**counted, "left_out": f"one update would take about {guess:.0f} s"}
    updates = min(MOST_UPDATES, max(1, round(limits.call / guess)))
    config = settings(lanes=lanes, updates=updates)
    compiled, built = compile_program(workload.shapes(config, spec))
    if built["program_bytes"] > 0.8 * free_memory():
        return {**counted, **built, "left_out": "needs more memory than there is"}
    return {**counted, **built, **_speed(compiled, config, size, per_update, peak, limits.row)}


def compile_program(work: Workload) -> tuple[Any, dict[str, Any]]:
    """The compiled program, the seconds that took, and the memory it needs."""
    lowered: list[Any] = []
    trace = timing.once(lambda: lowered.append(work.program.lower(*work.arguments)))
    compiled: list[Any] = []
    seconds = timing.once(lambda: compiled.append(lowered[0].compile()))
    memory = compiled[0].memory_analysis()
    own = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return compiled[0], {
        "trace_seconds": trace,
        "compile_seconds": seconds,
        "program_bytes": own + memory.temp_size_in_bytes,
        "scratch_bytes": memory.temp_size_in_bytes,
    }


def runner(compiled: Any, work: Workload) -> Callable[[], None]:
    """Calls of a compiled program one after the other, each until its results are there."""
    state = (work.agent, work.replay)

    def run() -> None:
        nonlocal state
        agent, replay, metrics, *_ = compiled(*state, *work.beside)
        state = (agent, replay)
        for metric in metrics.values():
            metric.block_until_ready()

    return run


def _speed(
    compiled: Any, config: Config, size: Size, per_update: float, peak: float, seconds: float
) -> dict[str, Any]:
    work = workload.make(config, workload.made_up_spec(size))
    run = runner(compiled, work)
    run()  # the first call warms caches up
    taken = [call / work.updates for call in timing.repeated(run, seconds)]
    second = timing.median(taken)
    return {
        "updates_per_call": work.updates,
        "calls": len(taken),
        "milliseconds": 1e3 * second,
        "milliseconds_range": [1e3 * min(taken), 1e3 * max(taken)],
        "lane_updates_per_second": work.lanes / second,
        "share_of_peak": per_update * work.lanes / second / peak,
    }


def free_memory() -> float:
    """Bytes that a program may use: of the device where it says so, else of the machine."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return float(stats["bytes_limit"])
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
