"""GRD's model as a place to act in: where a step leads, within the edges, and whether it ends the episode.

As published, the dynamics network is the method's own. In closed form there is none: here one is learned, a
mixture of Gaussians behind the edges that regression has found (equation 5 of the paper).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import random
from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Dynamics, Edges, Imagined, Metrics, Transitions
from apportion.methods.grd.parts import Config
from apportion.nn import losses, optimise
from apportion.nn.losses import Mixture
from apportion.nn.networks import MLP, MixtureDynamics
from apportion.nn.optimise import Optimiser

RATE = 1e-3  # Adam's step


class Networks(NamedTuple):
    leads: MixtureDynamics | None  # None: the method has its own
    ends: MLP  # logit of [s, a, s']: above 0 where the step rather ends the episode than not


class State(NamedTuple):
    networks: Networks
    optimiser: Optimiser


def make(
    config: Config,
    edges_on: Callable[[Any], Edges],
    own: Callable[[Any], MixtureDynamics] | None = None,
) -> Dynamics:
    """`edges_on` and `own` read the method's state: the edges as masks, and the network where it has one."""

    def init(key: PRNGKeyArray, spec: Spec) -> State:
        states, actions = spec.observation_size, spec.action_size
        leads_key, ends_key = random.split(key)
        leads = MixtureDynamics.init(leads_key, states, actions, config.hidden, config.components)
        ends = MLP.init(ends_key, (2 * states + actions, *config.hidden, 1))
        networks = Networks(leads if own is None else None, ends)
        return State(networks, optimise.start(networks, config.learning_rate or RATE))

    def predict(
        networks: Networks, method: Any, observation: Float[Array, "B S"], action: Float[Array, "B A"]
    ) -> Mixture:
        on = edges_on(method)
        network = networks.leads if own is None else own(method)
        assert network is not None
        return predicted(
            network, observation, action, on.state_to_state, on.action_to_state, config, moves=own is None
        )

    def update(state: State, method: Any, steps: Transitions) -> tuple[State, Metrics]:
        def loss(networks: Networks) -> tuple[Float[Array, ""], Metrics]:
            found = predict(networks, method, steps.observation, steps.action)
            fit = losses.mixture_nll(steps.next_observation, *found)
            logits = networks.ends.scalar(steps.observation, steps.action, steps.next_observation)
            ended = steps.terminated.astype(logits.dtype)
            end = jnp.mean(optax.sigmoid_binary_cross_entropy(logits, ended))
            return fit + end, {"model_loss": fit, "model_end_loss": end}

        networks, optimiser, metrics = optimise.descend_with(state.optimiser, state.networks, loss)
        return State(networks, optimiser), metrics

    def imagine(
        state: State,
        method: Any,
        observation: Float[Array, "B S"],
        action: Float[Array, "B A"],
        key: PRNGKeyArray,
    ) -> Imagined:
        after = losses.draw(predict(state.networks, method, observation, action), key)
        return Imagined(after, state.networks.ends.scalar(observation, action, after) > 0)

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
