"""PPO: densities, advantages and losses equal their formulas; tiny tasks with a known optimum are solved."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from apportion.backbones import ppo
from apportion.core.spec import Spec
from apportion.core.types import Acted, Transitions
from builders import BUTTONS, SPEC, as_if_learned, assert_equal, initial, normal, numpy, transitions
from probes import BEST_ACTION, TINY, plain_outputs

CONFIG = ppo.Config(hidden=(8, 8), batch_size=4, discount=0.9, trace=0.8, clip=0.1, entropy_weight=0.1)
FOLLOWS = np.array([True, True, False, True, False, False, False])
REAL = np.array([True] * 6 + [False])


def _networks(spec: Spec) -> ppo.Networks:
    """As if they had learned: actions are not all alike."""
    return as_if_learned(initial(ppo.make(CONFIG), spec).networks)


def _steps(spec: Spec) -> Transitions:
    density = -2 + 0.3 * normal(np.random.default_rng(1), 7)
    return transitions(1, 7, spec)._replace(acted=Acted(density, jnp.asarray(FOLLOWS), jnp.asarray(REAL)))


@pytest.fixture(scope="module", params=[SPEC, BUTTONS], ids=["continuous", "discrete"])
def spec(request: pytest.FixtureRequest) -> Spec:
    return request.param


def _plain_log_density(networks: Any, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    outputs = plain_outputs(networks.actor, observation)
    if networks.log_std is None:
        chances = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
        return np.log(chances[np.arange(len(action)), action.argmax(axis=1)])
    inside = stats.norm.logpdf(np.arctanh(action), outputs, np.exp(networks.log_std))
    return (inside - np.log(1 - action**2)).sum(axis=1)


def test_a_saturated_action_has_a_density() -> None:
    networks = _networks(SPEC)
    edge = jnp.asarray([[1.0, -1.0]])
    slopes = jax.grad(lambda n: jnp.sum(ppo.log_densities(n, jnp.zeros((1, 3)), edge)))(networks)
    assert np.isfinite(ppo.log_densities(networks, jnp.zeros((1, 3)), edge)).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def test_a_rollout_is_judged_as_the_formulas_say(spec: Spec) -> None:
    """Values bootstrap where time ends, not after a true end; padding has no say."""
    networks, steps = _networks(spec), _steps(spec)
    rollout = jax.jit(ppo.prepared, static_argnums=3)(networks, steps, steps.paid, CONFIG)
    plain, given = numpy((networks, steps._replace(acted=None)))
    now, after = (plain_outputs(plain.critic, x)[:, 0] for x in (given.observation, given.next_observation))
    errors = given.paid + 0.9 * np.where(given.terminated, 0, after) - now
    for t in range(5, -1, -1):
        errors[t] += 0.9 * 0.8 * errors[t + 1] if FOLLOWS[t] else 0
    np.testing.assert_allclose(rollout.value[:6], (now + errors)[:6], rtol=1e-4, atol=1e-4)
    scaled = (errors[:6] - errors[:6].mean()) / errors[:6].std()
    np.testing.assert_allclose(rollout.advantage[:6], scaled, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(rollout.weight, REAL)
    assert given.terminated[:6].any() and not given.terminated[:6].all()  # noqa: PT018 - there are both


def test_the_loss_is_the_clipped_objective(spec: Spec) -> None:
    networks, steps = _networks(spec), _steps(spec)
    rng = np.random.default_rng(3)
    found = ppo.log_densities(networks, steps.observation, steps.action)
    near = found + 0.15 * normal(rng, 7)  # some ratios within the clip, some beyond
    batch = ppo.Rollout(
        steps.observation, steps.action, near, normal(rng, 7), normal(rng, 7), jnp.asarray(REAL, jnp.float32)
    )
    total, metrics = jax.jit(ppo.loss, static_argnums=2)(networks, batch, CONFIG)
    plain, given = numpy((networks, batch))
    terms, clipped, errors = [], 0, []
    for t in range(6):
        one = slice(t, t + 1)
        [density] = _plain_log_density(plain, given.observation[one], given.action[one])
        ratio = np.exp(density - given.log_density[t])
        kept = min(max(ratio, 0.9), 1.1)
        clipped += kept != ratio
        terms.append(min(ratio * given.advantage[t], kept * given.advantage[t]))
        errors.append((plain_outputs(plain.critic, given.observation[one])[0, 0] - given.value[t]) ** 2)
    np.testing.assert_allclose(metrics["actor_loss"], -np.mean(terms), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(metrics["critic_loss"], np.mean(errors), rtol=1e-4)
    np.testing.assert_allclose(metrics["clipped"], clipped / 6, rtol=1e-6)
    assert 0 < clipped < 6
    entropy = _plain_entropy(plain, given.observation[:6])
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-4)
    np.testing.assert_allclose(
        total, -np.mean(terms) + 0.5 * np.mean(errors) - 0.1 * entropy, rtol=1e-3, atol=1e-4
    )


def _plain_entropy(networks: Any, observation: np.ndarray) -> float:
    if networks.log_std is not None:
        return float(stats.norm.entropy(0, np.exp(networks.log_std)).sum())
    outputs = plain_outputs(networks.actor, observation)
    return float(np.mean([stats.entropy(np.exp(row)) for row in outputs]))


def test_padding_changes_nothing() -> None:
    """The same steps with other noise in the last place."""
    update, steps = jax.jit(ppo.make(CONFIG).update), _steps(SPEC)
    state = ppo.make(CONFIG).init(jax.random.key(0), SPEC)
    other = steps._replace(observation=steps.observation.at[-1].add(5.0))
    rewards = steps.paid.at[-1].add(7.0)
    found, expected = (
        update(state, x, r, jax.random.key(1)) for x, r in ((other, rewards), (steps, steps.paid))
    )
    assert_equal(found, expected)


# --- Tasks with a known optimum


def _play(backbone: Any, spec: Spec, reward: Any, rounds: int) -> Any:
    """The state after rounds of acting 64 times and learning from that."""

    def one(state: Any, key: jax.Array) -> tuple[Any, None]:
        act_key, update_key = jax.random.split(key)
        seen = jnp.ones((64, 1))
        keys = jax.random.split(act_key, 64)
        action = jax.vmap(lambda o, k: backbone.act(state, o, k, True))(seen, keys)
        nothing = jnp.zeros(64, bool)
        acted = Acted(backbone.log_density(state, seen, action), nothing, ~nothing)
        steps = transitions(0, 64, spec)._replace(
            observation=seen, action=action, terminated=~nothing, acted=acted
        )
        return backbone.update(state, steps, reward(action), update_key)[0], None

    @jax.jit
    def run(key: jax.Array) -> Any:
        start = backbone.init(key, spec)
        return jax.lax.scan(one, start, jax.random.split(key, rounds))[0]

    return run(jax.random.key(5))


def test_the_policy_finds_the_best_action_of_a_bandit() -> None:
    backbone = ppo.make(ppo.Config(hidden=(16,), batch_size=32, epochs=4, learning_rate=1e-2))
    state = _play(backbone, TINY, lambda action: -((action[:, 0] - BEST_ACTION) ** 2), 60)
    best = backbone.act(state, jnp.ones(1), jax.random.key(0), False)
    np.testing.assert_allclose(best, [BEST_ACTION], atol=0.1)
    assert state.networks.log_std < -0.5  # and it has become sure of it


def test_the_policy_presses_the_better_button() -> None:
    backbone = ppo.make(ppo.Config(hidden=(16,), batch_size=32, epochs=4, learning_rate=1e-2))
    state = _play(backbone, BUTTONS_ALONE, lambda action: action[:, 1], 30)
    chances = jax.nn.softmax(state.networks.actor(jnp.ones(1)))
    assert chances[1] > 0.95


BUTTONS_ALONE = Spec("buttons", ("where",), ("no", "yes"), 2, 1, discrete=True)
