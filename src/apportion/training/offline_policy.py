"""A policy from logged steps and a reward for each of them: updates of the backbone only, all in one scan."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from apportion.core.spec import Spec
from apportion.core.types import Backbone, Metrics, Record, State, Transitions, single_steps
from apportion.envs.acting import standardise
from apportion.training.offline import with_last
from apportion.training.scaling import Scaling


def all_steps(records: Sequence[Record], actions: Sequence[NDArray[Any]] | None = None) -> Transitions:
    """[N] the steps of episodes one after the other, in the log's units; with other `actions` [T, A] where a
    policy knows them otherwise than a method does. After the last step its own action stands for the next."""
    done = [record.actions for record in records] if actions is None else list(actions)
    lengths = [len(record.actions) for record in records]
    seen = [with_last(record.observations, length) for record, length in zip(records, lengths, strict=True)]
    count = int(np.sum(lengths))
    last = np.zeros(count, np.bool_)
    last[np.cumsum(lengths) - 1] = [record.terminated for record in records]
    order: Any = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    steps = single_steps(
        np.concatenate([each[:-1] for each in seen]).astype(np.float32),
        np.concatenate(done).astype(np.float32),
        np.concatenate([each[1:] for each in seen]).astype(np.float32),
        last,
    )
    following: Any = np.concatenate([each[[*range(1, len(each)), -1]] for each in done]).astype(np.float32)
    whole: Any = np.repeat(lengths, lengths).astype(np.int32)
    return steps._replace(
        next_action=following, segment_length=whole, step_in_segment=order, step_in_episode=order
    )


def scaled(steps: Transitions, scaling: Scaling | None) -> Transitions:
    """With observations as a policy sees them."""
    if scaling is None:
        return steps
    mean, scale = np.asarray(scaling.mean), np.asarray(scaling.scale)
    found: dict[str, Any] = {
        name: standardise(np.asarray(getattr(steps, name)), mean, scale)
        for name in ("observation", "next_observation")
    }
    return steps._replace(**found)


def in_unit(rewards: NDArray[Any], terminated: NDArray[np.bool_]) -> NDArray[np.float32]:
    """[L, N] of variance one, which is what the learners' settings are for. From their mean on where no
    episode ended by itself: a constant of each step would only make values large."""
    level = 0.0 if terminated.any() else rewards.mean(axis=1, keepdims=True)
    spread = rewards.std(axis=1, keepdims=True)
    return np.asarray((rewards - level) / np.where(spread > 0, spread, 1.0), np.float32)


def learn_policy(
    backbone: Backbone,
    spec: Spec,
    steps: Transitions,
    rewards: NDArray[Any],
    seeds: Sequence[int],
    updates: int,
) -> tuple[State, Metrics]:
    """The states [L, ...] of a backbone after so many updates, each from a batch of the `scaled` steps with
    these rewards [L, N] (in any unit), and the means of the last 500 metrics. Lanes share the steps."""
    paid = in_unit(np.atleast_2d(rewards), np.asarray(steps.terminated))
    shared = jax.tree.map(jnp.asarray, steps)

    def one(key: PRNGKeyArray, rewards: Float[Array, "N"]) -> tuple[State, Metrics]:
        init_key, update_key = jax.random.split(key)

        def update(state: State, key: PRNGKeyArray) -> tuple[State, Metrics]:
            draw_key, own_key = jax.random.split(key)
            drawn = jax.random.randint(draw_key, (backbone.batch_size,), 0, len(rewards))
            batch = jax.tree.map(lambda x: x[drawn], shared)
            return backbone.update(state, batch, rewards[drawn], own_key)

        keys = jax.random.split(update_key, updates)
        state, metrics = jax.lax.scan(update, backbone.init(init_key, spec), keys)
        return state, {name: jnp.mean(each[-500:]) for name, each in metrics.items()}

    # A seed's children 0 and 1 are for the method's first state and for its updates.
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), 2) for seed in seeds])
    return jax.jit(jax.vmap(one))(keys, jnp.asarray(paid))
