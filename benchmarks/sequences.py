"""What an update costs of each method that reads whole segments, on episodes of 1000 steps: memory and time.

    python benchmarks/sequences.py --out results/sequences-cpu.json

The method alone, with its defaults, at the size of HalfCheetah; then the rewards of the update's segments,
which the policy learns from. Align-RUDDER learns nothing in an update: only the second is its own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tyro

from apportion.bench import timing, workload
from apportion.core.types import Batch
from apportion.data import replay as replays
from apportion.methods import METHODS
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions

SEQUENCES = ("rudder", "hopfield-rudder", "align-rudder", "transformer", "rbt", "diaster", "gp-lrr", "rd")


@dataclass(frozen=True)
class Sequences:
    """Measure an update of each method that reads whole segments."""

    out: Path | None = None
    """JSON file to write."""
    methods: tuple[str, ...] = SEQUENCES
    """Which methods."""
    steps: int = 1000
    """Steps of an episode, which is one segment."""
    seconds: float = 4.0
    """How long to measure each."""


def main(args: Sequences) -> None:
    print("| method | M | once for so many updates of the policy | MB | ms |\n|---|---:|---:|---:|---:|")
    rows = []
    for name in args.methods:
        row = {"method": name, **measure(name, args.steps, args.seconds)}
        rows.append(row)
        cells = (row["segments"], row["every"], f"{row['bytes'] / 1e6:,.0f}", f"{row['milliseconds']:,.0f}")
        print(f"| `{name}` | {' | '.join(map(str, cells))} |", flush=True)
    if args.out is not None:
        write_json(args.out, {"steps": args.steps, "versions": versions(), "rows": rows})


def measure(name: str, steps: int, seconds: float) -> dict[str, Any]:
    """Memory beside inputs and outputs, and the median time, of an update and the rewards after it."""
    method = METHODS[name].make(METHODS[name].config())
    spec = workload.made_up_spec(workload.SIZES["HalfCheetah"], steps)
    sampling = method.sampling.suited(steps)
    replay = replays.init(spec, 4 * steps)
    segments = replays.gather_segments(replay, jnp.zeros(sampling.segments, jnp.int32), steps)
    keys = jax.random.split(jax.random.key(0), 3)
    nobody = jnp.zeros(2, jnp.int32)
    batch = Batch(_random(segments, keys[0], steps), replays.gather_transitions(replay, nobody, nobody))

    def update(state: Any, batch: Batch, key: jax.Array) -> Any:
        state, metrics = method.update(state, batch, key)
        return state, metrics, None if method.credit is None else method.credit(state, batch.segments)

    state = method.init(keys[1], spec)
    compiled = jax.jit(update).lower(state, batch, keys[2]).compile()

    def run() -> None:
        jax.block_until_ready(compiled(state, batch, keys[2]))

    run()  # the first call warms caches up
    return {
        "segments": sampling.segments,
        "every": sampling.every,
        "bytes": compiled.memory_analysis().temp_size_in_bytes,
        "milliseconds": 1e3 * timing.median(timing.repeated(run, seconds)),
    }


def _random(segments: Any, key: jax.Array, steps: int) -> Any:
    """Whole segments of random numbers."""
    return segments._replace(
        observations=jax.random.normal(key, segments.observations.shape),
        actions=jnp.tanh(jax.random.normal(key, segments.actions.shape)),
        total=jax.random.normal(key, segments.total.shape),
        length=jnp.full_like(segments.length, steps),
        mask=jnp.ones_like(segments.mask),
        number=jnp.arange(len(segments.total), dtype=jnp.int32),
    )


if __name__ == "__main__":
    main(tyro.cli(Sequences))
