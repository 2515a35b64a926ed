"""A look at all segments so far: the edges, what tells of an end, and additive rewards within the edges.

Looks of several lanes are taken at once. In threads of one process they would wait for each other: between
its calls of NumPy each wants the interpreter, which only one can have. So a large look has a process of its
own. Nothing here needs JAX, so that such a process starts quickly.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from apportion.core.children import apart
from apportion.core.spec import BLOCKS, REWARD_BLOCKS
from apportion.graph import Identification, additive_fit, find_endings, identify
from apportion.graph.additive_fit import Fitted, Measured
from apportion.graph.certificate import Doubt
from apportion.graph.endings import Endings
from apportion.graph.features import NUMBERS_AT_ONCE, SAMPLE, evenly, rows_of, together, varies

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 5 * NUMBERS_AT_ONCE  # numbers; of a smaller look, to start a process would be a large part
SEGMENTS_PER_DIMENSION = 5  # that varies: with fewer, no edge to the reward goes


class Seen(NamedTuple):
    """Segments to look at."""

    observations: list[NDArray[Any]]  # [T+1, S] each
    actions: list[NDArray[Any]]  # [T, A] each
    totals: NDArray[np.float64]  # [E]
    terminated: NDArray[np.bool_]  # [E]

    @property
    def numbers(self) -> int:
        return sum(each.size for each in (*self.observations, *self.actions))

    def rows(self, chosen: NDArray[np.bool_]) -> list[NDArray[Any]]:
        """[T, S + A + 1] of the segments chosen: state, action and whether the step is an end."""
        rows = []
        for number in np.flatnonzero(chosen):
            actions = self.actions[number]
            end = np.zeros((len(actions), 1), np.float32)
            end[-1] = self.terminated[number]
            rows.append(np.concatenate([self.observations[number][: len(actions)], actions, end], axis=1))
        return rows

    def some_steps(self, count: int) -> NDArray[Any]:
        """[N, S + A] of up to so many steps of all segments."""
        lengths = [len(actions) for actions in self.actions]
        chosen = evenly(count, sum(lengths))
        before = [each[:length] for each, length in zip(self.observations, lengths, strict=True)]
        return np.concatenate([rows_of(before, chosen), rows_of(self.actions, chosen)], axis=1)


class Searched(NamedTuple):
    """What a search for edges has brought."""

    known: list[NDArray[np.float32]]  # of each block: 1 present, 0 absent, 0.5 where the data cannot tell
    doubts: tuple[Doubt, ...]
    endings: Endings

    def edges_after(self, before: Iterable[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """The first blocks of edges, as many as there were before: on where present, off where absent.

        Where the data cannot tell, an edge between states stays as it was, so that the policy's input does
        not flicker, and one to the reward is on. For of dimensions that say nearly the same, each search
        excludes others: were they to stay off, few of them would be left after some searches.
        """
        certified = not any(doubt.of_reward for doubt in self.doubts)
        return [
            np.where(known == 0.5, 1.0 if certified and block in REWARD_BLOCKS else on, known)
            for block, on, known in zip(BLOCKS, before, self.known, strict=False)
        ]


class Sight(NamedTuple):
    """What a look has brought."""

    searched: Searched | None
    fitted: Fitted  # an additive reward of the dimensions with an edge, and whether a step is an end
    constant: Fitted


def apart_if_large(
    function: Callable[Concatenate[Seen, P], T], seen: Seen, *arguments: P.args, **named: P.kwargs
) -> T:
    """What one of the functions below gives: the same, whether in a process of its own or in this one."""
    if seen.numbers < LARGE:
        return function(seen, *arguments, **named)
    return apart(function, seen, *arguments, **named)


def search(seen: Seen) -> Searched:
    """For the edges, and for what tells of an end."""
    with ThreadPoolExecutor(1) as beside:
        endings = beside.submit(find_endings, seen.observations, seen.terminated)
        found = identify(seen.observations, seen.actions, seen.totals, terminated=seen.terminated)
    known = _as_far_as_known(_known(found), seen)
    return Searched(known, found.certificate.doubts, endings.result())


def look(
    seen: Seen, on: NDArray[np.float32], learned: NDArray[np.bool_], searches: bool, fits: bool
) -> Sight:
    """Search for the edges, or leave those that are `on` [S + A], and fit rewards to the segments that are
    learned from: one of the dimensions with an edge, if it `fits`, and a constant."""
    searched = search(seen) if searches else None
    if searched is not None:
        on = np.concatenate(searched.edges_after(np.split(on, [len(searched.known[0])])))
    rows, totals = seen.rows(learned), seen.totals[learned]
    measured, allowed = Measured.of(rows), np.append(on > 0, True)
    constant = additive_fit.fit(rows, totals, np.zeros_like(allowed), measured)
    fitted = additive_fit.fit(rows, totals, allowed, measured) if fits else constant
    return Sight(searched, fitted, constant)


def _known(result: Identification) -> list[NDArray[np.float32]]:
    """Verdicts as numbers. An edge that was not found may be there where a certificate is missing; and one to
    the reward where only totals exclude it, for a policy learns from single steps."""
    certificate, states = result.certificate, len(result.graph.state_to_reward)
    of_reward, of_dynamics = certificate.reward & result.nowhere, np.asarray(certificate.dynamics)
    known = []
    for name, sure in zip(BLOCKS, (*np.split(of_reward, [states]), of_dynamics, of_dynamics), strict=True):
        verdict = getattr(result.verdict, name)
        numbers = np.select([verdict == "present", (verdict == "absent") & sure], [1.0, 0.0], 0.5)
        known.append(numbers.astype(np.float32))
    return known


def _as_far_as_known(known: list[NDArray[np.float32]], seen: Seen) -> list[NDArray[np.float32]]:
    """Edges to the reward that a search excludes, and that are better kept, are at 0.5: those of dimensions
    that go with one that stays, and all where segments are few. Among dimensions that say nearly the same,
    totals choose by chance, and a reward of all of them is closer to that of single steps."""
    to_reward, steps = np.concatenate(known[: len(REWARD_BLOCKS)]), seen.some_steps(SAMPLE)
    live, left = varies(steps.min(axis=0), steps.max(axis=0)), to_reward > 0
    few = len(seen.totals) < SEGMENTS_PER_DIMENSION * np.sum(live)
    kept = live if few else together(steps, left).any(axis=1)
    to_reward = np.where((to_reward == 0) & kept, 0.5, to_reward).astype(np.float32)
    return [*np.split(to_reward, [len(known[0])]), *known[len(REWARD_BLOCKS) :]]
