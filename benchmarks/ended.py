"""What does it change whether a log says which episodes ended by themselves?

    python benchmarks/ended.py --out results/ended-logs.json

Logs of a few hundred episodes of 1 to 150 steps, of which many end early, with a fine. Rewards are of where
one is, and in every second log there is a bonus for where a step led, too. Each log is fitted twice, as flat
arrays: with `timeouts` beside `terminals`, and with all ends as `terminals`, which does not tell them apart.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

import apportion
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions

STATES, ACTIONS = 6, 2


@dataclass(frozen=True)
class Ended:
    """Fit logs with ends and with cuts."""

    out: Path
    """JSON file to write."""
    logs: int = 8
    """How many."""
    seed: int = 77_001
    """Of the logs."""


class Drawn(NamedTuple):
    arrays: dict[str, NDArray[Any]]  # as a user has them
    rewards: NDArray[np.float64]  # what each step earned, which nobody sees


def main(args: Ended) -> None:
    rows = []
    for number in range(args.logs):
        led = number % 2 == 1
        drawn = draw(np.random.default_rng([args.seed, number]), led)
        ends = drawn.arrays["terminals"] | drawn.arrays["timeouts"]
        untold = {**drawn.arrays, "terminals": ends, "timeouts": np.zeros_like(ends)}
        rows.append(
            {
                "where a step led": led,
                "episodes": int(ends.sum()),
                "ended": int(drawn.arrays["terminals"].sum()),
                "told": correlation(drawn.arrays, drawn.rewards),
                "not told": correlation(untold, drawn.rewards),
            }
        )
        print(rows[-1], flush=True)
    write_json(args.out, {"seed": args.seed, "versions": versions(), "logs": rows})


def correlation(arrays: dict[str, NDArray[Any]], rewards: NDArray[np.float64]) -> float:
    """Of what `fit` and `relabel` say of each step with what it earned."""
    with tempfile.TemporaryDirectory() as folder:
        data, new = Path(folder) / "log.npz", Path(folder) / "new.npz"
        np.savez(data, **arrays)
        run = apportion.fit(data, out=Path(folder) / "run", quiet=True)
        apportion.relabel(run, data, new)
        with np.load(new) as found:
            return float(np.corrcoef(found["rewards"], rewards)[0, 1])


def draw(rng: np.random.Generator, led: bool) -> Drawn:
    """A log: linear dynamics with a bend, actions at random, ends that one dimension makes more likely."""
    limit, episodes = int(rng.integers(60, 150)), int(rng.integers(250, 450))
    bend, push = rng.normal(0, 0.15, (STATES, STATES)), rng.normal(0, 0.4, (ACTIONS, STATES))
    stay, (speed, heat, gate, risk) = rng.uniform(0.5, 0.9, STATES), rng.choice(STATES, 4, replace=False)
    fine, level, bonus = rng.uniform(5, 30), rng.uniform(0.8, 1.4), rng.uniform(2, 6)
    danger = rng.uniform(0.003, 0.02)
    seen, acted, earned, paid, ended, cut = [], [], [], [], [], []
    for _ in range(episodes):
        state, hazard, total = rng.normal(0, 1, STATES), danger * np.exp(rng.normal(0, 1.2)), 0.0
        for step in range(limit):
            action = rng.uniform(-1, 1, ACTIONS)
            after = stay * state + np.tanh(state) @ bend + action @ push + rng.normal(0, 0.5, STATES)
            reward = np.tanh(state[speed]) - 0.25 * state[heat] ** 2 + 0.4 * state[speed] * action[0]
            if led and state[gate] < level <= after[gate]:
                reward += bonus
            end = bool(rng.random() < hazard * np.exp(0.7 * state[risk]))
            reward -= fine * end
            total += reward
            last = end or step + 1 == limit
            for column, value in zip(
                (seen, acted, earned, paid, ended, cut),
                (state, action, reward, total if last else 0.0, end, last and not end),
                strict=True,
            ):
                column.append(value)
            state = after
            if end:
                break
    arrays = {
        "observations": np.array(seen, np.float32),
        "actions": np.array(acted, np.float32),
        "rewards": np.array(paid, np.float32),
        "terminals": np.array(ended),
        "timeouts": np.array(cut),
    }
    return Drawn(arrays, np.array(earned))


if __name__ == "__main__":
    main(tyro.cli(Ended))
