"""What a log tells of single steps: the posterior of their rewards, beside the reward that a method learned.

Both explain totals; only the posterior has a prior over steps, and knows what totals cannot tell. So GRD's
credit is the posterior's while that explains held-out totals as well as the networks do, and a mixture where
they do better. Doubt is the variance of that mixture: each is right with some probability, and far from the
other (law of total variance). It is so for other methods, too, whose credit is their own.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm
from scipy.stats import t as student

from apportion.core.categories import expanded, input_names, input_owners, owners
from apportion.core.config import UserError, check, from_dict, one_line
from apportion.core.spec import REWARD_BLOCKS, Spec
from apportion.core.types import Record
from apportion.data.rows import cut
from apportion.graph import posterior as posteriors
from apportion.graph.bernoulli import log_losses
from apportion.graph.posterior import Posterior
from apportion.runs.atomic import read_arrays, write_arrays
from apportion.runs.folder import RunFolder
from apportion.training.offline import after_last

Floats = NDArray[np.float64]

SURE = 2.0  # standard errors that a gain over the mean must have
KNOWN = 0.95  # probability from which an input of yes and no matters, or does not
INTERVAL = 0.9  # of the probability, where nobody asks for another
SPEAKS = ("grd",)  # methods whose credit is the posterior's where that explains as much
STEPS = 20_000  # whose credit is computed together, and which are enough to tell shares from
MOST_BEHIND = 256  # steps to compare with, by default


class Undetermined(TypedDict):
    """A dimension whose part in the credit totals do not tell."""

    name: str
    same_in_every_episode: bool


class CreditFile(TypedDict):
    """What stands beside the arrays of credit.safetensors."""

    share: float
    belief: float
    widening: float
    unexplained: float
    supported: bool
    determined: float
    allowed: float
    excess: tuple[float | None, ...]  # of each lane; none where it has diverged
    undetermined: tuple[Undetermined, ...]
    level: float
    level_matters: bool
    method_level: NotRequired[float]  # of every outcome by the method; these are compared for the same level
    rarer: NotRequired[int]  # these of yes and no only
    log_loss: NotRequired[float]
    constant_log_loss: NotRequired[float]
    flips: NotRequired[float]
    calibration: NotRequired[tuple[dict[str, float], ...]]


class Credit(NamedTuple):
    """The posterior, and how it is used."""

    posterior: Posterior
    share: float  # of the posterior in the credit; the rest is the method's
    belief: float  # probability that the posterior is right where the two differ, not the method
    widening: float  # of its standard deviations, so that totals of held-out episodes are covered
    facts: dict[str, Any]  # what `show` tells
    losses: Floats = np.zeros((2, 0))  # of the first held-out outcomes: the posterior's, and the mean's

    def of_steps(self, rows: NDArray[Any], learned: NDArray[Any] | None) -> "Steps":
        """Credit of steps [N, D] which the method gave `learned` [N], if it gave any."""
        draws = self.posterior.rewards(rows)
        apart = np.zeros(len(draws)) if learned is None else learned - draws[:, 0]
        still = self.belief + (1 - self.belief) * self.belief**0.5  # less noise if the method is right
        return Steps(
            draws[:, 0] + (1 - self.share) * apart,
            draws - draws[:, :1],
            np.full(len(draws), self.posterior.noise * still),
            self.doubt * apart**2,
            self.widening,
        )

    @property
    def alone(self) -> bool:
        """Whether it is the posterior's only: what a method gives need not be computed."""
        return self.share == 1

    @property
    def doubt(self) -> float:
        """Of the square of what both differ by: p (1 - share)² + (1 - p) share², p the belief."""
        return self.belief * (1 - self.share) ** 2 + (1 - self.belief) * self.share**2

    def of_blocks(
        self, episodes: list[NDArray[Any]], learned: list[NDArray[Any]] | None, totals: Floats
    ) -> Iterator[tuple[slice, "Steps"]]:
        """Of whole episodes [T, D], which the method gave `learned` [T] each, if it did; outcomes [E] are NaN
        where they are not known; yes or no does not tell what steps earned together. Which episodes these
        are, and their steps one after the other: many at once, for each call takes a while of its own."""
        constant = self.posterior.per_segment
        earned = np.full(len(totals), np.nan) if self.posterior.yes_no else totals - constant[0]
        lengths = np.array([len(rows) for rows in episodes], np.int64)
        more = (self.facts.get("method_level", constant[0]) - constant[0]) / lengths
        for some in blocks(lengths, STEPS):
            own = None
            if learned is not None:
                own = np.concatenate(learned[some]) + np.repeat(more[some], lengths[some])
            steps = self.of_steps(np.concatenate(episodes[some]), own)
            yield some, steps.paid(earned[some], constant - constant[0], lengths[some])

    def of_records(
        self, records: Sequence[Record], learned: list[NDArray[Any]] | None, paid: bool
    ) -> Iterator["Steps"]:
        """Of whole episodes one by one, whose outcomes count where they are `paid`."""
        totals = np.where(paid, _totals(records), np.nan)
        episodes = rows_of(records)
        for some, steps in self.of_blocks(episodes, learned, totals):
            ends = np.cumsum([0, *map(len, episodes[some])]).tolist()
            yield from (steps.of(slice(*each)) for each in itertools.pairwise(ends))

    def divided(self, steps: "Steps", lengths: NDArray[np.int64]) -> Floats:
        """[N, K+1] what each step of whole episodes adds to the probability of yes that there is without any
        (Aumann and Shapley): r_t (σ(b + Σ r) - σ(b)) / Σ r."""
        drawn, base = steps.drawn(), self.posterior.per_segment
        total = np.add.reduceat(drawn, np.cumsum(lengths) - lengths)
        large = np.abs(total) > 1e-6  # else all cancel each other, and the slope is the limit
        slope = expit(base) * expit(-base)
        rate = np.where(large, (expit(base + total) - expit(base)) / np.where(large, total, 1.0), slope)
        return np.asarray(drawn * np.repeat(rate, lengths, axis=0) * (1 - 2 * self.posterior.flips))

    def changes(self, steps: "Steps", lengths: NDArray[np.int64]) -> Floats:
        """[N, K+1] by how much each step of whole episodes changed the probability of yes, beside the usual
        step in its place."""
        drawn = steps.drawn()
        log_odds = self.posterior.per_segment + np.add.reduceat(drawn, np.cumsum(lengths) - lengths)
        without = np.repeat(log_odds, lengths, axis=0) - (drawn - self.posterior.per_step)
        found = np.repeat(expit(log_odds), lengths, axis=0) - expit(without)
        return np.asarray(found * (1 - 2 * self.posterior.flips))


