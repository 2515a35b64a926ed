"""What a run folder says, in a few numbers: the answer of `apportion show`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS, Graph, Spec
from apportion.graph.certificate import Doubt
from apportion.runs import saved as saving
from apportion.runs.atomic import read_json
from apportion.runs.certified import certificates
from apportion.runs.credit import answer_doubts, read_credit, told_in_words, varies_too_much
from apportion.runs.credit import in_words as credit_in_words
from apportion.runs.folder import RunFolder, notes
from apportion.training.evaluate import structure_scores

_HALF = 0.5  # of the credit's variance: with less that is determined, whoever uses it is told
_VARIES = "rewards of steps vary more than outcomes allow"
_DYNAMICS = [doubt.value for doubt in Doubt if doubt.of_dynamics]
_FAR = 2.0  # times their variance, by which outcomes are missed: with one reward for all, it would be 1
_SAME = 1e9  # of a variance that is none but rounding
_NO_ANSWER = (
    "The data cannot support an answer (seed {}): outcomes of held-out episodes are not told better than by "
    "their mean, by two standard errors."
)
_NOT_LEARNED = (
    "No answer was learned (seed {}): outcomes of held-out episodes are missed by more than they differ. "
    "Give more --updates, or less that has nothing to do with them."
)
_BEWARE = "Do not rely on these rewards, nor on the graph."
_BEWARE_ALONE = "Do not rely on these rewards."  # of a method without a graph
_MISSED = (
    "Learned rewards miss what the last evaluation's episodes paid by more than they paid (seed {}): rewards "
    "of 0 would be nearer."
)


def summarise(run: RunFolder) -> dict[str, Any]:
    """Plain data for JSON: curves per lane, last scores, edges, structure scores where the truth is known."""
    spec = run.read_spec()
    metrics = run.read_metrics()
    evaluations = [entry for entry in metrics if entry["kind"] == "eval"]
    last = evaluations[-1] if evaluations else {}
    edges = run.read_last_edges()
    scores = _structure_scores(edges, spec)
    status = run.read_status()
    data = _data(run, last)
    return {
        "run": str(run.path),
        "env": spec.env_id,
        "status": status,
        "faults": status.get("faults", []),
        "steps": [entry["step"] for entry in evaluations],
        "returns": _per_lane(evaluations, "return"),
        "final_return": last.get("return"),
        **_last_score("reward_correlation", last),
        **_last_score("return_error", last),
        **_last_score("constant_error", last),
        **_last_score("success", last),
        "step_rewards": step_rewards(evaluations),
        "learned": len(metrics) > len(evaluations),
        "data": data,
        "best": saving.best_moments(run.checkpoints, run.sizes().lanes),
        "observation_names": list(spec.observation_names),
        "action_names": list(spec.action_names),
        "graph": _graph(edges),
        "certificates": _certified(certificates(edges), data),
        "true_graph": None if spec.true_graph is None else spec.true_graph.to_dict(),
        "structure": None if scores is None else {block: each["f1"] for block, each in scores.items()},
        "structure_scores": scores,
        "config": run.read_config(),
        "versions": run.read_versions(),
        "notes": notes(run),
    }


def _data(run: RunFolder, last: dict[str, Any]) -> dict[str, Any] | None:
    """What a run was fitted to, and how well held-out outcomes are explained; None for a training."""
    if not run.data.is_file():
        return None
    facts = read_json(run.data)
    told: dict[str, Any] = {name: last.get(name) for name in ("unexplained", "supported")}
    found = read_credit(run)
    known = None if found is None else found.facts
    if known is not None and known["share"] > 0 and told["unexplained"] is not None:
        # Credit is the posterior's where it explains more, and leaves no more than either of the two.
        left, good = known["unexplained"], known["supported"]
        told["unexplained"] = [left if each is None else min(each, left) for each in told["unexplained"]]
        told["supported"] = [each or good for each in told["supported"]]
    return {
        **{name: facts[name] for name in ("data", "episodes", "held_out", "notes")},
        "answers": facts.get("answers"),
        **told,
        "credit": known,
        "worth": read_json(run.worth)["lanes"] if run.worth.is_file() else None,
    }


def _certified(
    found: list[dict[str, Any]] | None, data: dict[str, Any] | None
) -> list[dict[str, Any]] | None:
    """Edges are not certified by rewards that vary more from step to step than outcomes allow."""
    if found is None or data is None:
        return found
    if data["answers"] is not None and data["credit"] is not None:
        doubts = answer_doubts(data["credit"])
        return [
            {"reward": not doubts, "dynamics": each["dynamics"], "doubts": [*doubts, *_of_dynamics(each)]}
            for each in found
        ]
    return [
        {**each, "reward": False, "doubts": [*each["doubts"], _VARIES]}
        if varies_too_much(data["credit"], lane)
        else each
        for lane, each in enumerate(found)
    ]


def _of_dynamics(certificate: dict[str, Any]) -> list[str]:
    return [each for each in certificate["doubts"] if each in _DYNAMICS]


def fit_warnings(run: RunFolder) -> list[str]:
    """What a fit has said against its own answer: whoever uses it should hear it again."""
    summary = summarise(run)
    if summary["data"] is None:
        return []
    seeds = [summary["config"]["seed"] + lane for lane in range(summary["config"]["lanes"])]
    said = in_words(summary["data"], seeds)
    credit = summary["data"]["credit"]
    doubtful = credit is not None and credit["determined"] < _HALF
    return [each for each in said if _BEWARE in each or (doubtful and each in credit_in_words(credit))]


def in_words(data: dict[str, Any] | None, seeds: list[int]) -> list[str]:
    """Whether the data support what was learned from them, in a sentence or two."""
    if data is None or data["unexplained"] is None:
        return []
    parts = ", ".join("unknown" if share is None else f"{share:.1%}" for share in data["unexplained"])
    learned, others = data["episodes"] - data["held_out"], data["held_out"]
    if min((share for share in data["unexplained"] if share is not None), default=0.0) > _SAME:
        said = f"Fitted to {learned:,} episodes; the outcomes of {others:,} others are all the same."
        return [said, f"{_NO_ANSWER.format(', '.join(map(str, seeds)))} {_BEWARE}"]
    said = (
        f"Fitted to {learned:,} episodes; in the outcomes of {others:,} others, {parts} of the variance "
        "stays unexplained."
    )
    if data["answers"] is not None:
        said = f"Fitted to {learned:,} episodes. {told_in_words(data['credit'], others, parts)}"
    steps = credit_in_words(data["credit"])
    lanes = list(zip(seeds, data["supported"], data["unexplained"], strict=True))
    far = [str(seed) for seed, good, share in lanes if not good and (share is None or share > _FAR)]
    poor = [str(seed) for seed, good, _ in lanes if not good and str(seed) not in far]
    warnings = [(poor, _NO_ANSWER), (far, _NOT_LEARNED)]
    return [
        said,
        *steps,
        *(f"{text.format(', '.join(those))} {_BEWARE}" for those, text in warnings if those),
    ]


def misses_in_words(summary: dict[str, Any], seeds: list[int]) -> list[str]:
    """Of a training: a warning where learned rewards sum to something farther from what was paid than 0."""
    if summary["data"] is not None:
        return []  # a fit has words of its own
    errors = zip(seeds, summary["return_error_per_lane"] or (), strict=False)
    far = [str(seed) for seed, error in errors if error is not None and error > 1]
    beware = _BEWARE if summary["graph"]["state_to_reward"] is not None else _BEWARE_ALONE
    return [f"{_MISSED.format(', '.join(far))} {beware}"] if far else []


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


def step_rewards(evaluations: list[dict[str, Any]]) -> bool:
    """Whether the environment itself rewards single steps, so that there is a true reward to compare with.

    One lane that saw such a reward is enough. Runs of older versions do not say, and most environments do."""
    said = [entry["step_rewards"] for entry in evaluations if "step_rewards" in entry]
    return not said or any(any(lanes) for lanes in said)


def _per_lane(evaluations: list[dict[str, Any]], name: str) -> list[list[float | None]]:
    """[L][K]: one list per lane, in the order of the evaluations."""
    return [list(lane) for lane in zip(*(entry[name] for entry in evaluations), strict=True)]


def _last_score(name: str, last: dict[str, Any]) -> dict[str, Any]:
    """A score of the last evaluation: its median over lanes, and each lane's."""
    lanes = last.get(name, [None] * len(last["return"]) if last else None)
    known = [value for value in lanes or [] if value is not None]
    return {name: float(np.median(known)) if known else None, f"{name}_per_lane": lanes}


