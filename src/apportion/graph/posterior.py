"""Rewards of single steps from sums of them, with error bars: a Gaussian process observed through sums.

r(x) = level + Σ_p w_p φ_p(x), w_p ~ N(0, v_p), total = Σ_t r(x_t) + ε, ε ~ N(0, T σ²). Features have variance
1 over *steps*, so that v is in units of what steps earn: whatever hardly changes a total (a clock that every
episode passes once, a sensor less its copy) stays at its prior, with its prior's variance as its error bar,
however well it would explain the last per mille of the totals.

v_p = v_block Π_d g_d over the dimensions d of a feature: a variance for each kind of feature, and a relevance
0 < g <= 1 for each dimension. They and σ² maximise the evidence -½ yᵀC⁻¹y - ½ log|C|, C = S V Sᵀ + σ² diag(T)
with S the summed features, times a prior by which a dimension is relevant or is not (relevance.py). The
posterior is in closed form. Draws from it are kept: what is computed from rewards gets its error bar by
computing it from each.

Where totals are yes or no, Σ_t r(x_t) and a constant are the log odds of yes, without any noise; the evidence
is Laplace's approximation, and the posterior is sampled (bernoulli.py). How common yes is says nothing of
steps, but shifts the constant: so where some segments have to do for all, as many are taken of the rarer kind
as there can be. Some answers may be flipped, whatever was earned: how many, the evidence says.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import logit
from threadpoolctl import threadpool_limits

from apportion.graph import bernoulli, relevance
from apportion.graph.features import MAX_PAIRED, ROWS, SAMPLE, Floats, Scale
from apportion.graph.priors import DOUBT, ENOUGH_SEGMENTS, MISFIT, ROUNDED, ROUNDING, TINY
from apportion.graph.products import Products
from apportion.graph.relevance import Found, Problem

DRAWS = 128  # from the posterior: a standard deviation of so many is right to 6%
SEGMENTS = 4 * ENOUGH_SEGMENTS  # by which variances are found; the posterior is of all,
STEPS = 4 * SAMPLE  # as far as they have no more steps than that
WIDE = 10.0  # prior variance of what every step earns
_LOG_ODDS = 4.0  # standard deviation over segments: twice what is usual, so that few answers stay doubtful


class Posterior(NamedTuple):
    """What totals tell of the reward of a step. A segment's total may hold a constant of its own besides,
    which no step has earned."""

    features: Products  # P of them
    centre: Floats  # [P] mean over steps,
    unit: Floats  # [P] and standard deviation
    weights: Floats  # [K+1, P] the mean of the posterior, then draws from it
    per_step: Floats  # [K+1] what every step earns
    per_segment: Floats  # [K+1] a constant in every total; 0 where steps explain what totals have in common
    noise: float  # variance of a step's reward that no feature explains
    flips: float  # share of yes and no that is flipped, whatever steps earned
    yes_no: bool  # whether totals are yes (1) or no (0), and their log odds are what sums up
    matters: Floats  # [C] probability that a dimension of a row earns anything; 0 for those not read. Rows
    # have C dimensions, and then how far the first of these move in that step, if that is known

    def rewards(self, x: NDArray[Any]) -> Floats:
        """[N, K+1] of rows [N, D]: the expected reward, then that of each draw."""
        weights = self.weights.T.astype(np.float32)
        parts = [self._values(rows) @ weights for rows in _blocks(x)]
        return np.concatenate([np.zeros((0, len(self.per_step)), np.float32), *parts]) + self.per_step

    def expected(self, x: NDArray[Any]) -> Floats:
        """[N] of rows [N, D]."""
        parts = [self._values(rows) @ self.weights[0] for rows in _blocks(x)]
        return np.asarray(self.per_step[0] + np.concatenate([np.zeros(0), *parts]))

    def totals(self, segments: list[NDArray[Any]]) -> tuple[Floats, Floats]:
        """Mean and variance of what segments pay, or of their log odds: [E] each."""
        sums = self.sums(segments)
        lengths = np.array([len(rows) for rows in segments], np.float64)
        return sums[:, 0], spread(sums) + lengths * self.noise

    def sums(self, segments: list[NDArray[Any]]) -> Floats:
        """[E, K+1] what segments pay, or their log odds: as expected, and by each draw."""
        starts = np.cumsum([0, *(len(rows) for rows in segments[:-1])])
        return np.add.reduceat(self.rewards(np.concatenate(segments)), starts, axis=0) + self.per_segment

    def probabilities(self, segments: list[NDArray[Any]]) -> Floats:
        """[E] of yes, over all that log odds may be."""
        return np.asarray(bernoulli.probability(self.sums(segments)[:, 1:], self.flips).mean(axis=1))

    def shares(self, x: NDArray[Any], background: NDArray[Any]) -> "Shares":
        """Shapley values of each dimension and its move, relative to rows of the background. Rewards are
        linear in the weights: so are these, by those of each feature."""
        means, shape = self.features.means(background), (len(x), len(self.matters))
        whose = np.where(self.features.dims < 0, -1, self.features.used[self.features.dims] % shape[1])
        read = np.unique(whose[whose >= 0])
        weights = (self.weights / self.unit).T.astype(np.float32)
        mean, variance = np.zeros(shape), np.zeros(shape)
        average = np.zeros((shape[1], weights.shape[1]))
        for start in range(0, len(x), ROWS // 4):
            rows = np.asarray(x)[start : start + ROWS // 4]
            parts = np.zeros((len(read), len(rows), weights.shape[1]), np.float32)
            for factor, values in enumerate(self.features.shapley(rows, means)):
                for part, dim in zip(parts, read, strict=True):
                    mine = np.flatnonzero(whose[:, factor] == dim)
                    part += values[:, mine] @ weights[mine]
            for part, dim in zip(parts, read, strict=True):
                mean[start : start + len(rows), dim] = part[:, 0]
                variance[start : start + len(rows), dim] = spread(part)
                average[dim] += part.sum(axis=0, dtype=np.float64) / max(len(x), 1)
        return Shares(mean, variance, average)

    def _values(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """[N, P] features of rows, of mean 0 and variance 1."""
        values = self.features.values(x)
        values -= self.centre.astype(np.float32)
        values /= self.unit.astype(np.float32)
        return values

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name, for a file."""
        return {**self.features._asdict(), **{name: np.asarray(getattr(self, name)) for name in _OWN}}

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        features = Products(**{name: arrays[name] for name in Products._fields})
        own: dict[str, Any] = {name: arrays[name] for name in _OWN}
        return cls(features, **own)._replace(
            noise=float(own["noise"]), flips=float(own["flips"]), yes_no=bool(own["yes_no"])
        )


