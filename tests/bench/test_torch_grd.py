"""The PyTorch peer computes the same losses as ours: else it would be no fair comparison."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.backbones import sac, soft
from apportion.core.types import Edges
from apportion.methods import grd
from apportion.nn import losses
from apportion.nn.networks import MLP, MixtureDynamics
from lib import workload

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
peer = pytest.importorskip("lib.torch_grd")

STATES, ACTIONS, BATCH = 5, 2, 32
RNG = np.random.default_rng(0)
OBSERVATION, NEXT = (RNG.standard_normal((BATCH, STATES)).astype(np.float32) for _ in range(2))
ACTION = np.tanh(RNG.standard_normal((BATCH, ACTIONS))).astype(np.float32)
EDGES = Edges(
    *(
        jnp.asarray(RNG.integers(0, 2, shape), jnp.float32)
        for shape in ((STATES,), (ACTIONS,), (STATES, STATES), (ACTIONS, STATES))
    )
)
REWARD = MLP.init(jax.random.key(0), (STATES + ACTIONS, 256, 256, 1))
DYNAMICS = MixtureDynamics.init(jax.random.key(1), STATES, ACTIONS, (256, 256), 3)


def tensor(array: object) -> object:
    return torch.from_numpy(np.array(array))


def layers(network: MLP) -> object:
    pairs = zip(network.weights, network.biases, strict=True)
    return [(tensor(weight), tensor(bias)) for weight, bias in pairs]


def inputs() -> object:
    return tensor(np.concatenate([OBSERVATION, ACTION], axis=1))


def test_the_reward_loss_is_ours() -> None:
    shape, total = (4, BATCH // 4), jnp.asarray([1.0, -2.0, 0.5, 3.0])
    segments = builders.segments(0, 4)._replace(
        mask=jnp.ones(shape, jnp.bool_), total=total, length=jnp.full(4, shape[1], jnp.int32)
    )
    mask = jnp.concatenate([EDGES.state_to_reward, EDGES.action_to_reward])
    seen = jnp.concatenate([jnp.asarray(OBSERVATION), jnp.asarray(ACTION)], axis=1)
    rewards = REWARD(seen * jnp.broadcast_to(mask, seen.shape)).reshape(shape)
    ours = losses.return_loss(rewards, segments)
    found = peer.reward(layers(REWARD), inputs(), tensor(mask)).view(shape)
    assert float(peer.return_loss(found, tensor(total))) == pytest.approx(float(ours), rel=1e-5)


def test_the_dynamics_loss_is_ours() -> None:
    means, log_stds, logits = DYNAMICS(
        jnp.asarray(OBSERVATION),
        jnp.asarray(ACTION),
        EDGES.state_to_state,
        EDGES.action_to_state,
        use_identity=True,
    )
    ours = losses.mixture_nll(
        jnp.asarray(NEXT), means, jnp.clip(log_stds, *grd.Config().log_std_range), logits
    )
    network = DYNAMICS
    dynamics = peer.Dynamics(
        *map(tensor, (network.weight, network.bias, network.identity)), layers(network.body)
    )
    mask = tensor(jnp.concatenate([EDGES.state_to_state, EDGES.action_to_state]))
    theirs = peer.mixture_nll(tensor(NEXT), dynamics(inputs(), mask))
    assert float(theirs) == pytest.approx(float(ours), rel=1e-5)


def test_the_sparsity_loss_is_ours() -> None:
    logits = jax.tree.map(lambda edges: 3 * edges - 1, EDGES)
    ours = losses.sparsity_loss(logits, jnp.asarray(grd.Config().sparsity, jnp.float32))
    assert float(peer.sparsity_loss(peer.Edges(*map(tensor, logits)))) == pytest.approx(float(ours), rel=1e-5)


def test_its_settings_are_our_defaults() -> None:
    ours, policy = workload.PUBLISHED, sac.Config()
    assert (ours.hidden, policy.hidden) == ((peer.HIDDEN,) * 2,) * 2
    segments = grd.make(ours).sampling.segments
    assert (segments, ours.components, policy.batch_size) == (peer.SEGMENTS, peer.COMPONENTS, peer.BATCH)
    state = grd.make(ours).init(jax.random.key(0), workload.made_up_spec(workload.Size(2, 1)))
    assert float(state.reward_optimiser.learning_rate) == pytest.approx(peer.LEARNING_RATE)
    assert {ours.edge_learning_rate, policy.learning_rate} == {peer.LEARNING_RATE}
    assert (ours.sparsity, ours.initial_edge_logit) == (peer.SPARSITY, peer.EDGE_LOGIT)
    assert (policy.discount, policy.polyak) == (peer.DISCOUNT, peer.POLYAK)
    assert (ours.log_std_range, soft.LOG_STD_RANGE) == (peer.LOG_STD_RANGE, peer.POLICY_LOG_STD_RANGE)


def test_it_learns_from_what_it_plays() -> None:
    training = peer.Training(gymnasium.make("Pendulum-v1"), episode_steps=20)
    batch = training._draw()
    with torch.no_grad():
        before = float(training.agent.model_loss(batch))
    training.steps(20)
    found = training.agent.update(batch)
    assert found["model"] < before
    assert all(np.isfinite(loss) for loss in found.values())
