"""What a policy would earn, by logged episodes alone: fitted Q evaluation (Le et al., 2019) on random
features (Rahimi and Recht, 2007), weighted importance sampling, and how far it leaves what was tried.

Q_k, the value with k steps to go, is a ridge regression of r + Q_{k-1}(s', π(s')): as many regressions as an
episode has steps, all with one matrix. Episodes are drawn again with replacement, so that values have
intervals; the same draws value behaviour by Q_{k-1}(s', a'), and what both have wrong cancels.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from apportion.core.types import Transitions

Floats = NDArray[np.float64]

_NEIGHBOURS = 20  # logged states to look for an action's like in
_STEPS = 30_000  # that a regression is fitted to: more would tell the same


class Valued(NamedTuple):
    """Draws over episodes and rewards [B]."""

    policy: Floats
    behaviour: Floats


def chosen_episodes(lengths: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Rising numbers of as many episodes as have 30,000 steps; where these are long, of a hundred."""
    order = rng.permutation(len(lengths))
    count = max(100, int(np.searchsorted(np.cumsum(lengths[order]), _STEPS, side="right")))
    return np.sort(order[:count])


class Features(NamedTuple):
    """1, x, x² and cos(Wx + b) of x = (s, a)."""

    weights: Floats  # [D, F]
    shifts: Floats  # [F]

    @classmethod
    def draw(cls, dimensions: int, rng: np.random.Generator) -> "Features":
        # 80 waves with each length scale, times √dimensions, in standard deviations.
        lengths = np.repeat((0.5, 1.0, 2.0), 80) * np.sqrt(dimensions)
        weights = rng.normal(size=(dimensions, len(lengths))) / lengths
        return cls(weights, rng.uniform(0, 2 * np.pi, len(lengths)))

    def of(self, observation: NDArray[Any], action: NDArray[Any]) -> NDArray[np.float32]:
        x = np.concatenate([observation, action], axis=1)
        waves = np.sqrt(2) * np.cos(x @ self.weights + self.shifts)
        return np.concatenate([np.ones((len(x), 1)), x, x**2, waves], axis=1).astype(np.float32)


def fitted_q(
    steps: Transitions,
    rewards: Floats,
    next_action: NDArray[Any],
    first_action: NDArray[Any],
    weights: Floats,
    horizon: int,
    features: Features,
) -> Floats:
    """[B] the value at the episodes' first steps of whoever would do `next_action` [N, A] after each step and
    `first_action` [E, A] at first, by rewards [N, B] and episodes that count `weights` [E, B] times.

    An end before the horizon is one, whatever its reason: what was paid ended with it."""
    starts = np.flatnonzero(np.asarray(steps.step_in_episode) == 0)
    lengths = np.asarray(steps.segment_length)[starts]
    row_weights = np.repeat(weights, lengths, axis=0).astype(np.float32)
    ends = np.asarray(steps.step_in_episode) + 1 == np.asarray(steps.segment_length)
    over = ends & (np.asarray(steps.terminated) | (np.asarray(steps.segment_length) < horizon))
    known = ~ends | over  # what follows a cut is often not known: such steps teach nothing
    some = np.random.default_rng(0).permutation(np.flatnonzero(known))[:_STEPS]
    observation, action = np.asarray(steps.observation), np.asarray(steps.action)
    now = features.of(observation[some], action[some])
    after = features.of(np.asarray(steps.next_observation)[some], next_action[some]) * (~over[some])[:, None]
    counted, rewards = row_weights[some], rewards[some]
    first = features.of(observation[starts], first_action)
    # In coordinates in which all episodes together have a gram of I, single precision is precise enough.
    gram = now.T.astype(np.float64) @ now
    ridge = 1e-4 * max(float(np.mean(np.diag(gram))), 1e-12) * np.eye(len(gram))
    root = np.linalg.inv(np.linalg.cholesky(gram + ridge))
    now, after, first = (each @ root.T for each in (now, after, first))
    limits = np.percentile(rewards, (0.5, 99.5))
    penalty = root @ ridge @ root.T
    arrays = (jnp.asarray(each, np.float32) for each in (now, after, counted, penalty, rewards, limits))
    found = np.asarray(_iterated(*arrays, horizon))
    return np.asarray(np.sum((first @ found) * weights, axis=0) / weights.sum(axis=0), np.float64)


