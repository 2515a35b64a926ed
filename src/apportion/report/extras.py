"""What the newest episodes are given beside their numbers: who earned each reward, and pictures.

Both take time, so they are made for a few lanes and a few steps; the page shows the nearest.
"""

import io
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from apportion.core.config import check
from apportion.core.errors import UserError
from apportion.envs.film import film
from apportion.report.episodes import STEPS, Extra, Extras, Place
from apportion.report.statistics import thinned
from apportion.runs import checkpoint
from apportion.runs.explain import Precision, Steps
from apportion.runs.explaining import Explainer
from apportion.runs.folder import Episode, RunFolder
from apportion.runs.settings import read_settings

CHECKPOINT_BYTES = 1_000_000_000  # larger ones take long to read: only when asked for
PRECISION = Precision(background=128)
ROWS = 500_000  # times that the learned reward is asked about one episode
STEPS_EXPLAINED = 100
FRAMES = 30
SIZE = (320, 240)

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
    saved = checkpoint.steps(run.checkpoints)
    if saved != [] and saved[-1] != newest:
        say(f"no contributions: the newest checkpoint is of step {saved[-1]:,}, the episodes of {newest:,}")
        return None
    size = sum(file.stat().st_size for file in run.checkpoints.glob(f"step_{newest:012d}/*"))
    if size > CHECKPOINT_BYTES and not always:
        say(f"no contributions: reading a checkpoint of {size / 1e9:.1f} GB takes long; pass --extras all")
        return None
    try:
        explainer = Explainer(run, PRECISION)
        stale = explainer.learned.step != newest
        check(not stale, "; ".join(explainer.learned.skipped))
        return explainer
    except UserError as error:
        say(f"no contributions: {error}")
        return None


def _credit(explainer: Explainer, lane: int, episode: Episode) -> tuple[NDArray[np.float64], float]:
    """Contributions [T, S+A], NaN at the steps that were left out, and the baseline."""
    steps = Steps.of_episode(episode["observations"], episode["actions"])
    length, dimensions = len(steps.actions), explainer.spec.observation_size + explainer.spec.action_size
    at_once = 2 ** min(dimensions, PRECISION.exact_up_to)
    rows = PRECISION.steps_behind(dimensions) * max(at_once, 2 * PRECISION.rounds * (dimensions + 1))
    chosen = thinned(min(length, STEPS), min(STEPS_EXPLAINED, max(2, ROWS // rows)))
    explanation = explainer.explain(lane, Steps(*(part[chosen] for part in steps)))
    contributions = np.full((length, dimensions), np.nan)
    contributions[chosen] = explanation.contributions
    return contributions, explanation.baseline


def _pictures(run: RunFolder, episode: Episode, say: Say) -> Mapping[int, bytes]:
    """JPEG pictures of some steps, where the environment renders."""
    steps = thinned(min(len(episode["actions"]), STEPS), FRAMES)
    try:
        config = read_settings(run)[0]
        if not config.has_policy:  # logged episodes have no environment that could be drawn
            return {}
        run.need_trust("the environment")
        frames = film(config.env, episode, steps, SIZE).frames
    except UserError as error:
        say(f"no pictures: {error}")
        return {}
    return {step: _jpeg(frame) for step, frame in frames.items()}


def _jpeg(frame: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "JPEG", quality=70)
    return file.getvalue()