class Shares(NamedTuple):
    """Shapley values of N steps."""

    mean: Floats  # [N, C]
    variance: Floats  # [N, C]
    average: Floats  # [C, K+1] over all steps: the expected one, then that of each draw


_OWN = tuple(name for name in Posterior._fields if name != "features")


def fit(
    rows: list[NDArray[Any]],
    totals: Floats,
    yes_no: bool = False,
    owners: NDArray[np.int64] | None = None,
    moves: int = 0,
) -> "Evidence":
    """To segments in no order: their rows [T, D], and what each was paid, or whether it came to a yes (1) or
    no (0). Dimensions with the same owner [D] are entries of one input. So many of the last are how far the
    first of them move in that step."""
    single = Products.single(Scale.over(rows), np.concatenate(rows), owners, moves)
    ways = (True,) if yes_no else (False, True)[: len({*map(len, rows)})]
    with threadpool_limits(1, "blas"):  # matrices are small: threads would wait for each other
        chances = single.chances(owners)
        found = [_searched(single, chances, rows, totals, own, yes_no) for own in ways]
    summed, best = max(found, key=lambda each: each[0].likelihood(each[1]))
    matters = np.zeros(rows[0].shape[1])
    matters[single.used] = best.probabilities[single.inputs]
    return Evidence(summed, best, matters[: len(matters) - moves])


def enough(
    lengths: NDArray[np.int64], totals: Floats, rng: np.random.Generator, yes_no: bool = False
) -> tuple[NDArray[np.int64], float]:
    """Which segments have a say, in no order; and by how much log odds of yes are larger among these."""
    order = rng.permutation(len(lengths))
    if yes_no and lengths.sum() > STEPS:
        order = balanced(totals, order, int(STEPS / lengths.mean()))
    order = order[: max(1, int(np.searchsorted(np.cumsum(lengths[order]), STEPS, side="right")))]
    return order, float(logit(totals[order].mean()) - logit(totals.mean())) if yes_no else 0.0


