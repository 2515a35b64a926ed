"""Who feeds the reward in logged episodes, with a category as one dimension: plain data for JSON.

Of yes and no, edges to the reward are what the evidence of the Bernoulli posterior says of each input."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from apportion.core.categories import collapsed, expanded, one_hot, owners
from apportion.core.config import check
from apportion.core.spec import BLOCKS, Graph, Spec
from apportion.data.rows import Log
from apportion.graph import Identification, Reason, identify
from apportion.runs.credit import KNOWN, MOST_BEHIND, fit_credit, row_owners, rows_of
from apportion.runs.logged import records_of, spec_of
from apportion.runs.summary import answer_doubts, answers_in_words

FEWEST_ANSWERS = 5  # of yes, and of no
_RANKS = ("absent", "undecided", "present")  # of entries of one category the last counts


def identify_log(log: Log, negligible: float) -> dict[str, Any]:
    """What `apportion identify --json` says of some episodes."""
    states = len(log.observation_names)
    spec = Spec("", log.observation_names, log.action_names, 1, 1, levels=log.levels)
    observations = [one_hot(each, log.levels[:states]) for each in log.observations]
    actions = [one_hot(each, log.levels[states:]) for each in log.actions]
    entries = expanded(spec)
    totals = log.totals
    if log.answers is not None:  # for edges to next states, and groups of dimensions
        check_answers(log)
        totals = totals - totals.mean()
    found = identify(
        observations,
        actions,
        totals,
        negligible=negligible,
        terminated=log.terminated,
        names=(*entries.observation_names, *entries.action_names),
    )
    whose = owners(spec)
    found, notes = (found, []) if log.answers is None else _of_answers(log, spec, found)
    # Of dimensions instead of entries; one that stands for itself alone is no group.
    own = [tuple(dict.fromkeys(int(whose[dim]) for dim in group)) for group in found.groups]
    groups = [group for group in dict.fromkeys(own) if len(group) > 1]
    return {
        "episodes": len(log.totals),
        "observation_names": list(log.observation_names),
        "action_names": list(log.action_names),
        "graph": _own(spec, found.graph).to_dict(),
        "strength": _own(spec, found.strength).to_dict(),
        "confidence": _own(spec, found.confidence).to_dict(),
        "verdict": _own(spec, found.verdict).to_dict(),
        "groups": groups,
        "reasons": _own_reasons(found, whose),
        "negligible": negligible,
        "answers": log.answers,
        "explained": found.explained,
        "end_pays": found.reward_model.per_end,
        "certificate": found.certificate._asdict(),
        "notes": [*log.notes, *notes],
    }


def check_answers(log: Log, source: str = "the log") -> None:
    """Complain of too few of yes, or of no."""
    yes = int(log.totals.sum())
    count, which = min((yes, "yes"), (len(log.totals) - yes, "no"))
    few = f"{source}: {count} of {len(log.totals)} outcomes are {which}, and {FEWEST_ANSWERS} are needed"
    check(count >= FEWEST_ANSWERS, few)


def _of_answers(log: Log, spec: Spec, found: Identification) -> tuple[Identification, list[str]]:
    """With edges to yes and no, how sure these are, and how much of the log loss they save."""
    whole = spec_of("", log)
    order = np.random.default_rng(0).permutation(len(log.totals))
    every = records_of(whole, log)
    records = [every[number] for number in order]
    apart = max(FEWEST_ANSWERS, len(records) // 5)
    credit = fit_credit(whole, records[apart:], records[:apart], 0, yes_no=True)
    matters, split = credit.posterior.matters[:-1], len(found.graph.state_to_reward)
    rows = np.concatenate(rows_of(records[:apart]))[:2000]
    # The share of the variance of steps' log odds that each dimension alone makes, by its Shapley values.
    parts = credit.posterior.shares(rows, rows[-MOST_BEHIND:]).mean[:, :-1].var(axis=0)
    blocks = {
        "graph": matters > 0.5,
        "confidence": np.maximum(matters, 1 - matters),
        "verdict": np.select([matters >= KNOWN, matters <= 1 - KNOWN], ["present", "absent"], "undecided"),
        "strength": np.where(matters > 0.5, parts / max(float(parts.sum()), 1e-300), 0.0),
    }
    own = {name: (values[:split], values[split:]) for name, values in blocks.items()}
    graphs = {
        name: dataclasses.replace(getattr(found, name), state_to_reward=states, action_to_reward=actions)
        for name, (states, actions) in own.items()
    }
    doubts = answer_doubts(credit.facts)
    scope = '"absent" means that log odds are told as well without it, by odds of 19 to 1'
    features, chances = credit.posterior.features, np.full(len(row_owners(whole)), 0.5)
    chances[features.used] = features.chances(row_owners(whole))[features.inputs]
    evidence = logit(matters) - logit(chances[: len(matters)])
    reasons = {
        dim: Reason(float(odds), float(blocks["strength"][dim]), None, None, 0.0, matter)
        for dim, (matter, odds) in enumerate(zip(matters.tolist(), evidence, strict=True))
    }
    certificate = found.certificate._replace(reward=not doubts, notes=doubts, scope=scope, doubts=())
    left = credit.facts["unexplained"]
    told = found._replace(**graphs, reasons=reasons, certificate=certificate, explained=max(0.0, 1 - left))
    return told, [answers_in_words(credit.facts, apart, f"{left:.0%}")]


def _own(spec: Spec, graph: Graph) -> Graph:
    """Of dimensions instead of entries; of words, the last that an entry has."""
    blocks = {name: np.asarray(getattr(graph, name)) for name in BLOCKS}
    words = graph.state_to_reward.dtype.kind == "U"
    if words:
        ranks = list(range(len(_RANKS)))
        blocks = {name: np.select([x == word for word in _RANKS], ranks) for name, x in blocks.items()}
    own = collapsed(spec, blocks)
    return Graph(**({name: np.array(_RANKS)[block] for name, block in own.items()} if words else own))


def _own_reasons(found: Identification, whose: NDArray[np.int64]) -> list[dict[str, Any] | None]:
    """Of dimensions instead of entries, which have one in common; none of what never varies."""
    own: list[dict[str, Any] | None] = [None] * (int(whose.max()) + 1)
    for entry, owner in enumerate(whose.tolist()):
        reason = found.reasons.get(found.copies.get(entry, entry))
        if reason is not None:
            instead = None if reason.instead is None else int(whose[reason.instead])
            own[owner] = reason._replace(instead=instead)._asdict()
    return own
