"""How long looks of several lanes take that are taken at once, as those of a GRD training are.

    python benchmarks/looks.py --lanes 1 5
    python benchmarks/looks.py --states 17 --actions 6

The data are drawn as those of sizes.py. `cores` is how many were busy on average, those of the
looks' own processes included.
"""

import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import tyro
from sizes import drawn

from apportion.graph import looking
from apportion.graph.looking import Seen, Sight


@dataclass(frozen=True)
class Looks:
    """Take looks of several lanes at once, and print how long they took."""

    lanes: tuple[int, ...] = (1, 5)
    """How many at once; one line for each."""
    states: int = 376
    """Dimensions of the state."""
    actions: int = 17
    """Dimensions of the action."""
    episodes: int = 150
    """Episodes of each lane."""
    steps: int = 1000
    """Steps of each."""


def main(args: Looks) -> None:
    size, ends = (args.states, args.actions, args.steps, args.episodes), np.zeros(args.episodes, np.bool_)
    seen = [Seen(*drawn(*size, seed=seed), ends) for seed in range(max(args.lanes))]
    for lanes in args.lanes:
        began, used = time.perf_counter(), cpu()
        with ThreadPoolExecutor(lanes) as pool:
            found = list(pool.map(look, seen[:lanes]))
        seconds = time.perf_counter() - began
        edges = [int(np.sum(each.searched.known[0] == 1)) for each in found if each.searched]
        cores = round((cpu() - used) / seconds, 2)
        print(json.dumps({"lanes": lanes, "seconds": round(seconds, 2), "cores": cores, "edges": edges}))


def look(seen: Seen) -> Sight:
    """As a training takes it: from all edges on."""
    on = np.ones(seen.observations[0].shape[1] + seen.actions[0].shape[1], np.float32)
    learned = np.ones(len(seen.totals), np.bool_)
    return looking.apart_if_large(looking.look, seen, on, learned, True, True)


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main(tyro.cli(Looks))
