"""What is said of edges between states from a dimension that has a near copy, such as a second sensor?

Simulated logs: states that feed each other, one of them with a second sensor of some noise, actions at
random. For each next value that the doubled state feeds, the pair of verdicts is looked at: are both denied,
is one called present, and the right one? And for all other edges, how many verdicts are wrong.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.graph import identify

SEED = 61_001  # of the logs
EPISODES, STEPS, ACTIONS = 200, 40, 2


def run_near_copies(logs: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Counts over so many logs, each drawn from its own seed."""
    pairs: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for number in range(logs):
        of_pairs, of_others = look(np.random.default_rng([SEED, number]))
        pairs.update(of_pairs)
        others.update(of_others)
        tell(f"{number + 1} logs: {dict(pairs)}")
    return {"seed": SEED, "logs": logs, "pairs": dict(pairs), "other edges": dict(others)}


def look(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """What is said in one log: of pairs whose state feeds a next value, and of edges beside the pair."""
    states = int(rng.integers(3, 8))
    moves = np.where(rng.random((states, states)) < 0.3, rng.normal(0, 0.4, (states, states)), 0.0)
    np.fill_diagonal(moves, rng.uniform(0.5, 0.9, states))
    push = np.where(rng.random((ACTIONS, states)) < 0.4, rng.normal(0, 0.5, (ACTIONS, states)), 0.0)
    noise, doubled = 10.0 ** rng.uniform(-3.5, -0.5), int(rng.integers(states))
    observations, actions = [], []
    for _ in range(EPISODES):
        a = rng.uniform(-1, 1, (STEPS, ACTIONS))
        x = np.zeros((STEPS + 1, states))
        x[0] = rng.normal(0, 1, states)
        for step in range(STEPS):
            x[step + 1] = np.tanh(x[step]) @ moves + a[step] @ push + rng.normal(0, 0.4, states)
        second = x[:, doubled] + noise * x[:, doubled].std() * rng.normal(size=STEPS + 1)
        observations.append(np.column_stack([x, second]))
        actions.append(a)
    totals = np.array([each[:-1, 0].sum() for each in observations])
    result = identify(observations, actions, totals)
    verdict, true = result.verdict.state_to_state, moves != 0
    fed = np.flatnonzero(true[doubled])
    pairs = [_of_pair(verdict[doubled, target], verdict[states, target]) for target in fed]
    rest = np.delete(np.arange(states), doubled)
    return pairs, _judged(verdict[np.ix_(rest, range(states))], true[rest]) + _judged(
        result.verdict.action_to_state[:, :states], push != 0
    )


def _of_pair(first: str, second: str) -> str:
    """In words; the first of them feeds the next value."""
    if first == second == "absent":
        return "both denied"
    if second == "present":
        return "both called present" if first == "present" else "the copy called present"
    return "found" if first == "present" else "open"


def _judged(verdict: NDArray[np.str_], true: NDArray[np.bool_]) -> list[str]:
    """Of each edge: undecided, right or wrong."""
    right = np.where(true, "present", "absent")
    named = np.where(verdict == "undecided", "undecided", np.where(verdict == right, "right", "wrong"))
    return [str(each) for each in named.ravel()]
