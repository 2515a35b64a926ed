"""Outcome-only logs whose hidden reward is known, written in every format that is read."""

import csv
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import polars
from minari.data_collector import EpisodeBuffer

from apportion.runs.contributions import Precision

STATES, ACTIONS = ("s_0", "s_1", "s_2"), ("a_0",)
SMALL = {"updates": 250, "check_every": 250, "method.hidden": (32,), "method.segments": 16}
SMALL |= {"method.learning_rate": 5e-3}
QUICK = {"updates": 10, "check_every": 10, "method.hidden": (4,), "method.segments": 4}  # learns nothing
FEW = Precision(background=8)

Episode = tuple[Any, Any, Any]  # observations [T+1, 3], actions [T, 1], hidden rewards [T]


def episodes(count: int = 200, seed: int = 0) -> list[Episode]:
    """The reward has an additive part, an interaction and a threshold."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        length = int(rng.integers(2, 13))
        seen, done = rng.normal(size=(length + 1, 3)), rng.uniform(0, 10, (length, 1))
        before = seen[:-1]
        reward = before[:, 0] + 0.8 * before[:, 0] * before[:, 1] + 2.0 * (done[:, 0] > 5)
        found.append((seen, done, reward))
    return found


def table(found: list[Episode], last_only: bool = False) -> list[dict[str, Any]]:
    """A row for each step."""
    rows = []
    for number, (seen, done, reward) in enumerate(found):
        for step in range(len(done)):
            paid = not last_only or step + 1 == len(done)
            rows.append(
                {"episode": number, "step": step}
                | dict(zip(STATES, seen[step].tolist(), strict=True))
                | dict(zip(ACTIONS, done[step].tolist(), strict=True))
                | {"outcome": float(reward.sum()) if paid else None, "remark": "ok, so far"}
            )
    return rows


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    return path


def column(path: Path, name: str = "reward") -> Any:
    """Of a table, as an array."""
    return (polars.read_csv if path.suffix == ".csv" else polars.read_parquet)(path)[name].to_numpy()


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    polars.DataFrame(rows).write_parquet(path)
    return path


def write_npz(path: Path, found: list[Episode]) -> Path:
    longest = max(len(done) for _, done, _ in found)

    def padded(part: Any, length: int) -> Any:
        return np.pad(part, ((0, length - len(part)), (0, 0)))

    np.savez(
        path,
        observations=np.stack([padded(seen, longest + 1) for seen, _, _ in found]),
        actions=np.stack([padded(done, longest) for _, done, _ in found]),
        lengths=np.array([len(done) for _, done, _ in found]),
        totals=np.array([reward.sum() for *_, reward in found]),
        observation_names=np.array(STATES),
        action_names=np.array(ACTIONS),
    )
    return path


def write_d3rlpy(path: Path, found: list[Episode]) -> Path:
    """As d3rlpy's `dump` does."""
    with h5py.File(path, "w") as file:
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"] = len(found)
        file["version"] = "2.1"
        for number, (seen, done, reward) in enumerate(found):
            file[f"observations_{number}"] = seen[:-1]
            file[f"actions_{number}"] = done
            file[f"rewards_{number}"] = paid_last(reward)[:, None]
            file[f"terminated_{number}"] = True
    return path


def write_flat(path: Path, found: list[Episode]) -> Path:
    """As d3rlpy's MDPDataset and D4RL have it."""
    with h5py.File(path, "w") as file:
        file["observations"] = np.concatenate([seen[:-1] for seen, _, _ in found])
        file["actions"] = np.concatenate([done for _, done, _ in found])
        file["rewards"] = np.concatenate([paid_last(reward) for *_, reward in found])
        file["terminals"] = np.concatenate([np.arange(len(done)) == len(done) - 1 for _, done, _ in found])
    return path


def write_minari(name: str, found: list[Episode]) -> str:
    buffers = [
        EpisodeBuffer(
            id=number,
            observations=seen,
            actions=done,
            rewards=paid_last(reward).tolist(),
            terminations=[False] * len(done),
            truncations=[step + 1 == len(done) for step in range(len(done))],
            infos={},
        )
        for number, (seen, done, reward) in enumerate(found)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of authors and addresses
        minari.create_dataset_from_buffers(
            name,
            buffers,
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64),
            action_space=gymnasium.spaces.Box(0, 10, (1,), np.float64),
        )
    return name


def paid_last(reward: Any) -> Any:
    paid = np.zeros(len(reward))
    paid[-1] = reward.sum()
    return paid
