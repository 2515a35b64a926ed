"""What verbs print: tables for people, or one JSON object for programs, which has all of it."""

import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from apportion.core.config import Tell
from apportion.core.files import write_bytes
from apportion.core.registry import from_folder
from apportion.core.terminal import all_inert, say
from apportion.core.terminal import console as new_console
from apportion.runs.summary import (
    UNDECIDED,
    certificates_in_words,
    faults_in_words,
    fit_in_words,
    misses_in_words,
    moment_in_words,
    unlearned_in_words,
)
from apportion.training.settings import NO_POLICY

EDGE_ROWS = 24  # larger graphs are summed up
_VERDICT_STYLES = {"present": "bold", "absent": "dim", "undecided": "yellow"}
_TITLES = {"episode_correlation": "correlation in episodes", "constant_error": "of a constant"}


Rows = Sequence[Mapping[str, Any]]  # cells by column; a Text is no markup


def table(title: str | Text, rows: Rows, left: Collection[str] = ()) -> Table:
    """Columns of numbers stand on the right, others, which are named, on the left; all are shown whole."""
    shown = Table(title=title, title_justify="left")
    for column in dict.fromkeys(column for row in rows for column in row):
        shown.add_column(column, justify="left" if column in left else "right", overflow="fold")
    for row in rows:
        shown.add_row(*row.values())
    return shown


def listing(console: Console, title: str, entries: Sequence[tuple[str, str]]) -> None:
    """Names with a line each."""
    shown = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, line in entries:
        shown.add_row(Text(name, style="bold"), Text(line))
    console.print(shown)


def summary(console: Console, data: dict[str, Any]) -> None:
    """What `apportion show` prints."""
    status, config = data["status"], data["config"]
    console.print(Text(data["run"], style="bold"))
    policy = config["backbone"]["name"] if config["backbone"]["name"] != NO_POLICY else "no policy"
    console.print(
        f"{data['env']} · {config['method']['name']} · {policy} · "
        f"{config['lanes']} seed(s) · {status.get('state', 'unknown')} at step {status.get('step', 0):,} "
        f"after {status.get('seconds', 0):,.0f} s"
    )
    for sentence in faults_in_words(data["faults"]):
        console.print(Text(sentence, style="yellow"))
    if not data["steps"]:
        console.print("No evaluation yet.")
        return
    seeds = [config["seed"] + lane for lane in range(config["lanes"])]
    _scores(console, data, seeds)
    for sentence in fit_in_words(data["data"], seeds):
        console.print(sentence)
    if data["data"] is not None and data["data"]["worth"] is not None:
        worth(console, {"lanes": data["data"]["worth"], "seed": config["seed"]})
    if data["graph"]["state_to_reward"] is not None:
        _edges(console, data, seeds)
    for sentence in (*unlearned_in_words(data), *misses_in_words(data, seeds)):
        console.print(sentence)


def worth(console: Console, data: dict[str, Any]) -> None:
    """What `apportion evaluate-offline` prints: values by the log, and a sentence for each seed."""
    rows = [
        {
            "seed": str(data["seed"] + lane),
            "what was done": amount(each["behaviour"]),
            "policy": amount(each["policy"]),
            "90% interval": f"{amount(each['policy_low'])} to {amount(each['policy_high'])}",
            "importance sampling": amount(each["importance"]),
            "untried": f"{each['untried']:.0%}",
        }
        for lane, each in enumerate(data["lanes"])
    ]
    for row, each in zip(rows, data["lanes"], strict=True):
        if "played" in each:
            row["played"] = f"{amount(each['played'])} ± {amount(each['played_error'])}"
    console.print(table("Worth by the log", rows))
    for each in (each for each in data["lanes"] if each.get("played_normalised") is not None):
        said = (each[f"{name}_normalised"] for name in ("behaviour", "policy", "played"))
        did, by_log, played = (f"{value:.1f}" for value in said)
        console.print(f"Normalised: {did} was done, {by_log} by the log, {played} when played.")
    for sentence in dict.fromkeys(each["sentence"] for each in data["lanes"]):
        console.print(f"{'Whether it is better,' if 'cannot' in sentence else 'The policy is'} {sentence}.")


def _scores(console: Console, data: dict[str, Any], seeds: list[int]) -> None:
    errors = ("return_error", *_if_known("constant_error", data["constant_error_per_lane"]))
    names = leading("reward_correlation", errors, data["step_rewards"])
    logged = data["data"]
    if logged is not None:  # a log has no reward of steps to correlate with, and yes and no no errors
        names = errors if logged["answers"] is None else ()
    names = (*_if_known("success", data["success_per_lane"]), *names)
    mean = "return" if logged is None else "mean outcome" if logged["answers"] is None else "share of yes"
    scores = {mean: data["final_return"], **{_titled(name): data[f"{name}_per_lane"] for name in names}}
    console.print(table("Last evaluation", _of_seeds(seeds, scores)))