def balanced(totals: Floats, order: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """So many segments of an order, with as many of the rarer of yes and no as there are, or half, in no
    order again."""
    kinds = [order[totals[order] > 0], order[totals[order] <= 0]]
    rare = min(min(map(len, kinds)), count // 2)
    chosen = [kind[: rare if len(kind) == min(map(len, kinds)) else count - rare] for kind in kinds]
    return order[np.isin(order, np.concatenate(chosen))]


def _searched(
    single: Products, chances: Floats, rows: list[NDArray[Any]], totals: Floats, own: bool, yes_no: bool
) -> tuple["Summed", Found]:
    """The best variances, with a constant in every total besides, its `own`, or without: where steps explain
    what totals have in common, it is theirs."""
    paired = int(np.sum(~single.plain)) <= MAX_PAIRED
    plain = single.joined(single.plain_pairs()) if paired else single
    first = Summed.of(plain, rows, totals, own, yes_no)._replace(chances=chances)
    found, flips = _flips(first) if yes_no else (relevance.search(first.some(SEGMENTS).problem()), 0.0)
    found = found.before(3 if paired else 2, chances)
    rich = Summed.of(single.rich(found.relevant), rows, totals, own, yes_no)._replace(chances=chances)
    rich = rich.flipped(flips) if yes_no else rich
    problem = rich.some(SEGMENTS).problem()
    return rich, relevance.averaged(problem, relevance.search(problem, found))


def _flips(first: "Summed") -> tuple[Found, float]:
    """The best variances, and the share of flipped answers by which the evidence is largest, of shares that
    are tried in turn as far as the rarer answer allows."""
    chosen, rarer = 0.0, min(first.left.mean(), 1 - first.left.mean())
    best = relevance.search(first.some(SEGMENTS).problem())
    for share in np.arange(DOUBT / 2, (1 - DOUBT) * rarer, DOUBT / 2).tolist():
        found = relevance.search(first.flipped(share).some(SEGMENTS).problem(), best)
        if found.evidence <= best.evidence:
            break
        best, chosen = found, share
    return best, chosen


def _log_odds(said: Floats, flips: float) -> float:
    """Of yes, on the whole, before some are flipped."""
    return float(logit((np.mean(said) - flips) / (1 - 2 * flips)))


class Evidence(NamedTuple):
    """Variances by which totals are most probable, and the segments that these are of."""

    summed: "Summed"
    found: Found
    matters: Floats  # as a posterior has them

    def after(self, rows: list[NDArray[Any]], totals: Floats) -> Self:
        """The same variances, for these segments."""
        old = self.summed
        new = Summed.of(old.features, rows, totals, old.constant > 0, old.yes_no)._replace(size=old.size)
        return self._replace(summed=new.flipped(old.flips) if old.yes_no else new)

    def posterior(self, rng: np.random.Generator, shift: float = 0.0) -> Posterior:
        """Where log odds of yes are by so much larger among these segments than among all."""
        with threadpool_limits(1, "blas"):
            found = self.summed.posterior(self.found, rng)
        return found._replace(per_segment=found.per_segment - shift, matters=self.matters)


class Summed(NamedTuple):
    """Features of segments, standardised over steps and added up."""

    features: Products
    centre: Floats  # [P]
    unit: Floats  # [P]
    sums: Floats  # [E, P]
    lengths: Floats  # [E]
    chances: Floats  # [I] that inputs matter, before any data
    level: float  # what a step is paid on average
    left: Floats  # [E] what totals differ from that by; of yes and no, these
    base: float  # log odds of yes on the whole; of numbers 0
    constant: float  # prior standard deviation of what every total has besides; 0: it has nothing
    size: float  # a guess of the standard deviation of a step's reward, between two extremes: steps of a
    # segment earn the same, or independently of each other
    yes_no: bool = False
    flips: float = 0.0

    @classmethod
    def of(
        cls,
        features: Products,
        rows: list[NDArray[Any]],
        totals: Floats,
        own: bool = False,
        yes_no: bool = False,
    ) -> "Summed":
        sums, squares = np.zeros((len(rows), features.size)), np.zeros(features.size)
        lengths = np.array([len(each) for each in rows], np.int64)
        whose = np.repeat(np.arange(len(rows)), lengths)
        for block, owners in zip(_blocks(np.concatenate(rows)), _blocks(whose), strict=True):
            values, starts = features.values(block), np.flatnonzero(np.diff(owners, prepend=-1))
            sums[owners[starts]] += np.add.reduceat(values, starts, axis=0, dtype=np.float64)
            squares += np.einsum("np,np->p", values, values, dtype=np.float64)
        steps = lengths.astype(np.float64)
        centre = sums.sum(axis=0) / steps.sum()
        unit = np.sqrt(np.maximum(squares / steps.sum() - centre**2, 0.0))
        alive = unit > MISFIT * np.maximum(np.abs(centre), MISFIT)
        # What is the same in every segment, as a first step is, nobody can tell from a constant: it has none.
        same = np.ptp(sums[:, alive], axis=0) <= ROUNDED * np.abs(sums[:, alive]).max(axis=0)
        sums = np.where(same, 0.0, (sums[:, alive] - steps[:, None] * centre[alive]) / unit[alive])
        kept = (features.take(alive), centre[alive], unit[alive], sums, steps, features.chances(None))
        if yes_no:
            size = _LOG_ODDS * float(steps.mean()) ** -0.75
            return cls(*kept, 0.0, totals, _log_odds(totals, 0.0), _LOG_ODDS, size, True)
        level = float(totals.sum() / steps.sum())
        left = totals - level * steps
        left = np.where(np.abs(left) > ROUNDING * np.abs(totals).max(), left, 0.0)
        constant = np.sqrt(WIDE) * float(np.std(left)) if own else 0.0
        size = float(np.std(left / steps)) * float(steps.mean()) ** 0.25
        return cls(*kept, level, left, 0.0, constant, size or 1.0)

    def some(self, count: int) -> "Summed":
        """Of the first segments, which are in no order."""
        which = np.arange(min(count, len(self.left)))
        if self.yes_no and len(which) < len(self.left):
            which = balanced(self.left, np.arange(len(self.left)), count)
        fewer = self._replace(sums=self.sums[which], lengths=self.lengths[which], left=self.left[which])
        return fewer.flipped(self.flips) if self.yes_no else fewer

    def flipped(self, share: float) -> "Summed":
        """The same, where so many answers are flipped."""
        return self._replace(flips=share, base=_log_odds(self.left, share))

    def problem(self) -> Problem:
        levels = self.levels() * self.level_scale()
        if self.yes_no:
            sums = self.size * self.sums
            whose = (self.features, self.chances, sums, self.lengths)
            return Problem(*whose, levels, self.left, self.base, self.flips)
        whose = (self.features, self.chances, self.sums, self.lengths)
        return Problem(*whose, levels / self.size, self.left / self.size)

    def levels(self) -> Floats:
        """[E, 2] how often each total has what every step earns, and a constant of its own."""
        return np.stack([self.lengths, np.ones_like(self.lengths)], axis=1)

    def level_scale(self) -> Floats:
        """[2] their prior standard deviations."""
        return np.array([np.sqrt(WIDE) * self.size, self.constant])

    def likelihood(self, found: Found) -> float:
        """Of the totals in their own unit: evidence has them in units of steps."""
        return found.evidence - min(SEGMENTS, len(self.sums)) * float(np.log(self.size))

    def posterior(self, found: Found, rng: np.random.Generator) -> Posterior:
        """Of all segments: N((I + Aᵀ A)⁻¹ Aᵀ b, (I + Aᵀ A)⁻¹), in units of the prior's."""
        variances = found.variances(self.features)
        kept = np.flatnonzero(variances > MISFIT**2 * max(float(variances.sum()), TINY))
        scale = np.append(self.size * np.sqrt(variances[kept]), self.level_scale())
        columns = np.column_stack([self.sums[:, kept], self.levels()]) * scale
        flips = self.flips
        if self.yes_no:
            # Of the size's logarithm: either extreme is a standard deviation away, and so is twice or half
            # the log odds, of which it is a guess, too.
            doubt = float(np.hypot(0.25 * np.log(self.lengths.mean()), np.log(2)))
            prior = bernoulli.Prior(columns, len(kept), doubt, _LOG_ODDS)
            drawn, flips = bernoulli.sample(prior, self.left, self.base, flips, DRAWS, rng)
        else:
            noise = self.size * np.sqrt(found.noise * self.lengths)
            a = columns / noise[:, None]
            root = cholesky(np.eye(len(scale)) + a.T @ a, lower=True)
            mean = cho_solve((root, True), a.T @ (self.left / noise))
            draws = solve_triangular(root.T, rng.normal(size=(len(scale), DRAWS)), lower=False)
            drawn = np.column_stack([mean, mean[:, None] + draws]).T
        weights = drawn * scale
        count = len(kept)
        return Posterior(
            self.features.take(kept),
            self.centre[kept],
            self.unit[kept],
            weights[:, :count],
            self.level + weights[:, count],
            self.base + weights[:, count + 1],
            0.0 if self.yes_no else float(found.noise * self.size**2),
            flips,
            self.yes_no,
            np.zeros(0),
        )


def spread(values: NDArray[Any]) -> Floats:
    """[...] variance of draws [..., K+1] about the mean of the posterior, which comes first."""
    return np.asarray(np.mean((values[..., 1:] - values[..., :1]) ** 2, axis=-1), np.float64)


def _blocks(x: NDArray[Any], rows: int = ROWS) -> Iterator[NDArray[Any]]:
    x = np.asarray(x)
    return (x[start : start + rows] for start in range(0, len(x), rows))
