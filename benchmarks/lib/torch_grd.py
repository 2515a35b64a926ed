"""GRD+SAC in eager PyTorch, as one would write it there: the peer that benchmarks/speed.py runs beside ours.

The losses are those of methods/grd.py (edges by gradient) and backbones/sac.py, at the same sizes; a test
compares them. Autograd, torch.optim.Adam, a NumPy buffer of whole episodes, one environment step per update.
"""

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from apportion.envs.make import AnyEnv

HIDDEN, COMPONENTS, SEGMENTS, BATCH = 256, 3, 4, 256
LEARNING_RATE, DISCOUNT, POLYAK, EDGE_LOGIT = 3e-4, 0.99, 0.005, 5.0
SPARSITY = (1e-5, 1e-5, 1e-5, 1e-6, 1e-5)
LOG_STD_RANGE, POLICY_LOG_STD_RANGE = (-5.0, 2.0), (-20.0, 2.0)

Layers = list[tuple[Tensor, Tensor]]  # weight [I, O] and bias [O]


# --- Networks


def init_layers(sizes: Sequence[int], device: Any) -> Layers:
    """Uniform in ±1/sqrt(inputs), as ours."""
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        bound = 1 / math.sqrt(inputs)
        weight = torch.empty(inputs, outputs, device=device).uniform_(-bound, bound)
        bias = torch.empty(outputs, device=device).uniform_(-bound, bound)
        layers.append((weight.requires_grad_(), bias.requires_grad_()))
    return layers


def mlp(layers: Layers, x: Tensor) -> Tensor:
    """ReLU between the layers; x [B, I]."""
    for weight, bias in layers[:-1]:
        x = torch.relu(torch.addmm(bias, x, weight))
    weight, bias = layers[-1]
    return torch.addmm(bias, x, weight)


def flat(*networks: Layers) -> list[Tensor]:
    return [tensor for network in networks for layer in network for tensor in layer]


class Edges(NamedTuple):
    state_to_reward: Tensor  # [S]
    action_to_reward: Tensor  # [A]
    state_to_state: Tensor  # [S, S]
    action_to_state: Tensor  # [A, S]


class Dynamics(NamedTuple):
    """One network for all target dimensions, each of which masks the inputs in its own way."""

    weight: Tensor  # [S+A, H]
    bias: Tensor  # [H]
    identity: Tensor  # [S, H]
    body: Layers

    def __call__(self, inputs: Tensor, mask: Tensor) -> Sequence[Tensor]:
        """Means, log standard deviations and mixture logits [B, S, K]; inputs [B, S+A], mask [S+A, S]."""
        size, states = inputs.shape[0], mask.shape[1]
        first = (self.weight[:, None, :] * mask[:, :, None]).flatten(1)
        hidden = (inputs @ first).view(size, states, -1) + self.bias + self.identity
        outputs = mlp(self.body, torch.relu(hidden).flatten(0, 1))
        return outputs.view(size, states, -1).chunk(3, dim=-1)


# --- Losses (equations 4 to 6 of the GRD paper)


def reward(network: Layers, inputs: Tensor, mask: Tensor) -> Tensor:
    """r̂ [B] of inputs [B, S+A] behind their edges [S+A]."""
    return mlp(network, inputs * mask).squeeze(-1)


def return_loss(rewards: Tensor, total: Tensor) -> Tensor:
    """mean_m ((Σ_t r̂_t - total) / T)², for whole segments [M, T]."""
    return (((rewards.sum(1) - total) / rewards.shape[1]) ** 2).mean()


def mixture_nll(target: Tensor, outputs: Sequence[Tensor]) -> Tensor:
    """-mean log Σ_k w_k N(target; μ_k, σ_k)."""
    means, log_stds, mixture_logits = outputs
    log_stds = log_stds.clamp(*LOG_STD_RANGE)
    standardised = (target[..., None] - means) * torch.exp(-log_stds)
    densities = -0.5 * standardised**2 - log_stds - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(functional.log_softmax(mixture_logits, -1) + densities, -1).mean()


def sparsity_loss(edges: Edges) -> Tensor:
    to_state = functional.logsigmoid(edges.state_to_state)
    own = to_state.diagonal().sum()
    parts = (
        functional.logsigmoid(edges.state_to_reward).sum(),
        functional.logsigmoid(edges.action_to_reward).sum(),
        to_state.sum() - own,
        own,
        functional.logsigmoid(edges.action_to_state).sum(),
    )
    return torch.stack([weight * part for weight, part in zip(SPARSITY, parts, strict=True)]).sum()


