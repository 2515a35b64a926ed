"""Who earned it, step by step: logs are fitted and relabelled, and each step is compared with the truth.

    python benchmarks/credit.py --out results/credit.json
    python benchmarks/credit.py --kinds unseen --methods grd rd rrd --draws 1
    python benchmarks/credit.py --show results/credit.json

`closed form` is the posterior alone, which takes seconds; the other methods are those of `apportion fit`.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

import apportion
import suite_tasks
from apportion.core.types import Record
from apportion.data.rows import Log as LogOfEpisodes
from apportion.runs.atomic import read_json, write_json
from apportion.runs.credit import INTERVAL, fit_credit
from apportion.runs.folder import versions
from apportion.runs.logged import spec_of
from lib import real_logs
from lib.command import given, start
from lib.credit_problems import DEVELOPMENT, UNSEEN, Log, draw
from lib.suite_base import Task

CLOSED_FORM = "closed form"
EVEN = "even split"
REAL = {"flights": real_logs.flights, "baseball": real_logs.baseball}


@dataclass(frozen=True)
class Credit:
    """Which problems, and who tries."""

    kinds: Literal["development", "unseen", "suite", "real", "all"] = "all"
    """The kinds that the model was made with, those that it was not, tasks of the suite, two public logs, or
    all but these."""
    only: tuple[str, ...] = ()
    """Some kinds, or tasks, by name."""
    methods: tuple[str, ...] = (CLOSED_FORM,)
    """`closed form`, `even split`, or methods of `apportion fit`."""
    draws: int = 2
    """Problems of each kind."""
    first: int = 0
    """Number of the first of them."""
    out: Path | None = None
    """Where to write the results, as JSON."""
    show: Path | None = None
    """Print results that were written before, and measure nothing."""


def main(flags: Credit) -> None:
    if flags.show is not None:
        return table(read_json(flags.show)["problems"])
    groups = {"development": tuple(DEVELOPMENT), "unseen": tuple(UNSEEN), "suite": suite_tasks.TASKS}
    chosen = (
        sum(groups.values(), ()) if flags.kinds == "all" else (groups | {"real": tuple(REAL)})[flags.kinds]
    )
    found = []
    for name in flags.only or chosen:
        for number in range(flags.first, flags.first + (1 if name in REAL else flags.draws)):
            log = log_of(name, number)
            for method in flags.methods:
                found.append({"kind": name, "draw": number, "method": method, **tried(log, method)})
                print(row(found[-1]), flush=True)
    table(found)
    if flags.out is not None:
        write_json(flags.out, {"command": given(), "commit": versions()["commit"], "problems": found})


def log_of(name: str, number: int) -> Log:
    if name in REAL:
        return REAL[name]()
    return played(name, number) if name in suite_tasks.TASKS else draw(name, number)


def played(task: str, number: int, episodes: int = 200) -> Log:
    """A task of the suite, in raw units. Each episode has levers about a level of its own, and follows the
    hand rule now and then."""
    rng, found = np.random.default_rng([number, 7]), []
    env = gymnasium.make(suite_tasks.env_id(task, scaled=False), disable_env_checker=True)
    space, unwrapped = env.action_space, env.unwrapped
    assert isinstance(space, gymnasium.spaces.Box)
    assert isinstance(unwrapped, Task)
    for episode in range(episodes):
        seen, acted, paid, over = [env.reset(seed=1000 * number + episode)[0]], [], [], False
        level, noise, by_rule = rng.random(space.shape), rng.uniform(0.05, 0.5), rng.uniform(0, 0.8)
        while not over:
            share = np.clip(level + noise * rng.normal(size=space.shape), 0, 1)
            action = space.low + share * (space.high - space.low)
            if rng.random() < by_rule:
                action = np.clip(unwrapped.rule_action(seen[-1]), space.low, space.high)
            observation, reward, terminated, truncated, _ = env.step(action.astype(np.float32))
            seen.append(observation)
            acted.append(action)
            paid.append(float(reward))
            over = terminated or truncated
        found.append((np.array(seen, np.float64), np.array(acted), np.array(paid), terminated))
    observations, actions, rewards, ended = map(list, zip(*found, strict=True))
    return Log(observations, actions, rewards, np.array(ended))


def tried(log: Log, method: str) -> dict[str, float]:
    began = time.process_time()
    tries = {CLOSED_FORM: closed_form, EVEN: even_split}
    reward, low, high, determined = tries[method](log) if method in tries else fitted(log, method)
    return {**scores(np.concatenate(log.rewards), reward, low, high), "determined": determined} | {
        "cpu_seconds": time.process_time() - began
    }


def scores(truth: Any, reward: Any, low: Any, high: Any) -> dict[str, float]:
    """Correlation, error and spread relative to the truth's, and how the intervals do."""
    error = float(np.sqrt(np.mean((reward - truth) ** 2)))
    return {
        "correlation": float(np.corrcoef(reward, truth)[0, 1]),
        "error": error / float(np.std(truth)),
        "spread": float(np.std(reward) / np.std(truth)),
        "covered": float(np.mean((truth >= low) & (truth <= high))),
        "width": float(np.mean(high - low) / np.std(truth)),
        "truly_determined": 1 - error**2 / float(np.var(truth)),
    }


