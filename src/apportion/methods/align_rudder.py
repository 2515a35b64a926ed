"""Align-RUDDER (Patil et al., ICML 2022): reward for coming along the way that demonstrations went.

What demonstrations have in common, in its order, is found by aligning them as biologists align sequences; a
step earns by what it adds to the score of an episode against that profile.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray
from scipy.cluster.vq import vq

from apportion.core.config import at_least, check
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Record, Revision, Sampling, Segments, Transitions
from apportion.data.memory import Centres
from apportion.data.npz import read_npz
from apportion.nn.losses import sum_exactly

GROWTH = 1.5  # the best episodes are looked for anew when there are so many times more
MOST_ROWS = 100_000  # steps that a look takes
MOST_EVENTS = 200  # of a demonstration: aligning takes their square


@dataclass(frozen=True)
class Config:
    """Align-RUDDER: reward for the way of demonstrations, which it needs: a file or a run's best episodes."""

    demonstrations: str = ""
    """NPZ file of demonstrations, as `apportion identify` takes it; the run's own best when not given."""
    best: int = 16
    """How many of the best segments so far serve as demonstrations, where there is no file."""
    symbols: int = 8
    """Kinds of states that are told apart: clusters of the states reached."""
    columns: int = 32
    """Events in a row that the profile has room for; of more, the most telling are kept."""
    segments: int = 8
    """Segments per update whose rewards are computed anew: M."""
    update_every: int = 10
    """Updates of the policy for one of these."""

    def __post_init__(self) -> None:
        check(self.best >= 2, f"method.best={self.best} must be at least 2: one sequence cannot be aligned")
        at_least(self, "method.", symbols=2, columns=1, segments=1, update_every=1)