def _graph(edges: dict[str, NDArray[np.float32]]) -> dict[str, Any]:
    """Edge probabilities, the mean over lanes and each lane's; None for methods without a graph."""

    def block(name: str, lane: int | None) -> Any:
        if name not in edges:
            return None
        values = edges[name].mean(axis=0) if lane is None else edges[name][lane]
        return np.round(values.astype(np.float64), 4).tolist()

    names = (*BLOCKS, "policy_mask")
    lanes = len(next(iter(edges.values()))) if edges else 0
    graph = {name: block(name, None) for name in names}
    return {**graph, "per_lane": [{name: block(name, lane) for name in names} for lane in range(lanes)]}


def _structure_scores(edges: dict[str, NDArray[np.float32]], spec: Spec) -> dict[str, Any] | None:
    """Scores of each block against the true graph: the mean over lanes, and each lane's F1."""
    if spec.true_graph is None or not all(name in edges for name in BLOCKS):
        return None
    lanes = len(edges["state_to_reward"])
    scores = [
        structure_scores(Graph(**{name: edges[name][lane] for name in BLOCKS}), spec.true_graph)
        for lane in range(lanes)
    ]
    return {
        name: {
            **{score: float(np.mean([lane[name][score] for lane in scores])) for score in scores[0][name]},
            "f1_per_lane": [lane[name]["f1"] for lane in scores],
        }
        for name in BLOCKS
    }