def sample_mask(logits: Tensor) -> Tensor:
    """Hard samples with the soft ones' gradient (straight-through Gumbel-softmax)."""
    uniform = torch.rand_like(logits).clamp(1e-7, 1 - 1e-7)
    soft = torch.sigmoid(logits + torch.log(uniform) - torch.log1p(-uniform))
    return (soft >= 0.5).float() + soft - soft.detach()


# --- The agent


class Batch(NamedTuple):
    segments: Tensor  # [M, T, S+A]
    totals: Tensor  # [M]
    observation: Tensor  # [B, S]
    action: Tensor  # [B, A]
    next_observation: Tensor  # [B, S]
    terminated: Tensor  # [B] 1 at a true end


class Agent:
    """One update: the generative model, then critics, actor and temperature with its rewards."""

    def __init__(self, states: int, actions: int, device: Any) -> None:
        shapes = ((states,), (actions,), (states, states), (actions, states))
        self.actions = actions
        self.edges = Edges(*(torch.full(s, EDGE_LOGIT, device=device, requires_grad=True) for s in shapes))
        self.reward = init_layers((states + actions, HIDDEN, HIDDEN, 1), device)
        [(weight, bias)] = init_layers((states + actions, HIDDEN), device)
        identity = torch.randn(states, HIDDEN, device=device).requires_grad_()
        body = init_layers((HIDDEN, HIDDEN, 3 * COMPONENTS), device)
        self.dynamics = Dynamics(weight, bias, identity, body)
        self.actor = init_layers((states, HIDDEN, HIDDEN, 2 * actions), device)
        self.critics = [init_layers((states + actions, HIDDEN, HIDDEN, 1), device) for _ in range(2)]
        self.targets = [[(w.detach().clone(), b.detach().clone()) for w, b in c] for c in self.critics]
        self.log_temperature = torch.zeros((), device=device, requires_grad=True)
        model = [*self.edges, *flat(self.reward, body), weight, bias, identity]
        parts = (model, flat(*self.critics), flat(self.actor), [self.log_temperature])
        self.optimisers = [torch.optim.Adam(part, lr=LEARNING_RATE) for part in parts]

    def update(self, batch: Batch) -> dict[str, float]:
        model, critic, actor, temperature = self.optimisers
        losses = {"model": self._step(model, self.model_loss(batch))}
        mask = self.policy_mask()
        seen, seen_next = batch.observation * mask, batch.next_observation * mask
        with torch.no_grad():
            edges = torch.cat(((self.edges.state_to_reward >= 0), (self.edges.action_to_reward >= 0))).float()
            rewards = reward(self.reward, torch.cat((batch.observation, batch.action), 1), edges)
        losses["critic"] = self._step(critic, self.critic_loss(batch, seen, seen_next, rewards))
        self._follow()
        loss, entropy = self.actor_loss(seen)
        losses["actor"] = self._step(actor, loss)
        gap = entropy.detach() + self.actions  # the target entropy is minus the number of actions
        losses["temperature"] = self._step(temperature, self.log_temperature.exp() * gap)
        return losses

    def model_loss(self, batch: Batch) -> Tensor:
        """L_m = L_rew + L_dyn + L_reg."""
        logits = self.edges
        to_reward = sample_mask(torch.cat((logits.state_to_reward, logits.action_to_reward)))
        to_state = sample_mask(torch.cat((logits.state_to_state, logits.action_to_state)))
        rewards = reward(self.reward, batch.segments.flatten(0, 1), to_reward)
        outputs = self.dynamics(torch.cat((batch.observation, batch.action), 1), to_state)
        fit = return_loss(rewards.view(batch.segments.shape[:2]), batch.totals)
        return fit + mixture_nll(batch.next_observation, outputs) + sparsity_loss(logits)

    def critic_loss(self, batch: Batch, seen: Tensor, seen_next: Tensor, rewards: Tensor) -> Tensor:
        with torch.no_grad():
            action, log_density = self.sample_action(seen_next)
            inputs = torch.cat((seen_next, action), 1)
            lowest = torch.min(*(mlp(target, inputs).squeeze(-1) for target in self.targets))
            soft = lowest - self.log_temperature.exp() * log_density
            goal = rewards + DISCOUNT * (1 - batch.terminated) * soft
        inputs = torch.cat((seen, batch.action), 1)
        first, second = (((mlp(c, inputs).squeeze(-1) - goal) ** 2).mean() for c in self.critics)
        return first + second

    def actor_loss(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        action, log_density = self.sample_action(seen)
        inputs = torch.cat((seen, action), 1)
        lowest = torch.min(*(mlp(critic, inputs).squeeze(-1) for critic in self.critics))
        return (self.log_temperature.exp().detach() * log_density - lowest).mean(), -log_density.mean()

    def sample_action(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """a = tanh(u), u Gaussian, and its log density."""
        mean, log_std = mlp(self.actor, observation).chunk(2, dim=-1)
        log_std = log_std.clamp(*POLICY_LOG_STD_RANGE)
        noise = torch.randn_like(mean)
        before = mean + log_std.exp() * noise
        gaussian = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        squash = 2 * (math.log(2) - before - functional.softplus(-2 * before))
        return torch.tanh(before), (gaussian - squash).sum(-1)

    def policy_mask(self) -> Tensor:
        """The reward's ancestors: one hop, repeated until nothing is added."""
        mask, hop = (self.edges.state_to_reward >= 0).float(), (self.edges.state_to_state >= 0).float()
        while True:
            wider = torch.maximum(mask, (hop @ mask > 0).float())
            if bool((wider == mask).all()):
                return mask
            mask = wider

    @staticmethod
    def _step(optimiser: Any, loss: Tensor) -> float:
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        return float(loss.detach())

    def _follow(self) -> None:
        with torch.no_grad():
            for target, critic in zip(flat(*self.targets), flat(*self.critics), strict=True):
                target.lerp_(critic, POLYAK)


# --- With an environment


class Training:
    """Steps an environment and updates after each step, from the moment there are some random episodes."""

    def __init__(self, env: AnyEnv, episode_steps: int, episodes: int = SEGMENTS, seed: int = 0) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(os.cpu_count() or 1)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.env, self.rng, self.length = env, np.random.default_rng(seed), episode_steps
        space, actions = env.observation_space.shape, env.action_space.shape
        assert space
        assert actions
        self.agent = Agent(space[0], actions[0], self.device)
        self.rows: NDArray[np.float32] = np.zeros(
            (episodes, episode_steps + 1, space[0] + actions[0]), np.float32
        )
        self.totals: NDArray[np.float32] = np.zeros(episodes, np.float32)
        self.observation, _ = env.reset(seed=seed)
        for episode in range(episodes):
            for step in range(episode_steps):
                self._play(episode, step, self.rng.uniform(-1, 1, actions[0]).astype(np.float32))
        self.step_number = 0

    def steps(self, count: int) -> None:
        """So many times: act, step the environment, draw a batch, update."""
        for _ in range(count):
            with torch.no_grad():
                seen = torch.as_tensor(self.observation, dtype=torch.float32, device=self.device)
                action, _ = self.agent.sample_action((seen * self.agent.policy_mask())[None])
            episode, step = divmod(self.step_number, self.length)
            self._play(episode % len(self.rows), step, action[0].cpu().numpy())
            self.step_number += 1
            self.agent.update(self._draw())

    def _play(self, episode: int, step: int, action: NDArray[np.float32]) -> None:
        """Write one row. Episodes are cut or joined at `episode_steps`: only the time they take matters."""
        states = self.observation.shape[0]
        self.rows[episode, step, :states], self.rows[episode, step, states:] = self.observation, action
        self.observation, paid, terminated, truncated, _ = self.env.step(action)
        self.rows[episode, step + 1, :states] = self.observation
        self.totals[episode] = float(paid) + (0.0 if step == 0 else self.totals[episode])
        if terminated or truncated:
            self.observation, _ = self.env.reset()

    def _draw(self) -> Batch:
        count, states = len(self.rows), self.observation.shape[0]
        chosen = self.rng.integers(0, count, SEGMENTS)
        episode, step = self.rng.integers(0, count, BATCH), self.rng.integers(0, self.length, BATCH)
        now, after = self.rows[episode, step], self.rows[episode, step + 1]
        arrays = (
            self.rows[chosen, :-1],
            self.totals[chosen],
            now[:, :states],
            now[:, states:],
            after[:, :states],
            np.zeros(BATCH, np.float32),
        )
        return Batch(*(torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for array in arrays))
