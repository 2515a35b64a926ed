"""A policy from the credit of logged steps: how it is learned, what it does, what it is worth by a log."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apportion.core.categories import expand_actions, expanded, policy_spec
from apportion.core.config import UserError, check
from apportion.core.registry import own
from apportion.core.spec import Spec
from apportion.core.types import Metrics, Record, Transitions
from apportion.data import minari_sets
from apportion.data.npz import load_npz
from apportion.envs.acting import Actor, act, standardise
from apportion.envs.spaces import learners_actions
from apportion.runs.credit import INTERVAL, Credit, need_credit
from apportion.runs.folder import RunFolder
from apportion.runs.learned import Learned, read_learned
from apportion.runs.logged import read_for, records_of
from apportion.runs.policy import EvaluationSettings, read_policy
from apportion.training import devices, off_policy
from apportion.training import scaling as scales
from apportion.training.agent import AgentState
from apportion.training.off_policy import Features
from apportion.training.offline import Fitting, all_steps, learn_policy
from apportion.training.settings import Config

FEWEST = 60  # episodes, below which nothing is said of a gain
DRAWS = 40  # of episodes and rewards
MOST_UNTRIED = 0.25  # of a policy's actions: more, and values are guesses
FEWEST_EFFECTIVE = 10.0  # episodes that importance sampling must rest on to be shown

PLAYED = ("behaviour", "policy", "played")

Floats = NDArray[np.float64]

# --- To learn it


def check_policy(config: Config, spec: Spec) -> None:
    """Complain of a backbone that cannot act as the log does."""
    if not config.has_policy:
        return
    levels = zip(spec.action_names, spec.levels[spec.observation_size :], strict=False)
    categories = [name for name, count in levels if count > 0]
    check(
        bool(spec.choices) or not categories,
        f"{', '.join(categories)} are categories and were combined in too many ways to choose among: leave "
        "some actions aside by --without, or fit without --backbone",
    )
    check(
        not spec.choices or config.make_backbone().discrete is not False,
        f"{config.backbone} needs actions that are numbers, and {spec.env_id} has {len(spec.choices)} "
        "different ones: add --backbone iql",
    )


def policy_actions(spec: Spec, actions: NDArray[Any]) -> NDArray[np.float32]:
    """[T, A] as a method knows them, as a policy does: one-hot where it chooses among some."""
    if not spec.choices:
        return np.asarray(actions, np.float32)
    known = expand_actions(spec, learners_actions(spec, np.array(spec.choices)))
    nearest = np.argmin(((actions[:, None] - known[None]) ** 2).sum(axis=-1), axis=1)
    return np.eye(len(known), dtype=np.float32)[nearest]


def recommended(learned: Learned, spec: Spec, lane: int, records: list[Record]) -> list[NDArray[np.float32]]:
    """[T, A] of each episode what a lane's policy would have done, in the form that stored actions have."""
    actor, head = learned.actor(lane)
    found = []
    for record in records:
        seen = np.asarray(record.observations[: len(record.actions)], np.float32)
        done = np.stack([act(actor, head, each, None) for each in seen])
        chosen = np.array(spec.choices)[done.argmax(axis=1)] if spec.choices else None
        found.append(done if chosen is None else learners_actions(spec, chosen))
    return found


def with_policy(
    fitting: Fitting, spec: Spec, records: list[Record], learned: Learned, credit: Credit
) -> tuple[AgentState, Metrics]:
    """The agents of all lanes with a policy that has learned from the episodes that they have, too."""
    config, agent = learned.config, learned.agent
    by_lane = [None] if credit.alone else learned.rewards(records)
    credited = [credit.of_records(records, each, paid=False) for each in by_lane]
    rewards = np.stack([np.concatenate([each.reward for each in steps]) for steps in credited])
    actions = [policy_actions(spec, record.actions) for record in records]
    scaling = None if agent.scaling is None else devices.one_lane(agent.scaling, 0)
    state, metrics = learn_policy(
        config.make_backbone(),
        policy_spec(spec),
        scales.transitions(scaling, all_steps(records, actions)),
        np.broadcast_to(rewards, (config.lanes, rewards.shape[1])),
        config.seeds,
        fitting.policy_updates,
    )
    return jax.device_get(agent._replace(backbone=state)), jax.device_get(metrics)


