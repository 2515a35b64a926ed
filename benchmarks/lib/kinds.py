"""Problems of kinds that the search for the graph was not made for, one trouble each.

A world is a linear system that actions push, with levels of its own in every episode. Two to four terms pay,
each a curve of one dimension or a product of two; the strongest is at most seven times as large as the
weakest. A kind changes what the world does, what is paid, the noise in it, or what is shown
and told.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib.noisy import Floats, Problem

Random = np.random.Generator

EPISODES, STEPS, NOISES = (160, 800), (10, 50), (0.0, 0.2, 0.5)
SITES = 8


class World(NamedTuple):
    """States [E, T+1, S] and actions [E, T, A] of all episodes, and the site that each comes from."""

    states: Floats
    actions: Floats
    site: NDArray[np.int64]


class Shown(NamedTuple):
    """States as they are logged [E, T+1, S'], and for each the state that it is, or -1 for a proxy."""

    states: Floats
    source: NDArray[np.int64]


class Told(NamedTuple):
    """Totals as they are logged, and which episodes are [E]."""

    totals: Floats
    logged: NDArray[np.bool_]


def as_it_is(rng: Random, world: World) -> Shown:
    return Shown(world.states, np.arange(world.states.shape[2]))


def same(rng: Random, world: World) -> World:
    return world


def sums(rng: Random, terms: Floats) -> Floats:
    """What terms earn in each step [K, E, T], summed over each episode [K, E]."""
    return np.asarray(terms.sum(axis=2))


def gaussian(rng: Random, world: World) -> Floats:
    return rng.normal(size=len(world.states))


def everything(rng: Random, totals: Floats) -> Told:
    return Told(totals, np.ones(len(totals), np.bool_))


@dataclass(frozen=True)
class Kind:
    """What is another than usual."""

    happens: Callable[[Random, World], World] = same
    pays: Callable[[Random, Floats], Floats] = sums
    noise: Callable[[Random, World], Floats] = gaussian
    shows: Callable[[Random, World], Shown] = as_it_is
    tells: Callable[[Random, Floats], Told] = everything


# --- What happens


def in_seasons(rng: Random, world: World) -> World:
    """All states follow one wave, each by its own amplitude."""
    episodes, rows, size = world.states.shape
    phase, level = rng.uniform(0, 2 * np.pi, (episodes, 1)), rng.normal(size=(episodes, 1))
    wave = np.sin(2 * np.pi * np.arange(rows) / rng.uniform(8, 40) + phase) + 0.7 * level
    return world._replace(states=0.5 * world.states + wave[:, :, None] * rng.uniform(-4, 4, size))


def with_heavy_tails(rng: Random, world: World) -> World:
    z = _standard(world.states)
    heavy = rng.random(z.shape[2]) < 0.5
    return world._replace(states=np.where(heavy, np.sinh(1.5 * z), np.exp(1.2 * z)))


def on_sites(rng: Random, world: World) -> World:
    """Every site has levels of its own."""
    size = world.states.shape[2]
    levels = rng.normal(size=(SITES, size)) * rng.uniform(0.3, 1.5, size)
    return world._replace(states=world.states + levels[world.site][:, None])


# --- What is paid


def discounted(rng: Random, terms: Floats) -> Floats:
    return np.asarray(terms @ rng.uniform(0.85, 0.98) ** np.arange(terms.shape[2]))


def for_the_last_step(rng: Random, terms: Floats) -> Floats:
    return np.asarray(terms[:, :, -1])


def another_later(rng: Random, terms: Floats) -> Floats:
    """Terms have other weights in the second half of all episodes."""
    later = np.arange(terms.shape[1]) >= terms.shape[1] // 2
    return sums(rng, terms) * np.where(later, rng.normal(size=(len(terms), 1)), 1.0)


# --- The noise


def with_outliers(rng: Random, world: World) -> Floats:
    return rng.standard_t(2.2, size=len(world.states)) / 2


def of_sites(rng: Random, world: World) -> Floats:
    return 0.5 * gaussian(rng, world) + 0.87 * rng.normal(size=SITES)[world.site]


# --- What is shown


def blurred(rng: Random, world: World) -> Shown:
    scale = rng.uniform(0.3, 0.8, world.states.shape[2]) * world.states.std(axis=(0, 1))
    shown = as_it_is(rng, world)
    return shown._replace(states=shown.states + scale * rng.normal(size=shown.states.shape))


def with_glitches(rng: Random, world: World) -> Shown:
    """Now and then a reading is -999, or fifty times itself."""
    shown = as_it_is(rng, world)
    size = shown.states.shape[2]
    bad = rng.random(shown.states.shape) < 10 ** rng.uniform(-3.5, -2, size)
    return shown._replace(
        states=np.where(bad, np.where(rng.random(size) < 0.5, -999.0, 50 * shown.states), shown.states)
    )


def too_late(rng: Random, world: World) -> Shown:
    """Readings come one to three steps after what they are of."""
    late = int(rng.integers(1, 4))
    before = np.repeat(world.states[:, :1], late, axis=1)
    shown = as_it_is(rng, world)
    return shown._replace(states=np.concatenate([before, shown.states[:, :-late]], axis=1))


def without_one(rng: Random, world: World) -> Shown:
    """The first state is hidden behind two: a mean of two of its steps, and its tanh, both with noise."""
    hidden, others = _standard(world.states)[:, :, 0], world.states[:, :, 1:]
    before = np.concatenate([hidden[:, :1], hidden[:, :-1]], axis=1)
    proxies = np.stack([0.6 * hidden + 0.4 * before, np.tanh(hidden)], axis=2)
    proxies = proxies + 0.35 * rng.normal(size=proxies.shape)
    size = others.shape[2]
    return Shown(np.concatenate([proxies, others], axis=2), np.array([-1, -1, *range(1, size + 1)]))


# --- What is told of totals


def success_or_not(rng: Random, totals: Floats) -> Told:
    """Success is to earn more than some sum."""
    return everything(rng, (totals > np.quantile(totals, rng.uniform(0.2, 0.8))).astype(np.float64))


def the_better_half(rng: Random, totals: Floats) -> Told:
    return Told(totals, totals > np.median(totals))


KINDS: dict[str, Kind] = {
    "plain": Kind(),
    "seasons": Kind(happens=in_seasons),
    "heavy tails": Kind(happens=with_heavy_tails),
    "sites": Kind(happens=on_sites, noise=of_sites),
    "outliers": Kind(noise=with_outliers),
    "discounted": Kind(pays=discounted),
    "last step": Kind(pays=for_the_last_step),
    "another reward later": Kind(pays=another_later),
    "success or not": Kind(tells=success_or_not),
    "the better half": Kind(tells=the_better_half),
    "blurred": Kind(shows=blurred),
    "glitches": Kind(shows=with_glitches),
    "readings too late": Kind(shows=too_late),
    "a hidden cause": Kind(shows=without_one),
}


# --- A problem


def draw(seed: int, name: str) -> Problem:
    kind, rng = KINDS[name], np.random.default_rng([seed, zlib.crc32(name.encode())])
    world = kind.happens(rng, _world(rng))
    terms, owners = _terms(rng, np.concatenate([world.states[:, :-1], world.actions], axis=2))
    earned = kind.pays(rng, terms)
    clean, share = earned.sum(axis=0), float(rng.choice(NOISES))
    totals = clean + clean.std() * np.sqrt(share / (1 - share)) * kind.noise(rng, world)
    worth = np.array([np.var(earned[mine].sum(axis=0)) for mine in owners]) / np.var(totals)
    shown = kind.shows(rng, world)
    actions = world.states.shape[2] + np.arange(world.actions.shape[2])
    source = np.concatenate([shown.source, actions])
    told, logged = kind.tells(rng, totals)
    return Problem(
        list(shown.states[logged]),
        list(world.actions[logged]),
        told[logged],
        None,
        np.where(source < 0, False, owners.any(axis=1)[source]),
        source < 0,
        np.where(source < 0, 0.0, worth[source]),
        share,
    )


def _world(rng: Random) -> World:
    episodes, steps = int(np.exp(rng.uniform(*np.log(EPISODES)))), int(rng.integers(*STEPS))
    size, levers = int(rng.integers(4, 8)), int(rng.integers(1, 4))
    mixing = np.diag(rng.uniform(0.3, 0.95, size))
    mixing += 0.3 * rng.normal(size=(size, size)) * (rng.random((size, size)) < 1 / (2 * size))
    mixing *= 0.95 / max(0.95, float(np.abs(np.linalg.eigvals(mixing)).max()))
    push = 0.5 * rng.normal(size=(levers, size)) * (rng.random((levers, size)) < 0.35)
    lean = rng.uniform(-0.6, 0.6, (episodes, 1, levers))
    actions = np.clip(lean + rng.uniform(-1, 1, (episodes, steps, levers)), -1, 1)
    level = rng.normal(size=(episodes, size)) * rng.uniform(0, 0.5, size)
    now, states = rng.normal(size=(episodes, size)), list[Floats]()
    for t in range(steps + 1):
        states.append(now)
        pushed = actions[:, min(t, steps - 1)] @ push
        now = now @ mixing + level + pushed + 0.5 * rng.normal(size=now.shape)
    return World(np.stack(states, axis=1), actions, rng.integers(SITES, size=episodes))


_CURVES: tuple[Callable[[Floats], Floats], ...] = (
    lambda z: z,
    lambda z: (z - 0.5) ** 2,
    lambda z: np.abs(z),
    lambda z: np.tanh(2 * z),
    lambda z: (z > 0.5).astype(np.float64),
)


def _terms(rng: Random, x: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """What each term earns [K, E, T], and what each looks at [D, K]: the first one at the first state."""
    z, terms, owners = _standard(x), list[Floats](), list[NDArray[np.bool_]]()
    for number in range(int(rng.integers(2, 5))):
        two = bool(rng.random() < 0.3)
        dims = rng.choice(z.shape[2], 2, replace=False) if two else rng.integers(z.shape[2], size=1)
        if number == 0:
            dims = np.unique([0, *dims[1:]])
        curve = _CURVES[0 if len(dims) > 1 else int(rng.integers(len(_CURVES)))]
        term = np.prod(curve(z[:, :, dims]), axis=2)
        size = float(np.exp(rng.uniform(0, 2)))
        terms.append(size * term / max(float(term.sum(axis=1).std()), 1e-9))
        owners.append(np.isin(np.arange(z.shape[2]), dims))
    return np.stack(terms), np.stack(owners, axis=1)


def _standard(x: Floats) -> Floats:
    return np.asarray((x - np.median(x, axis=(0, 1))) / (x.std(axis=(0, 1)) + 1e-12))
