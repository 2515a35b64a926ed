"""Problems as real data are: noisy outcomes, few episodes, weak effects, proxies, one-hot groups, rare flags.

A problem is a seed. Its reward is a sum of terms, each a function of one to four dimensions; what a dimension
is worth is the share of the totals' variance that lies in the terms it takes part in. Those of the family
"steered" come from a policy that looks at the state and changes over time, and end early, with a fine or a
prize; a clock tells how long an episode is. Those that are "crooked", too, have products of curves: of
thresholds, kinks and waves of two or three dimensions, which no dictionary holds. In those that are "lagging"
gauges follow what some term pays, a little late: in totals they are as good as the term itself. Those that
are "metered" show what plants do: a gauge and one that follows it, a meter that adds up a state, and may be
what is paid for, and readings that differ from others by a thousandth to a tenth of their spread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISES = (0.0, 0.2, 0.5)  # share of the totals' variance
EPISODES = (160, 800)
STEPS = (10, 50)
EFFECTS = 20.0  # the strongest term's spread is at most so many times the weakest one's
END_EARLY = (0.1, 0.7)  # share of the steered episodes
END_PAYS = (0.3, 3.0)  # an end, in standard deviations of all that is earned
SMALLEST = 6  # continuous states
_BEFORE = 5  # steps that are simulated but not shown

Family = Literal["open", "steered", "crooked", "lagging", "metered"]


class Problem(NamedTuple):
    """Logged episodes, and what is true of each of states and actions [S + A]."""

    observations: list[Floats]  # [T+1, S]
    actions: list[Floats]  # [T, A]
    totals: Floats  # [E]
    terminated: NDArray[np.bool_] | None  # [E]
    parents: NDArray[np.bool_]  # whether it feeds the reward
    proxies: NDArray[np.bool_]  # no parent, but shown in the stead of one that is not
    worth: Floats  # share of the totals' variance
    noise: float  # of the totals' variance


@dataclass(frozen=True, eq=False)
class _Columns:
    """What is observed [E, T, D], and which columns stand for a cause: one each, or a one-hot group."""

    values: Floats
    causes: list[NDArray[np.int64]]


class _Degrees(NamedTuple):
    """How many dimensions a term is a product of."""

    chances: tuple[float, float, float]  # of one, two and three
    four: bool  # whether one of them has four
    curved: bool  # whether products are of curves

    @classmethod
    def of(cls, family: Family, four: bool) -> "_Degrees":
        plain = family in ("open", "steered", "metered")
        return cls((0.75, 0.25, 0.0) if plain else (0.4, 0.35, 0.25), four and plain, family == "crooked")


def draw(seed: int, family: Family = "open", episodes: int | None = None) -> Problem:
    """6 to 16 states, 2 to 4 actions, and a share of everything that is known to mislead."""
    rng = np.random.default_rng(seed)
    usual = int(np.exp(rng.uniform(*np.log(EPISODES))))
    episodes = usual if episodes is None else episodes
    steps, noise = int(rng.integers(*STEPS)), float(rng.choice(NOISES))
    states, actions = _columns(rng, episodes, steps, family)
    whole = np.concatenate([states.values[:, :-1], actions.values], axis=2)
    count = states.values.shape[2]
    causes = [*states.causes, *(count + cause for cause in actions.causes)]
    four = bool(rng.random() < 0.12)
    lengths, ended = np.full(episodes, steps), np.zeros(episodes, np.bool_)
    if family != "open":
        lengths, ended = _early_ends(rng, states.values[:, :, int(rng.integers(SMALLEST))])
    earned, owners = _terms(rng, whole, causes, lengths, _Degrees.of(family, four))
    terms = earned.sum(axis=2)
    terms -= terms.mean(axis=1, keepdims=True)
    clean = terms.sum(axis=0)
    offsets = np.stack([np.ones(episodes), lengths, ended], axis=1)
    if family != "open":
        fine = rng.choice([0.0, -1.0, 1.0], p=[0.2, 0.6, 0.2]) * rng.uniform(*END_PAYS)
        clean = clean + fine * clean.std() * ended
    spread = _beside(offsets, clean).std() * np.sqrt(noise / (1 - noise))
    totals = clean + spread * rng.normal(size=episodes)
    touches = np.array([[d in owner for owner in owners] for d in range(whole.shape[2])])
    worth = np.array([np.var(_beside(offsets, terms[mine].sum(axis=0))) for mine in touches])
    gauges = _gauges(rng, earned, family)
    no_parents = np.full(gauges.shape[2], count)  # where they stand: after the other states
    shown = np.concatenate([states.values, gauges], axis=2)
    parents = np.insert(touches.any(axis=1), no_parents, False)
    return Problem(
        [each[: length + 1] for each, length in zip(shown, lengths, strict=True)],
        [each[:length] for each, length in zip(actions.values, lengths, strict=True)],
        totals,
        ended,
        parents,
        np.zeros(len(parents), np.bool_),
        np.insert(worth, no_parents, 0.0) / np.var(_beside(offsets, totals)),
        noise,
    )


def _gauges(rng: np.random.Generator, earned: Floats, family: Family) -> Floats:
    """[E, T+1, G] following what terms earn [terms, E, T]: one or two of them, or one and its follower."""
    if family == "lagging":
        return _following(rng, earned[rng.choice(len(earned), int(rng.integers(1, 3)), replace=False)])
    if family == "metered":
        first = _following(rng, earned[[int(rng.integers(len(earned)))]])
        return np.concatenate([first, _following(rng, np.moveaxis(first[:, :-1], 2, 0))], axis=2)
    return np.zeros((earned.shape[1], earned.shape[2] + 1, 0))


def _following(rng: np.random.Generator, followed: Floats) -> Floats:
    """[E, T+1, G] gauges, each following a series [G, E, T] in its own time, with noise."""
    speed, noise = rng.uniform(0.2, 0.8, (len(followed), 1)), rng.uniform(0.0, 0.1, (len(followed), 1))
    now, gauges = followed[:, :, 0], [followed[:, :, 0]]
    spread = followed.std(axis=(1, 2))[:, None]
    for paid in np.moveaxis(followed, 2, 0):
        now = now + speed * (paid - now) + noise * spread * rng.normal(size=now.shape)
        gauges.append(now)
    return np.moveaxis(np.stack(gauges), (0, 1, 2), (1, 2, 0))


def _beside(offsets: Floats, totals: Floats) -> Floats:
    """What length and end do not explain of some totals [E]."""
    return np.asarray(totals - offsets @ np.linalg.lstsq(offsets, totals, rcond=None)[0])


def _early_ends(rng: np.random.Generator, x: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Steps [E] until a state [E, T+1] goes beyond what some share of all episodes reach, and whether it
    does."""
    limit = np.quantile(x[:, 1:].max(axis=1), 1 - rng.uniform(*END_EARLY))
    beyond = x[:, 1:] > limit
    ended = beyond.any(axis=1)
    return np.where(ended, 1 + beyond.argmax(axis=1), beyond.shape[1]), np.asarray(ended)


