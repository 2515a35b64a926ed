"""The reward that a lane has learned, asked about steps of one's own."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import expand_actions, expand_observations
from apportion.core.config import UserError, check
from apportion.core.spec import Spec
from apportion.envs.make import EnvConfig
from apportion.envs.spaces import learners_actions
from apportion.runs.credit import INTERVAL, as_rows, need_credit, read_credit
from apportion.runs.explain import RewardOf, Steps, compile_reward, why_not_alone
from apportion.runs.folder import RunFolder
from apportion.runs.learned import check_lane, read_learned
from apportion.runs.logged import from_origins
from apportion.training import agent as agents
from apportion.training.offline import with_last
from apportion.training.outcomes import Outcomes
from apportion.training.settings import Config

Rewards = NDArray[np.float32]


def learned_rewards(
    run: RunFolder,
    observations: Any,
    actions: Any,
    lane: int = 0,
    best: bool = False,
    interval: float | None = None,
) -> tuple[Rewards, Rewards | None, Rewards | None]:
    """[T] of actions [T, A] in the environment's own range and observations [T, S] or [T+1, S], with the one
    after the last step; and the ends of an interval, where one is asked for."""
    check(interval is None or 0 < interval < 1, f"interval={interval} must be between 0 and 1")
    credit = read_credit(run) if interval is None else need_credit(run)
    learned = read_learned(run, best)
    check_lane(lane, learned.config.lanes, run)
    spec = run.read_spec()
    observations, actions = from_origins(run, observations, actions)
    taken = expand_actions(spec, learners_actions(spec, actions))
    seen = expand_observations(spec, _learners_observations(spec, learned.config.env, observations))
    check(
        len(seen) - len(taken) in (0, 1) and len(taken) > 0,
        f"{len(seen)} observations and {len(taken)} actions: give one observation for each action, "
        "and the last one, if it is known",
    )
    state = learned.model(lane)
    followed = len(seen) > len(taken)
    after = seen[1:] if followed else np.full_like(seen, np.nan)
    steps = Steps(seen[: len(taken)], taken, after)
    whole = steps if followed else steps._replace(next_observations=seen)
    reason = why_not_alone(learned.config.method, learned.method, state, whole)
    if reason is not None:
        raise UserError(f"{reason}: see what it gave to stored episodes, `redistributed` in Run.episodes()")
    reward_of = _compiled(learned.config, learned.outcomes, learned.spec.observation_size)
    rewards = reward_of(state, steps.rows())
    # A method that reads the next observation makes NaN of one that is not there.
    unknown = not followed and np.isnan(rewards).any() and not np.isnan(reward_of(state, whole.rows())).any()
    name = learned.config.method
    check(not unknown, f"{name} also looks at where a step leads: give observations [T+1, S]")
    if credit is None:
        return rewards, None, None
    following = with_last(seen, len(taken))[1:]
    rows = as_rows(steps.observations, steps.actions, np.zeros((len(taken), 1)), following)
    found = credit.of_steps(rows, rewards)
    low, high = found.within(interval or INTERVAL)
    return found.reward.astype(np.float32), low.astype(np.float32), high.astype(np.float32)


@lru_cache(maxsize=8)
def _compiled(config: Config, outcomes: Outcomes, states: int) -> RewardOf:
    """Once for all who ask about rewards of the same settings."""
    return compile_reward(outcomes.in_outcome_units(agents.in_own_units(config.make_method())), states)


def _learners_observations(spec: Spec, env: EnvConfig, observations: Any) -> NDArray[np.float32]:
    """[T, S] as the method knows them: with the zeros that the paper's set-up adds."""
    own = np.asarray(observations, np.float32)
    size = spec.observation_size - spec.padded
    fits = own.ndim == 2 and own.shape[1] == size
    check(fits, f"observations have shape {own.shape}: give [T, {size}] or [T+1, {size}], one row per step")
    padded = np.pad(own, ((0, 0), (0, spec.padded)))
    if env.zero_from is not None:
        padded[:, env.zero_from :] = 0
    return padded