# --- What it is worth


class Judged(NamedTuple):
    """Episodes to judge policies by, with the credit of their steps."""

    steps: Transitions  # with actions as a policy knows them
    rewards: Floats  # [N, 1+B] expected, then draws
    totals: Floats  # [E]


def judged_by(
    spec: Spec, records: list[Record], credit: Credit, learned: list[NDArray[Any]] | None
) -> Judged:
    """From episodes whose outcomes are known; `learned` [T] each are the method's rewards, if they count."""
    lengths = np.array([len(record.actions) for record in records], np.int64)
    some = off_policy.chosen_episodes(lengths, np.random.default_rng(0))
    records = [records[number] for number in some]
    own = None if learned is None else [learned[number] for number in some]
    credited = credit.of_records(records, own, paid=True)
    draws = [each.reward[:, None] + each.widening * each.deviations[:, : DRAWS + 1] for each in credited]
    steps = all_steps(records, [policy_actions(spec, record.actions) for record in records])
    return Judged(steps, np.concatenate(draws), np.array([record.total for record in records], np.float64))


def evaluate_policy(log: Judged, actor: Actor, head: str, supported: bool, discrete: bool) -> dict[str, Any]:
    """Values of a policy and of behaviour, ready for JSON."""
    rng = np.random.default_rng(1)
    seen, after = np.asarray(log.steps.observation), np.asarray(log.steps.next_observation)
    action, later = (np.stack([act(actor, head, x, None) for x in part]) for part in (seen, after))
    mean, spread = seen.mean(axis=0), seen.std(axis=0)
    scale = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 1.0)
    observations: Any = (standardise(each, mean, scale) for each in (seen, after))
    steps = log.steps._replace(observation=next(observations), next_observation=next(observations))
    horizon = int(np.asarray(steps.segment_length).max())
    with threadpool_limits(2, "blas"):
        valued = off_policy.evaluate(steps, log.rewards[:, 1:], action, later, horizon, rng)
        untried = off_policy.untried(steps, action, rng)
    gains = valued.policy - valued.behaviour
    behaviour, gain = float(log.totals.mean()), float(np.median(gains))
    low, high = (float(end) for end in np.quantile(gains, [0.5 - INTERVAL / 2, 0.5 + INTERVAL / 2]))
    value, effective = _by_importance(log._replace(steps=steps), action, discrete, rng)
    data: dict[str, Any] = {
        "episodes": len(log.totals),
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
    return data | dict(zip(("verdict", "sentence"), verdict(data), strict=True))


def verdict(data: dict[str, Any]) -> tuple[str, str]:
    """better, no better, or unknown; and a sentence that says so."""
    if data["single_action"]:
        alone = "only one action was ever taken, so there is nothing to choose"
        return "no better", f"no better by these data: {alone}"
    doubts = {
        f"{data['episodes']} episodes are too few (at least {FEWEST})": data["episodes"] < FEWEST,
        "the learned rewards do not explain held-out outcomes": not data["supported"],
        f"{data['untried']:.0%} of its actions were never tried": data["untried"] > MOST_UNTRIED,
    }
    for doubt in (doubt for doubt, there in doubts.items() if there):
        return "unknown", f"these data cannot tell: {doubt}"
    behaviour = data["behaviour"]
    gains = [data[name] - behaviour for name in ("policy", "policy_low", "policy_high")]
    if behaviour > 0.1 * data["spread"]:  # a mean that is nearer zero makes no percentages
        gain, low, high = (f"{100 * each / behaviour:.0f}" for each in gains)
        gain = f"{gain}%"
    else:
        gain, low, high = (f"{each:.3g}" for each in gains)
    if data["policy_low"] > behaviour:
        return "better", f"better than what was done by {gain} [{low}, {high}]"
    return "no better", f"no better by these data ({gain} [{low}, {high}])"


def _by_importance(
    log: Judged, action: NDArray[Any], discrete: bool, rng: np.random.Generator
) -> tuple[float, float]:
    """Weighted importance sampling. Behaviour is estimated: Gaussian about a regression on features of
    states, or one of the probabilities of discrete actions; the policy has the same spread about its own."""
    seen, done = np.asarray(log.steps.observation), np.asarray(log.steps.action, np.float64)
    features = Features.draw(seen.shape[1], rng).of(seen, np.zeros((len(seen), 0))).astype(np.float64)
    gram = features.T @ features
    gram += 1e-3 * np.mean(np.diag(gram)) * np.eye(len(gram))
    usual = features @ np.linalg.solve(gram, features.T @ done)
    if discrete:
        rarely = 0.05  # probability of all actions together that a policy does not choose
        likely = np.maximum(usual, 0.01)
        other = np.log(np.sum(likely / likely.sum(axis=1, keepdims=True) * done, axis=1))
        rare = rarely / max(done.shape[1] - 1, 1)
        own = np.log(np.where(np.sum(action * done, axis=1) > 0.5, 1 - rarely, rare))
    else:
        spread = np.maximum((done - usual).std(axis=0), 1e-3)
        own, other = (-0.5 * np.sum(((done - middle) / spread) ** 2, axis=1) for middle in (action, usual))
    order = np.asarray(log.steps.step_in_episode)
    value, effective = off_policy.weighted_importance(own, other, log.rewards[:, 0], order)
    return value + float(np.mean(log.totals) - log.rewards[:, 0].sum() / len(log.totals)), effective


def evaluate_fit(
    run: RunFolder, data: str | None = None, policy: Path | None = None, play: int = 0
) -> dict[str, Any]:
    """Of a run with a policy, or of an exported one, by the run's own log or by another with its columns. It
    can `play` so many episodes, too, where a Minari data set names its environment."""
    learned, credit, spec = read_learned(run), need_credit(run), run.read_spec()
    check(
        policy is not None or learned.config.has_policy,
        f"{run.path} has no policy: fit it with --backbone iql, or name an exported one by --policy",
    )
    rows, log = read_for(run, data)
    data = rows.source
    check(play >= 0, f"--play {play} must be 0 or more")
    check(not play or policy is None, "--play is for the run's own policies: leave --policy out")
    check(
        not play or not Path(data).suffix, f"--play needs a Minari data set with an environment, not {data}"
    )
    check(
        bool(np.isfinite(log.totals).all()), "outcomes are missing: an evaluation needs those of all episodes"
    )
    records, supported = records_of(spec, log), bool(credit.facts["supported"])
    rewards = None if credit.alone else learned.rewards(records)
    found = []
    for lane in range(learned.config.lanes if policy is None else 1):
        actor, head = learned.actor(lane) if policy is None else _exported(policy, spec)
        judged = judged_by(spec, records, credit, None if rewards is None else rewards[lane])
        found.append(evaluate_policy(judged, actor, head, supported, bool(spec.choices)))
    if play:
        policies, seed = [read_policy(run, lane) for lane in range(len(found))], EvaluationSettings().seed
        for each, returns in zip(found, minari_sets.play(data, policies, play, seed), strict=True):
            each["played"], each["played_error"] = np.mean(returns).item(), np.std(returns).item() / play**0.5
            known = {name: minari_sets.normalised(data, each[name]) for name in PLAYED}
            each |= {f"{name}_normalised": value for name, value in known.items()}
    return {
        "run": str(run.path),
        "data": data,
        "policy": None if policy is None else str(policy),
        "seed": learned.config.seed,
        "lanes": found,
    }


def _exported(path: Path, spec: Spec) -> tuple[Actor, str]:
    """The arrays of a policy that `apportion export` wrote, for this log's observations and actions."""
    arrays = load_npz(path, others=True)
    states, actions = expanded(spec).observation_size, policy_spec(spec).action_size
    seen, head = arrays.get("mask", np.zeros(0)).size, str(arrays.get("head"))
    check(seen in (0, states), f"{path} looks at {seen} numbers, and the log has {states}")
    check(not own(head), f"{path} acts by code of {head}, which no file may have us import: evaluate its run")
    try:
        done = len(act(arrays, head, np.zeros(states, np.float32), None))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise UserError(f"{path} is no exported policy: `apportion export` writes one") from error
    check(done == actions, f"{path} gives {done} numbers as an action, and the log has {actions}")
    return arrays, head
