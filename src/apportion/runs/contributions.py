"""Contributions of a step's dimensions to its reward r̂, which they add up to: Shapley values, for any method
that judges a step by itself, and in closed form, with what is not known, for the posterior's credit.

A dimension that a method sees before and after the step (RRD reads s and s') is one player: it comes with
both of its values, or with neither. Only dimensions that the reward reads play; where a method does not say
which, all that vary. The others earn nothing. What a reward gives for the end of an episode is left out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from apportion.core.config import Tell, check, silent
from apportion.core.types import Method, State, Transitions, single_steps
from apportion.graph.posterior import Shares, spread
from apportion.runs import shapley
from apportion.runs.credit import MOST_BEHIND, Credit, as_rows
from apportion.runs.shapley import Doubles

LEAST_BEHIND = MOST_BEHIND // 4  # steps to compare with, by default,
BEHIND_ALL = 16 * MOST_BEHIND  # and those for all dimensions together, within these limits
_BLOCK = 8192  # rows of one call of the compiled reward, which bounds the memory of its hidden layers

Steps = NDArray[np.float32]  # [N, S+A+S] state, action and next state: what is explained, or compared with
RewardOf = Callable[[State, Steps], NDArray[Any]]


@dataclass(frozen=True)
class Precision:
    """How contributions are computed."""

    background: int | None = None
    """Steps that stand for what an absent dimension might have been; r̂ of them on average is the baseline. By
    default 256; fewer where more than 16 dimensions share in the reward (64 at least), or networks hardly."""
    exact_up_to: int = 4
    """All coalitions are counted up to so many dimensions (2 to their power); beyond, orders are sampled."""
    rounds: int = 1
    """Pairs of sampled orders for each background step."""

    def __post_init__(self) -> None:
        enough = self.background is None or self.background >= 2
        check(enough, f"background={self.background} must be at least 2: one has no error bar")
        limits = 1 <= self.exact_up_to <= 16
        check(limits, f"exact-up-to={self.exact_up_to} must be between 1 and 16: the work doubles with each")
        check(self.rounds >= 1, f"rounds={self.rounds} must be at least 1")

    def steps_behind(self, players: int = 0, part: float = 1.0) -> int:
        """How many steps to compare with, where so many dimensions play, for what is only that part of the
        credit: its error counts as little, and falls with the root of their number."""
        whole = max(LEAST_BEHIND, min(MOST_BEHIND, BEHIND_ALL // max(players, 1)))
        return self.background or max(LEAST_BEHIND // 4, round(part**2 * whole))


def steps_of(episodes: Iterable[Mapping[str, NDArray[Any]]]) -> Steps:
    """All steps of episodes: observations [T+1, S] each, actions [T, A]."""
    parts = [(each["observations"], each["actions"]) for each in episodes]
    whole = [np.concatenate([seen[:-1], done, seen[1:]], axis=1) for seen, done in parts]
    return np.concatenate(whole, dtype=np.float32)


class Explanation(NamedTuple):
    """Who earned r̂ - baseline at each of T steps. D = S + A dimensions, observed ones first."""

    contributions: Doubles  # [T, D], which add up to r̂ - baseline
    standard_errors: Doubles  # [T, D] by which another background and other orders would move them
    mean_errors: Doubles  # [D] the same of their mean over the steps
    redistributed: Doubles  # [T] r̂
    baseline: float  # mean r̂ of the background,
    background: int  # which has so many steps
    players: NDArray[np.bool_]  # [D] which dimensions the reward reads
    exact: bool
    deviations: Doubles | None = None  # [T, D] standard deviations of what outcomes cannot tell of them,
    mean_deviations: Doubles | None = None  # [D] and of their mean over the steps; None where nobody knows


def compile_reward(method: Method, states: int) -> RewardOf:
    """r̂ of steps, compiled once for all lanes. Blocks of steps keep shapes few and memory small."""

    @jax.jit
    def block(state: State, rows: Float[Array, "N C"]) -> Float[Array, "N"]:
        return method.reward(state, _transitions(rows, states))

    def reward_of(state: State, rows: Steps) -> NDArray[Any]:
        size = min(_BLOCK, 1 << max(0, len(rows) - 1).bit_length())
        padded = np.pad(rows.astype(np.float32), ((0, -len(rows) % size), (0, 0)))
        blocks = [block(state, padded[start : start + size]) for start in range(0, len(padded), size)]
        return np.concatenate([np.asarray(each) for each in blocks])[: len(rows)]

    return reward_of


def check_explainable(name: str, method: Method, state: State, steps: Steps, states: int) -> None:
    """Complain unless the method has learned a reward of single steps."""
    reason = why_not_alone(name, method, state, steps, states)
    nothing = "there is nothing to explain. Explain a run of grd, rd or rrd"
    whole = "only rewards of single steps can be explained, such as those of grd, rd and rrd"
    check(reason is None, f"{reason}: {nothing if method.credit is None else whole}")


def why_not_alone(name: str, method: Method, state: State, steps: Steps, states: int) -> str | None:
    """Why the method has no reward of single steps; None where it has one."""
    if method.credit is not None:
        return f"the credit of {name} depends on the whole segment"
    given = _transitions(jnp.asarray(steps), states)
    facts = ("paid", "true_reward", "segment_total", "segment_length", "step_in_segment", "step_in_episode")
    other = given._replace(**{fact: getattr(given, fact) + 1 for fact in (*facts, "credit")})
    reward = jax.jit(method.reward)  # op by op, each would be compiled by itself
    if not np.array_equal(reward(state, given), reward(state, other), equal_nan=True):
        return f"{name} takes its rewards from the episode and learns none"
    return None


def explain_reward(
    method: Method,
    reward_of: RewardOf,
    state: State,
    steps: Steps,
    background: Steps,
    precision: Precision,
    rng: np.random.Generator,
    owners: NDArray[np.int64],
    tell: Tell = silent,
    part: float = 1.0,
) -> Explanation:
    """Contributions at each step, relative to the background; `reward_of` is the method's, compiled. Entries
    [S+A] of a one-hot vector have the same owner, and are one player. They are that part of the credit."""
    states = steps.shape[1] - len(owners)
    on = np.bincount(owners, _read(method, state, np.concatenate([steps, background]), states)) > 0
    number = np.where(on, np.cumsum(on) - 1, -1)[owners]
    players, count = np.concatenate([number, number[:states]]), int(on.sum())
    behind = background[: precision.steps_behind(count, part)]
    exact, function = count <= precision.exact_up_to, partial(reward_of, state)
    if exact:
        found = shapley.exact(function, steps, behind, players, tell)
    else:
        found = shapley.sampled(function, steps, behind, players, precision.rounds, rng, tell)

    def of_all(values: Doubles) -> Doubles:
        """[..., P] → [..., D], zero for those who do not play."""
        whole = np.zeros((*values.shape[:-1], len(on)))
        whole[..., on] = values
        return whole

    return Explanation(
        contributions=of_all(found.contributions),
        standard_errors=of_all(found.standard_errors),
        mean_errors=of_all(found.mean_errors),
        redistributed=found.values,
        baseline=found.baseline,
        background=len(behind),
        players=on,
        exact=exact,
    )


def _read(method: Method, state: State, rows: Steps, states: int) -> NDArray[np.bool_]:
    """[S+A] what the method's reward reads; where it does not say, what ever varies."""
    if method.graph is not None:
        return np.asarray(method.graph.reads(state)) >= 0.5
    varies = ~(rows == rows[0]).all(axis=0)
    return np.concatenate([varies[:states] | varies[-states:], varies[states:-states]])


