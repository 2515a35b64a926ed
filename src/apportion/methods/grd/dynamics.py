"""GRD's model as a place to act in: where a step leads, within the edges, and whether it ends the episode.

As published, the dynamics network is the method's own. In closed form there is none: here a few are learned
from different starts, each a mixture of Gaussians behind the edges that regression has found. Together they
are one mixture, the wider the less they agree.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Dynamics, Edges, Imagined, Metrics, Transitions
from apportion.methods.grd.config import Config
from apportion.nn import losses, mixture, optimise
from apportion.nn.mixture import Mixture
from apportion.nn.networks import MLP, MixtureDynamics
from apportion.nn.optimise import Optimiser

MEMBERS = 3  # networks that learn side by side
RATE = 1e-3  # Adam's step
MEMORY = 100  # updates that the usual spread remembers


class Networks(NamedTuple):
    members: MixtureDynamics | None  # every array has a leading axis of MEMBERS; None: the method has its own
    ends: MLP  # logit of [s, a, s'] for an end


class State(NamedTuple):
    networks: Networks
    optimiser: Optimiser
    usual: Float[Array, "3"]  # running sums of 1, u and u² over real steps, u their mean log spread


def make(
    config: Config,
    edges_on: Callable[[Any], Edges],
    own: Callable[[Any], MixtureDynamics] | None = None,
) -> Dynamics:
    """`edges_on` and `own` read the method's state: the edges as masks, and the network where it has one."""

    def init(key: PRNGKeyArray, spec: Spec) -> State:
        networks = _init_networks(config, key, spec, has_members=own is None)
        return State(networks, optimise.start(networks, config.learning_rate or RATE), jnp.zeros(3))

    def predict(
        networks: Networks, method: Any, observation: Float[Array, "B S"], action: Float[Array, "B A"]
    ) -> Mixture:
        """Of each member: [E, B, S, K]."""
        on = edges_on(method)
        members = networks.members if own is None else jax.tree.map(lambda x: x[None], own(method))
        assert members is not None

        def one(network: MixtureDynamics) -> Mixture:
            return predicted(
                network, observation, action, on.state_to_state, on.action_to_state, config, moves=own is None
            )

        return jax.vmap(one)(members)

    def update(state: State, method: Any, steps: Transitions) -> tuple[State, Metrics]:
        def loss(networks: Networks) -> tuple[Float[Array, ""], tuple[Metrics, Mixture]]:
            found = predict(networks, method, steps.observation, steps.action)
            fit = jax.vmap(lambda one: losses.mixture_nll(steps.next_observation, *one))(found)
            end = end_loss(networks.ends, steps)
            metrics = {"model_loss": jnp.mean(fit), "model_end_loss": end}
            return jnp.sum(fit) + end, (metrics, found)

        networks, optimiser, (metrics, found) = optimise.descend_with(state.optimiser, state.networks, loss)
        spread = step_spread(mixture.joined(found))
        now = jnp.stack([jnp.ones(()), jnp.mean(spread), jnp.mean(spread**2)])
        usual = state.usual + (now - state.usual) / MEMORY
        return State(networks, optimiser, usual), metrics | {"model_spread": jnp.exp(now[1])}

    def imagine(
        state: State,
        method: Any,
        observation: Float[Array, "B S"],
        action: Float[Array, "B A"],
        key: PRNGKeyArray,
    ) -> Imagined:
        found = mixture.joined(predict(state.networks, method, observation, action))
        after = mixture.draw(found, key)
        ends = end_logits(state.networks.ends, observation, action, after) > 0
        return Imagined(after, ends, doubt(state.usual, step_spread(found)))

    return Dynamics(init, update, imagine)


def predicted(
    network: MixtureDynamics,
    observation: Float[Array, "B S"],
    action: Float[Array, "B A"],
    state_to_state: Float[Array, "S S"],
    action_to_state: Float[Array, "A S"],
    config: Config,
    moves: bool = False,
) -> Mixture:
    """s' by one network; one that predicts moves adds them to s_i wherever s_i may feed s'_i."""
    means, log_stds, logits = network(
        observation, action, state_to_state, action_to_state, use_identity=config.target_identity
    )
    if moves:
        stays = observation * jnp.diagonal(state_to_state)[None, :]
        means = means + stays[..., None]
    return Mixture(means, jnp.clip(log_stds, *config.log_std_range), logits)


def end_logits(
    network: MLP,
    observation: Float[Array, "B S"],
    action: Float[Array, "B A"],
    next_observation: Float[Array, "B S"],
) -> Float[Array, "B"]:
    """Above 0 where a step rather ends the episode than not."""
    x = jnp.concatenate([observation, action, next_observation], axis=-1)
    return jnp.squeeze(network(x), axis=-1)


def end_loss(network: MLP, steps: Transitions) -> Float[Array, ""]:
    """Cross-entropy of whether real steps end their episode."""
    logits = end_logits(network, steps.observation, steps.action, steps.next_observation)
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, steps.terminated.astype(logits.dtype)))


def step_spread(found: Mixture) -> Float[Array, "B"]:
    """Mean over the dimensions of a step of how widely it is predicted, as a logarithm."""
    return jnp.mean(mixture.log_spread(found), axis=-1)


def doubt(usual: Float[Array, "3"], spread: Float[Array, "B"]) -> Float[Array, "B"]:
    """(u - mean u) / std u, both over real steps."""
    _, mean, square = usual / jnp.maximum(usual[0], 1e-6)
    deviation = jnp.sqrt(jnp.maximum(square - mean**2, 1e-6))
    return (spread - mean) / deviation


def _init_networks(config: Config, key: PRNGKeyArray, spec: Spec, has_members: bool) -> Networks:
    states, actions = spec.observation_size, spec.action_size
    members_key, ends_key = jax.random.split(key)

    def member(key: PRNGKeyArray) -> MixtureDynamics:
        return MixtureDynamics.init(key, states, actions, config.hidden, config.components)

    members = jax.vmap(member)(jax.random.split(members_key, MEMBERS)) if has_members else None
    return Networks(members, MLP.init(ends_key, (2 * states + actions, *config.hidden, 1)))