def _of_seeds(seeds: Sequence[int], scores: Mapping[str, Sequence[Any]]) -> Rows:
    """A row for each seed, with some scores."""
    return [
        {"seed": str(seed), **{name: amount(values[lane]) for name, values in scores.items()}}
        for lane, seed in enumerate(seeds)
    ]


def _titled(name: str) -> str:
    return _TITLES.get(name, name.replace("_", " "))


def _edges(console: Console, data: dict[str, Any], seeds: list[int]) -> None:
    """Which dimensions feed the reward, by the mean over lanes of P(edge)."""
    graph, structure = data["graph"], data["structure"]
    masks = [*(f"{mask:.0%}" for mask in graph["policy_mask"]), *([""] * len(data["action_names"]))]
    names = [*data["observation_names"], *data["action_names"]]
    probabilities = [*graph["state_to_reward"], *graph["action_to_reward"]]
    rows = sorted(zip(names, probabilities, _verdicts(data), masks, strict=True), key=lambda row: -row[1])
    shown = list[dict[str, Any]]()
    for name, probability, verdict, mask in rows[:EDGE_ROWS]:
        row: dict[str, Any] = {"dimension": Text(name), "P(edge)": number(probability)}
        row |= {} if data["certificates"] is None else {"verdict": verdict}
        shown.append(row | ({"policy sees": mask} if data["data"] is None else {}))
    console.print(table("Edges to the reward", shown, ("dimension", "verdict")))
    if len(rows) > EDGE_ROWS:
        console.print(f"... and {len(rows) - EDGE_ROWS} more: see --json")
    if structure:
        scores = (f"{block.replace('_to_', '→')} {number(score)}" for block, score in structure.items())
        console.print(f"F1 against the true graph: {', '.join(scores)}")
    for sentence in certificates_in_words(data["certificates"], seeds):
        console.print(sentence)


def _verdicts(data: dict[str, Any]) -> list[str]:
    """Of each dimension: what all lanes say of its edge to the reward, or how many say what."""
    lanes = [[*lane["state_to_reward"], *lane["action_to_reward"]] for lane in data["graph"]["per_lane"]]
    said = []
    for values in zip(*lanes, strict=True):
        words = ("undecided" if p == UNDECIDED else "present" if p > 0.5 else "absent" for p in values)
        counts = Counter(words)
        several = [f"{count} {verdict}" for verdict, count in counts.most_common()]
        said.append(", ".join(several if len(counts) > 1 else counts))
    return said


def evaluation(console: Console, data: dict[str, Any]) -> None:
    """What `apportion eval` prints."""
    names = leading("episode_correlation", ("return_error", "constant_error"), any(data["step_rewards"]))
    names = (*_if_known("success", data["success"]), *names)
    scores = {"return": data["returns"], "± between episodes": data["return_std"]}
    scores |= {_titled(name): data[name] for name in names}
    title = f"{data['episodes']} episodes {moment_in_words(data)}"
    console.print(table(title, _of_seeds(data["training_seeds"], scores)))


def identification(console: Console, data: dict[str, Any]) -> None:
    """What `apportion identify` prints."""
    names = [*data["observation_names"], *data["action_names"]]
    strength, confidence, verdict = (
        [*data[part]["state_to_reward"], *data[part]["action_to_reward"]]
        for part in ("strength", "confidence", "verdict")
    )
    following = [*data["graph"]["state_to_state"], *data["graph"]["action_to_state"]]
    told = "of the totals explained" if data["answers"] is None else "of a constant's log loss saved"
    title = f"Who feeds the reward? {data['episodes']} episodes, {data['explained']:.0%} {told}"
    rows = []
    for i, name in enumerate(names):
        targets = [target for target, on in zip(data["observation_names"], following[i], strict=True) if on]
        more = f" and {len(targets) - 6} more" if len(targets) > 6 else ""
        rows.append(
            {
                "dimension": Text(name),
                "in the reward": Text(verdict[i], style=_VERDICT_STYLES[verdict[i]]),
                "strength": number(strength[i]),
                "confidence": number(confidence[i]),
                "feeds next": Text(", ".join(targets[:6]) + more),
            }
        )
    console.print(table(title, rows, ("dimension", "in the reward", "feeds next")))
    for group in data["groups"]:
        members = ", ".join(names[dim] for dim in group)
        console.print(Text(f"One of these feeds the reward, the data cannot tell which: {members}."))
    console.print(Text(f"Here {data['certificate']['scope']}."))
    for note in data["certificate"]["notes"]:
        console.print(Text(f"Beware: {note}.", style="yellow"))


