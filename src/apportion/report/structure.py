"""The causal graph over training: edge probabilities, how many lanes keep each edge, the truth if known."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS, Spec
from apportion.report import packing
from apportion.report.statistics import thinned
from apportion.runs.atomic import Arrays
from apportion.runs.folder import RunFolder
from apportion.runs.summary import UNDECIDED

_NAMES = (*BLOCKS, "policy_mask")


class Drivers(NamedTuple):
    """Which dimensions feed the reward in the newest graph, the surest first."""

    names: list[str]
    dimensions: int  # how many there are to choose from
    known: bool  # whether any lane has numbers; none has when all diverged
    undecided: int = 0  # for how many more the data cannot tell


def structure(run: RunFolder, spec: Spec, budget: int) -> dict[str, Any] | None:
    """Graphs at a few steps of training, in about `budget` bytes; None for a method without a graph."""
    steps = run.edge_steps()
    newest = run.read_last_edges()
    blocks = [name for name in _NAMES if name in newest]
    if not any(name in newest for name in BLOCKS):
        return None
    lanes = len(newest[blocks[0]])
    size = sum(newest[name][0].size for name in blocks)
    whole = 2 * size <= budget
    if not whole:  # too many runs, or too wide: only what feeds the reward
        blocks = [name for name in blocks if newest[name].ndim == 2]
        size = sum(newest[name][0].size for name in blocks)
    moments = thinned(len(steps), max(1, min(20, budget // (2 * size))))  # places of the time slider
    chosen = [steps[moment] for moment in moments]
    snapshots = [run.read_edges_at(step) for step in chosen]
    blocks = [name for name in blocks if all(name in each for each in snapshots)]
    certified, truth = "doubts" in newest, spec.true_graph
    single = lanes > 1 and len(chosen) * lanes * size <= min(300_000, budget)  # bytes of single lanes
    return {
        "steps": chosen,
        "lanes": lanes,
        "complete": whole,
        "blocks": {name: _block([each[name] for each in snapshots], single, certified) for name in blocks},
        "truth": None
        if truth is None
        else {
            name: packing.probabilities(np.asarray(getattr(truth, name)).astype(bool))
            for name in blocks
            if name in BLOCKS
        },
    }


def drivers(edges: Arrays, spec: Spec) -> Drivers | None:
    """Dimensions whose edge to the reward most lanes keep; None without a graph."""
    if "state_to_reward" not in edges and "action_to_reward" not in edges:
        return None
    found: list[tuple[float, float, str]] = []
    dimensions, undecided = 0, 0
    for block, names in (
        ("state_to_reward", spec.observation_names),
        ("action_to_reward", spec.action_names),
    ):
        if block not in edges:
            continue
        agreeing, probability = _agreement(edges[block]), lane_mean(edges[block])
        open_ = mostly_undecided(edges, block)
        most = agreeing > len(edges[block]) / 2
        dimensions += len(names)
        undecided += int(np.sum(most & open_))
        found += [
            (-float(agreeing[place]), -float(probability[place]), name)
            for place, name in enumerate(names)
            if most[place] and not open_[place]
        ]
    known = any(np.isfinite(edges[block]).any() for block in BLOCKS[:2] if block in edges)
    names_found = [name for *_, name in sorted(found, key=lambda each: each[:2])]
    return Drivers(names_found, dimensions, known, undecided)


def _block(snapshots: list[NDArray[np.float32]], single: bool, certified: bool) -> dict[str, Any]:
    """One block at K moments: the mean over lanes [K, ...], lanes that keep each edge, those of them in which
    it is undecided, and the lanes."""
    undecided = np.stack([_undecided(each) for each in snapshots])
    return {
        "undecided": packing.counts(undecided) if certified else None,
        "probability": packing.probabilities(np.stack([lane_mean(each) for each in snapshots])),
        "kept": packing.counts(np.stack([_agreement(each) for each in snapshots])),
        "single": packing.probabilities(np.stack(snapshots)) if single else None,
    }


def lane_mean(lanes: NDArray[np.float32]) -> NDArray[np.float64]:
    """Over lanes that have a number; NaN where none has."""
    finite = np.isfinite(lanes)
    total = np.sum(lanes, axis=0, where=finite, dtype=np.float64)
    count = finite.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _agreement(lanes: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many lanes keep each edge: P >= 0.5."""
    return np.sum(lanes >= 0.5, axis=0)


def mostly_undecided(edges: Arrays, block: str) -> NDArray[np.bool_]:
    """Where at least half of the lanes that keep an edge do so because the data cannot tell."""
    open_ = _undecided(edges[block]) if "doubts" in edges else np.zeros(edges[block].shape[1:], np.int64)
    return np.asarray((open_ > 0) & (2 * open_ >= _agreement(edges[block])))


def _undecided(lanes: NDArray[np.float32]) -> NDArray[np.int64]:
    """In how many lanes the data cannot tell, where edges have a certificate."""
    return np.sum(lanes == UNDECIDED, axis=0)
