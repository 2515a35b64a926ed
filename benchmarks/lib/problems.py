"""Synthetic problems whose causal graph is known: families of dynamics, rewards, policies and endings.

A problem is a family and a seed. States follow s'_j = f(Σ_{i→j} W_ij s_i + Σ_{k→j} V_kj a_k) + noise; the
reward is a function of its parents alone; what is observed may have dead columns, copies and odd units.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import Graph

Floats = NDArray[np.float64]

TEST_EPISODES = 50  # beside those given to the search, to score the reward on
_MEMORY, _CONTROL, _PRODUCT = 0.9, 0.6, 0.4  # sums of absolute weights into a state dimension


@dataclass(frozen=True)
class Family:
    """What all problems of a family have in common."""

    reward: str
    """A key of REWARDS."""
    states: int = 10
    actions: int = 3
    steps: int = 50
    episodes: int = 2000
    dynamics: Literal["linear", "tanh", "sine", "products"] = "tanh"
    parents: float = 2.5
    """Mean number of parents of a state dimension, besides itself."""
    common: float = 0.0
    """Correlation of the noises of any two state dimensions."""
    decades: float = 0.0
    """Units differ by up to so many powers of ten, either way."""
    dead: int = 0
    copies: int = 0
    """The last columns: copies of others in other units, then dead ones."""
    closed_loop: bool = False
    total_noise: float = 0.0
    """Noise of the totals, as a share of their spread."""
    enough: bool = True
    """False where the data cannot tell: there the certificate must say so, and edges are not averaged."""
    ends: Literal["at the limit", "anywhere", "by state"] = "at the limit"


FAMILIES: dict[str, Family] = {
    "linear": Family("linear", 6, 2, 20, 500, "linear"),
    "additive": Family("additive"),
    "pairs": Family("pairs", dynamics="products"),
    "goal distance": Family("distance"),
    "correlated": Family("additive", 15, 4, common=0.8, decades=2.0, dead=2, copies=1),
    "units 1e-6 to 1e6": Family("pairs", 12, 3, common=0.5, decades=6.0, dead=1, copies=2),
    "closed loop": Family("additive", 12, 4, closed_loop=True),
    "weak control cost": Family("control"),
    "noise as large as signal": Family("additive", total_noise=1.0),
    "few episodes": Family("additive", 20, 4, 100, 500),
    "pairs in 300 episodes": Family("pairs", 15, 4, 50, 300, "products"),
    "150 episodes": Family("additive", 8, 2, 50, 150),
    "long episodes": Family("control", 17, 6, 1000, 150),
    "thresholds": Family("threshold", dynamics="sine"),
    "product of three": Family("triple"),
    "sine of a sum of four": Family("sine"),
    "lengths vary": Family("additive", steps=80, episodes=1500, ends="anywhere"),
    "state ends episodes": Family("distance", steps=100, episodes=1500, ends="by state"),
    "60 states": Family("additive", 60, 6, 50, 1000, parents=1.5),
    "376 states": Family("additive", 376, 17, 100, 1000, parents=0.5, dead=84),
    "60 episodes": Family("additive", 8, 2, 50, 60, enough=False),
    "noise three times signal": Family("additive", total_noise=3.0, enough=False),
}


class Problem(NamedTuple):
    """Episodes with their hidden rewards, and the graph they come from."""

    graph: Graph
    observations: list[NDArray[np.float32]]  # [T+1, S]
    actions: list[NDArray[np.float32]]  # [T, A]
    rewards: list[Floats]  # [T], hidden from the search
    totals: Floats  # [E], what the search sees of them


class _Plan(NamedTuple):
    """Who causes what, and how much."""

    graph: Graph  # of the live dimensions
    state_weights: Floats
    action_weights: Floats
    product_weights: Floats  # [S] weight of s_j · a_{product_action} in s'_j
    product_actions: NDArray[np.int64]
    feedback: Floats  # [S, A]


def draw(family: Family, seed: int) -> Problem:
    """Graph, weights and episodes, all from one seed; the last TEST_EPISODES are for scoring."""
    rng = np.random.default_rng(seed)
    live = family.states - family.dead - family.copies
    plan = _plan(family, rng, live)
    states, actions = _simulate(family, plan, rng, live)
    x = np.concatenate([states[:, :-1], actions], axis=2)
    z = (x - x.mean(axis=(0, 1))) / x.std(axis=(0, 1))
    to_reward = np.concatenate([plan.graph.state_to_reward, plan.graph.action_to_reward])
    rewards = REWARDS[family.reward](z[:, :, to_reward], rng)
    lengths = _lengths(family, states, rng)
    observed, graph = _observe(family, plan.graph, states, rng)
    totals = np.array([r[:t].sum() for r, t in zip(rewards, lengths, strict=True)])
    totals += family.total_noise * totals.std() * rng.normal(size=len(totals))
    pairs = list(enumerate(lengths))
    return Problem(
        graph,
        [observed[e, : t + 1] for e, t in pairs],
        [actions[e, :t].astype(np.float32) for e, t in pairs],
        [rewards[e, :t] for e, t in pairs],
        totals,
    )


def _plan(family: Family, rng: np.random.Generator, live: int) -> _Plan:
    density = min(family.parents / live, 0.5)
    state_to_state = (rng.random((live, live)) < density) | np.eye(live, dtype=bool)
    action_to_state = rng.random((family.actions, live)) < min(1.0 / family.actions, 0.5)
    product_actions = rng.integers(family.actions, size=live)
    multiplied = (rng.random(live) < 0.5) & (family.dynamics == "products")
    action_to_state[product_actions[multiplied], np.flatnonzero(multiplied)] = True
    reward = _reward_parents(family, rng, live)
    # What the reward looks at is steered by something, or all of it would be noise.
    for parent in np.flatnonzero(reward[:live]):
        action_to_state[rng.integers(family.actions), parent] = True
    return _Plan(
        Graph(reward[:live], reward[live:], state_to_state, action_to_state),
        _weights(rng, state_to_state, _MEMORY),
        _weights(rng, action_to_state, _CONTROL),
        np.where(multiplied, _PRODUCT, 0.0),
        product_actions,
        rng.normal(size=(live, family.actions)) / np.sqrt(live),
    )


def _reward_parents(family: Family, rng: np.random.Generator, live: int) -> NDArray[np.bool_]:
    """[S + A] as many as the kind of reward takes."""
    chosen = np.zeros(live + family.actions, np.bool_)
    if family.reward == "control":
        chosen[rng.choice(live, 2, replace=False)] = True
        chosen[live:] = True
        return chosen
    states = {"triple": 3, "sine": 4, "distance": 3, "pairs": 4}.get(family.reward, int(rng.integers(2, 5)))
    chosen[rng.choice(live, states, replace=False)] = True
    if family.reward in ("linear", "additive"):
        chosen[live + rng.integers(family.actions)] = True
    return chosen


def _weights(rng: np.random.Generator, edges: NDArray[np.bool_], gain: float) -> Floats:
    """Of either sign and like size, zero off the graph; absolute values in a column add up to `gain`."""
    weights = edges * rng.uniform(0.5, 1.0, edges.shape) * rng.choice([-1.0, 1.0], edges.shape)
    totals = np.abs(weights).sum(axis=0)
    return np.asarray(gain * weights / np.where(totals > 0, totals, 1.0))


def _simulate(family: Family, plan: _Plan, rng: np.random.Generator, live: int) -> tuple[Floats, Floats]:
    """States [E, T+1, S] and actions [E, T, A] of all episodes at once."""
    episodes = family.episodes + TEST_EPISODES
    states = np.zeros((episodes, family.steps + 1, live))
    actions = np.zeros((episodes, family.steps, family.actions))
    states[:, 0] = rng.uniform(-1.0, 1.0, (episodes, live))
    bias = rng.uniform(-0.6, 0.6, (episodes, family.actions)) * (np.arange(episodes) % 2)[:, None]
    for t in range(family.steps):
        now = states[:, t]
        wish = bias + rng.uniform(-1.0, 1.0, bias.shape)
        if family.closed_loop:
            wish = np.tanh(2.0 * now @ plan.feedback) + 0.7 * wish
        actions[:, t] = np.clip(wish, -1.0, 1.0)
        pushed = now @ plan.state_weights + actions[:, t] @ plan.action_weights
        pushed += plan.product_weights * now * actions[:, t, plan.product_actions]
        shared = np.sqrt(family.common) * rng.normal(size=(episodes, 1))
        noise = 0.2 * (shared + np.sqrt(1 - family.common) * rng.normal(size=now.shape))
        states[:, t + 1] = _RESPONSE[family.dynamics](pushed) + noise
    return states, actions


def _lengths(family: Family, states: Floats, rng: np.random.Generator) -> list[int]:
    episodes, steps = len(states), family.steps
    if family.ends == "anywhere":
        return [int(t) for t in rng.integers(steps // 8, steps + 1, episodes)]
    if family.ends == "by state":  # once the first dimension goes beyond what it rarely does
        beyond = np.abs(states[:, 1:, 0]) > np.quantile(np.abs(states[:, :, 0]), 0.98)
        return [int(t) for t in np.where(beyond.any(axis=1), beyond.argmax(axis=1) + 1, steps)]
    return [steps] * episodes


def _observe(
    family: Family, graph: Graph, states: Floats, rng: np.random.Generator
) -> tuple[NDArray[np.float32], Graph]:
    """The states with copies and dead columns, in their units; the first of equal columns keeps the edges."""
    live = states.shape[2]
    source = np.concatenate([np.arange(live), rng.integers(live, size=family.copies)])
    constant = np.ones((*states.shape[:2], family.dead))
    columns = np.concatenate([states[:, :, source], constant], axis=2)
    units = 10.0 ** rng.uniform(-family.decades, family.decades, family.states)
    shift = rng.uniform(-2.0, 2.0, family.states) * (family.decades > 0)
    spare = family.copies + family.dead
    to_state = [
        np.pad(block[:, source], [(0, rows), (0, family.dead)])
        for block, rows in ((graph.state_to_state, spare), (graph.action_to_state, 0))
    ]
    whole = Graph(np.pad(graph.state_to_reward, (0, spare)), graph.action_to_reward, *to_state)
    return (units * (columns + shift)).astype(np.float32), whole


def _each(z: Floats) -> list[Floats]:
    return [z[..., i] for i in range(z.shape[-1])]


def _signs(rng: np.random.Generator, count: int) -> Floats:
    return rng.uniform(0.6, 1.0, count) * rng.choice([-1.0, 1.0], count)


def _additive(z: Floats, rng: np.random.Generator) -> Floats:
    shapes: list[Callable[[Floats], Any]] = [
        lambda x: np.sin(2.0 * x + 0.5),
        lambda x: 0.7 * (x - 0.5) ** 2,
        np.abs,
        lambda x: np.tanh(3.0 * x),
        lambda x: x,
    ]
    picks = rng.integers(len(shapes), size=(z.shape[-1],))
    parts = [shapes[int(pick)](x) for pick, x in zip(picks, _each(z), strict=True)]
    return np.asarray(np.stack(parts, axis=-1) @ _signs(rng, len(parts)))


def _pairs(z: Floats, rng: np.random.Generator) -> Floats:
    a, b, c, d = _each(z)
    w = _signs(rng, 3)
    return np.asarray(w[0] * a * b + w[1] * b * c + w[2] * d)


def _control(z: Floats, rng: np.random.Generator) -> Floats:
    """Two state dimensions to be kept at a goal; the actions' cost has a tenth of that reward's spread."""
    goal = rng.uniform(-0.5, 0.5, 2)
    task = -np.sum((z[..., :2] - goal) ** 2, axis=-1)
    cost = np.sum(z[..., 2:] ** 2, axis=-1)
    return np.asarray(task - 0.1 * task.std() / cost.std() * cost)


def _threshold(z: Floats, rng: np.random.Generator) -> Floats:
    w, levels = _signs(rng, z.shape[-1]), rng.uniform(-0.7, 0.7, z.shape[-1])
    steps = (z > levels).astype(np.float64)
    return np.asarray(steps[..., 2:] @ w[2:] + w[0] * steps[..., 0] * steps[..., 1])


def _sine(z: Floats, rng: np.random.Generator) -> Floats:
    mixed = z @ _signs(rng, z.shape[-1])
    return np.asarray(np.sin(rng.uniform(1.2, 2.0) * mixed / mixed.std() + rng.uniform(0, 2 * np.pi)))


# Rewards of a step from the standardised parents [..., K].
REWARDS: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "linear": lambda z, rng: np.asarray(z @ _signs(rng, z.shape[-1])),
    "additive": _additive,
    "pairs": _pairs,
    "distance": lambda z, rng: -np.linalg.norm(z - rng.uniform(-1.0, 1.0, z.shape[-1]), axis=-1),
    "control": _control,
    "threshold": _threshold,
    "triple": lambda z, rng: np.prod(z, axis=-1),
    "sine": _sine,
}

_RESPONSE: dict[str, Callable[[Floats], Any]] = {
    "linear": lambda pushed: pushed,
    "products": np.tanh,
    "tanh": np.tanh,
    "sine": lambda pushed: np.sin(2.0 * pushed),
}
