"""What a training keeps in memory, and what to say when that is full."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax

from apportion.core.config import UserError
from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.data.room import free_bytes
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


def check_room(config: Config, spec: Spec) -> None:
    """Complain of replays that do not fit, before anything is allocated.

    Linux promises a processor's memory freely, and kills without a word who then takes more than there is.
    Other devices refuse by themselves.
    """
    schedule, on_policy = config.schedule, config.make_backbone().log_density is not None
    rows = replays.capacity_for(spec, schedule.replay_steps, schedule.steps_per_iteration)
    need = config.lanes * size_of(jax.eval_shape(lambda: replays.init(spec, rows, on_policy)))
    if jax.default_backend() == "cpu" and need > (free := free_bytes()):
        wrong = f"{_replays(config, need)}, and {free / 1e9:,.1f} GB are free"
        raise UserError(f"not enough memory: {wrong}. {_lower(config)}")


@contextmanager
def explained(config: Config, spec: Spec, saved: Callable[[], str]) -> Iterator[None]:
    """Where memory runs out, say what takes most of it, how to take less, and what is saved."""
    check_room(config, spec)
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        if not isinstance(error, MemoryError) and _FULL not in str(error):
            raise
        raise UserError(f"{_in_words(config, of_lane(config, spec))}. {saved()}") from error


def _in_words(config: Config, kept: Kept) -> str:
    device, replays_take = jax.devices()[0].device_kind, _replays(config, config.lanes * kept.replay)
    return (
        f"no memory is left on {device}: {replays_take}, "
        f"agents and what updates compute come on top. {_lower(config)}, or end what else uses the device"
    )


def _replays(config: Config, size: int) -> str:
    seeds = f"{config.lanes} seeds" if config.lanes > 1 else "one seed"
    return f"replays of {config.schedule.replay_steps:,} steps for {seeds} take {size / 1e9:,.1f} GB"


def _lower(config: Config) -> str:
    return "Lower --replay-steps or --seeds" if config.lanes > 1 else "Lower --replay-steps"


def size_of(tree: Any) -> int:
    """Bytes of all arrays of a tree; random keys are counted by what they are made of."""
    return sum(array.size * array.dtype.itemsize for array in jax.tree.leaves(tree))
