"""Episodes to play on the page: true against redistributed reward, and what was observed and done."""

import io
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from apportion.core.config import UserError, check
from apportion.core.spec import Spec
from apportion.report import packing
from apportion.report.statistics import thinned
from apportion.report.video import film
from apportion.runs import atomic
from apportion.runs.atomic import Arrays
from apportion.runs.contributions import Precision, steps_of
from apportion.runs.explaining import Explainer
from apportion.runs.folder import Episode, RunFolder
from apportion.runs.settings import read_settings

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


def dead_dimensions(run: RunFolder, spec: Spec) -> list[int]:
    """Of the S+A dimensions those that never changed in any stored episode."""
    size = spec.observation_size + spec.action_size
    low, high = np.full(size, np.nan), np.full(size, np.nan)
    for step in run.episode_steps():
        for episode in itertools.chain(*run.read_episodes(step)):
            pair = (episode["observations"], episode["actions"])
            low = np.fmin(low, np.concatenate([np.fmin.reduce(part, axis=0) for part in pair]))
            high = np.fmax(high, np.concatenate([np.fmax.reduce(part, axis=0) for part in pair]))
    return [int(place) for place in np.flatnonzero(low == high)]


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
    """Which of the S+A dimensions are shown: all, or of more than 64 those nearest to the reward."""
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
    return sorted(int(place) for place in np.argsort(-weight, kind="stable")[:64])


def _by_priority(run: RunFolder) -> Iterator[tuple[Place, Episode]]:
    """The newest episode of the first lane, then other lanes, moments and episodes, spreading out evenly."""
    stored = run.episode_steps()
    steps = [stored[place] for place in thinned(len(stored), 6)][::-1]
    if len(steps) > 2:
        steps.insert(1, steps.pop())  # after the newest the oldest: the contrast says most
    snapshots = {step: run.read_episodes(step) for step in steps}
    places = [  # a lane waits for as many moments as its number has doubled: 0, then 1 and 2, then 3 to 6
        (max(moment, (lane + 1).bit_length() - 1, number), moment, lane, number)
        for moment, step in enumerate(steps)
        for lane, stored_there in enumerate(snapshots[step])
        for number in range(len(stored_there))
    ]
    for _, moment, lane, number in sorted(places):
        yield Place(steps[moment], lane, number), snapshots[steps[moment]][lane][number]


def _packed(episode: Episode, shown: list[int]) -> dict[str, Any]:
    length = len(episode["actions"])
    values = np.concatenate([episode["observations"][:length], episode["actions"]], axis=1)
    names = ("true_rewards", "redistributed", "paid", "redistributed_low", "redistributed_high")
    rewards = {name: packing.floats(episode[name][:STEPS]) for name in names if name in episode}
    advice = {}
    if "recommended" in episode:  # actions: of observations there is none
        unknown = np.full((length, episode["observations"].shape[1]), np.nan)
        advised = np.concatenate([unknown, episode["recommended"]], axis=1)
        advice["recommended"] = packing.columns(advised[:STEPS, shown])
    sums = {name: float(np.sum(episode[name], dtype=np.float64)) for name in rewards}
    return {
        "length": length,
        **rewards,
        **advice,
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


# --- Contributions and pictures


PRECISION = Precision(background=128)

Say = Callable[[str], None]


def make_extras(run: RunFolder, lanes: int, always: bool, say: Say) -> Extras:
    """Contributions for the newest episode of the first lanes, pictures for the first; `say` is told why not.

    `always` reads checkpoints of any size.
    """
    newest = run.episode_steps()[-1:]
    made: dict[Place, Extra] = {}
    explainer = cache(lambda: _explainer(run, newest[0], always, say))

    def extras(place: Place, episode: Episode) -> Extra:
        if [place.step] != newest or place.number > 0 or place.lane >= lanes:
            return Extra()
        if place not in made:
            found = explainer()
            # One lane's are enough to see what goes on, and MuJoCo takes a quarter of a second for each.
            pictures = _pictures(run, episode, say) if place.lane == 0 else {}
            made[place] = Extra(frames=pictures)
            if found is not None:
                contributions, baseline = _credit(found, place.lane, episode)
                made[place] = Extra(contributions, baseline, pictures)
        return made[place]

    return extras


def _explainer(run: RunFolder, newest: int, always: bool, say: Say) -> Explainer | None:
    """The learned rewards of the run, if they are those that the newest episodes were given."""
    saved = atomic.steps(run.checkpoints)
    if saved and saved[-1] != newest:
        say(f"no contributions: the newest checkpoint is of step {saved[-1]:,}, the episodes of {newest:,}")
        return None
    size = atomic.place(run.checkpoints, newest).stat().st_size if saved else 0
    if size > 1e9 and not always:
        say(f"no contributions: reading a checkpoint of {size / 1e9:.1f} GB takes long; pass --extras all")
        return None
    try:
        explainer = Explainer(run, PRECISION)
        check(explainer.learned.step == newest, "; ".join(explainer.learned.skipped))
        return explainer
    except UserError as error:
        say(f"no contributions: {error}")
        return None


def _credit(explainer: Explainer, lane: int, episode: Episode) -> tuple[NDArray[np.float64], float]:
    """Contributions [T, S+A], NaN at the steps that were left out, and the baseline."""
    steps = steps_of([episode])
    length, dimensions = len(steps), explainer.spec.observation_size + explainer.spec.action_size
    at_once = 2 ** min(dimensions, PRECISION.exact_up_to)
    rows = PRECISION.steps_behind(dimensions) * max(at_once, 2 * PRECISION.rounds * (dimensions + 1))
    # The learned reward is asked about half a million rows of one episode, and about 100 of its steps.
    chosen = thinned(min(length, STEPS), min(100, max(2, 500_000 // rows)))
    explanation = explainer.explain(lane, steps[chosen])
    contributions = np.full((length, dimensions), np.nan)
    contributions[chosen] = explanation.contributions
    return contributions, explanation.baseline


def _pictures(run: RunFolder, episode: Episode, say: Say) -> Mapping[int, bytes]:
    """JPEG pictures of some steps, where the environment renders."""
    steps = thinned(min(len(episode["actions"]), STEPS), 30)
    try:
        config = read_settings(run)[0]
        if config.from_log:  # logged episodes have no environment that could be drawn
            return {}
        run.need_trust("the environment")
        frames = film(config.env, episode, steps).frames
    except UserError as error:
        say(f"no pictures: {error}")
        return {}
    found = {step: io.BytesIO() for step in frames}
    for step, file in found.items():
        Image.fromarray(frames[step]).save(file, "JPEG", quality=70)
    return {step: file.getvalue() for step, file in found.items()}
