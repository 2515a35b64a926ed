"""Problems as real data are: noisy outcomes, few episodes, weak effects, proxies, one-hot groups, rare flags.

A problem is a seed. Its reward is a sum of terms, each a function of one to four dimensions; what a dimension
is worth is the share of the totals' variance that lies in the terms it takes part in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISES = (0.0, 0.2, 0.5)  # share of the totals' variance
EPISODES = (160, 800)
STEPS = (10, 50)
EFFECTS = 20.0  # the strongest term's spread is at most so many times the weakest one's
_BEFORE = 5  # steps that are simulated but not shown


class Noisy(NamedTuple):
    """Episodes, and which of states and actions [S + A] feed the reward."""

    observations: list[Floats]  # [T+1, S]
    actions: list[Floats]  # [T, A]
    totals: Floats  # [E]
    parents: NDArray[np.bool_]  # [S + A]
    worth: Floats  # [S + A] share of the totals' variance
    traits: dict[str, float]  # what is hard about it


@dataclass(frozen=True, eq=False)
class _Columns:
    """What is observed [E, T, D], and which columns stand for a cause: one each, or a one-hot group."""

    values: Floats
    causes: list[NDArray[np.int64]]


def draw(seed: int) -> Noisy:
    """6 to 16 states, 2 to 4 actions, and a share of everything that is known to mislead."""
    rng = np.random.default_rng(seed)
    episodes = int(np.exp(rng.uniform(*np.log(EPISODES))))
    steps, noise = int(rng.integers(*STEPS)), float(rng.choice(NOISES))
    states, actions = _columns(rng, episodes, steps)
    whole = np.concatenate([states.values[:, :-1], actions.values], axis=2)
    count = states.values.shape[2]
    causes = [*states.causes, *(count + cause for cause in actions.causes)]
    four = bool(rng.random() < 0.12)
    terms, owners = _terms(rng, whole, causes, four)
    clean = terms.sum(axis=0)
    spread = clean.std() * np.sqrt(noise / (1 - noise))
    totals = clean + spread * rng.normal(size=episodes)
    touches = np.array([[d in owner for owner in owners] for d in range(whole.shape[2])])
    worth = np.array([np.var(terms[mine].sum(axis=0)) if mine.any() else 0.0 for mine in touches])
    return Noisy(
        list(states.values),
        list(actions.values),
        totals,
        np.asarray(touches.any(axis=1)),
        worth / np.var(totals),
        {"noise": noise, "episodes": float(episodes), "four": float(four)},
    )


def _columns(rng: np.random.Generator, episodes: int, steps: int) -> tuple[_Columns, _Columns]:
    """A system of continuous states with its actions, then flags, one-hot groups and proxies beside them."""
    size, levers = int(rng.integers(6, 12)), int(rng.integers(2, 5))
    states, moves = _simulate(rng, size, levers, episodes, steps)
    parts, causes = [states], [np.array([d]) for d in range(size)]

    def add(columns: Floats) -> None:
        places = sum(part.shape[2] for part in parts) + np.arange(columns.shape[2])
        parts.append(columns)
        causes.append(places)

    if rng.random() < 0.3:
        add((rng.random((episodes, steps + 1, 1)) < rng.uniform(0.01, 0.05)).astype(np.float64))
    for _ in range(rng.choice(3, p=[0.6, 0.25, 0.15])):
        add(np.eye(3)[rng.integers(3, size=(episodes, steps + 1))])
    for _ in range(rng.choice(3, p=[0.5, 0.3, 0.2])):
        source = states[:, :, rng.integers(size)]
        if rng.random() < 0.3:
            add(np.concatenate([source[:, :1], source[:, :-1]], axis=1)[:, :, None])  # a step late
        else:
            blur = rng.uniform(0.1, 0.6) * source.std()
            add((source + blur * rng.normal(size=source.shape))[:, :, None])
    columns = _Columns(np.concatenate(parts, axis=2), causes)
    if rng.random() < 0.2:  # discrete actions, of which the system feels none
        return columns, _Columns(np.eye(3)[rng.integers(3, size=(episodes, steps))], [np.arange(3)])
    return columns, _Columns(moves, [np.array([a]) for a in range(levers)])


def _simulate(
    rng: np.random.Generator, size: int, levers: int, episodes: int, steps: int
) -> tuple[Floats, Floats]:
    """s' = tanh(W s + V a) + noise, with actions that lean another way in each episode."""
    mixing = rng.normal(size=(size, size)) * (rng.random((size, size)) < 2.0 / size)
    mixing += np.diag(rng.uniform(0.3, 0.9, size))
    mixing *= 0.9 / np.maximum(np.abs(mixing).sum(axis=0), 0.9)
    push = 0.6 * rng.normal(size=(levers, size)) * (rng.random((levers, size)) < 0.4)
    bias = rng.uniform(-0.6, 0.6, (episodes, levers)) * (np.arange(episodes) % 2)[:, None]
    now, states, moves = rng.uniform(-1, 1, (episodes, size)), [], []
    for _ in range(_BEFORE + steps + 1):
        move = np.clip(bias + rng.uniform(-1, 1, bias.shape), -1, 1)
        states.append(now)
        moves.append(move)
        now = np.tanh(now @ mixing + move @ push) + 0.3 * rng.normal(size=now.shape)
    shown = slice(_BEFORE, None)
    return np.stack(states[shown], axis=1), np.stack(moves[shown][:-1], axis=1)


def _terms(
    rng: np.random.Generator, x: Floats, causes: list[NDArray[np.int64]], four: bool
) -> tuple[Floats, list[set[int]]]:
    """Sums over each episode of 2 to 6 terms [terms, E], and the dimensions that each of them looks at."""
    spread = x.std(axis=(0, 1))
    z = (x - x.mean(axis=(0, 1))) / np.where(spread > 0, spread, 1.0)
    terms, owners = [], []
    for number in range(int(rng.integers(2, 7))):
        degree = 4 if four and number == 0 else int(rng.choice([1, 2], p=[0.75, 0.25]))
        chosen = rng.choice(len(causes), min(degree, len(causes)), replace=False)
        factors = [_factor(rng, z[:, :, causes[c]], degree) for c in chosen]
        term: Floats = np.prod(np.stack(factors), axis=0).sum(axis=1)
        size = EFFECTS if degree == 4 else float(np.exp(rng.uniform(0, np.log(EFFECTS))))
        terms.append(size * (term - term.mean()) / max(term.std(), 1e-9))
        owners.append({int(d) for c in chosen for d in causes[c]})
    return np.stack(terms), owners


_SHAPES: tuple[Callable[[Floats], Floats], ...] = (
    lambda x: x,
    lambda x: (x - 0.5) ** 2,
    lambda x: np.abs(x),
    lambda x: np.tanh(3 * x),
    lambda x: np.sin(2 * x + 0.5),
    lambda x: (x > 0.5).astype(np.float64),
)


def _factor(rng: np.random.Generator, z: Floats, degree: int) -> Floats:
    """A function of one cause [E, T]: a table over a one-hot group, a curve of a single column."""
    if z.shape[2] > 1:
        table = rng.normal(size=(z.shape[2],))
        return np.asarray((z * (table - table.mean())).sum(axis=2))
    return z[:, :, 0] if degree > 1 else _SHAPES[int(rng.integers(len(_SHAPES)))](z[:, :, 0])
