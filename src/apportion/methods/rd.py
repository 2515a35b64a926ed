"""RD, return decomposition by least squares: equation 4 of the GRD paper (Zhang et al., NeurIPS 2023) with
every edge on, and no dynamics. RRD (Ren et al., ICLR 2022) approximates the same loss."""

from dataclasses import dataclass

from jaxtyping import Array, Float, PRNGKeyArray

from apportion.core.spec import Spec
from apportion.core.types import Method, Segments, Transitions
from apportion.methods import regression
from apportion.methods.regression import NetworkConfig
from apportion.nn import losses
from apportion.nn.networks import MLP


@dataclass(frozen=True)
class Config(NetworkConfig):
    """RD: a reward network whose sum over a segment is what the segment paid."""


def make(config: Config) -> Method:
    def network(key: PRNGKeyArray, spec: Spec) -> MLP:
        return MLP.init(key, (spec.observation_size + spec.action_size, *config.hidden, 1))

    def reward(network: MLP, transitions: Transitions) -> Float[Array, "*B"]:
        return network.scalar(transitions.observation, transitions.action)

    return regression.build(
        config,
        network,
        lambda network, segments, key: regression.alone(reward_loss(network, segments)),
        reward=reward,
    )


def reward_loss(network: MLP, segments: Segments) -> Float[Array, ""]:
    """mean_m ((Σ_t r̂_t - total) / T)² over all steps of each segment, with r̂ = MLP([s, a])."""
    rewards = network.scalar(segments.observations[:, :-1], segments.actions)
    return losses.return_loss(rewards, segments)
