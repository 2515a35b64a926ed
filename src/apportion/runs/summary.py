"""What a run folder says, in a few numbers, the answer of `apportion show`; and these in sentences."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS, Graph, Spec
from apportion.graph.certificate import marked
from apportion.graph.priors import DOUBT
from apportion.runs import checkpoint
from apportion.runs.credit import read_credit
from apportion.runs.folder import RunFolder, notes
from apportion.training.evaluate import structure_scores

FEW = 20  # episodes of yes, or of no: with fewer, little can be told
FAR = 2.0  # times their variance, by which outcomes are missed: with one reward for all, it would be 1

_CERTIFIED = {
    (True, True): "The edges are certified",
    (True, False): "Edges to the reward are certified, those to next states are not",
    (False, True): "Edges to next states are certified, those to the reward are not",
    (False, False): "The edges are not certified",
}
NO_ANSWER = (
    "The data cannot support an answer (seed {}): outcomes of held-out episodes are not told better than by "
    "their mean, by two standard errors."
)
NOT_LEARNED = (
    "No answer was learned (seed {}): outcomes of held-out episodes are missed by more than they differ. "
    "Give more --updates, or less that has nothing to do with them."
)
MISSED = (
    "Learned rewards miss what the last evaluation's episodes paid by more than they paid (seed {}): rewards "
    "of 0 would be nearer."
)
BEWARE = "Do not rely on these rewards, nor on the graph."
BEWARE_ALONE = "Do not rely on these rewards."  # of a method without a graph
UNDECIDED = 0.5  # what stands for an edge of which the data cannot tell, where edges have a certificate
_VARIES = "rewards of steps vary more than outcomes allow"
_UNDETERMINED = {  # by whether dimensions are the same in every episode
    True: "every episode has the same values of {}, so that outcomes cannot tell their part; "
    "episodes that begin at other times, are of other lengths or are paid more often would",
    False: "outcomes say little of the part of {}; more episodes would",
}


def summarise(run: RunFolder) -> dict[str, Any]:
    """Plain data for JSON: curves per lane, last scores, edges, structure scores where the truth is known."""
    spec, metrics = run.read_spec(), run.read_metrics()
    edges, status = run.read_last_edges(), run.read_status()
    evaluations = [entry for entry in metrics if entry["kind"] == "eval"]
    last = evaluations[-1] if evaluations else {}
    scores, data = _structure_scores(edges, spec), _data(run, last)
    return {
        "run": str(run.path),
        "env": spec.env_id,
        "status": status,
        "faults": status.get("faults", []),
        "steps": [entry["step"] for entry in evaluations],
        "returns": [list(lane) for lane in zip(*(each["return"] for each in evaluations), strict=True)],
        "final_return": last.get("return"),
        **_last_scores(last),
        "step_rewards": step_rewards(evaluations),
        "learned": len(metrics) > len(evaluations),
        "data": data,
        "best": checkpoint.best_moments(run.checkpoints, run.sizes().lanes),
        "observation_names": list(spec.observation_names),
        "action_names": list(spec.action_names),
        "graph": _graph(edges),
        "certificates": certificates(edges, data),
        "true_graph": None if spec.true_graph is None else spec.true_graph.to_dict(),
        "structure": None if scores is None else {block: each["f1"] for block, each in scores.items()},
        "structure_scores": scores,
        "config": run.read_config(),
        "versions": run.read_versions(),
        "notes": notes(run),
    }


def _data(run: RunFolder, last: dict[str, Any]) -> dict[str, Any] | None:
    """What a run was fitted to, and how well held-out outcomes are explained; None for a training."""
    facts, worth = run.read_data(), run.read_worth()
    if facts is None:
        return None
    told: dict[str, Any] = {name: last.get(name) for name in ("unexplained", "supported")}
    found = read_credit(run)
    known = None if found is None else found.facts
    if known is not None and known["share"] > 0 and told["unexplained"] is not None:
        # Credit is the posterior's where it explains more, and leaves no more than either of the two.
        left, good = known["unexplained"], known["supported"]
        told["unexplained"] = [left if each is None else min(each, left) for each in told["unexplained"]]
        told["supported"] = [each or good for each in told["supported"]]
    return {
        **{name: facts[name] for name in ("data", "episodes", "held_out", "answers")},
        "notes": list(facts["notes"]),
        **told,
        "credit": known,
        "worth": None if worth is None else list(worth["lanes"]),
    }


def certificates(
    edges: Mapping[str, NDArray[np.float32]], data: dict[str, Any] | None
) -> list[dict[str, Any]] | None:
    """For each lane, which edges may be relied on, and what speaks against the others; None where the method
    certifies none. Rewards that vary more from step to step than outcomes allow certify no edges to them."""
    if "doubts" not in edges:
        return None
    credit = None if data is None else data["credit"]
    answers = None if data is None or data["answers"] is None else credit
    found = []
    for lane, marks in enumerate(edges["doubts"]):
        doubts = marked(marks.tolist())
        of_dynamics = [each.value for each in doubts if each.of_dynamics]
        said = [each.value for each in doubts]
        against = [each.value for each in doubts if each.of_reward]
        if answers is not None:
            against = answer_doubts(answers)
            said = [*against, *of_dynamics]
        elif varies_too_much(credit, lane):
            against = [_VARIES]
            said += against
        found.append({"reward": not against, "dynamics": not of_dynamics, "doubts": said})
    return found


def varies_too_much(facts: dict[str, Any] | None, lane: int) -> bool:
    """Whether a lane's rewards of steps vary by more than thrice what outcomes allow, however well they
    explain these."""
    excess = [] if facts is None else facts["excess"]
    return bool(lane < len(excess) and (excess[lane] or 0) > 3)


def fit_warnings(run: RunFolder) -> list[str]:
    """What is damaged of a fit, and what it has said against its own answer: whoever uses it should hear it
    again."""
    summary = summarise(run)
    damaged: list[str] = summary["notes"]
    if summary["data"] is None:
        return damaged
    seeds = [summary["config"]["seed"] + lane for lane in range(summary["config"]["lanes"])]
    credit = summary["data"]["credit"]
    # With less than half of the credit's variance that is determined, whoever uses it is told.
    doubtful = credit_in_words(credit) if credit is not None and credit["determined"] < 0.5 else []
    said = fit_in_words(summary["data"], seeds)
    return [*damaged, *(each for each in said if BEWARE in each or each in doubtful)]


def step_rewards(evaluations: list[dict[str, Any]]) -> bool:
    """Whether the environment itself rewards single steps, so that there is a true reward to compare with.

    One lane that saw such a reward is enough; most environments do."""
    said = [entry["step_rewards"] for entry in evaluations if "step_rewards" in entry]
    return not said or any(any(lanes) for lanes in said)


def _last_scores(last: dict[str, Any]) -> dict[str, Any]:
    """Of the last evaluation: the median over lanes of each score, and each lane's."""
    found: dict[str, Any] = {}
    for name in ("reward_correlation", "return_error", "constant_error", "success"):
        lanes = last.get(name, [None] * len(last["return"]) if last else None)
        known = [value for value in lanes or [] if value is not None]
        found |= {name: float(np.median(known)) if known else None, f"{name}_per_lane": lanes}
    return found


