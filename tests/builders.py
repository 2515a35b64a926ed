"""Small specs and random data for the tests of the core."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apportion.core.spec import Spec
from apportion.core.types import Batch, Method, Segments, Transitions

SPEC = Spec(
    env_id="toy",
    observation_names=("height", "speed", "colour"),
    action_names=("push", "turn"),
    max_episode_steps=6,
    max_segment_steps=4,
)

BUTTONS = replace(SPEC, env_id="toy with two buttons", discrete=True)


def normal(rng: np.random.Generator, *shape: int) -> jax.Array:
    return jnp.asarray(rng.standard_normal(shape), jnp.float32)


def some_actions(rng: np.random.Generator, spec: Spec, *shape: int) -> jax.Array:
    """In [-1, 1], or one-hot where actions are discrete."""
    drawn = normal(rng, *shape, spec.action_size)
    if not spec.discrete:
        return jnp.tanh(drawn)
    return jax.nn.one_hot(jnp.argmax(drawn, axis=-1), spec.action_size, dtype=jnp.float32)


def transitions(seed: int, size: int, spec: Spec = SPEC) -> Transitions:
    rng = np.random.default_rng(seed)
    states = spec.observation_size
    length = rng.integers(1, spec.max_segment_steps + 1, size)
    return Transitions(
        observation=normal(rng, size, states),
        action=some_actions(rng, spec, size),
        next_observation=normal(rng, size, states),
        paid=normal(rng, size),
        true_reward=normal(rng, size),
        terminated=jnp.asarray(rng.random(size) < 0.3),
        segment_total=normal(rng, size),
        segment_length=jnp.asarray(length, jnp.int32),
        step_in_segment=jnp.asarray(rng.integers(0, length), jnp.int32),
        step_in_episode=jnp.asarray(rng.integers(0, spec.max_episode_steps, size), jnp.int32),
        credit=normal(rng, size),
    )


def segments(seed: int, count: int, spec: Spec = SPEC) -> Segments:
    """Segments of every length from 1 on; what lies in the padding is noise, as in the replay."""
    rng = np.random.default_rng(seed)
    states, steps = spec.observation_size, spec.max_segment_steps
    length = 1 + np.arange(count) % steps
    return Segments(
        observations=normal(rng, count, steps + 1, states),
        actions=some_actions(rng, spec, count, steps),
        true_rewards=normal(rng, count, steps),
        length=jnp.asarray(length, jnp.int32),
        total=normal(rng, count),
        mask=jnp.asarray(np.arange(steps)[None, :] < length[:, None]),
        terminated=jnp.asarray(rng.random(count) < 0.3),
        number=jnp.arange(count, dtype=jnp.int32),
    )


EARNING = Spec(
    env_id="a known reward",
    observation_names=("good", "bad in excess", "idle"),
    action_names=("costly",),
    max_episode_steps=10,
    max_segment_steps=10,
)


def known_reward(observation: Any, action: Any) -> Any:
    return observation[..., 0] - 0.5 * observation[..., 1] ** 2 - action[..., 0]


def earning_segments(seed: int, count: int) -> Segments:
    """Segments of 4 to 10 steps that pay the sum of `known_reward`.

    Steps of one segment resemble each other, as those of an episode do: else a few say little about all.
    """
    rng = np.random.default_rng(seed)
    length = 4 + np.arange(count) % 7
    mask = jnp.asarray(np.arange(10)[None, :] < length[:, None])
    observations, actions = (
        0.9 * normal(rng, count, 1, size) + 0.45 * normal(rng, count, steps, size)
        for steps, size in ((11, EARNING.observation_size), (10, EARNING.action_size))
    )
    actions = jnp.tanh(actions)
    rewards = known_reward(observations[:, :-1], actions)
    return Segments(
        observations=observations,
        actions=actions,
        true_rewards=rewards,
        length=jnp.asarray(length, jnp.int32),
        total=jnp.sum(jnp.where(mask, rewards, 0.0), axis=1),
        mask=mask,
        terminated=jnp.zeros(count, bool),
        number=jnp.arange(count, dtype=jnp.int32),
    )


def learned_correlation(method: Method, updates: int) -> float:
    """Of the method's reward with the known one, on new segments, after learning from sums only."""
    new = earning_segments(3, 128)
    steps = transitions(4, 1280, EARNING)._replace(
        observation=new.observations[:, :-1].reshape(1280, -1),
        action=new.actions.reshape(1280, -1),
        next_observation=new.observations[:, 1:].reshape(1280, -1),
    )
    rewards = _learned(method, updates, earning_segments(1, 128), lambda state: method.reward(state, steps))
    return float(np.corrcoef(rewards, new.true_rewards.ravel())[0, 1])