class State(NamedTuple):
    centres: Centres
    profile: Float[Array, "P K"]  # position-specific scores; 0 where there is no column
    scale: Float[Array, ""]  # reward for one unit of score; 0 before the first look
    shared: Float[Array, ""]  # how many events the demonstrations share


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        states = spec.observation_size
        return State(
            centres=Centres(jnp.zeros((config.symbols, states)), jnp.ones(states)),
            profile=jnp.zeros((config.columns, config.symbols)),
            scale=jnp.zeros(()),
            shared=jnp.zeros(()),
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        return state, {"shared_events": state.shared, "reward_per_score": state.scale}

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return transitions.credit

    def credit(state: State, segments: Segments) -> Float[Array, "M T"]:
        scores = prefix_scores(state.profile, symbols_of(state.centres, segments), segments.mask)
        gains = jnp.diff(scores, axis=1, prepend=jnp.zeros_like(scores[:, :1]))
        return sum_exactly(state.scale * gains, segments)

    shown = _read(config.demonstrations) if config.demonstrations else ()
    first = 1.0 if shown else 4.0 * config.best
    revision = Revision(
        look=lambda state, records, count: look(config, state, records),
        accept=lambda state, found: found,  # updates change nothing: a look finds the whole state
        findings=lambda state: state,
        first=first,
        growth=GROWTH,
        max_rows=MOST_ROWS,
        shown=shown,
    )
    sampling = Sampling(config.segments, "uniform", config.update_every)

    def rescale(state: State, factor: Float[Array, ""], shift: Float[Array, ""]) -> State:
        return state._replace(scale=state.scale * factor)

    return Method(init, update, reward, sampling, revision=revision, credit=credit, rescale=rescale)


# --- The score of an episode


def symbols_of(centres: Centres, segments: Segments) -> Int[Array, "M T"]:
    """The cluster of the state that each step reaches."""
    reached = jnp.where(segments.mask[:, :, None], segments.observations[:, 1:], 0.0)
    places = centres.observations / centres.unit[None, :]
    # |x|² is the same for all centres.
    products = jnp.einsum("mts,ks->mtk", reached / centres.unit[None, None, :], places)
    away = jnp.sum(places**2, axis=1)[None, None, :] - 2.0 * products
    return jnp.argmin(away, axis=-1)


def prefix_scores(
    profile: Float[Array, "P K"], symbols: Int[Array, "M T"], mask: Bool[Array, "M T"]
) -> Float[Array, "M T"]:
    """S_t: the best sum over columns that events up to t meet in order; what is left out costs nothing."""

    def step(best: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        symbol, real = now  # [M]
        # best[:, p]: with the first p columns only.
        met = best[:, :-1] + profile[:, symbol].T
        taken = jnp.concatenate([best[:, :1], jnp.maximum(best[:, 1:], met)], axis=1)
        best = jnp.where(real[:, None], jax.lax.cummax(taken, axis=1), best)
        return best, best[:, -1]

    start = jnp.zeros((symbols.shape[0], profile.shape[0] + 1))
    return jax.lax.scan(step, start, (symbols.T, mask.T))[1].T


# --- A look at demonstrations, on the host


def look(config: Config, state: State, records: list[Record]) -> State:
    """With the profile of the demonstrations among the records, or of the best of them."""
    shown = [record for record in records if record.number < 0]
    own = [record for record in records if record.number >= 0]
    states = len(state.centres.unit)
    for record in shown:
        found = record.observations.shape[1]
        check(found == states, f"{config.demonstrations} has {found} observed numbers, the task {states}")
    demonstrations = shown or sorted(own, key=lambda record: -record.total)[: config.best]
    if len(demonstrations) < 2 or not own:
        return state
    centres = centres_of(_reached(demonstrations), _reached(own), config.symbols)
    ways = [events(_symbols(centres, record))[:MOST_EVENTS] for record in demonstrations]
    usual = [events(_symbols(centres, record)) for record in own]
    background = frequencies(usual, config.symbols)
    aligned = align(ways, substitution(background))
    fitted = _fitted(profile(aligned, background), config.columns)
    new = state._replace(
        centres=Centres(jnp.asarray(centres, jnp.float32), jnp.ones(states)),
        profile=jnp.asarray(fitted, jnp.float32),
        shared=jnp.asarray(np.sum(fitted.any(axis=1)), jnp.float32),
    )
    return new._replace(scale=jnp.asarray(_scale(new.profile, ways, demonstrations, own), jnp.float32))


def _scale(
    profile: Float[Array, "P K"], ways: list[Any], demonstrations: list[Record], own: list[Record]
) -> float:
    """By how much demonstrations pay more than the usual episode, for one unit of their mean score."""
    longest = max(map(len, ways))
    symbols = jnp.asarray(np.stack([np.pad(way, (0, longest - len(way))) for way in ways]))
    mask = jnp.asarray(np.arange(longest)[None, :] < np.array([[len(way)] for way in ways]))
    score = float(jnp.mean(prefix_scores(profile, symbols, mask)[:, -1]))
    more = np.mean([record.total for record in demonstrations]) - np.mean([record.total for record in own])
    return max(float(more), 0.0) / score if score > 0 else 0.0


def _fitted(profile: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """So many rows: the columns whose best symbol scores most, in their order, then nothing."""
    kept = np.sort(np.argsort(-profile.max(axis=1), kind="stable")[:columns])
    return np.pad(profile[kept], ((0, columns - len(kept)), (0, 0)))


def _symbols(centres: NDArray[np.float64], record: Record) -> NDArray[np.int64]:
    away = np.sum(centres**2, axis=1) - 2.0 * record.observations[1:] @ centres.T
    return np.asarray(np.argmin(away, axis=1))


def _reached(records: list[Record]) -> NDArray[np.float64]:
    return np.concatenate([record.observations[1:] for record in records]).astype(np.float64)


@lru_cache(maxsize=4)
def _read(path: str) -> tuple[Record, ...]:
    """Demonstrations of a file; numbered below 0, since they are no segments of the training."""
    log = read_npz(Path(path))
    check(len(log.actions) >= 2, f"{path} has one episode: demonstrations must be two or more")
    episodes = zip(log.observations, log.actions, log.totals, strict=True)
    return tuple(
        Record(observations.astype(np.float32), actions.astype(np.float32), float(total), False, -1 - index)
        for index, (observations, actions, total) in enumerate(episodes)
    )


# --- Alignment


Sequence = NDArray[np.int64]
Scores = NDArray[np.float64]

ABSENT = -1  # where a sequence has nothing in a column
MISMATCH, GAP = -1.0, -0.5  # beside a match of 1 on the average


def events(symbols: Sequence) -> Sequence:
    """Without what repeats the symbol before it."""
    return symbols[np.flatnonzero(np.diff(symbols, prepend=ABSENT))]


def substitution(frequency: Scores) -> Scores:
    """[K, K] what it is worth to put one symbol above another: rare ones that agree say more."""
    surprise = -np.log(frequency)
    return np.where(np.eye(len(frequency), dtype=bool), surprise / np.mean(surprise), MISMATCH)


def align(sequences: list[Sequence], worth: Scores) -> NDArray[np.int64]:
    """[N, C] the sequences with gaps: the one most like all others first, then the next most alike."""
    likeness = np.array([[best_path(worth[np.ix_(a, b)])[0] for b in sequences] for a in sequences])
    centre = int(np.argmax(likeness.sum(axis=1)))
    order = sorted(range(len(sequences)), key=lambda i: (i != centre, -likeness[centre, i], i))
    aligned = sequences[centre][None, :]
    for index in order[1:]:
        aligned = _joined(aligned, sequences[index], worth)
    return aligned[np.argsort(order)]


def best_path(scores: Scores) -> tuple[float, list[tuple[int, int]]]:
    """Needleman and Wunsch: the best way to walk through both, and which rows meet which columns on it."""
    rows, columns = scores.shape
    steps = GAP * np.arange(columns + 1)
    table = np.empty((rows + 1, columns + 1))
    table[0] = steps
    for row in range(rows):
        entered = table[row] + GAP
        entered[1:] = np.maximum(entered[1:], table[row, :-1] + scores[row])
        # The best place to the left from which gaps lead here.
        table[row + 1] = np.maximum.accumulate(entered - steps) + steps
    met, row, column = [], rows, columns
    while row and column:
        here = table[row, column]
        if np.isclose(here, table[row - 1, column - 1] + scores[row - 1, column - 1]):
            row, column = row - 1, column - 1
            met.append((row, column))
        elif np.isclose(here, table[row - 1, column] + GAP):
            row -= 1
        else:
            column -= 1
    return float(table[-1, -1]), met[::-1]


def profile(aligned: NDArray[np.int64], background: Scores) -> Scores:
    """[C, K] log of how much likelier each symbol is in each column than elsewhere.

    Only columns that at least half of the sequences share. The background counts as one sequence more.
    """
    shared = aligned[:, np.mean(aligned != ABSENT, axis=0) >= 0.5]
    symbols = np.arange(len(background))
    counts = np.sum(shared[:, :, None] == symbols, axis=0)
    present = np.sum(shared != ABSENT, axis=0)[:, None]
    return np.asarray(np.log((counts + background) / (present + 1.0) / background))


def frequencies(sequences: list[Sequence], symbols: int) -> Scores:
    """[K] how often each symbol comes, none of them never."""
    counts = np.bincount(np.concatenate(sequences), minlength=symbols) + 1.0
    return np.asarray(counts / counts.sum())


def _joined(aligned: NDArray[np.int64], sequence: Sequence, worth: Scores) -> NDArray[np.int64]:
    """With one sequence more: a column's worth for a symbol is the mean over those who are there."""
    there = aligned != ABSENT
    pairs = np.where(there[:, :, None], worth[np.where(there, aligned, 0)], 0.0)  # [N, C, K]
    mean = pairs.sum(axis=0) / there.sum(axis=0)[:, None]
    _, met = best_path(mean[:, sequence])
    return _merged(aligned, sequence, met)


def _merged(aligned: NDArray[np.int64], sequence: Sequence, met: list[tuple[int, int]]) -> NDArray[Any]:
    """All columns of the alignment and all symbols of the sequence, those that met in one column."""
    columns, column, position = [], 0, 0
    nothing = np.full(len(aligned), ABSENT)
    for meets_column, meets_position in [*met, (aligned.shape[1], len(sequence))]:
        columns += [[*aligned[:, c], ABSENT] for c in range(column, meets_column)]
        columns += [[*nothing, symbol] for symbol in sequence[position:meets_position]]
        if meets_column < aligned.shape[1]:
            columns.append([*aligned[:, meets_column], sequence[meets_position]])
        column, position = meets_column + 1, meets_position + 1
    return np.array(columns).T


# --- Clusters


ROUNDS = 20  # k-means has settled by then, or nearly so
MOST_POINTS = 20_000

Points = NDArray[np.float64]


def centres_of(demonstrated: Points, usual: Points, count: int) -> Points:
    """[K, S] of what demonstrations reached and of as much of what is usual."""
    points = np.concatenate([_thinned(demonstrated, MOST_POINTS), _thinned(usual, len(demonstrated))])
    centres = _far_apart(points, count)
    for _ in range(ROUNDS):
        nearest, _ = vq(points, centres)
        sizes = np.bincount(nearest, minlength=count)
        sums = np.stack([np.bincount(nearest, column, count) for column in points.T], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return centres


def _far_apart(points: Points, count: int) -> Points:
    """The point nearest to the mean, then always the one farthest from all chosen."""
    away = np.sum((points - points.mean(axis=0)) ** 2, axis=1)
    chosen = [points[np.argmin(away)]]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < count:
        nearest = np.minimum(nearest, np.sum((points - chosen[-1]) ** 2, axis=1))
        chosen.append(points[np.argmax(nearest)])
    return np.stack(chosen)


def _thinned(points: Points, most: int) -> Points:
    """Evenly chosen where there are more."""
    return points[:: max(1, -(-len(points) // max(most, 1)))]
