"""One agent of two parts: the model learns first, and the policy sees and earns what the new model says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apportion.core.types import Backbone, Batch, EpisodeMemory, Method, Sampling, Transitions
from apportion.training import agent, scaling
from apportion.training.agent import AgentState
from apportion.training.scaling import Limit
from builders import SPEC, batch

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


def test_the_two_parts_use_different_randomness() -> None:
    _, metrics = _updated(batch(0, 5, 0))
    assert metrics["model_key"] != metrics["policy_key"]


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
