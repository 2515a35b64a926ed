"""One agent of two parts: the model learns first, and the policy sees and earns what the new model says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import sac
from apportion.core.spec import Spec
from apportion.core.types import Backbone, Batch, EpisodeMemory, Method, Sampling, Transitions
from apportion.data import replay as replays
from apportion.data.replay import Chunk, Replay
from apportion.envs.lane import ChunkWriter
from apportion.methods import METHODS
from apportion.training import agent, scaling
from apportion.training.agent import AgentState
from apportion.training.scaling import Limit, clock_dimensions, over
from builders import SPEC, batch, transitions

PAUSE = Limit(SPEC.max_episode_steps, "pause")


def _method() -> Method:
    """Its state counts its updates; it rewards with the count and masks all but the first dimension."""
    return Method(
        init=lambda key, spec: jnp.zeros(()),
        update=lambda state, batch, key: (state + 1.0, {"model_key": jax.random.uniform(key)}),
        reward=lambda state, steps: jnp.full(steps.paid.shape, state),
        policy_mask=lambda state: jnp.asarray([1.0, 0.0, 0.0]),
        sampling=Sampling(),
    )


def _backbone() -> Backbone:
    """Remembers what it was given."""

    def update(state: Any, steps: Transitions, rewards: jax.Array, key: jax.Array) -> Any:
        seen = {"observation": steps.observation, "next_observation": steps.next_observation}
        return seen | {"rewards": rewards}, {"policy_key": jax.random.uniform(key)}

    return Backbone(
        init=lambda key, spec: {},
        update=update,
        act=lambda state, observation, key, explore: jnp.zeros(2),
        actor=lambda state: {"w0": jnp.zeros((3, 4)), "b0": jnp.zeros(4)},
        head="tanh_gaussian",
        batch_size=5,
    )


def _updated(data: Batch) -> tuple[AgentState, Any]:
    method, backbone = _method(), _backbone()
    state = agent.init(method, backbone, jax.random.key(0), SPEC, None)
    model_key, policy_key = jax.random.split(jax.random.key(1))
    state, model = agent.update_model(method, state, data, model_key)
    lesson = agent.policy_batch(method, PAUSE, state, data.transitions, policy_key)
    state, policy = agent.update_policy(backbone, state, lesson)
    return state, model | policy


def test_the_policy_earns_what_the_updated_model_says() -> None:
    state, _ = _updated(batch(0, 5, 0))
    np.testing.assert_array_equal(state.method, 1)
    np.testing.assert_array_equal(state.backbone["rewards"], np.ones(5))


def test_actor_and_critic_see_the_same_masked_dimensions_before_and_after_the_step() -> None:
    data = batch(0, 5, 0)
    state, metrics = _updated(data)
    for name in ("observation", "next_observation"):
        seen, full = np.asarray(state.backbone[name]), np.asarray(getattr(data.transitions, name))
        np.testing.assert_array_equal(seen[:, 0], full[:, 0])
        np.testing.assert_array_equal(seen[:, 1:], 0)
    np.testing.assert_allclose(metrics["policy_mask_on"], 1 / 3, rtol=1e-6)


def test_what_a_method_recalls_is_learned_beside_the_replays_steps() -> None:
    data = batch(0, 5, 0)
    remembered = jax.tree.map(lambda x: x + 1 if x.dtype == jnp.float32 else x, data.transitions)
    method = _method()._replace(
        memory=EpisodeMemory(
            survey=lambda state, found: state,
            recall=lambda state, count, key: jax.tree.map(lambda x: x[:count], remembered),
        ),
        reward=lambda state, steps: steps.paid,
    )
    state = agent.init(method, _backbone(), jax.random.key(0), SPEC, None)
    lesson = agent.policy_batch(method, PAUSE, state, data.transitions, jax.random.key(1))
    state, _ = agent.update_policy(_backbone(), state, lesson)
    np.testing.assert_allclose(
        state.backbone["rewards"], np.concatenate([data.transitions.paid, data.transitions.paid + 1])
    )


def test_workers_get_mask_and_units_with_the_policy() -> None:
    units = scaling.unknown(SPEC)._replace(mean=jnp.asarray([1.0, 2.0, 3.0]))
    arrays = agent.actor(_method(), _backbone(), AgentState(jnp.zeros(()), {}, units), 3)
    assert set(arrays) == {"mask", "mean", "scale", "w0", "b0"}
    np.testing.assert_array_equal(arrays["mask"], [1, 0, 0])
    np.testing.assert_array_equal(arrays["mean"], [1, 2, 3])
    np.testing.assert_array_equal(arrays["scale"], [1, 1, 1])


# --- A time limit is the end to whoever can see it coming


NAMES = ("countdown", "raw", "drift", "day", "noisy", "still", "guess")
TASK = Spec("task", NAMES, ("u",), max_episode_steps=20, max_segment_steps=20)
AT_LIMIT = transitions(0, 6)._replace(
    step_in_episode=jnp.asarray([0, 4, 5, 5, 6, 5]),
    terminated=jnp.asarray([False, True, False, True, False, False]),
)


def _observe(rng: np.random.Generator, time: int, drift: float, start: float) -> Any:
    return np.array(
        [
            20.0 - time,
            1e5 + 2.5 * time,
            drift,
            np.sin(0.3 * time),
            time + 2 * rng.normal(),
            7.0,
            start + time,  # tells how much time has passed to those only who know where it began
        ],
        np.float32,
    )


def _played(episodes: int) -> Replay:
    """Episodes that end early or at their limit."""
    rng = np.random.default_rng(0)
    writer = ChunkWriter(20 * episodes, TASK.observation_size, 1)
    for _ in range(episodes):
        length, drift, start = int(rng.integers(5, 21)), rng.normal(), 10 * rng.normal()
        for time in range(length):
            writer.step(_observe(rng, time, drift, start), rng.normal(size=1), 0.0, 0.0, False)
            drift += 0.5 * rng.normal()
        writer.segment(length, 1.0, length)
        writer.final(_observe(rng, length, drift, start))
    chunk = Chunk(**writer.finish(_observe(rng, 0, 0.0, 0.0)))
    return jax.jit(replays.insert)(replays.init(TASK, len(chunk.paid)), chunk)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_what_passes_evenly_is_a_clock_in_any_unit(size: float) -> None:
    replay = _played(30)
    found = clock_dimensions(replay._replace(observation=size * replay.observation))
    assert [name for name, is_clock in zip(NAMES, found, strict=True) if is_clock] == ["countdown", "raw"]


def test_nothing_tells_the_time_while_nothing_was_seen() -> None:
    assert not clock_dimensions(replays.init(TASK, 50)).any()


@pytest.mark.parametrize(
    ("means", "told", "expected"),
    [
        ("pause", True, [False, True, False, True, False, False]),
        ("auto", None, [False, True, False, True, False, False]),
        ("auto", False, [False, True, False, True, False, False]),
        ("auto", True, [False, True, True, True, False, True]),
        ("end", False, [False, True, True, True, False, True]),
        ("end", None, [False, True, True, True, False, True]),
    ],
)
def test_when_nothing_counts_any_more(means: Any, told: bool | None, expected: list[bool]) -> None:
    seen = None if told is None else jnp.asarray([0.0, float(told), 0.0])
    assert over(Limit(6, means), seen, AT_LIMIT).tolist() == expected


def test_the_policy_sees_the_clock_though_the_method_hides_it_and_rewards_are_as_before() -> None:
    contract = METHODS["rd"].make(METHODS["rd"].config())
    method = contract._replace(policy_mask=lambda state: jnp.asarray([1.0, 0.0, 0.0]))
    backbone = sac.make(sac.Config(hidden=(4,)))
    units = scaling.unknown(SPEC, clocks=True)
    state = agent.init(method, backbone, jax.random.key(0), SPEC, units)
    told = state._replace(scaling=units._replace(clocks=jnp.asarray([0.0, 0.0, 1.0])))
    limit, key = Limit(6, "auto"), jax.random.key(1)
    before, after = (agent.policy_batch(method, limit, each, AT_LIMIT, key) for each in (state, told))
    np.testing.assert_array_equal(before.rewards, after.rewards)
    assert (int(before.transitions.terminated.sum()), int(after.transitions.terminated.sum())) == (2, 4)
    np.testing.assert_array_equal(after.transitions.next_observation[:, 2], AT_LIMIT.next_observation[:, 2])
    for each, seen in ((state, [1, 0, 0]), (told, [1, 0, 1])):
        assert agent.actor(method, backbone, each, 3)["mask"].tolist() == seen
