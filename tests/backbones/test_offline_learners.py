"""IQL, ReBRAC and behaviour cloning: losses equal their formulas; small logs teach what is best in them."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.backbones import imitation, iql, rebrac
from apportion.envs import acting
from apportion.nn.networks import normalise
from builders import BUTTONS, SPEC, initial, numpy, transitions
from probes import BEST_ACTION, TINY, bandit, plain_outputs, plain_values, train

SMALL: dict[str, Any] = {"hidden": (8, 8), "batch_size": 64, "learning_rate": 3e-3}
STEPS = transitions(1, 6)
LOGGED = STEPS._replace(next_action=transitions(2, 6).action)


# --- Losses beside NumPy


@pytest.mark.parametrize("spec", [SPEC, BUTTONS], ids=["continuous", "discrete"])
def test_the_density_of_logged_actions(spec: Any) -> None:
    steps = transitions(1, 6, spec)
    actor = initial(imitation.make(imitation.Config(**SMALL)), spec).actor
    if actor.log_std is not None:
        actor = actor._replace(log_std=jnp.asarray([-0.5, 9.0]))  # the second is cut at 1
    found = imitation.log_density(actor, steps.observation, steps.action)
    outputs, action = plain_outputs(numpy(actor.network), numpy(steps.observation)), numpy(steps.action)
    if spec.discrete:
        expected = np.log((np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True) * action).sum(axis=1))
    else:
        spread = np.exp([-0.5, 1.0])
        square = ((action - np.tanh(outputs)) / spread) ** 2
        expected = (-0.5 * square - np.log(spread * np.sqrt(2 * np.pi))).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_an_update_of_iql() -> None:
    config = iql.Config(**SMALL, discount=0.9, polyak=0.1, expectile=0.8)
    state = initial(iql.make(config))
    state = state._replace(target_critics=jax.tree.map(lambda weight: 0.5 * weight, state.target_critics))
    after, metrics = jax.jit(iql.make(config).update)(state, STEPS, STEPS.paid, jax.random.key(1))
    plain, was = numpy(STEPS), numpy(state)
    taken = plain_values(was.target_critics, plain.observation, plain.action).min(axis=0)
    missing = taken - plain_outputs(was.value, plain.observation)[:, 0]
    assert metrics["value_loss"] == pytest.approx(
        np.mean(np.where(missing > 0, 0.8, 0.2) * missing**2), rel=1e-4
    )
    density = numpy(imitation.log_density(state.actor, STEPS.observation, STEPS.action))
    weight = np.minimum(np.exp(3.0 * missing), 100)
    assert metrics["actor_loss"] == pytest.approx(-np.mean(weight * density), rel=1e-4)
    later = np.where(plain.terminated, 0, plain_outputs(was.value, plain.next_observation)[:, 0])
    errors = plain_values(was.critics, plain.observation, plain.action) - (plain.paid + 0.9 * later)
    assert metrics["critic_loss"] == pytest.approx((errors**2).mean(axis=1).sum(), rel=1e-4)
    moved = jax.tree.map(lambda old, new: old + 0.1 * (new - old), was.target_critics, numpy(after.critics))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), numpy(after.target_critics), moved)


def _normed(network: Any, inputs: np.ndarray) -> np.ndarray:
    x = inputs
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(numpy(normalise(jnp.asarray(x @ weight))) + bias, 0)
    return x @ network.weights[-1] + network.biases[-1]


def test_rebrac_pays_for_leaving_logged_actions() -> None:
    config = rebrac.Config(**SMALL, smoothing_noise=0.0, actor_penalty=0.3, critic_penalty=0.2)
    state = initial(rebrac.make(config))
    plain, was = numpy(LOGGED), numpy(state)
    after = np.tanh(plain_outputs(was.target_actor, plain.next_observation))
    value = plain_values(was.target_critics, plain.next_observation, after, _normed).min(axis=0)
    found = rebrac.penalised_values(state, LOGGED, jnp.asarray(after, jnp.float32), 0.2)
    far = ((after - plain.next_action) ** 2).sum(axis=1)
    np.testing.assert_allclose(found, value - 0.2 * far, rtol=1e-4, atol=1e-6)
    unknown = rebrac.penalised_values(state, STEPS, jnp.asarray(after, jnp.float32), 0.2)
    np.testing.assert_allclose(unknown, value, rtol=1e-4, atol=1e-6)
    action = np.tanh(plain_outputs(was.actor, plain.observation))
    worth = plain_values(was.critics, plain.observation, action, _normed).min(axis=0)
    expected = np.mean(0.3 * ((action - plain.action) ** 2).sum(axis=1) - worth / np.abs(worth).mean())
    assert rebrac.actor_loss(state.actor, state.critics, LOGGED, 0.3) == pytest.approx(expected, rel=1e-4)


# --- Small logs


MAKERS = {
    "iql": lambda: iql.make(iql.Config(**SMALL, temperature=30.0)),
    "rebrac": lambda: rebrac.make(rebrac.Config(**SMALL, actor_penalty=0.01)),
    "bc": lambda: imitation.make(imitation.Config(**SMALL)),
}


@pytest.mark.parametrize(("name", "best"), [("iql", BEST_ACTION), ("rebrac", BEST_ACTION), ("bc", 0.0)])
def test_the_bandit(name: str, best: float) -> None:
    """Rewarded ones find its best action, behaviour cloning the mean of what was done; workers act alike."""
    backbone = MAKERS[name]()
    steps = bandit()
    state = train(backbone, steps._replace(next_action=steps.action), 1_500)
    action = backbone.act(state, jnp.ones(1), jax.random.key(0), False)
    assert action[0] == pytest.approx(best, abs=0.12)
    actor = {key: np.asarray(array) for key, array in backbone.actor(state).items()} | {"mask": np.ones(1)}
    np.testing.assert_allclose(
        acting.act(actor, backbone.head, np.ones(1, np.float32), None), action, rtol=1e-4
    )
    drawn = [
        acting.act(actor, backbone.head, np.ones(1, np.float32), np.random.default_rng(i))[0]
        for i in range(50)
    ]
    assert np.std(drawn) > 0.01


@pytest.mark.parametrize(("name", "chosen"), [("iql", 1), ("bc", 0)])
def test_two_buttons(name: str, chosen: int) -> None:
    """The second pays and is pressed more seldom: IQL presses it, behaviour cloning the other one."""
    spec = replace(TINY, action_names=("left", "right"), discrete=True)
    pressed = jnp.asarray(np.arange(256) % 4 == 0, jnp.int32)
    steps = transitions(0, 256, TINY)._replace(
        observation=jnp.ones((256, 1)),
        action=jax.nn.one_hot(pressed, 2),
        paid=pressed.astype(jnp.float32),
        terminated=jnp.ones(256, bool),
    )
    backbone = MAKERS[name]()
    state = train(backbone, steps, 800, spec)
    assert int(jnp.argmax(backbone.act(state, jnp.ones(1), jax.random.key(0), False))) == chosen