def _learned(method: Method, updates: int, data: Segments, read: Callable[[Any], jax.Array]) -> np.ndarray:
    """What is read of the state after so many updates from these segments."""
    batch = Batch(data, transitions(2, 8, EARNING))

    @jax.jit
    def train(init_key: jax.Array, keys: jax.Array) -> jax.Array:
        start = method.init(init_key, EARNING)
        return read(jax.lax.scan(lambda state, key: method.update(state, batch, key), start, keys)[0])

    return np.asarray(train(jax.random.key(0), jax.random.split(jax.random.key(1), updates)))


def surprising_segments(seed: int, count: int) -> Segments:
    """The same number of steps, each independent of the others, which earn by where they lead: no step says
    anything about the rewards of later ones."""
    found, rng = earning_segments(seed, count), np.random.default_rng(seed)
    observations = normal(rng, *found.observations.shape)
    actions = jnp.tanh(normal(rng, *found.actions.shape))
    rewards = known_reward(observations[:, 1:], actions)
    total = jnp.sum(jnp.where(found.mask, rewards, 0.0), axis=1)
    return found._replace(observations=observations, actions=actions, true_rewards=rewards, total=total)


def learned_credit_correlation(
    method: Method, updates: int, make_segments: Callable[[int, int], Segments] = earning_segments
) -> float:
    """The same for a method that judges whole segments: of its credit, on the steps of new ones."""
    new, judge = make_segments(3, 128), method.credit
    assert judge is not None
    credit = _learned(method, updates, make_segments(1, 128), lambda state: judge(state, new))
    real = np.asarray(new.mask)
    return float(np.corrcoef(credit[real], np.asarray(new.true_rewards)[real])[0, 1])


def batch(seed: int, size: int, segment_count: int, spec: Spec = SPEC) -> Batch:
    found = segments(seed + 1, segment_count, spec) if segment_count else None
    return Batch(found, transitions(seed, size, spec))


def initial(contract: Any, spec: Spec = SPEC) -> Any:
    """What a method or a backbone starts from."""
    return jax.jit(lambda key: contract.init(key, spec))(jax.random.key(0))


def as_if_learned(tree: Any, size: float = 0.3) -> Any:
    """Networks that have moved: what starts at 0 has a say."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: leaf + size * normal(rng, *leaf.shape), tree)


def moved(state: Any, *names: str) -> Any:
    """These parts of a state as if it had learned; variances stay positive, and counters what they are."""
    rng = np.random.default_rng(0)

    def move(leaf: jax.Array) -> jax.Array:
        counter = leaf.dtype == jnp.int32
        return leaf if counter else leaf + 0.2 * jnp.abs(normal(rng, *leaf.shape))

    return state._replace(**{name: jax.tree.map(move, getattr(state, name)) for name in names})


def episode(seed: int, ends: list[int]) -> dict[str, Any]:
    """What workers send of an episode whose segments end after these many steps."""
    rng = np.random.default_rng(seed)
    length = ends[-1]
    true_rewards = rng.normal(size=length).astype(np.float32)
    paid, segment_end = np.zeros(length, np.float32), np.zeros(length, np.bool_)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        paid[end - 1], segment_end[end - 1] = true_rewards[start:end].sum(), True
    return {
        "observations": rng.normal(size=(length + 1, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (length, 2)).astype(np.float32),
        "paid": paid,
        "true_rewards": true_rewards,
        "segment_end": segment_end,
        "terminated": np.asarray(False),
    }


def numpy(tree: Any) -> Any:
    """Every array of a tree as NumPy, in double precision where it is a float."""

    def convert(array: Any) -> Any:
        array = np.asarray(array)
        return array.astype(np.float64) if array.dtype == np.float32 else array

    return jax.tree.map(convert, tree)


def stack(*trees: Any) -> Any:
    """One tree with a leading axis of lanes. By NumPy, as JAX would compile a program for every shape."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)


def lane(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def assert_close(found: Any, expected: Any, rtol: float = 2e-4, atol: float = 2e-5) -> None:
    """Trees equal in structure, and in values up to rounding."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=atol)


def assert_equal(found: Any, expected: Any) -> None:
    """Trees equal bit for bit."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
