"""Who feeds the reward in logged episodes, with a category as one dimension: plain data for JSON."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import collapsed, expanded, one_hot, owners
from apportion.core.spec import BLOCKS, Graph, Spec
from apportion.data.logged import Log
from apportion.graph import identify

_RANKS = ("absent", "undecided", "present")  # of entries of one category the last counts


def identify_log(log: Log, negligible: float) -> dict[str, Any]:
    """What `apportion identify --json` says of some episodes."""
    states = len(log.observation_names)
    spec = Spec("", log.observation_names, log.action_names, 1, 1, levels=log.levels)
    observations = [one_hot(each, log.levels[:states]) for each in log.observations]
    actions = [one_hot(each, log.levels[states:]) for each in log.actions]
    entries = expanded(spec)
    found = identify(
        observations,
        actions,
        log.totals,
        negligible=negligible,
        terminated=log.terminated,
        names=(*entries.observation_names, *entries.action_names),
    )
    whose = owners(spec)
    return {
        "episodes": len(log.totals),
        "observation_names": list(log.observation_names),
        "action_names": list(log.action_names),
        "graph": _own(spec, found.graph).to_dict(),
        "strength": _own(spec, found.strength).to_dict(),
        "confidence": _own(spec, found.confidence).to_dict(),
        "verdict": _own_verdicts(spec, found.verdict).to_dict(),
        "groups": _own_groups(found.groups, whose),
        "negligible": negligible,
        "explained": found.explained,
        "end_pays": found.reward_model.per_end,
        "certificate": found.certificate._asdict(),
        "notes": list(log.notes),
    }


def _own(spec: Spec, graph: Graph) -> Graph:
    return Graph(**collapsed(spec, {name: np.asarray(getattr(graph, name)) for name in BLOCKS}))


def _own_verdicts(spec: Spec, verdicts: Graph) -> Graph:
    ranks = {name: _rank(np.asarray(getattr(verdicts, name))) for name in BLOCKS}
    return Graph(**{name: np.array(_RANKS)[block] for name, block in collapsed(spec, ranks).items()})


def _rank(words: NDArray[Any]) -> NDArray[np.int64]:
    return np.select([words == word for word in _RANKS], list(range(len(_RANKS))))


def _own_groups(groups: list[tuple[int, ...]], whose: NDArray[np.int64]) -> list[tuple[int, ...]]:
    """Of dimensions instead of entries; one that stands for itself alone is no group."""
    own = [tuple(dict.fromkeys(int(whose[dim]) for dim in group)) for group in groups]
    return [group for group in dict.fromkeys(own) if len(group) > 1]