def reason(console: Console, data: dict[str, Any]) -> None:
    """What `apportion identify --why` prints."""
    names = [*data["observation_names"], *data["action_names"]]
    place, states = names.index(data["why"]), len(data["observation_names"])
    block, row = ("state_to_reward", place) if place < states else ("action_to_reward", place - states)
    said, sure = (data[part][block][row] for part in ("verdict", "confidence"))
    told = data["reasons"][place]
    console.print(Text(f"{data['why']}: {said}, with the probability {number(sure)}.", style="bold"))
    if told is None:
        console.print("It never varies, so that nothing can depend on it.")
        return
    better = "with it than without" if told["evidence"] > 0 else "without it than with it"
    console.print(f"Evidence: the outcomes are e^{abs(told['evidence']):.1f} times as likely {better}.")
    ends = told["interval"]
    within = f" (90% interval {ends[0]:.2%} to {ends[1]:.2%})" if ends else ""
    console.print(f"Share of the outcomes' variance: {told['share']:.2%}{within}.")
    if not data["graph"][block][row] and data["answers"] is None:
        least, worth = f"{data['negligible']:.2%}", number(told["worth"])
        console.print(f"It is worth {least} or more with probability {worth}.")
    if round(told["chance"], 3) == 0:
        swap = "none; no other dimension explains as much in its place"
    elif told["instead"] is None:
        swap = f"what is unseen, or missed of others, has its place with probability {number(told['chance'])}"
    else:
        swap = f"it and {names[told['instead']]} change places with probability {number(told['chance'])}"
    console.print(Text(f"Best swap: {swap}."))
    console.print(Text(f"Here {data['certificate']['scope']}."))


def kinds(console: Console, data: dict[str, Any]) -> None:
    """What `apportion credit` prints."""
    unit = "episodes of yes" if data["unit"] == "yes" else "the outcome"
    outcomes = f"{data['episodes']:,} episodes, outcomes of {number(data['outcomes'])} together"
    parts = ("own", "others", "first", "last", "linear", "time_decay", "removal")
    rows = [
        {
            data["by"]: Text(row["value"]),
            "n": f"{row['n']:,}",
            "credit": amount(row["credit"]),
            "90% interval": f"{amount(row['low'])} to {amount(row['high'])}",
            "share": "-" if row["share"] is None else f"{row['share']:.0%}",
            **{name.replace("_", " "): amount(row[name]) for name in parts if name in row},
        }
        for row in data["kinds"]
    ]
    title = Text(f"Credit by {data['by']}, in {unit}: {outcomes}")
    cut = list(rows[0]).index("others") + 1  # beside each other they would be too wide
    for said, others in ((title, list(rows[0])[cut:]), ("By rules", list(rows[0])[1:cut])):
        some = [{name: cell for name, cell in row.items() if name not in others} for row in rows]
        console.print(table(said, some, (data["by"],)))
    console.print(
        f"own is the part of {data['by']} itself, others that of all other columns and of what every step "
        "earns. What is left of the outcomes, no step earned."
    )
    if any(row["share"] is None for row in data["kinds"]):
        console.print("No share: by these outcomes the whole may be less than 0.")


def refutation(console: Console, data: dict[str, Any]) -> None:
    """What `apportion refute` prints: medians, and the least and the most."""
    titles = {
        "found": "credit there is",
        "kept": "of the run's, it keeps",
        "explained": "of outcomes explained",
        "random_share": "the random column's share",
    }
    rows = []
    for name, case in data["cases"].items():
        row: dict[str, Any] = {"again with": name}
        for key, title in titles.items():
            values = case.get(key, [np.nan])
            ends = f"{np.median(values):.0%} ({min(values):.0%} to {max(values):.0%})"
            row[title] = ends if key in case else "-"
        rows.append(row)
    console.print(table(f"{data['draws']} draws of each", rows, ("again with",)))
    console.print(data["sentence"])


_DOUBTS = {
    "undecided": "Undecided: for {} the data cannot tell whether the reward depends on them. What they are "
    "given here may be the work of a dimension that moves with them.",
    "denied": "Absent by the graph: {}. They are given something all the same, by rewards that need not keep "
    "to the graph.",
}