def even_split(log: Log) -> tuple[Any, Any, Any, float]:
    """What every step earns if all of an episode earned the same."""
    even = np.concatenate([np.full(len(each), each.mean()) for each in log.rewards])
    return even, even, even, 0.0


def closed_form(log: Log) -> tuple[Any, Any, Any, float]:
    """The posterior of all episodes, by variances of four fifths; all outcomes are known to the credit."""
    count = len(log.rewards)
    order = np.random.default_rng(0).permutation(count)
    records = [
        Record(log.observations[n], log.actions[n], float(log.totals[n]), bool(log.terminated[n]), n)
        for n in range(count)
    ]
    held_out = [records[n] for n in order[: count // 5]]
    as_log = LogOfEpisodes(
        log.observations,
        log.actions,
        log.totals,
        tuple(f"s{n}" for n in range(log.observations[0].shape[1])),
        tuple(f"a{n}" for n in range(log.actions[0].shape[1])),
    )
    credit = fit_credit(spec_of("log", as_log), [records[n] for n in order[count // 5 :]], held_out, 0)
    steps = list(credit.of_records(records, None, paid=True))
    reward = np.concatenate([each.reward for each in steps])
    low, high = (np.concatenate(end) for end in zip(*(each.within(INTERVAL) for each in steps), strict=True))
    return reward, low, high, float(credit.facts["determined"])


def fitted(log: Log, method: str) -> tuple[Any, Any, Any, float]:
    """What `apportion fit` and `apportion relabel` write, with plain defaults."""
    lengths = np.array([len(each) for each in log.actions])
    longest = int(lengths.max())
    observations = [np.pad(x, ((0, longest + 1 - len(x)), (0, 0))) for x in log.observations]
    actions = [np.pad(a, ((0, longest - len(a)), (0, 0))) for a in log.actions]
    with tempfile.TemporaryDirectory() as folder:
        data, new = Path(folder) / "log.npz", Path(folder) / "new.npz"
        np.savez(
            data,
            observations=np.stack(observations),
            actions=np.stack(actions),
            lengths=lengths,
            totals=log.totals,
            terminated=log.terminated,
        )
        run = apportion.fit(data, method, out=Path(folder) / "run", quiet=True)
        apportion.relabel(run, data, new)
        arrays, inside = np.load(new), np.arange(longest) < lengths[:, None]
        reward, low, high = (arrays[name][inside] for name in ("reward", "reward_low", "reward_high"))
        return reward, low, high, float(run.summary()["data"]["credit"]["determined"])


def row(each: dict[str, Any]) -> str:
    ratio = each["width"] / max(each["error"], 1e-9)
    return (
        f"{each['kind']:36} {each['draw']} {each['method']:12} correlation {each['correlation']:.3f}  "
        f"error {each['error']:.3f}  spread {each['spread']:.2f}  covered {each['covered']:.0%}  "
        f"width {each['width']:.2f} ({ratio:.1f} errors)  determined {each['determined']:.0%} "
        f"(truly {each['truly_determined']:.0%})  {each['cpu_seconds']:.0f} s"
    )


def table(found: list[dict[str, Any]]) -> None:
    """What they come to, by method."""
    for method in dict.fromkeys(each["method"] for each in found):
        mine = [each for each in found if each["method"] == method]
        correlations = np.array([each["correlation"] for each in mine])
        covered = np.array([each["covered"] for each in mine])
        well = np.mean((covered >= 0.85) & (covered <= 0.97))
        print(
            f"{method}: {len(mine)} problems, correlation {np.median(correlations):.3f} (median), "
            f"{correlations.min():.3f} (least); covered {np.median(covered):.0%} (median), "
            f"{covered.min():.0%} (least), within 85% to 97% in {well:.0%}; "
            f"spread at most {max(each['spread'] for each in mine):.2f}"
        )


if __name__ == "__main__":
    start(main, Credit)
