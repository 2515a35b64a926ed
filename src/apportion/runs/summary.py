"""What a run folder says, in a few numbers: the answer of `apportion show`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS, Graph, Spec
from apportion.graph.certificate import marked
from apportion.runs import saved as saving
from apportion.runs.atomic import read_json
from apportion.runs.credit import read_credit
from apportion.runs.folder import RunFolder, notes
from apportion.runs.words import BEWARE, answer_doubts, credit_in_words, fit_in_words
from apportion.training.evaluate import structure_scores

_HALF = 0.5  # of the credit's variance: with less that is determined, whoever uses it is told
UNDECIDED = 0.5  # what stands for an edge of which the data cannot tell, where edges have a certificate
_MOST = 3.0  # times as much as outcomes allow, that steps' rewards of a certified run may vary
_VARIES = "rewards of steps vary more than outcomes allow"


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
    if not run.data.exists():
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
        "worth": read_json(run.worth)["lanes"] if run.worth.exists() else None,
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
        varies = [_VARIES] if varies_too_much(credit, lane) else []
        if answers is None:
            said = [*(each.value for each in doubts), *varies]
            good = not varies and not any(each.of_reward for each in doubts)
        else:
            said = [*answer_doubts(answers), *of_dynamics]
            good = not answer_doubts(answers)
        found.append({"reward": good, "dynamics": not of_dynamics, "doubts": said})
    return found


def varies_too_much(facts: dict[str, Any] | None, lane: int) -> bool:
    """Whether a lane's rewards of steps vary by more than outcomes allow, however well they explain these."""
    excess = [] if facts is None else facts["excess"]
    return bool(lane < len(excess) and excess[lane] > _MOST)


def fit_warnings(run: RunFolder) -> list[str]:
    """What is damaged of a fit, and what it has said against its own answer: whoever uses it should hear it
    again."""
    summary = summarise(run)
    damaged: list[str] = summary["notes"]
    if summary["data"] is None:
        return damaged
    seeds = [summary["config"]["seed"] + lane for lane in range(summary["config"]["lanes"])]
    credit = summary["data"]["credit"]
    doubtful = credit_in_words(credit) if credit is not None and credit["determined"] < _HALF else []
    said = fit_in_words(summary["data"], seeds)
    return [*damaged, *(each for each in said if BEWARE in each or each in doubtful)]


def step_rewards(evaluations: list[dict[str, Any]]) -> bool:
    """Whether the environment itself rewards single steps, so that there is a true reward to compare with.

    One lane that saw such a reward is enough; most environments do."""
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
