"""Which lanes had faults, as a run's status keeps them and in words."""

from collections.abc import Sequence
from typing import Any

from apportion.envs.faults import Fault, Faults


def facts(faults: Faults, seeds: Sequence[int], steps_per_iteration: int) -> list[dict[str, Any]]:
    """One entry for each lane that had a fault: how often it was restarted, and since when it is frozen."""
    found = []
    for lane, (restarts, reason) in enumerate(zip(faults.restarts, faults.reasons, strict=True)):
        if reason is None:
            continue
        frozen = faults.frozen.get(lane)
        since = None if frozen is None else _step(frozen, steps_per_iteration)
        entry = {"lane": lane, "seed": seeds[lane], "restarts": restarts, "frozen_since": since}
        found.append(entry | {"reason": reason})
    return found


def in_words(entries: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence for each such lane."""
    return [_sentence(entry) for entry in entries]


def news_in_words(
    news: Sequence[Fault], limit: int, seeds: Sequence[int], steps_per_iteration: int
) -> list[str]:
    """A warning for each fault, when it has just happened."""
    said = []
    for fault in news:
        seed, step = seeds[fault.lane], _step(fault.iteration, steps_per_iteration)
        if fault.restarts is None:
            said.append(f"warning: seed {seed} is frozen from step {step:,} on: {fault.reason}")
        else:
            dropped = f"episode dropped, environment restarted ({fault.restarts} of {limit})"
            said.append(f"warning: seed {seed}, by step {step:,}: {fault.reason}; {dropped}")
    return said


def _sentence(entry: dict[str, Any]) -> str:
    if entry["frozen_since"] is not None:
        return f"Seed {entry['seed']} is frozen since step {entry['frozen_since']:,}: {entry['reason']}."
    times = "once" if entry["restarts"] == 1 else f"{entry['restarts']} times"
    return f"The environment of seed {entry['seed']} was restarted {times}, last because: {entry['reason']}."


def _step(iteration: int, steps_per_iteration: int) -> int:
    """The first step whose line is without the lane."""
    return (iteration + 1) * steps_per_iteration
