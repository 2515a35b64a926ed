"""What a training keeps in memory, and what to say when that is full."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax

from apportion.core.errors import UserError
from apportion.core.spec import Spec
from apportion.training import loop
from apportion.training.settings import Config

_FULL = "RESOURCE_EXHAUSTED"  # how XLA begins, by whichever class of errors it comes


class Kept(NamedTuple):
    """Bytes of one lane."""

    replay: int
    agent: int


def of_lane(config: Config, spec: Spec) -> Kept:
    """From shapes alone: nothing is allocated."""
    agent, replay = jax.eval_shape(lambda: loop.start(config, spec))
    return Kept(*(size_of(tree) // config.lanes for tree in (replay, agent)))


@contextmanager
def explained(config: Config, spec: Spec, saved: Callable[[], str]) -> Iterator[None]:
    """Where memory runs out, say what takes most of it, how to take less, and what is saved."""
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        if not isinstance(error, MemoryError) and _FULL not in str(error):
            raise
        raise UserError(f"{_in_words(config, of_lane(config, spec))}. {saved()}") from error


def _in_words(config: Config, kept: Kept) -> str:
    lanes, steps = config.lanes, config.schedule.replay_steps
    seeds = f"{lanes} seeds" if lanes > 1 else "one seed"
    fewer = " or --seeds" if lanes > 1 else ""
    return (
        f"no memory is left on {jax.devices()[0].device_kind}: replays of {steps:,} steps for {seeds} take "
        f"{lanes * kept.replay / 1e9:,.1f} GB, agents and what updates compute come on top. "
        f"Lower --replay-steps{fewer}, or end what else uses the device"
    )


def size_of(tree: Any) -> int:
    """Bytes of all arrays of a tree; random keys are counted by what they are made of."""
    return sum(array.size * array.dtype.itemsize for array in jax.tree.leaves(tree))
