"""Episodes of very different lengths: padded to the longest, they may cost many times what they hold.

Where one episode of thousands of steps is among many short ones, most updates draw short ones only. So what
is drawn is padded to one of two lengths, whichever it needs: the same draws and sums, but for rounding.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, silent
from apportion.core.spec import Spec
from apportion.core.types import Method, Sampling, State
from apportion.envs.messages import Arrays
from apportion.training.evaluate import Redistribute, make_redistribute

WORTH = 0.5  # of the cost: what a second length must save, for it is a second program to compile


def paddings(lengths: NDArray[np.int64], sampling: Sampling, lanes: int, longest: int) -> tuple[int, ...]:
    """Steps, rising, to one of which the segments of an update are padded: the longest of all alone, unless
    padding most updates less is worth it. `lengths` [E] are those of what is drawn from."""
    drawn = sampling.segments * lanes
    if drawn == 0:
        return (longest,)
    rising = np.sort(lengths).astype(np.float64)
    weight = rising if sampling.weight == "length" else np.ones(len(rising))
    seldom_more = (np.cumsum(weight) / weight.sum()) ** drawn  # the chance that nothing longer is drawn
    short = _worth(rising, seldom_more)
    return (_own(rising, longest),) if short is None else (int(rising[short]), int(rising[-1]))


def _worth(rising: NDArray[Any], share: NDArray[np.float64]) -> int | None:
    """Which of these lengths is best for the share that needs no more; None where two cost nearly as much as
    the longest alone."""
    cost = share * rising + (1 - share) * rising[-1]
    best = int(np.argmin(cost))
    return best if cost[best] <= WORTH * rising[-1] else None


def _own(rising: NDArray[Any], longest: int) -> int:
    """What episodes need that are padded alike; as all others have it, where that is not much more."""
    return int(rising[-1]) if rising[-1] <= WORTH * longest else longest


class Group(NamedTuple):
    """Episodes that are padded alike."""

    numbers: NDArray[np.int64]  # rising
    steps: int


def groups(lengths: NDArray[np.int64], longest: int) -> list[Group]:
    """Of episodes with these lengths: all together, padded to the longest of all, unless two groups or less
    padding cost much less."""
    order, count = np.argsort(lengths, kind="stable"), len(lengths)
    short = _worth(lengths[order], np.arange(1, count + 1) / count)
    if short is None:
        return [Group(np.arange(count), _own(lengths[order], longest))]
    return [Group(np.sort(part), int(lengths[part].max())) for part in np.split(order, [short + 1])]


def redistribute_in_groups(
    method: Method, spec: Spec, lengths: NDArray[np.int64], at_once: int | None = None, tell: Tell = silent
) -> Redistribute:
    """As `make_redistribute`, of episodes with these lengths in every lane; of no more than so many steps
    `at_once`, padding included."""
    every = groups(lengths, spec.max_episode_steps)
    made = [make_redistribute(method, padded_to(spec, group.steps)) for group in every]

    def redistribute(states: State, lanes: list[list[Arrays]]) -> list[list[NDArray[np.float32]]]:
        found: list[list[Any]] = [[None] * len(lane) for lane in lanes]
        done = 0
        for group, one in zip(every, made, strict=True):
            count = len(group.numbers) if at_once is None else max(1, at_once // group.steps)
            for first in range(0, len(group.numbers), count):
                numbers = group.numbers[first : first + count].tolist()
                # The last part is filled up: another number of episodes would be another program.
                filled = numbers + numbers[:1] * (count - len(numbers) if first else 0)
                given = one(states, [[lane[number] for number in filled] for lane in lanes])
                for mine, rewards in zip(found, given, strict=True):
                    for number, each in zip(numbers, rewards, strict=False):
                        mine[number] = each
                done += len(numbers)
                tell(done, len(lengths))
        return found

    return redistribute


def padded_to(spec: Spec, steps: int) -> Spec:
    """The same with episodes of so many steps at the longest."""
    return replace(spec, max_episode_steps=steps, max_segment_steps=steps)