def _graph(edges: dict[str, NDArray[np.float32]]) -> dict[str, Any]:
    """Edge probabilities, the mean over lanes and each lane's; None for methods without a graph."""

    names, lanes = (*BLOCKS, "policy_mask"), len(next(iter(edges.values()), ()))

    def blocks(of: Callable[[NDArray[Any]], NDArray[Any]]) -> dict[str, Any]:
        found = {
            name: np.round(of(edges[name]).astype(np.float64), 4).tolist() for name in names if name in edges
        }
        return dict.fromkeys(names) | found

    per_lane = [blocks(operator.itemgetter(lane)) for lane in range(lanes)]
    return {**blocks(lambda values: values.mean(axis=0)), "per_lane": per_lane}


def _structure_scores(edges: dict[str, NDArray[np.float32]], spec: Spec) -> dict[str, Any] | None:
    """Scores of each block against the true graph: the mean over lanes, and each lane's F1."""
    if spec.true_graph is None or not all(name in edges for name in BLOCKS):
        return None
    lanes = (dict(zip(BLOCKS, each, strict=True)) for each in zip(*(edges[b] for b in BLOCKS), strict=True))
    scores = [structure_scores(Graph(**lane), spec.true_graph) for lane in lanes]
    return {
        name: {
            **{score: float(np.mean([lane[name][score] for lane in scores])) for score in scores[0][name]},
            "f1_per_lane": [lane[name]["f1"] for lane in scores],
        }
        for name in BLOCKS
    }


