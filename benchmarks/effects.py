"""Do strong edges stand for strong effects? MuJoCo tasks, each dimension moved alone in the simulator.

    python benchmarks/effects.py --out results/mujoco-effects.json

At states that random actions visit, one dimension is moved by its standard deviation: how much do the reward
and every next value change? The rank correlation of these effects with the strengths of the edges found.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

from apportion.envs.make import EnvConfig, make
from apportion.graph import Identification, identify
from apportion.runs.atomic import write_json
from apportion.runs.folder import versions

# How many positions the observation leaves out at its start; the rest is positions, then velocities.
HIDDEN_POSITIONS = {"HalfCheetah-v4": 1, "Hopper-v4": 1, "Swimmer-v4": 2}
TASKS = (*HIDDEN_POSITIONS, "Reacher-v4")
# Reacher observes two joints (cosines 0, 1, sines 2, 3), the target (4, 5), speeds (6, 7) and the fingertip's
# way from the target (8, 9). Neither angles nor way can move alone; the target's shift moves the way, and a
# turned arm whose target follows it moves the angles but not the way. 4, 5 and the dead 10 are not moved.
REACHER_MOVES = {0: "turn 0", 1: "turn 1", 2: "turn 0", 3: "turn 1", 6: "speed 0", 7: "speed 1"}
REACHER_MOVES |= {8: "shift 0", 9: "shift 1"}


@dataclass(frozen=True)
class Effects:
    """Compare edge strengths with effects measured in the simulator."""

    out: Path
    """JSON file to write."""
    episodes: int = 400
    """Episodes of random actions for each task."""
    steps: int = 100
    """Their length."""
    points: int = 60
    """Visited states at which dimensions are moved."""


def main(args: Effects) -> None:
    results = {task: study(task, args) for task in TASKS}
    write_json(
        args.out, {"config": {**asdict(args), "out": str(args.out)}, "versions": versions(), "tasks": results}
    )
    table = Table(title="Rank correlation of edge strength with measured effect", title_justify="left")
    for column in ("task", "reward edges", "dynamics edges", "reward's parents", "explained"):
        table.add_column(column)
    for task, row in results.items():
        numbers = [f"{row['spearman'][block]:.2f}" for block in ("reward", "dynamics")]
        table.add_row(task, *numbers, ", ".join(row["parents"]), f"{row['explained']:.0%}")
    Console().print(table)


def study(task: str, args: Effects) -> dict[str, Any]:
    env, spec = make(EnvConfig(task, max_episode_steps=args.steps))
    log, states = _collect(env, spec.action_size, args)
    observations, actions, totals = log
    found = identify(observations, actions, totals)
    rows = np.concatenate(
        [np.concatenate([o[:-1], a], axis=1) for o, a in zip(observations, actions, strict=True)]
    )
    to_reward, to_state = _effects(env, task, states, rows, args.points)
    names = np.array([*spec.observation_names, *spec.action_names])
    parents = np.concatenate([found.graph.state_to_reward, found.graph.action_to_reward])
    return {
        "spearman": _rank_correlations(found, to_reward, to_state),
        "parents": names[parents].tolist(),
        "explained": found.explained,
        "certificate": found.certificate._asdict(),
        "names": names.tolist(),
        "reward_strength": _joined(found, "state_to_reward", "action_to_reward").tolist(),
        "reward_effect": [None if np.isnan(effect) else float(effect) for effect in to_reward],
    }


def _collect(env: Any, action_size: int, args: Effects) -> tuple[Any, list[Any]]:
    """Random actions, biased in every other episode; and simulator states on the way."""
    rng = np.random.default_rng(0)
    log: tuple[list[Any], list[Any], list[float]] = ([], [], [])
    states = []
    for episode in range(args.episodes):
        observations, actions, total, ended = [env.reset(seed=episode)[0]], [], 0.0, False
        bias = rng.uniform(-0.6, 0.6, action_size) * (episode % 2)
        while not ended:
            action = np.clip(bias + rng.uniform(-1, 1, action_size), -1, 1).astype(np.float32)
            if rng.random() < 2 * args.points / (args.episodes * args.steps):
                data = env.unwrapped.data
                states.append((data.qpos.copy(), data.qvel.copy(), action))
            observation, reward, terminated, truncated, _ = env.step(action)
            observations.append(observation)
            actions.append(action)
            total += float(reward)
            ended = terminated or truncated
        for part, value in zip(log, (np.array(observations), np.array(actions), total), strict=True):
            part.append(value)
    return (log[0], log[1], np.array(log[2])), states


def _effects(
    env: Any, task: str, states: list[Any], rows: NDArray[Any], points: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Root mean square changes of reward [D] and next observation [D, S], in their standard deviations."""
    env.reset(seed=0)
    spread = rows.std(axis=0)
    size = env.observation_space.shape[0]
    squares = np.full((len(spread), size + 1), np.nan)
    chosen = states[:points]
    for dim in np.flatnonzero(spread > 1e-9):
        changes = []
        for qpos, qvel, action in chosen:
            moved = _moved(env, task, int(dim), qpos, qvel, action, float(spread[dim]))
            if moved is not None:
                changes.append(_outcome(env, *moved) - _outcome(env, qpos, qvel, action))
        if changes:
            squares[dim] = np.mean(np.square(changes), axis=0)
    base = np.array([_outcome(env, *state) for state in chosen])
    scale = base.std(axis=0)
    effects = np.sqrt(squares) / np.where(scale > 1e-9, scale, np.inf)
    return effects[:, -1], effects[:, :-1]


