"""Align-RUDDER as a method: settings, state, looks at demonstrations, and the score of an episode."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Metrics, Record, Revision, Sampling, Segments, Transitions
from apportion.data.logged import read_npz
from apportion.methods.align_rudder import alignment
from apportion.methods.align_rudder.clusters import centres_of
from apportion.nn.segments import sum_exactly

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
        check(self.symbols >= 2, f"method.symbols={self.symbols} must be at least 2")
        for name in ("columns", "segments", "update_every"):
            check(getattr(self, name) >= 1, f"method.{name}={getattr(self, name)} must be at least 1")


class State(NamedTuple):
    centres: Float[Array, "K S"]
    profile: Float[Array, "P K"]  # position-specific scores; 0 where there is no column
    scale: Float[Array, ""]  # reward for one unit of score; 0 before the first look
    shared: Float[Array, ""]  # how many events the demonstrations share
    policy_mask: Float[Array, "S"]  # all ones


def make(config: Config) -> Method:
    def init(key: PRNGKeyArray, spec: Spec) -> State:
        states = spec.observation_size
        return State(
            centres=jnp.zeros((config.symbols, states)),
            profile=jnp.zeros((config.columns, config.symbols)),
            scale=jnp.zeros(()),
            shared=jnp.zeros(()),
            policy_mask=jnp.ones(states),
        )

    def update(state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Metrics]:
        return state, {"shared_events": state.shared, "reward_per_score": state.scale}

    def reward(state: State, transitions: Transitions) -> Float[Array, "*B"]:
        return transitions.credit

    def policy_mask(state: State) -> Float[Array, "S"]:
        return state.policy_mask

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
    return Method(init, update, reward, policy_mask, None, sampling, revision=revision, credit=credit)


# --- The score of an episode


def symbols_of(centres: Float[Array, "K S"], segments: Segments) -> Int[Array, "M T"]:
    """The cluster of the state that each step reaches."""
    reached = jnp.where(segments.mask[:, :, None], segments.observations[:, 1:], 0.0)
    # |x|² is the same for all centres.
    away = jnp.sum(centres**2, axis=1)[None, None, :] - 2.0 * jnp.einsum("mts,ks->mtk", reached, centres)
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
    states = state.centres.shape[1]
    for record in shown:
        found = record.observations.shape[1]
        check(found == states, f"{config.demonstrations} has {found} observed numbers, the task {states}")
    demonstrations = shown or sorted(own, key=lambda record: -record.total)[: config.best]
    if len(demonstrations) < 2 or not own:
        return state
    centres = centres_of(_reached(demonstrations), _reached(own), config.symbols)
    ways = [alignment.events(_symbols(centres, record))[:MOST_EVENTS] for record in demonstrations]
    usual = [alignment.events(_symbols(centres, record)) for record in own]
    background = alignment.frequencies(usual, config.symbols)
    aligned = alignment.align(ways, alignment.substitution(background))
    profile = _fitted(alignment.profile(aligned, background), config.columns)
    new = state._replace(
        centres=jnp.asarray(centres, jnp.float32),
        profile=jnp.asarray(profile, jnp.float32),
        shared=jnp.asarray(np.sum(profile.any(axis=1)), jnp.float32),
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
