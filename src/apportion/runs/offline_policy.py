"""A policy for a run that is fitted to logged episodes, from the credit of their steps."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import expand_actions, expanded, policy_spec
from apportion.core.config import check
from apportion.core.spec import Spec
from apportion.core.types import Metrics, Record
from apportion.envs.acting import act
from apportion.envs.spaces import learners_actions
from apportion.runs.credit import INTERVAL, Credit, rows_of
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training.agent import AgentState
from apportion.training.offline import Fitting, Logged, episode_arrays
from apportion.training.offline_policy import all_steps, learn_policy, scaled
from apportion.training.settings import Config
from apportion.training.uneven import redistribute_in_groups

Floats = NDArray[np.float64]


def check_policy(config: Config, spec: Spec) -> None:
    """Complain of a backbone that cannot act as the log does."""
    if not config.has_policy:
        return
    categories = [
        name
        for name, count in zip(spec.action_names, spec.levels[spec.observation_size :], strict=False)
        if count > 0
    ]
    check(
        bool(spec.choices) or not categories,
        f"{', '.join(categories)} are categories and were combined in too many ways to choose among: leave "
        "some actions aside by --without, or fit without --backbone",
    )
    check(
        not spec.choices or config.make_backbone().discrete is not False,
        f"{config.backbone} needs actions that are numbers, and {spec.env_id} has {len(spec.choices)} "
        "different ones: add --backbone iql",
    )


def policy_actions(spec: Spec, actions: NDArray[Any]) -> NDArray[np.float32]:
    """[T, A] as a method knows them, as a policy does: one-hot where it chooses among some."""
    if not spec.choices:
        return np.asarray(actions, np.float32)
    known = expand_actions(spec, learners_actions(spec, np.array(spec.choices)))
    nearest = np.argmin(((actions[:, None] - known[None]) ** 2).sum(axis=-1), axis=1)
    return np.eye(len(known), dtype=np.float32)[nearest]


def learned_rewards(
    config: Config, spec: Spec, data: Logged, agent: AgentState, records: list[Record], credit: Credit
) -> list[list[NDArray[Any]]] | None:
    """By lane and episode, what the method gives to steps; None where the credit is the posterior's alone."""
    if credit.share == 1:
        return None
    method = data.outcomes.in_outcome_units(agents.in_own_units(config.make_method()))
    lengths = np.array([len(record.actions) for record in records], np.int64)
    redistribute = redistribute_in_groups(method, expanded(spec), lengths)
    found = redistribute(
        agent._replace(backbone=None), [[episode_arrays(each) for each in records]] * config.lanes
    )
    return [list(lane) for lane in found]


def pessimistic(
    credit: Credit, records: list[Record], learned: list[NDArray[Any]] | None, pessimism: float
) -> Floats:
    """[N] credit of steps, less so much of half their interval. From its mean on: a constant would only make
    episodes that end early look better."""
    unknown = np.full(len(records), np.nan)
    steps = list(credit.of_episodes([rows_of(record) for record in records], learned, unknown))
    reward = np.concatenate([each.reward for each in steps])
    half = reward - np.concatenate([each.within(INTERVAL)[0] for each in steps])
    return np.asarray(reward - pessimism * (half - half.mean()))


def recommended(
    config: Config, spec: Spec, agent: AgentState, lane: int, records: list[Record]
) -> list[NDArray[np.float32]]:
    """[T, A] of each episode what a lane's policy would have done, in the form that stored actions have."""
    one = devices.one_lane(agent, lane)
    actor = {name: np.asarray(array) for name, array in config.make_backbone().actor(one.backbone).items()}
    if one.scaling is not None:
        actor |= {"mean": np.asarray(one.scaling.mean), "scale": np.asarray(one.scaling.scale)}
    actor["mask"] = np.ones(expanded(spec).observation_size, np.float32)
    head, found = config.make_backbone().head, []
    for record in records:
        seen = np.asarray(record.observations[: len(record.actions)], np.float32)
        done = np.stack([act(actor, head, each, None) for each in seen])
        chosen = np.array(spec.choices)[done.argmax(axis=1)] if spec.choices else None
        found.append(done if chosen is None else learners_actions(spec, chosen))
    return found


def with_policy(
    config: Config, fitting: Fitting, spec: Spec, data: Logged, agent: AgentState, credit: Credit
) -> tuple[AgentState, Metrics]:
    """The agents of all lanes with a policy that has learned from the episodes that they have, too."""
    records = data.learned
    learned = learned_rewards(config, spec, data, agent, records, credit)
    rewards = np.stack(
        [
            pessimistic(credit, records, None if learned is None else learned[lane], fitting.pessimism)
            for lane in range(config.lanes if learned is not None else 1)
        ]
    )
    actions = [policy_actions(spec, record.actions) for record in records]
    scaling = None if agent.scaling is None else devices.one_lane(agent.scaling, 0)
    steps = scaled(all_steps(records, actions), scaling)
    state, metrics = learn_policy(
        config.make_backbone(),
        policy_spec(spec),
        steps,
        np.broadcast_to(rewards, (config.lanes, rewards.shape[1])),
        config.seeds,
        fitting.policy_updates,
    )
    return jax.device_get(agent._replace(backbone=state)), jax.device_get(metrics)