@partial(jax.jit, static_argnames="horizon")
def _iterated(
    now: Array, after: Array, counted: Array, penalty: Array, paid: Array, limits: Array, horizon: int
) -> Array:
    """[F, B] coefficients of Q with `horizon` steps to go."""
    low, high = jnp.minimum(limits[0], 0.0), jnp.maximum(limits[1], 0.0)

    def one(left: Array, found: Array) -> Array:
        later = jnp.clip(after @ found, left * low, left * high)
        return jnp.einsum("bfg,gb->fb", inverse, now.T @ (counted * (paid + later)))

    with jax.default_matmul_precision("highest"):
        inverse = jax.lax.map(lambda x: jnp.linalg.inv((now * x[:, None]).T @ now + penalty), counted.T)
        return jax.lax.fori_loop(0, horizon, one, jnp.zeros((now.shape[1], paid.shape[1]), jnp.float32))


def evaluate(
    steps: Transitions,
    rewards: Floats,
    policy_action: NDArray[Any],
    next_policy_action: NDArray[Any],
    horizon: int,
    rng: np.random.Generator,
) -> Valued:
    """Values of a policy and of behaviour by rewards [N, B] of steps, of B draws of the episodes."""
    starts = np.flatnonzero(np.asarray(steps.step_in_episode) == 0)
    count, draws = len(starts), rewards.shape[1]
    weights = rng.multinomial(count, np.full(count, 1 / count), size=draws).T.astype(np.float64)
    action = np.asarray(steps.action)
    features = Features.draw(np.asarray(steps.observation).shape[1] + action.shape[1], rng)
    assert steps.next_action is not None
    pairs = ((next_policy_action, policy_action[starts]), (np.asarray(steps.next_action), action[starts]))
    found = [fitted_q(steps, rewards, later, first, weights, horizon, features) for later, first in pairs]
    return Valued(*found)


def untried(steps: Transitions, policy_action: NDArray[Any], rng: np.random.Generator) -> float:
    """The share of steps at which the policy does what nobody did in states like this: its action is farther
    from all those of the nearest states of other episodes than 95% of logged actions are."""
    seen, done = np.asarray(steps.observation, np.float64), np.asarray(steps.action, np.float64)
    episode = np.cumsum(np.asarray(steps.step_in_episode) == 0)
    asked = rng.permutation(len(seen))[:3_000]
    longest = int(np.asarray(steps.segment_length).max())
    neighbours = cKDTree(seen).query(seen[asked], min(_NEIGHBOURS + longest, len(seen)))[1]
    span = np.maximum(np.ptp(done, axis=0), 1e-12)
    distances = np.full((2, len(asked)), np.inf)
    for place, (step, near) in enumerate(zip(asked, np.atleast_2d(neighbours), strict=True)):
        others = near[episode[near] != episode[step]][:_NEIGHBOURS]
        for whose, action in enumerate((done[step], policy_action[step])):
            if others.size:
                distances[whose, place] = np.min(np.linalg.norm((done[others] - action) / span, axis=1))
    usual = max(float(np.quantile(distances[0], 0.95)), 1e-3)  # of its range: nearer actions are the same
    return float(np.mean(distances[1] > usual))


def weighted_importance(
    densities: Floats, other: Floats, rewards: Floats, step_in_episode: NDArray[Any]
) -> tuple[float, float]:
    """Weighted importance sampling, step by step: Σ_t Σ_e w_et r_et / Σ_e w_et with w_et = Π_{u≤t} π/β, and
    the effective number of episodes that the last steps rest on, (Σ w)² / Σ w². Densities are logarithms [N];
    where an episode has ended it keeps its weight and earns nothing."""
    starts = np.flatnonzero(step_in_episode == 0)
    lengths = np.diff(np.append(starts, len(step_in_episode)))
    ratios, paid = np.zeros((2, len(starts), int(lengths.max())))
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        part = slice(start, start + length)
        ratios[row, :length], paid[row, :length] = densities[part] - other[part], rewards[part]
    logs = np.cumsum(ratios, axis=1)
    weights = np.exp(logs - logs.max(axis=0))
    last = weights[:, -1]
    value = np.sum(np.sum(weights * paid, axis=0) / weights.sum(axis=0))
    return float(value), float(last.sum() ** 2 / np.sum(last**2))