# --- In sentences


def moment_in_words(data: dict[str, Any]) -> str:
    """Of which moment of training some JSON tells."""
    return "at each seed's best step" if data["step"] is None else f"at step {data['step']:,}"


def faults_in_words(entries: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence for each lane that had faults."""
    said = []
    for entry in entries:
        seed, reason, count = entry["seed"], entry["reason"], entry["restarts"]
        times = "once" if count == 1 else f"{count} times"
        if entry["frozen_since"] is not None:
            said.append(f"Seed {seed} is frozen since step {entry['frozen_since']:,}: {reason}.")
        else:
            said.append(f"The environment of seed {seed} was restarted {times}, last because: {reason}.")
    return said


def certificates_in_words(found: list[dict[str, Any]] | None, seeds: list[int]) -> list[str]:
    """A sentence for all seeds with the same certificate."""
    if found is None:
        return ["The edges are not certified: those that are learned by gradient have no certificate."]
    alike: dict[tuple[str, ...], list[int]] = {}
    for lane, each in enumerate(found):
        alike.setdefault(tuple(each["doubts"]), []).append(lane)
    said = []
    for doubts, lanes in alike.items():
        what = _CERTIFIED[found[lanes[0]]["reward"], found[lanes[0]]["dynamics"]]
        who = f"seed{'s' if len(lanes) > 1 else ''} {', '.join(str(seeds[lane]) for lane in lanes)}"
        said.append(f"{what} ({who}){': ' if doubts else ''}{'; '.join(doubts)}.")
    return said


def fit_in_words(data: dict[str, Any] | None, seeds: list[int]) -> list[str]:
    """Whether the data support what was learned from them, in a sentence or two."""
    if data is None or data["unexplained"] is None:
        return []
    parts = ", ".join("unknown" if share is None else f"{share:.1%}" for share in data["unexplained"])
    learned, others = data["episodes"] - data["held_out"], data["held_out"]
    if min((share for share in data["unexplained"] if share is not None), default=0.0) > 1e9:
        # Of a variance that is none but rounding.
        said = f"Fitted to {learned:,} episodes; the outcomes of {others:,} others are all the same."
        return [said, f"{NO_ANSWER.format(', '.join(map(str, seeds)))} {BEWARE}"]
    said = f"Fitted to {learned:,} episodes"
    if data["answers"] is not None:
        said += f". {answers_in_words(data['credit'], others, parts)}"
    else:
        said += f"; in the outcomes of {others:,} others, {parts} of the variance stays unexplained."
    lanes = list(zip(seeds, data["supported"], data["unexplained"], strict=True))
    far = [str(seed) for seed, good, share in lanes if not good and (share is None or share > FAR)]
    poor = [str(seed) for seed, good, _ in lanes if not good and str(seed) not in far]
    warnings = [(poor, NO_ANSWER), (far, NOT_LEARNED)]
    return [
        said,
        *credit_in_words(data["credit"]),
        *(f"{text.format(', '.join(those))} {BEWARE}" for those, text in warnings if those),
    ]


def answer_doubts(facts: dict[str, Any]) -> list[str]:
    """What speaks against edges to yes and no: not that they explain little, for nothing explains all."""
    few = f"only {facts['rarer']} outcomes are of the rarer kind, and {FEW} would be needed"
    poor = "outcomes of held-out episodes are not told better than by how common yes is"
    return [*([few] if facts["rarer"] < FEW else []), *([poor] if not facts["supported"] else [])]


def answers_in_words(facts: dict[str, Any] | None, others: int, left: str) -> str:
    """How well yes and no of held-out episodes are told."""
    if facts is None:
        return f"The log loss of {others:,} others is {left} of a constant's."
    groups = "; ".join(f"{each['said']:.0%} for {each['expected']:.0%}" for each in facts["calibration"])
    said = (
        f"Rewards are log odds of yes. The log loss of {others:,} others is {facts['log_loss']:.3f}, a "
        f"constant's {facts['constant_log_loss']:.3f}. Yes was said, in groups by what was expected: "
        f"{groups}."
    )
    if facts["rarer"] < FEW:
        said += f" Only {facts['rarer']} are of the rarer kind: few to tell from."
    if facts["flips"] >= 0.005:  # else none, as it is printed
        said += f" About {facts['flips']:.0%} of the outcomes go against what steps tell: flipped, or by "
        said += "causes that were not observed; rewards are log odds before that."
    return said


def credit_in_words(facts: dict[str, Any] | None) -> list[str]:
    """How far totals determine what single steps earned."""
    if facts is None:
        return []
    whole = {True: [each["name"] for each in facts["undetermined"] if each["same_in_every_episode"]]}
    whole[False] = [each["name"] for each in facts["undetermined"] if not each["same_in_every_episode"]]
    causes = "; ".join(
        _UNDETERMINED[alike].format(", ".join(names)) for alike, names in whole.items() if names
    )
    known = f"Credit of single steps: determined to {facts['determined']:.0%} by these outcomes"
    said = [f"{known}: {causes}." if causes else f"{known}."]
    if facts["level_matters"]:
        level = f"{facts['level']:.4g}"
        said += [f"Of every outcome, {level} is the same in all episodes, and the credit of no step."]
    if "log_loss" not in facts and facts["unexplained"] > DOUBT:  # as in certificates
        said += [
            f"{facts['unexplained']:.0%} of what outcomes differ by is unexplained by this credit. A "
            "cause that was not observed may pass for what goes with it: intervals do not hold that."
        ]
    return said


def misses_in_words(summary: dict[str, Any], seeds: list[int]) -> list[str]:
    """Of a training: a warning where learned rewards sum to something farther from what was paid than 0."""
    if summary["data"] is not None:
        return []  # a fit has words of its own
    errors = zip(seeds, summary["return_error_per_lane"] or (), strict=False)
    far = [str(seed) for seed, error in errors if error is not None and error > 1]
    beware = BEWARE if summary["graph"]["state_to_reward"] is not None else BEWARE_ALONE
    return [f"{MISSED.format(', '.join(far))} {beware}"] if far else []


def unlearned_in_words(summary: dict[str, Any]) -> list[str]:
    """Of a training: a warning where all that was evaluated is an agent as it began."""
    if summary["data"] is not None or summary["learned"] or not summary["steps"]:
        return []
    step, warmup = summary["steps"][-1], summary["config"].get("schedule", {}).get("warmup_steps", 0)
    why = (
        f"the first update waits for the end of the warm-up, at step {warmup:,} (--warmup-steps)"
        if step < warmup
        else "no episode was paid early enough for an update (--steps)"
    )
    return [f"Nothing was learned by step {step:,}: {why}. The policy is as it began."]
