"""Episodes to play on the page: true against redistributed reward, and what was observed and done."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import Spec
from apportion.report import packing
from apportion.report.statistics import thinned
from apportion.runs.atomic import Arrays
from apportion.runs.folder import Episode, RunFolder

SNAPSHOTS = 6
COLUMNS = 64  # dimensions whose values are shown: in wide environments those that matter most
STEPS = 5_000  # longer episodes are cut on the page


class Place(NamedTuple):
    """Which of the stored episodes."""

    step: int
    lane: int
    number: int


class Extra(NamedTuple):
    """What can be added to an episode by somebody who has the learned reward, or the environment."""

    contributions: NDArray[Any] | None = None  # [T, S+A] add up to r̂ - baseline; NaN where not known
    baseline: float | NDArray[Any] = 0.0  # the same at every step, or [T]
    frames: Mapping[int, bytes] = {}  # JPEG pictures of some steps


Extras = Callable[[Place, Episode], Extra]


def no_extras(place: Place, episode: Episode) -> Extra:
    return Extra()


class Ranges(NamedTuple):
    """The smallest and largest value that each dimension took in the stored episodes."""

    low: NDArray[np.float64]  # [S+A]
    high: NDArray[np.float64]  # [S+A]

    @property
    def dead(self) -> list[int]:
        """Dimensions that never changed. Observations come first, then actions."""
        return [int(place) for place in np.flatnonzero(self.low == self.high)]


def ranges(run: RunFolder, spec: Spec) -> Ranges:
    """Over every stored episode of every lane."""
    size = spec.observation_size + spec.action_size
    low, high = np.full(size, np.nan), np.full(size, np.nan)
    for step in run.episode_steps():
        for lane in run.read_episodes(step):
            for episode in lane:
                pair = (episode["observations"], episode["actions"])
                low = np.fmin(low, np.concatenate([np.fmin.reduce(part, axis=0) for part in pair]))
                high = np.fmax(high, np.concatenate([np.fmax.reduce(part, axis=0) for part in pair]))
    return Ranges(low, high)


def episodes(
    run: RunFolder, spec: Spec, dead: list[int], budget: int, extras: Extras = no_extras
) -> dict[str, Any] | None:
    """A choice of the stored episodes in about `budget` bytes, the newest of each lane first."""
    shown = shown_dimensions(spec, run.read_last_edges(), dead)
    packed, left = [], budget
    for place, episode in _by_priority(run):
        length = min(STEPS, len(episode["actions"]))
        cost = length * (2 * len(shown) + 13)
        if cost <= left:
            extra = extras(place, episode)
            one = {**place._asdict(), **_packed(episode, shown), **_packed_extra(extra, shown, length)}
            packed.append(one)
            left -= cost + sum(len(frame) for frame in extra.frames.values())
            left -= 0 if extra.contributions is None else length * 2 * (len(shown) + 1)
    if not packed:
        return None
    packed.sort(key=lambda each: (each["lane"], each["step"], each["number"]))
    return {"dimensions": shown, "episodes": packed}


def shown_dimensions(spec: Spec, edges: Arrays, dead: list[int]) -> list[int]:
    """Which of the S+A dimensions are shown: all, or in wide environments those nearest to the reward."""
    observed, acted = spec.observation_size, spec.action_size
    weight = np.zeros(observed + acted)
    weight[observed:] += 2
    weight[dead] -= 8
    for block, place, value in (
        ("policy_mask", slice(0, observed), 1),
        ("state_to_reward", slice(0, observed), 4),
        ("action_to_reward", slice(observed, None), 4),
    ):
        if block in edges:
            weight[place] += value * np.nan_to_num(edges[block].mean(axis=0))
    return sorted(int(place) for place in np.argsort(-weight, kind="stable")[:COLUMNS])


def _by_priority(run: RunFolder) -> Iterator[tuple[Place, Episode]]:
    """The newest episode of the first lane, then other lanes, moments and episodes, spreading out evenly."""
    stored = run.episode_steps()
    steps = [stored[place] for place in thinned(len(stored), SNAPSHOTS)][::-1]
    if len(steps) > 2:
        steps.insert(1, steps.pop())  # after the newest the oldest: the contrast says most
    snapshots = {step: run.read_episodes(step) for step in steps}
    places = [
        (max(moment, _level(lane), number), moment, lane, number)
        for moment, step in enumerate(steps)
        for lane, stored_there in enumerate(snapshots[step])
        for number in range(len(stored_there))
    ]
    for _, moment, lane, number in sorted(places):
        yield Place(steps[moment], lane, number), snapshots[steps[moment]][lane][number]


def _level(lane: int) -> int:
    """0 for the first lane, 1 for the next two, 2 for four more, and so on."""
    return (lane + 1).bit_length() - 1


def _packed(episode: Episode, shown: list[int]) -> dict[str, Any]:
    length = len(episode["actions"])
    values = np.concatenate([episode["observations"][:length], episode["actions"]], axis=1)
    rewards: dict[str, Any] = {
        name: packing.floats(episode[name][:STEPS])
        for name in ("true_rewards", "redistributed", "paid")
        if name in episode
    }
    sums = {name: float(np.sum(episode[name], dtype=np.float64)) for name in rewards}
    return {
        "length": length,
        **rewards,
        "sums": sums,
        "segment_end": packing.counts(episode["segment_end"][:STEPS]),
        "values": packing.columns(values[:STEPS, shown]),
    }


def _packed_extra(extra: Extra, shown: list[int], length: int) -> dict[str, Any]:
    """Contributions of the shown dimensions, and of all others together, so that they still add up."""
    packed: dict[str, Any] = {}
    if extra.contributions is not None:
        credit = np.asarray(extra.contributions, np.float64)[:length]
        rest = credit.sum(axis=1) - credit[:, shown].sum(axis=1)
        packed["contributions"] = packing.columns(np.column_stack([credit[:, shown], rest]))
        packed["baseline"] = packing.floats(np.broadcast_to(extra.baseline, (len(credit),)))
    if extra.frames:
        steps = sorted(extra.frames)
        packed["frames"] = {"steps": steps, "images": [packing.encoded(extra.frames[step]) for step in steps]}
    return packed