def _transitions(rows: Float[Array, "N C"], states: int) -> Transitions:
    """Of which nothing else is known."""
    before, action, after = rows[:, :states], rows[:, states:-states], rows[:, -states:]
    return single_steps(before, action, after, jnp.zeros(len(rows), jnp.bool_))


# --- By the posterior


def by_posterior(
    credit: Credit, steps: Steps, background: Steps, owners: NDArray[np.int64], errors: bool = True
) -> Explanation:
    """Contributions at each step; entries of a one-hot vector [S+A] have the same owner. Standard errors, as
    much work as all else, are 0 where nobody needs them."""
    found, states = credit.posterior, steps.shape[1] - len(owners)
    rows, behind = (
        as_rows(each[:, :states], each[:, states:-states], np.zeros((len(each), 1)), each[:, -states:])
        for each in (steps, background)
    )  # none of them is an end
    whole = _owned(found.shares(rows, behind), owners)
    # Two halves of the background tell how far another one would move them.
    halves = [_owned(found.shares(rows, behind[first::2]), owners) for first in (0, 1) if errors]
    moved = (halves[0].mean - halves[1].mean) / 2 if errors else np.zeros_like(whole.mean)
    read = found.features.used[np.unique(found.features.dims[found.features.dims >= 0])] % len(found.matters)
    return Explanation(
        contributions=whole.mean,
        standard_errors=np.abs(moved),
        mean_errors=np.abs(moved.mean(axis=0)),
        redistributed=found.expected(rows),
        baseline=float(found.expected(behind).mean()),
        background=len(behind),
        players=np.isin(np.arange(int(owners.max()) + 1), owners[read[read < len(owners)]]),
        exact=True,
        deviations=credit.widening * np.sqrt(whole.variance),
        mean_deviations=credit.widening * np.sqrt(spread(whole.average)),
    )


def mixed(credit: Credit, known: Explanation, learned: Explanation) -> Explanation:
    """Of the posterior's credit and the method's; what they differ by, beyond chance, is doubt."""
    share = credit.share
    weighted = ("contributions", "standard_errors", "mean_errors", "redistributed", "baseline")
    both = {name: (getattr(known, name), getattr(learned, name)) for name in weighted}
    apart = learned.contributions - known.contributions
    beyond = np.maximum(apart**2 - learned.standard_errors**2, 0.0)
    assert known.deviations is not None
    assert known.mean_deviations is not None
    return learned._replace(
        **{name: share * mine + (1 - share) * other for name, (mine, other) in both.items()},
        players=known.players | learned.players if share > 0 else learned.players,
        deviations=np.sqrt(known.deviations**2 + credit.doubt * beyond),
        mean_deviations=np.sqrt(known.mean_deviations**2 + credit.doubt * apart.mean(axis=0) ** 2),
    )


def _owned(shares: Shares, owners: NDArray[np.int64]) -> Shares:
    """Of owners instead of entries; nobody owns an end."""
    belongs = np.zeros((len(owners) + 1, int(owners.max()) + 1))
    belongs[np.arange(len(owners)), owners] = 1.0
    return Shares(shares.mean @ belongs, shares.variance @ belongs, belongs.T @ shares.average)
