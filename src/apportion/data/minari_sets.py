"""Data sets of Minari, by their id: those that lie on this machine. Their episodes have one observation more
than steps; an episode's outcome is the sum of its rewards."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from apportion.core.config import Tell, UserError, check, extra, nearest, one_line
from apportion.data.columns import Choice, Columns
from apportion.data.d3rlpy import counted
from apportion.data.rows import CREDIT, PAID, Column, Earned, Rows, check_room


def minari() -> Any:
    return extra("minari", "Minari data sets are read with minari", "minari")


def open_set(name: str) -> Any:
    """A data set on this machine."""
    package = minari()
    try:
        return package.load_dataset(name)
    except (FileNotFoundError, ValueError):
        here = list(package.list_local_datasets()) or ["none"]
        raise UserError(
            f"no file and no Minari data set {name!r} on this machine{nearest(name, here)}: "
            f"`minari download {name}` fetches one"
        ) from None


def read(name: str, columns: Columns | Choice, tell: Tell, paid: bool) -> Rows:
    """All steps of a data set."""
    found = open_set(name)
    observed, acted, facts = [], [], []
    count = int(found.total_episodes)
    check(count > 0, f"{name} holds no episode")
    for number, episode in enumerate(found.iterate_episodes(), start=1):
        observed.append(flat(found.observation_space, episode.observations))
        acted.append(flat(found.action_space, episode.actions))
        total = float(np.sum(episode.rewards, dtype=np.float64))
        facts.append((len(episode), total, bool(episode.terminations[-1])))
        if number == 1:
            wide = sum(part.size for part in observed[0]) // max(len(episode), 1)
            check_room(name, wide * int(found.total_steps))
        tell(number, count)
    lengths, totals, terminated = map(np.array, zip(*facts, strict=True))
    return Rows(
        source=name,
        lengths=lengths,
        states=_columns(name, "s", [[part[:-1] for part in each] for each in observed]),
        actions=_columns(name, "a", acted),
        totals=totals,
        last=_columns(name, "s", [[part[-1:] for part in each] for each in observed]),
        terminated=terminated,
        named=False,
    )


def flat(space: Any, values: Any) -> list[NDArray[Any]]:
    """Arrays [T, D] of the parts of a space, those of dictionaries and tuples one after the other. Whole
    numbers stay such only where the space is one of categories."""
    inner = getattr(space, "spaces", None)
    if inner is None:
        array = np.asarray(values)
        if type(space).__name__ == "Discrete":
            return [array.reshape(-1, 1).astype(np.int64)]
        return [array.reshape(len(array), -1).astype(np.float64)]
    pairs = inner.items() if isinstance(inner, dict) else enumerate(inner)
    return [part for key, each in pairs for part in flat(each, values[key])]


def _columns(name: str, letter: str, episodes: list[list[NDArray[Any]]]) -> dict[str, Column]:
    parts = [counted(name, letter, np.concatenate(part)) for part in zip(*episodes, strict=True)]
    columns = [column for part in parts for column in part.values()]
    return {f"{letter}{place}": column for place, column in enumerate(columns)}


# --- Its environment


def play(name: str, policies: Sequence[Callable[[Any], Any]], episodes: int, seed: int) -> list[list[float]]:
    """What each policy of flat observations earns in fresh episodes of a data set's own environment."""
    found = open_set(name)
    check(_known(found), f"{name} names no environment that is registered here: leave --play out")
    spec, seen, done = found.env_spec, found.observation_space, found.action_space
    check(done.shape is not None, f"{name} has actions of several parts: --play needs a vector, or a number")
    env = gymnasium.make(spec.id, max_episode_steps=spec.max_episode_steps, **spec.kwargs)

    def one(policy: Callable[[Any], Any], number: int) -> float:
        observation, over, earned = env.reset(seed=number)[0], False, 0.0
        while not over:
            flattened = np.concatenate([part[0] for part in flat(seen, _alone(observation))])
            action = policy(flattened)
            own = np.reshape(action, done.shape) if done.shape else int(action[0])
            observation, reward, terminated, truncated, _ = env.step(own)
            over, earned = terminated or truncated, earned + float(reward)
        return earned

    try:
        return [[one(policy, seed + number) for number in range(episodes)] for policy in policies]
    finally:
        env.close()


def _alone(observation: Any) -> Any:
    """As a data set has a single one."""
    if isinstance(observation, dict):
        return {key: _alone(each) for key, each in observation.items()}
    parts = isinstance(observation, tuple)
    return tuple(map(_alone, observation)) if parts else np.asarray(observation)[None]


def normalised(name: str, value: float) -> float | None:
    """100 for a return like that of the data set's expert, 0 for one like a random policy's, as D4RL has it;
    None where the data set has no such references."""
    known = open_set(name).storage.metadata
    low, high = (known.get(f"ref_{end}_score") for end in ("min", "max"))
    return None if low is None or high is None or low == high else 100 * (value - low) / (high - low)


def _known(found: Any) -> bool:
    """Whether its environment can be made here, by code that is registered already."""
    return found.env_spec is not None and found.env_spec.id in gymnasium.registry


# --- A new set with what steps earned


def relabelled_id(name: str, method: str) -> str:
    """A new name beside a Minari data set's own: NAME-METHOD-v0."""
    base, _, version = name.rpartition("-v")
    return f"{base if version.isdigit() else name}-{method}-v0"


def write(name: str, target: Path, earned: Earned) -> None:
    """A new data set with the same episodes, the learned rewards in the place of those paid, which are kept
    among the infos."""
    package, found, new, rows = minari(), open_set(name), str(target), earned.rows
    there = f"there is a Minari data set {new!r} already: name another --out"
    check(new not in package.list_local_datasets(), there)
    from minari.data_collector import EpisodeBuffer

    credit = {f"{CREDIT}_{key}": values for key, values in earned.credit.items()}
    columns = {key: rows.split(values) for key, values in {**earned.bounds, **credit}.items()}
    buffers = []
    pairs = zip(found.iterate_episodes(), rows.split(earned.reward), strict=True)
    for number, (episode, given) in enumerate(pairs):
        told = {PAID: np.asarray(episode.rewards, np.float64)}
        told |= {key: each[number] for key, each in columns.items()}
        buffer = EpisodeBuffer(
            id=episode.id,
            observations=episode.observations,
            actions=episode.actions,
            rewards=given.tolist(),
            terminations=episode.terminations.tolist(),
            truncations=episode.truncations.tolist(),
            # One entry more than steps, the first of a reset: nothing was paid then.
            infos={key: np.append(0.0, values) for key, values in told.items()},
        )
        buffers.append(buffer)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it complains of authors and addresses that are not given
            package.create_dataset_from_buffers(
                new,
                buffers,
                env=found.env_spec if _known(found) else None,
                observation_space=found.observation_space,
                action_space=found.action_space,
                algorithm_name="apportion relabel",
                description=f"{name} with learned rewards of single steps",
            )
    except ValueError as error:
        raise UserError(f"--out {new}: {one_line(error)}") from error