def explanation(console: Console, data: dict[str, Any]) -> None:
    """What `apportion explain` prints."""
    lanes = data["lanes"]
    steps = sum(len(episode["steps"]) for lane in lanes for episode in lane["episodes"])
    title = f"What {data['method']} pays for {moment_in_words(data)}: {steps:,} steps ({data['source']})"
    keys = ("mean_absolute", "mean", "interval", "between_lanes", "sampling_error")
    columns = ("mean |c|", "mean c", "± 90%", "± seeds", "± draw")
    rows = [
        {
            "dimension": Text(row["name"]),
            "share": "-" if row["share"] is None else f"{row['share']:.1%}",
            **{column: amount(row[key]) for column, key in zip(columns, keys, strict=True)},
            "read in": f"{row['lanes']}/{len(lanes)}",
        }
        for row in data["dimensions"][:EDGE_ROWS]
    ]
    console.print(table(Text(title), rows, ("dimension",)))
    if len(data["dimensions"]) > EDGE_ROWS:
        console.print(f"... and {len(data['dimensions']) - EDGE_ROWS} more: see --json")
    baselines = ", ".join(amount(lane["baseline"]) for lane in lanes)
    note = (
        "c is a dimension's contribution to one step. All of them add up to the learned reward minus its "
        f"baseline, the mean over {data['background']} steps of the run ({baselines})."
    )
    if data["unit"] is not None:
        note += f" All are {data['unit']}: 1 more makes these odds 2.7 times as large."
    console.print(note)
    for doubt, said in _DOUBTS.items():
        # Those that are given a hundredth of all credit or more although some seed has this doubt about them.
        doubtful = [row["name"] for row in data["dimensions"] if row[doubt] and (row["share"] or 0) >= 0.01]
        if doubtful:
            more = ", ..." if len(doubtful) > EDGE_ROWS else ""
            console.print(Text(said.format(", ".join(doubtful[:EDGE_ROWS]) + more)))  # a name is no markup
    for lane in lanes:
        if lane["baseline"] is None:
            console.print(f"Seed {lane['seed']} has no finite reward and is left out.")


def _if_known(name: str, lanes: list[float | None]) -> tuple[str, ...]:
    """A column for what not every environment, or version, reports."""
    return () if all(value is None for value in lanes) else (name,)


def leading(correlation: str, errors: tuple[str, ...], step_rewards: bool) -> tuple[str, ...]:
    """A correlation and return errors, which lead where there is no true reward to correlate with."""
    return (correlation, *errors) if step_rewards else (*errors, correlation)


def amount(value: Any) -> str:
    """A number in the reward's own unit, in which all of them may be tiny."""
    return f"{value:.2e}" if value is not None and 0 < abs(value) < 5e-4 else number(value)


def number(value: Any) -> str:
    """A number with as many digits as its size deserves; a dash for what is not known."""
    if value is None or not np.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


# --- JSON for programs


Flag = tyro.conf.FlagCreatePairsOff[bool]
NoEnv = Annotated[Flag, tyro.conf.arg(help="Import no code that the run folder names.")]
RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
AnyRun = Annotated[RunPath, tyro.conf.arg(help="The run folder.")]
FitRun = Annotated[RunPath, tyro.conf.arg(help="A run folder that `apportion fit` wrote.")]
ToFile = Annotated[Path | None, tyro.conf.arg(help="Also write the result, as JSON, to this file.")]


@dataclass(frozen=True)
class Output:
    """What is printed."""

    quiet: Flag = False
    """Print errors only."""
    json: Flag = False
    """Print one JSON object on stdout."""


@contextmanager
def bar(what: str, output: Output) -> Iterator[Tell]:
    """A bar on a terminal while something takes long."""
    shown = not output.quiet and sys.stderr is not None and sys.stderr.isatty()
    with Progress(console=new_console(stderr=True), transient=True, disable=not shown) as progress:
        task = progress.add_task(what, total=None)

        def tell(done: int, of: int) -> None:
            progress.update(task, completed=done, total=of)

        yield tell


def print_data(
    data: dict[str, Any],
    output: Output,
    tables: Callable[[Console, dict[str, Any]], None],
    file: Path | None = None,
) -> None:
    """Data as tables or as JSON, and as a JSON file, in a folder that is made where there is none; tables
    also where the file cannot be written. What is to be said about the files it is from goes to stderr."""
    try:
        if file is not None:
            file = from_folder(file)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(file, (json.dumps(data, indent=2) + "\n").encode())
    finally:
        for line in () if output.quiet else (*data.get("notes", ()), *data.get("skipped", ())):
            say(line)
        if output.json and sys.stdout is not None:  # it is None where it was closed before the start
            print(json.dumps(data))
        elif not output.quiet and sys.stdout is not None:
            # Files and pipes have no edge: tables there are as wide as they need to be.
            columns = os.environ.get("COLUMNS", "")
            width = None if sys.stdout.isatty() else int(columns) if columns.isdigit() else 1000
            tables(new_console(width=width), all_inert(data))


# --- Compiled programs, kept between runs


def remember_compilations() -> None:
    """Use the user's cache folder, unless JAX's own variable names one. One folder per machine, since
    compiled code need not run on another."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = root / "apportion" / f"{platform.machine()}-{platform.node()}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return  # no home, or one without room for a cache, is no reason not to train
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
