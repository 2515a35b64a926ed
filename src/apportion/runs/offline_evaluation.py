"""What policies are worth by logged episodes, and whether these can tell: values, intervals, a sentence."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apportion.core.categories import expanded, policy_spec
from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Record, Transitions
from apportion.envs.acting import Actor, act, standardise
from apportion.runs.credit import Credit, need_credit, rows_of
from apportion.runs.folder import RunFolder
from apportion.runs.learned import read_learned
from apportion.runs.logged import learners_record, read_facts, read_for
from apportion.runs.offline_policy import learned_rewards, policy_actions
from apportion.training import off_policy
from apportion.training.off_policy import Features
from apportion.training.offline import Logged
from apportion.training.offline_policy import all_steps

FEWEST = 60  # episodes, below which nothing is said of a gain
DRAWS = 40  # of episodes and rewards
INTERVAL = (5.0, 95.0)  # percentiles of draws
MOST_UNTRIED = 0.25  # of a policy's actions: more, and values are guesses
FEWEST_EFFECTIVE = 10.0  # episodes that importance sampling must rest on to be shown
_RARELY = 0.05  # probability of all actions together that a policy does not choose, for importance sampling
_NEAR_ZERO = 0.1  # of the outcomes' spread: a mean that is less makes no percentages

Floats = NDArray[np.float64]


class Log(NamedTuple):
    """Episodes, and the credit of their steps, in the form that evaluation takes."""

    steps: Transitions  # with actions as a policy knows them, observations standardised
    seen: NDArray[np.float32]  # [N, S] observations as they are,
    after: NDArray[np.float32]  # and those that follow
    rewards: Floats  # [N, 1+B] expected, then draws
    totals: Floats  # [E]
    horizon: int


def make_log(spec: Spec, records: list[Record], credit: Credit, learned: list[NDArray[Any]] | None) -> Log:
    """From episodes whose outcomes are known; `learned` [T] each are the method's rewards, if they count."""
    rng = np.random.default_rng(0)
    lengths = np.array([len(record.actions) for record in records], np.int64)
    some = off_policy.chosen_episodes(lengths, rng)
    records = [records[number] for number in some]
    totals = np.array([record.total for record in records], np.float64)
    own = None if learned is None else [learned[number] for number in some]
    credited = list(credit.of_episodes([rows_of(record) for record in records], own, totals))
    draws = [each.reward[:, None] + each.widening * each.deviations[:, : DRAWS + 1] for each in credited]
    steps = all_steps(records, [policy_actions(spec, record.actions) for record in records])
    seen, after = np.asarray(steps.observation), np.asarray(steps.next_observation)
    mean, spread = seen.mean(axis=0), seen.std(axis=0)
    scale = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 1.0)
    found: dict[str, Any] = {
        "observation": standardise(seen, mean, scale),
        "next_observation": standardise(after, mean, scale),
    }
    return Log(steps._replace(**found), seen, after, np.concatenate(draws), totals, int(lengths.max()))


def evaluate_policy(log: Log, actor: Actor, head: str, supported: bool, discrete: bool) -> dict[str, Any]:
    """Values of a policy and of behaviour, ready for JSON."""
    rng = np.random.default_rng(1)
    steps, count = log.steps, len(log.totals)
    action, later = (np.stack([act(actor, head, x, None) for x in part]) for part in (log.seen, log.after))
    with threadpool_limits(2, "blas"):
        valued = off_policy.evaluate(steps, log.rewards[:, 1:], action, later, log.horizon, rng)
        untried = off_policy.untried(steps, action, rng)
    gains = valued.policy - valued.behaviour
    behaviour, gain = float(log.totals.mean()), float(np.median(gains))
    low, high = (float(end) for end in np.percentile(gains, INTERVAL))
    value, effective = _by_importance(log, action, discrete, rng)
    data: dict[str, Any] = {
        "episodes": count,
        "behaviour": behaviour,
        "spread": float(log.totals.std()),
        "policy": behaviour + gain,
        "policy_low": behaviour + low,
        "policy_high": behaviour + high,
        "untried": untried,
        "importance": value if effective >= FEWEST_EFFECTIVE else None,
        "effective_episodes": effective,
        "single_action": bool(np.ptp(np.asarray(steps.action), axis=0).max() == 0),
        "supported": supported,
    }
    return {**data, "verdict": verdict(data), "sentence": in_words(data)}


def verdict(data: dict[str, Any]) -> str:
    """better, no better, or unknown."""
    if data["single_action"]:
        return "no better"
    if data["episodes"] < FEWEST or not data["supported"] or data["untried"] > MOST_UNTRIED:
        return "unknown"
    return "better" if data["policy_low"] > data["behaviour"] else "no better"