class Steps(NamedTuple):
    """Credit of some steps, and what is not known of it."""

    reward: Floats  # [N]
    deviations: Floats  # [N, K+1] of draws from the mean, the first is 0
    noise: Floats  # [N]
    apart: Floats  # [N] squares of what the method's rewards differ by, as far as they count
    widening: float

    def of(self, some: slice) -> "Steps":
        of_steps = ("reward", "deviations", "noise", "apart")
        return self._replace(**{name: getattr(self, name)[some] for name in of_steps})

    def paid(self, earned: Floats, besides: Floats, lengths: NDArray[np.int64]) -> "Steps":
        """Of whole episodes of which it is known, but for NaN, what their steps `earned` [E] together, up to
        what draws [K+1] have paid `besides`: what is missing of it is spread evenly, and what draws would pay
        more or less is no doubt any more."""
        starts, known = np.cumsum(lengths) - lengths, np.isfinite(earned)
        if not known.any():
            return self
        missing = np.where(known, earned - np.add.reduceat(self.reward, starts), 0.0) / lengths
        level = (np.add.reduceat(self.deviations, starts) + besides) * (known / lengths)[:, None]
        return self._replace(
            reward=self.reward + np.repeat(missing, lengths),
            deviations=self.deviations - np.repeat(level, lengths, axis=0),
            noise=self.noise * np.repeat(1 - known / lengths, lengths),
        )

    def drawn(self) -> Floats:
        """[N, K+1] rewards: the expected one, and draws that vary as much as it is doubtful."""
        plain = np.maximum(posteriors.spread(self.deviations), 1e-300)
        return np.asarray(self.reward[:, None] + self.deviations * np.sqrt(self.variance / plain)[:, None])

    @property
    def variance(self) -> Floats:
        return self.widening**2 * (posteriors.spread(self.deviations) + self.noise) + self.apart

    def within(self, interval: float) -> tuple[Floats, Floats]:
        """[N] the ends of the interval that holds so much of the probability."""
        half = half_width(interval) * np.sqrt(self.variance)
        return self.reward - half, self.reward + half