def _moved(
    env: Any, task: str, dim: int, qpos: NDArray[Any], qvel: NDArray[Any], action: NDArray[Any], by: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """The same moment with one observed dimension, or one action, moved; None where that cannot be."""
    qpos, qvel, action = qpos.copy(), qvel.copy(), action.copy()
    size = env.observation_space.shape[0]
    if dim >= size:
        action[dim - size] += by if action[dim - size] < 0 else -by
    elif task in HIDDEN_POSITIONS:
        place = dim + HIDDEN_POSITIONS[task]
        if place < len(qpos):
            qpos[place] += by
        else:
            qvel[place - len(qpos)] += by
    elif dim in REACHER_MOVES:
        kind, number = REACHER_MOVES[dim].split()
        _move_reacher(env, kind, int(number), qpos, qvel, by)
    else:
        return None
    return qpos, qvel, action


def _move_reacher(
    env: Any, kind: str, number: int, qpos: NDArray[Any], qvel: NDArray[Any], by: float
) -> None:
    if kind == "speed":
        qvel[number] += by
    elif kind == "shift":
        qpos[2 + number] -= by
    else:
        before = _fingertip(env, qpos, qvel)
        qpos[number] += by
        qpos[2:4] += (_fingertip(env, qpos, qvel) - before)[:2]


def _fingertip(env: Any, qpos: NDArray[Any], qvel: NDArray[Any]) -> NDArray[Any]:
    env.unwrapped.set_state(qpos, qvel)
    return np.array(env.unwrapped.get_body_com("fingertip"))


def _outcome(env: Any, qpos: NDArray[Any], qvel: NDArray[Any], action: NDArray[Any]) -> NDArray[Any]:
    """Next observation, then reward, of one step of the bare simulator."""
    bare = env.unwrapped
    bare.set_state(qpos, qvel)
    observation, reward, *_ = bare.step(action)
    return np.append(observation, reward)


def _rank_correlations(
    found: Identification, to_reward: NDArray[Any], to_state: NDArray[Any]
) -> dict[str, float]:
    """Spearman's, over all edges whose effect could be measured."""
    pairs = {
        "reward": (_joined(found, "state_to_reward", "action_to_reward"), to_reward),
        "dynamics": (_joined(found, "state_to_state", "action_to_state"), to_state),
    }
    correlations = {}
    for block, (strength, effect) in pairs.items():
        measured = np.isfinite(effect)
        correlations[block] = float(stats.spearmanr(strength[measured], effect[measured]).statistic)
    return correlations


def _joined(found: Identification, *blocks: str) -> NDArray[Any]:
    return np.concatenate([getattr(found.strength, block) for block in blocks])


if __name__ == "__main__":
    main(tyro.cli(Effects))