def _columns(
    rng: np.random.Generator, episodes: int, steps: int, family: Family
) -> tuple[_Columns, _Columns]:
    """A system of continuous states with its actions, then flags, one-hot groups and proxies beside them."""
    size, levers = int(rng.integers(SMALLEST, 12)), int(rng.integers(2, 5))
    gain = rng.normal(size=(size, levers)) / np.sqrt(size) if family != "open" else np.zeros((size, levers))
    states, moves = _simulate(rng, gain, episodes, steps)
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
            blur = 10 ** rng.uniform(-3, -1) if family == "metered" else rng.uniform(0.1, 0.6)
            add((source + blur * source.std() * rng.normal(size=source.shape))[:, :, None])
    if family == "metered":
        source = states[:, :, [int(rng.integers(size))]]
        add(np.cumsum(source, axis=1) - source)
    if family != "open" and rng.random() < 0.5:  # a clock, which is no cause
        parts.append(np.broadcast_to(np.arange(steps + 1.0)[None, :, None], (episodes, steps + 1, 1)))
    columns = _Columns(np.concatenate(parts, axis=2), causes)
    if rng.random() < 0.2:  # discrete actions, of which the system feels none
        return columns, _Columns(np.eye(3)[rng.integers(3, size=(episodes, steps))], [np.arange(3)])
    return columns, _Columns(moves, [np.array([a]) for a in range(levers)])


