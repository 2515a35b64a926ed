"""What is said of a run: from its numbers, as `summary` has them, into sentences."""

from collections.abc import Iterator, Sequence
from typing import Any

FEW = 20  # episodes of yes, or of no: with fewer, little can be told
FAR = 2.0  # times their variance, by which outcomes are missed: with one reward for all, it would be 1
SAME = 1e9  # times their variance, by which they are missed where that is none but rounding

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
    if min((share for share in data["unexplained"] if share is not None), default=0.0) > SAME:
        said = f"Fitted to {learned:,} episodes; the outcomes of {others:,} others are all the same."
        return [said, f"{NO_ANSWER.format(', '.join(map(str, seeds)))} {BEWARE}"]
    said = (
        f"Fitted to {learned:,} episodes; in the outcomes of {others:,} others, {parts} of the variance "
        "stays unexplained."
    )
    if data["answers"] is not None:
        said = f"Fitted to {learned:,} episodes. {answers_in_words(data['credit'], others, parts)}"
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
    few = f" Only {facts['rarer']} are of the rarer kind: few to tell from." if facts["rarer"] < FEW else ""
    flipped = (
        f" It looks as if {facts['flips']:.0%} of the outcomes were flipped, whatever steps did; rewards are "
        "log odds before that."
    )
    return (
        f"Rewards are log odds of yes. The log loss of {others:,} others is {facts['log_loss']:.3f}, a "
        f"constant's {facts['constant_log_loss']:.3f}. Yes was said, in groups by what was expected: "
        f"{groups}.{few}{flipped if facts['flips'] else ''}"
    )


def credit_in_words(facts: dict[str, Any] | None) -> list[str]:
    """How far totals determine what single steps earned."""
    if facts is None:
        return []
    causes = "; ".join(_why_undetermined(facts["undetermined"]))
    said = [f"Credit of single steps: determined to {facts['determined']:.0%} by these outcomes"]
    said = [f"{said[0]}: {causes}." if causes else f"{said[0]}."]
    if facts["level_matters"]:
        level = f"{facts['level']:.4g}"
        said += [f"Of every outcome, {level} is the same in all episodes, and the credit of no step."]
    return said


def _why_undetermined(causes: list[dict[str, Any]]) -> Iterator[str]:
    alike = ", ".join(each["name"] for each in causes if each["same_in_every_episode"])
    others = ", ".join(each["name"] for each in causes if not each["same_in_every_episode"])
    if alike:
        yield (
            f"{alike} go through the same values in every episode, so that outcomes cannot tell what they "
            "earn; episodes that begin at other times, are of other lengths or are paid more often would"
        )
    if others:
        yield f"outcomes say little of what {others} earn; more episodes would"


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