def in_words(data: dict[str, Any]) -> str:
    """One sentence."""
    if data["single_action"]:
        return "no better by these data: only one action was ever taken, so there is nothing to choose"
    found = verdict(data)
    if found == "unknown":
        if data["episodes"] < FEWEST:
            return f"these data cannot tell: {data['episodes']} episodes are too few (at least {FEWEST})"
        if not data["supported"]:
            return "these data cannot tell: the learned rewards do not explain held-out outcomes"
        return f"these data cannot tell: {data['untried']:.0%} of its actions were never tried"
    behaviour = data["behaviour"]
    parts = [data[name] - behaviour for name in ("policy", "policy_low", "policy_high")]
    if behaviour > _NEAR_ZERO * data["spread"]:
        gain, low, high = (f"{100 * part / behaviour:.0f}" for part in parts)
        amount = f"{gain}% [{low}, {high}]"
    else:
        gain, low, high = (f"{part:.3g}" for part in parts)
        amount = f"{gain} [{low}, {high}]"
    return (
        f"better than what was done by {amount}"
        if found == "better"
        else f"no better by these data ({amount})"
    )


def _by_importance(
    log: Log, action: NDArray[Any], discrete: bool, rng: np.random.Generator
) -> tuple[float, float]:
    """Weighted importance sampling. Behaviour is estimated: Gaussian about a regression on features of
    states, or one of the probabilities of discrete actions; the policy has the same spread about its own."""
    seen, done = np.asarray(log.steps.observation), np.asarray(log.steps.action, np.float64)
    features = Features.draw(seen.shape[1], rng).of(seen, np.zeros((len(seen), 0))).astype(np.float64)
    gram = features.T @ features
    gram += 1e-3 * np.mean(np.diag(gram)) * np.eye(len(gram))
    usual = features @ np.linalg.solve(gram, features.T @ done)
    if discrete:
        likely = np.maximum(usual, 0.01)
        other = np.log(np.sum(likely / likely.sum(axis=1, keepdims=True) * done, axis=1))
        rare = _RARELY / max(done.shape[1] - 1, 1)
        own = np.log(np.where(np.sum(action * done, axis=1) > 0.5, 1 - _RARELY, rare))
    else:
        spread = np.maximum((done - usual).std(axis=0), 1e-3)
        own, other = (-0.5 * np.sum(((done - middle) / spread) ** 2, axis=1) for middle in (action, usual))
    order = np.asarray(log.steps.step_in_episode)
    value, effective = off_policy.weighted_importance(own, other, log.rewards[:, 0], order)
    return value + float(np.mean(log.totals) - log.rewards[:, 0].sum() / len(log.totals)), effective


def evaluate_fit(run: RunFolder, data: str | None = None, policy: Path | None = None) -> dict[str, Any]:
    """Of a run with a policy, or of an exported one, by the run's own log or by another with its columns."""
    learned, credit, facts, spec = read_learned(run), need_credit(run), read_facts(run), run.read_spec()
    check(
        policy is not None or learned.config.has_policy,
        f"{run.path} has no policy: fit it with --backbone iql, or name an exported one by --policy",
    )
    log = read_for(run, facts["data"] if data is None else data)[1]
    check(
        bool(np.isfinite(log.totals).all()), "outcomes are missing: an evaluation needs those of all episodes"
    )
    records = [learners_record(spec, log, number, number) for number in range(len(log.totals))]
    rewards = learned_rewards(
        learned.config, spec, Logged([], [], learned.outcomes), learned.agent, records, credit
    )
    lanes = 1 if policy is not None else learned.config.lanes
    found = []
    for lane in range(lanes):
        if policy is None:
            actor = {name: array[lane] for name, array in learned.actors.items()}
            head = learned.config.make_backbone().head
        else:
            actor, head = _exported(policy, spec)
        made = make_log(spec, records, credit, None if rewards is None else rewards[lane])
        supported = bool(credit.facts["supported"])
        found.append(evaluate_policy(made, actor, head, supported, bool(spec.choices)))
    return {
        "run": str(run.path),
        "data": facts["data"] if data is None else data,
        "policy": None if policy is None else str(policy),
        "seed": learned.config.seed,
        "lanes": found,
    }


def _exported(path: Path, spec: Spec) -> tuple[Actor, str]:
    """The arrays of a policy that `apportion export` wrote, for this log's observations and actions."""
    check(path.is_file(), f"no file {path}")
    arrays = dict(np.load(path, allow_pickle=False).items())
    states, actions = expanded(spec).observation_size, policy_spec(spec).action_size
    check(
        "mask" in arrays and "head" in arrays, f"{path} is no exported policy: `apportion export` writes one"
    )
    seen = arrays["mask"].shape[0]
    check(seen == states, f"{path} looks at {seen} numbers, and the log has {states}")
    head = str(arrays["head"])
    done = len(act(arrays, head, np.zeros(states, np.float32), None))
    check(done == actions, f"{path} gives {done} numbers as an action, and the log has {actions}")
    return arrays, head