def _simulate(rng: np.random.Generator, gain: Floats, episodes: int, steps: int) -> tuple[Floats, Floats]:
    """s' = tanh(W s + V a) + noise, with actions that lean another way in each episode, and that follow the
    state by the gain [S, A], more so in later episodes."""
    size, levers = gain.shape
    trained = np.linspace(0, 2, episodes)[:, None]
    mixing = rng.normal(size=(size, size)) * (rng.random((size, size)) < 2.0 / size)
    mixing += np.diag(rng.uniform(0.3, 0.9, size))
    mixing *= 0.9 / np.maximum(np.abs(mixing).sum(axis=0), 0.9)
    push = 0.6 * rng.normal(size=(levers, size)) * (rng.random((levers, size)) < 0.4)
    bias = rng.uniform(-0.6, 0.6, (episodes, levers)) * (np.arange(episodes) % 2)[:, None]
    now, states, moves = rng.uniform(-1, 1, (episodes, size)), [], []
    for _ in range(_BEFORE + steps + 1):
        move = np.clip(bias + trained * (now @ gain) + rng.uniform(-1, 1, bias.shape), -1, 1)
        states.append(now)
        moves.append(move)
        now = np.tanh(now @ mixing + move @ push) + 0.3 * rng.normal(size=now.shape)
    shown = slice(_BEFORE, None)
    return np.stack(states[shown], axis=1), np.stack(moves[shown][:-1], axis=1)


def _terms(
    rng: np.random.Generator,
    x: Floats,
    causes: list[NDArray[np.int64]],
    lengths: NDArray[np.int64],
    degrees: "_Degrees",
) -> tuple[Floats, list[set[int]]]:
    """What 2 to 6 terms earn in each step [terms, E, T], and the dimensions that each of them looks at."""
    alive = np.arange(x.shape[1])[None, :] < lengths[:, None]
    spread = x.std(axis=(0, 1))
    z = (x - x.mean(axis=(0, 1))) / np.where(spread > 0, spread, 1.0)
    terms, owners = [], []
    for number in range(int(rng.integers(2, 7))):
        degree = 4 if degrees.four and number == 0 else 1 + int(rng.choice(3, p=degrees.chances))
        chosen = rng.choice(len(causes), min(degree, len(causes)), replace=False)
        factors = [_factor(rng, z[:, :, causes[c]], degree == 1 or degrees.curved) for c in chosen]
        term: Floats = alive * np.prod(np.stack(factors), axis=0)
        size = EFFECTS if degree == 4 else float(np.exp(rng.uniform(0, np.log(EFFECTS))))
        terms.append(size * term / max(float(term.sum(axis=1).std()), 1e-9))
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


def _factor(rng: np.random.Generator, z: Floats, curved: bool) -> Floats:
    """A function of one cause [E, T]: a table over a one-hot group, a curve of a single column."""
    if z.shape[2] > 1:
        table = rng.normal(size=(z.shape[2],))
        return np.asarray((z * (table - table.mean())).sum(axis=2))
    return _SHAPES[int(rng.integers(len(_SHAPES)))](z[:, :, 0]) if curved else z[:, :, 0]