def blocks(lengths: NDArray[np.int64], size: int) -> Iterator[slice]:
    """Episodes of so many steps together, or a longer one."""
    firsts = np.flatnonzero(np.diff((np.cumsum(lengths) - lengths) // size, prepend=-1)).tolist()
    return itertools.starmap(slice, itertools.pairwise([*firsts, len(lengths)]))


def quantiles(drawn: Floats, interval: float) -> tuple[Floats, Floats]:
    """[N] ends of an interval that holds so many of the draws [N, K+1], and the first, what is expected."""
    low, high = np.quantile(drawn[:, 1:], [0.5 - interval / 2, 0.5 + interval / 2], axis=1)
    return np.minimum(low, drawn[:, 0]), np.maximum(high, drawn[:, 0])


def half_width(interval: float) -> float:
    """Standard deviations from the middle to the ends of an interval that holds so much."""
    return float(norm.ppf(0.5 + interval / 2))


def rows_of(records: Sequence[Record]) -> list[Floats]:
    """[T, 2 S + A + 1] of each episode of a log."""
    lengths = _lengths(records)
    seen = np.concatenate([record.observations[: len(record.actions)] for record in records])
    known = len(records[0].observations) > lengths[0]  # of all or of none
    last, following, end = np.cumsum(lengths) - 1, np.roll(seen, -1, axis=0), np.zeros((len(seen), 1))
    following[last] = [record.observations[-1] for record in records] if known else after_last(seen, lengths)
    end[last, 0] = [record.terminated for record in records]
    return cut(as_rows(seen, np.concatenate([record.actions for record in records]), end, following), lengths)


def as_rows(
    observations: NDArray[Any], actions: NDArray[Any], ends: NDArray[Any], following: NDArray[Any]
) -> NDArray[np.float64]:
    """[N, 2 S + A + 1] of steps: state, action, whether the step is an end, and how far the state moved."""
    moved = np.subtract(following, observations, dtype=np.float64)
    return np.concatenate([observations, actions, ends, moved], axis=1, dtype=np.float64)


def row_owners(spec: Spec) -> NDArray[np.int64]:
    """[2 S + A + 1] of each entry of a row the input that it belongs to; an end and moves have their own."""
    whose, count = input_owners(spec), len(input_names(spec))
    return np.concatenate([whose, [count], whose[: expanded(spec).observation_size] + count + 1])


def fit_credit(
    spec: Spec, learned: list[Record], held_out: list[Record], seed: int, yes_no: bool = False
) -> Credit:
    """From the episodes that a method learns from, too; held-out ones, in no order, tell how far it can be
    relied on, and then have a say in it."""
    whose, moves = row_owners(spec), learned[0].observations.shape[1]
    rng, totals = np.random.default_rng(seed), _totals(learned)
    rows, some, shift = _enough(learned, rng, yes_no)
    held_out = held_out[: 1 + int(np.searchsorted(np.cumsum(_lengths(held_out)), posteriors.STEPS))]
    behind, paid = rows_of(held_out), _totals(held_out)
    evidence = posteriors.fit(rows, some, yes_no, whose, moves)
    found = evidence.posterior(rng, shift)
    left, plain, widening, more = _judged(found, behind, paid, float(totals.mean()))
    if len(rows) == len(learned):  # else there is no room for more
        rows, some, shift = _enough([*learned, *held_out], rng, yes_no)
        found = evidence.after(rows, some).posterior(rng, shift)
    credit = Credit(found, 1.0, 1.0, widening, {}, np.stack([left, plain]))
    determined, allowed = _determined(credit, behind, None, paid)
    level = float(found.per_segment[0])
    facts = {
        "unexplained": float(left.mean() / max(float(plain.mean()), 1e-300)),
        "supported": bool(supported((plain - left)[None])[0]),
        "determined": determined,
        "allowed": allowed,
        "undetermined": _undetermined(spec, found, behind) if determined < 0.9 else [],
        "level": level,
        # One that is small beside the outcomes' spread is not worth a word.
        "level_matters": not yes_no and bool(abs(level) > 0.3 * max(float(np.std(totals)), 1e-300)),
        **({"rarer": int(min(said := totals.sum(), len(totals) - said))} if yes_no else {}),
        **more,
    }
    return credit._replace(facts=facts)


def _totals(records: Sequence[Record]) -> Floats:
    return np.array([record.total for record in records], np.float64)


def _lengths(records: Sequence[Record]) -> NDArray[np.int64]:
    return np.array([len(record.actions) for record in records], np.int64)


def _enough(
    records: list[Record], rng: np.random.Generator, yes_no: bool = False
) -> tuple[list[Floats], Floats, float]:
    """Rows and totals of episodes that have a say, and by how much log odds of yes are larger among them."""
    totals = _totals(records)
    order, shift = posteriors.enough(_lengths(records), totals, rng, yes_no)
    return rows_of([records[number] for number in order]), totals[order], shift


def _judged(
    found: Posterior, behind: list[NDArray[Any]], paid: Floats, usual: float
) -> tuple[Floats, Floats, float, dict[str, Any]]:
    """Squared errors of held-out outcomes [E], those of the mean, how much too narrow intervals are, and what
    else there is to say; of yes and no, log losses."""
    if not found.yes_no:
        mean, variance = found.totals(behind)
        left, plain = (paid - mean) ** 2, (paid - usual) ** 2
        beyond = float(np.mean(left / np.maximum(variance, 1e-300)))
        return left, plain, float(np.sqrt(max(1.0, beyond))), {}
    probability = found.probabilities(behind)
    left, plain = log_losses(logit(probability), paid), log_losses(logit(usual), paid)
    facts = {
        "log_loss": float(left.mean()),
        "constant_log_loss": float(plain.mean()),
        "flips": found.flips,
        "calibration": calibration(probability, paid),
    }
    return left, plain, 1.0, facts


def calibration(probability: Floats, said: Floats) -> list[dict[str, float]]:
    """Episodes in five groups of rising probability: how many there are, and how often yes was expected and
    said."""
    order = np.argsort(probability, kind="stable")
    return [
        {"episodes": len(part), "expected": float(probability[part].mean()), "said": float(said[part].mean())}
        for part in np.array_split(order, min(5, len(order)))
    ]


def supported(gains: Floats) -> NDArray[np.bool_]:
    """[L] whether held-out outcomes [L, E] are told better than by their mean, beyond chance, by how much
    less each is missed by."""
    error = gains.std(axis=1, ddof=1) / np.sqrt(gains.shape[1]) if gains.shape[1] > 1 else np.inf
    return np.asarray(gains.mean(axis=1) > SURE * error)


def weighed(
    credit: Credit,
    method: str,
    errors: Floats,
    rewards: list[list[NDArray[Any]]],
    held_out: list[Record],
    level: float = 0.0,
) -> Credit:
    """Beside a method whose lanes have these errors [L, E], squares or log losses, of the first held-out
    outcomes, and gave these rewards [T] to their steps, and a level to each: the posterior is believed while
    it explains as much, and less the more is left. How much rewards vary is compared with what it allows."""
    (left, plain), errors = credit.losses[:, : errors.shape[1]], errors[:, : credit.losses.shape[1]]
    finite = errors[np.isfinite(errors).all(axis=1)]  # lanes that have diverged have no say
    if credit.posterior.yes_no:  # where log losses of 1 and 0 are as far as these can be: by what both gain
        gain = float(np.median((plain - finite).mean(axis=1))) if finite.size else 0.0
        ratio = max(gain, 0.0) / max(float((plain - left).mean()), 1e-300)
    else:
        theirs = float(np.median([typical(lane) for lane in finite])) if finite.size else np.inf
        ratio = typical(left) / max(theirs, 1e-300)
    belief = 1.0 if ratio <= 1 else ratio**-2
    share = belief if method in SPEAKS else 0.0
    varied = [float(np.concatenate(lane).std()) for lane in rewards]
    excess = [each / max(credit.facts["allowed"], 1e-300) for each in varied]
    facts = {**credit.facts, "excess": excess, "method_level": level}
    sound = [lane for lane, each in zip(rewards, varied, strict=True) if np.isfinite(each)]
    found = credit._replace(share=share, belief=belief, facts=facts)
    if found.alone or not sound:
        return found
    learned = [np.asarray(np.mean(each, axis=0, dtype=np.float64)) for each in zip(*sound, strict=True)]
    shown = held_out[: len(learned)]
    facts["determined"], _ = _determined(found, rows_of(shown), learned, _totals(shown))
    return found


def typical(squares: Floats) -> float:
    """The squared scale of errors, from their squares, by a Student-t distribution, 4 degrees of freedom:
    a few episodes beyond all that was learned from, which anybody may miss by far, decide nothing."""
    size = float(np.sqrt(squares.mean()))
    return (size * student.fit(np.sqrt(squares) / size, fdf=4, floc=0)[2]) ** 2 if size > 0 else 0.0


def _determined(
    credit: Credit, segments: list[NDArray[Any]], learned: list[NDArray[Any]] | None, paid: Floats
) -> tuple[float, float]:
    """The share of the variance of steps' credit that is not doubt, and how much steps may vary, doubt
    included, as a standard deviation."""
    some = 1 + int(np.searchsorted(np.cumsum([len(rows) for rows in segments]), STEPS))
    given = None if learned is None else learned[:some]
    steps = [each for _, each in credit.of_blocks(segments[:some], given, paid[:some])]
    known = float(np.var(np.concatenate([each.reward for each in steps])))
    whole = max(known + float(np.mean(np.concatenate([each.variance for each in steps]))), 1e-300)
    return known / whole, float(np.sqrt(whole))


def _undetermined(spec: Spec, found: Posterior, segments: list[NDArray[Any]]) -> list[dict[str, Any]]:
    """Dimensions whose part in the credit totals tell least of, and whether they are the same in every
    episode: next to nothing of their variance is between episodes."""
    rows = np.concatenate(segments)
    chosen = np.random.default_rng(0).permutation(len(rows))
    compared = rows[chosen[: 4 * MOST_BEHIND]]
    doubt = found.shares(compared, rows[chosen[-MOST_BEHIND:]]).variance.mean(axis=0)
    between = np.var([each.mean(axis=0) for each in segments], axis=0) / np.maximum(rows.var(axis=0), 1e-300)
    names = (*input_names(spec), "an end")
    whose = np.append(input_owners(spec), len(names) - 1)
    parts, varies = np.bincount(whose, doubt), set(whose[between[: len(whose)] >= 0.02])
    least = 0.2 * parts.sum()  # a fifth of what is not determined
    order = [place for place in np.argsort(-parts, kind="stable").tolist() if parts[place] > least]
    return [{"name": names[place], "same_in_every_episode": place not in varies} for place in order]


def edges_told(credit: Credit, spec: Spec, edges: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Of yes and no, edges [L, ...] to the reward are what evidence says of each input: 1 where it matters, 0
    where it does not, else 0.5; those to next states stay."""
    firsts = np.unique(owners(spec), return_index=True)[1]
    matters = np.maximum.reduceat(credit.posterior.matters[:-1], firsts)
    known = np.select([matters >= KNOWN, matters <= 1 - KNOWN], [1.0, 0.0], 0.5).astype(np.float32)
    parts = np.split(known, [spec.observation_size])
    told = {
        name: np.broadcast_to(part, edges[name].shape)
        for name, part in zip(REWARD_BLOCKS, parts, strict=True)
        if name in edges
    }
    return {**edges, **told}


def write_credit(run: RunFolder, credit: Credit) -> None:
    facts = {name: getattr(credit, name) for name in ("share", "belief", "widening")} | credit.facts
    write_arrays(run.credit, credit.posterior.arrays(), facts)


def read_credit(run: RunFolder) -> Credit | None:
    """None where a run has none: it was trained, or its fit was stopped."""
    if not run.credit.exists():
        return None
    spec = expanded(run.read_spec())
    states, actions = spec.observation_size, spec.action_size
    step = as_rows(*(np.zeros((1, size)) for size in (states, actions, 1, states)))
    try:
        arrays, note = read_arrays(run.credit)
        facts, found = from_dict(CreditFile, note), Posterior.of(arrays)
        found.shares(step, step)  # whatever does not fit together shows here
        parts = facts["share"], facts["belief"]
        check(all(0 <= part <= 1 for part in parts) and facts["widening"] > 0, "a share is none")
        return Credit(found, facts["share"], facts["belief"], facts["widening"], note)
    except (UserError, ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise UserError(f"{run.credit} is damaged ({one_line(error)}): fit the run again") from error


def need_credit(run: RunFolder) -> Credit:
    found = read_credit(run)
    if found is None:
        raise UserError(f"{run.path} has no intervals: only a finished `apportion fit` does")
    return found
