"""What random actions earn: 0 on the scale on which the oracle is 1.

Nothing in a run says so: the first evaluation is that of an untrained policy, which acts without noise. So
some episodes of random actions are played here, the same ones every time.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from apportion.core.config import check, from_dict
from apportion.core.errors import UserError
from apportion.envs.lane import Lane, play_one
from apportion.envs.make import EnvConfig
from apportion.runs.folder import RunFolder

STEPS = 10_000  # to play at the least; random episodes of short tasks differ much
EPISODES = 10  # the same
SEED = 0


def random_return(run: RunFolder) -> float:
    """Mean true return of some episodes of random actions in a run's environment."""
    run.need_trust("the environment")
    config = from_dict(EnvConfig, run.read_config()["env"])
    lane = Lane(config, SEED, head="", start=False)
    returns: list[float] = []
    steps = 0
    try:
        while steps < STEPS or len(returns) < EPISODES:
            rewards = play_one(lane, None, (0, len(returns)))["true_rewards"]
            returns.append(float(np.sum(rewards, dtype=np.float64)))
            steps += len(rewards)
    finally:
        lane.close()
    return float(np.mean(returns))


def read_random(path: Path) -> dict[str, float]:
    """Returns of random actions by task, from a JSON object, or from what `apportion compare --json` said."""
    try:
        data: Any = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"no file {path}: --random takes a JSON file") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): correct it") from error
    known = data.get("random", data) if isinstance(data, dict) else None
    good = isinstance(known, dict) and all(type(each) in (int, float, type(None)) for each in known.values())
    check(good, f'{path} has no numbers by task: write {{"HalfCheetah-v4": -280.2}}')
    return {str(task): float(each) for task, each in dict(known or {}).items() if each is not None}
