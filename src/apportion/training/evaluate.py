"""How good are the policy and the learned reward? Judged by the true reward, which learning never sees.

Where an environment pays only at the end of its own accord there is no true reward of a step, and nothing
to correlate with: what the rewards of an episode sum up to is judged alone.
"""

import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS, Graph, Spec
from apportion.core.types import Method, Sampling, Segments, State, Transitions
from apportion.data import replay as replays
from apportion.data.replay import Replay
from apportion.envs.messages import Arrays
from apportion.envs.supervisor import Pool
from apportion.training import agent as agents
from apportion.training import devices
from apportion.training.agent import AgentState
from apportion.training.settings import Config
from apportion.training.updates import Islands

Redistribute = Callable[[State, list[list[Arrays]]], list[list[NDArray[np.float32]]]]


class Evaluation(NamedTuple):
    """One evaluation of all lanes, at one moment of training."""

    returns: NDArray[np.float64]  # [L] mean true return of the episodes
    return_std: NDArray[np.float64]  # [L] spread between episodes
    lengths: NDArray[np.float64]  # [L] mean steps per episode
    reward_correlation: NDArray[np.float64]  # [L] of r̂ with r, on steps from the replay; NaN without r
    episode_correlation: NDArray[np.float64]  # [L] the same, on the evaluation episodes
    return_error: NDArray[np.float64]  # [L] mean |Σ r̂ - R| as a share of mean |R|
    constant_error: NDArray[np.float64]  # [L] the same of one r̂ for all steps, the mean of theirs
    success: NDArray[np.float64]  # [L] share of episodes that succeeded; NaN where none says
    step_rewards: NDArray[np.bool_]  # [L] whether the environment itself rewards single steps
    episodes: list[list[Arrays]]  # with `redistributed`, the learned reward of each step

    @property
    def scores(self) -> dict[str, NDArray[np.float64]]:
        """[L] each, under the names that they have in logs. Success only where the environment reports it."""
        hidden = {"step_rewards", "episodes"} | (set() if np.isfinite(self.success).any() else {"success"})
        named = {"returns": "return", "lengths": "length"}
        return {named.get(name, name): x for name, x in self._asdict().items() if name not in hidden}


def make_redistribute(method: Method, spec: Spec) -> Redistribute:
    """A function that gives r̂ for every step of all lanes' episodes, compiled once for all lengths."""
    if method.credit is not None:
        return _by_segments(method.credit, spec.max_segment_steps)
    reward = jax.jit(jax.vmap(method.reward))

    def redistribute(states: State, lanes: list[list[Arrays]]) -> list[list[NDArray[np.float32]]]:
        steps = [transitions_of(episode) for lane in _filled(lanes) for episode in lane]
        real = np.arange(spec.max_episode_steps) < np.array([len(each.paid) for each in steps])[:, None]

        def padded(*columns: NDArray[Any]) -> NDArray[Any]:
            found = np.zeros((*real.shape, *columns[0].shape[1:]), columns[0].dtype)
            found[real] = np.concatenate(columns)
            return found.reshape(len(lanes), len(steps) // len(lanes), *found.shape[1:])

        rewards = np.asarray(reward(states, jax.tree.map(padded, *steps)), np.float32)
        return [
            [rewards[i, j, : len(episode["actions"])] for j, episode in enumerate(lane)]
            for i, lane in enumerate(lanes)
        ]

    return redistribute


def _by_segments(credit: Callable[[State, Segments], Array], max_steps: int) -> Redistribute:
    """The same for methods that judge a step by its whole segment."""

    def one_by_one(state: State, segments: Segments) -> Float[Array, "K T"]:
        # Not all at once: attention over a thousand steps takes a thousand times their memory.
        return jax.lax.map(lambda one: credit(state, jax.tree.map(lambda x: x[None], one))[0], segments)

    credit_all = jax.jit(jax.vmap(one_by_one))

    def redistribute(states: State, lanes: list[list[Arrays]]) -> list[list[NDArray[np.float32]]]:
        cut = [[s for episode in lane for s in _as_segments(episode, max_steps)] for lane in _filled(lanes)]
        # Rounded up to a power of two: few programs for any number of segments.
        most = 1 << (max(map(len, cut)) - 1).bit_length()
        padded = [each for lane in cut for each in lane + [lane[0]] * (most - len(lane))]
        stacked = jax.tree.map(lambda *x: np.reshape(x, (len(cut), most, *np.shape(x[0]))), *padded)
        credits = np.asarray(credit_all(states, stacked), np.float32)
        joined = []
        for lane, given, segments in zip(lanes, credits, cut, strict=True):
            steps = [row[: s.length] for row, s in zip(given, segments, strict=False)]
            ends = np.cumsum([len(episode["actions"]) for episode in lane])
            joined.append(np.split(np.concatenate(steps), ends[:-1])[: len(lane)])
        return joined

    return redistribute


def _filled(lanes: list[list[Arrays]]) -> list[list[Arrays]]:
    """With another lane's episodes where a lane has played none, so that all have the same number."""
    some = next(lane for lane in lanes if lane)
    return [lane or some for lane in lanes]


def judge(
    episodes: list[list[Arrays]], redistributed: list[list[NDArray[np.float32]]], correlation: Any
) -> Evaluation:
    """Score evaluation episodes of all lanes; `correlation` [L] was measured on the replay."""
    lanes = [
        [episode | {"redistributed": rewards} for episode, rewards in zip(*pair, strict=True)]
        for pair in zip(episodes, redistributed, strict=True)
    ]

    def per_lane(score: Callable[[list[Arrays]], float]) -> NDArray[np.float64]:
        return np.array([score(lane) if lane else np.nan for lane in lanes], np.float64)

    truth = np.array([bool(lane) and rewards_steps(lane) for lane in lanes])
    # Where any episode says whether it succeeded, one that does not say has failed: some environments speak
    # of success only when there is one.
    told = any("success" in episode for lane in lanes for episode in lane)
    return Evaluation(
        returns=per_lane(lambda lane: float(np.mean(_sums(lane)))),
        return_std=per_lane(lambda lane: float(np.std(_sums(lane)))),
        lengths=per_lane(lambda lane: float(np.mean([len(e["actions"]) for e in lane]))),
        reward_correlation=np.where(truth, np.asarray(correlation, np.float64), np.nan),
        episode_correlation=np.where(truth, per_lane(_episode_correlation), np.nan),
        return_error=per_lane(lambda lane: _relative_error(_sums(lane, "redistributed"), lane)),
        constant_error=per_lane(_constant_error),
        success=per_lane(
            lambda lane: float(np.mean([bool(e.get("success")) for e in lane])) if told else np.nan
        ),
        step_rewards=truth,
        episodes=lanes,
    )


def rewards_steps(lane: list[Arrays]) -> bool:
    """Whether any step is rewarded before the last one, or episodes have no other step."""
    early = [episode["true_rewards"][:-1] for episode in lane]
    return any(np.any(rewards != 0) for rewards in early) or not any(map(len, early))


def replay_correlation(
    method: Method, state: State, replay: replays.Replay, key: PRNGKeyArray
) -> Float[Array, ""]:
    """Correlation of r̂ with the hidden reward over steps from one lane's replay; NaN from an empty one."""
    drawn = jax.tree.map(lambda x: x[0], replays.draw(replay, key, Sampling(), 10_000, 1))
    transitions = replays.gather(replay, drawn, 1).transitions
    learned, true = method.reward(state, transitions), transitions.true_reward
    learned, true = _of_size_one(learned - jnp.mean(learned)), _of_size_one(true - jnp.mean(true))
    correlation = jnp.sum(learned * true) / jnp.sqrt(jnp.sum(learned**2) * jnp.sum(true**2))
    return jnp.where(replay.segments > 0, correlation, jnp.nan)


def _of_size_one(x: Float[Array, "B"]) -> Float[Array, "B"]:
    """So that products of its squares fit into single precision, whatever the unit; NaN where it is zero."""
    return x / jnp.max(jnp.abs(x))


def structure_scores(probabilities: Graph, truth: Graph) -> dict[str, dict[str, float]]:
    """F1, precision and recall of each block of edges, an edge being on at P >= 0.5."""
    return {name: f1(getattr(probabilities, name), getattr(truth, name)) for name in BLOCKS}


def f1(probability: NDArray[Any], truth: NDArray[Any]) -> dict[str, float]:
    """F1, precision and recall; all 1 when there is no true edge and none was found."""
    found, true = np.asarray(probability) >= 0.5, np.asarray(truth).astype(bool)
    hits = int(np.sum(found & true))
    if not found.any() and not true.any():
        return {"f1": 1.0, "precision": 1.0, "recall": 1.0}
    precision = hits / max(1, int(found.sum()))
    recall = hits / max(1, int(true.sum()))
    return {"f1": 2 * hits / (int(found.sum()) + int(true.sum())), "precision": precision, "recall": recall}


def pearson(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Pearson correlation; NaN when one side does not vary."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt(np.sum(x**2) * np.sum(y**2))
    return float(np.sum(x * y) / scale) if scale > 0 else float("nan")


def _sums(lane: list[Arrays], column: str = "true_rewards") -> NDArray[np.float64]:
    return np.array([np.sum(e[column], dtype=np.float64) for e in lane])


def _constant_error(lane: list[Arrays]) -> float:
    """Where pay is around a large level this is small, and a small return error says little. It is not what
    return errors are a share of: a good policy's episodes pay alike, and nearly nothing would be left."""
    lengths = np.array([len(e["actions"]) for e in lane], np.float64)
    return _relative_error(lengths * (_sums(lane).sum() / lengths.sum()), lane)


def _relative_error(predicted: NDArray[np.float64], lane: list[Arrays]) -> float:
    returns = _sums(lane)
    scale = np.mean(np.abs(returns))
    return float(np.mean(np.abs(predicted - returns)) / scale) if scale > 0 else float("nan")


def _episode_correlation(lane: list[Arrays]) -> float:
    learned = np.concatenate([episode["redistributed"] for episode in lane])
    return pearson(learned, np.concatenate([episode["true_rewards"] for episode in lane]))


def transitions_of(episode: Arrays) -> Transitions:
    """[T] the steps of an episode."""
    paid: Any = episode["paid"]
    seen: Any = episode["observations"]
    done: Any = episode["actions"]
    true: Any = episode["true_rewards"]
    ends = np.flatnonzero(episode["segment_end"]) + 1
    lengths = np.diff(ends, prepend=0)
    total: Any = np.repeat(np.add.reduceat(paid, ends - lengths), lengths).astype(np.float32)
    length: Any = np.repeat(lengths, lengths).astype(np.int32)
    place: Any = np.arange(len(paid), dtype=np.int32)
    begun: Any = np.repeat(ends - lengths, lengths).astype(np.int32)
    last = (place == len(paid) - 1) & bool(episode["terminated"])
    return Transitions(
        observation=seen[:-1],
        action=done,
        next_observation=seen[1:],
        paid=paid,
        true_reward=true,
        terminated=last,
        segment_total=total,
        segment_length=length,
        step_in_segment=place - begun,
        step_in_episode=place,
        credit=total / length.astype(np.float32),
    )


def _as_segments(episode: Arrays, max_steps: int) -> list[Segments]:
    """An episode's segments, each padded with zeros to `max_steps`."""
    ends = np.flatnonzero(episode["segment_end"]) + 1
    found = []
    for number, (start, end) in enumerate(itertools.pairwise([0, *ends.tolist()])):
        columns: dict[str, Any] = {
            "observations": _pad(episode["observations"][start : end + 1], max_steps + 1),
            "actions": _pad(episode["actions"][start:end], max_steps),
            "true_rewards": _pad(episode["true_rewards"][start:end], max_steps),
            "length": np.asarray(end - start, np.int32),
            "total": np.sum(episode["paid"][start:end], dtype=np.float32),
            "mask": np.arange(max_steps) < end - start,
            "terminated": np.asarray(end == len(episode["actions"]) and bool(episode["terminated"])),
            "number": np.asarray(-1 - number, np.int32),  # below 0: none that training knows
        }
        found.append(Segments(**columns))
    return found


def _pad(array: NDArray[Any], steps: int) -> NDArray[Any]:
    """With zeros, to so many steps; np.pad takes 27 times as long for an episode of 12."""
    padded = np.zeros((steps, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded


# --- Evaluations beside the training


class Report(NamedTuple):
    """An evaluation, and what the model believed at that moment."""

    step: int
    evaluation: Evaluation
    beliefs: Arrays  # [L, ...] edges and doubts of them, where there is a graph, and the policy mask
    agent: AgentState  # [L, ...] as it was, on the host
    frozen: NDArray[np.bool_]  # [L] lanes that stood still


def _compile(
    config: Config, spec: Spec
) -> tuple[Redistribute, Callable[..., Array], Callable[..., dict[str, Array]]]:
    """What an evaluation computes, over all lanes. Nothing of it depends on the backbone."""
    method = agents.in_own_units(config.make_method())
    of_replay, of_model = (partial(each, method) for each in (replay_correlation, beliefs))
    return (
        make_redistribute(method, spec),
        devices.compiled(of_replay, config.lanes),
        devices.compiled(of_model, config.lanes),
    )


class Evaluator:
    """Takes one evaluation at a time. Its reports do not depend on when they are asked for."""

    def __init__(self, config: Config, pool: Pool, islands: Islands) -> None:
        self.pool = pool
        self.islands = islands
        self.episodes = config.schedule.evaluation_episodes
        self._redistribute, self._correlate, self._beliefs = _compile(config, pool.spec)
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[Report] | None = None

    def begin(
        self,
        agent: AgentState,
        replay: Replay,
        actor: dict[str, Array],
        keys: Key[Array, "L"],
        iteration: int,
        step: int,
    ) -> None:
        """Start to evaluate the agent as it is now; call `wait` first."""
        assert self._under_way is None
        model = agent._replace(backbone=None)
        parts = (agent, actor, self._correlate(model, replay, keys), self._beliefs(model))
        agent, arrays, correlation, graph = jax.device_get(parts)
        believed = {**graph, "policy_mask": arrays["mask"]}
        self.islands.settle()
        frozen = self.islands.frozen(iteration)
        report = partial(Report, step, beliefs=believed, agent=agent, frozen=frozen)

        def judged() -> Report:
            """On the host: meanwhile the training goes on."""
            absent = np.flatnonzero(frozen).tolist()
            episodes = self.pool.episodes(
                arrays, iteration, self.episodes, beside_training=True, absent=absent
            )
            rewards: list[list[Any]] = [[] for _ in episodes]
            if any(episodes):
                rewards = self._redistribute(agent._replace(backbone=None), episodes)
            return report(evaluation=judge(episodes, rewards, correlation))

        self._under_way = self._thread.submit(judged)
        if not self.pool.has_spare_workers:
            self._under_way.exception()  # until it is done

    def done(self) -> list[Report]:
        """The report of the evaluation under way, if it has ended."""
        return self.wait() if self._under_way is not None and self._under_way.done() else []

    def wait(self) -> list[Report]:
        """The report of the evaluation under way, if there is one, as soon as it ends."""
        ended, self._under_way = self._under_way, None
        return [] if ended is None else [ended.result()]

    def close(self) -> None:
        """When the evaluation under way has ended."""
        self._thread.shutdown(cancel_futures=True)


def beliefs(method: Method, state: State) -> dict[str, Array]:
    """What one lane's model says of the graph, and what speaks against it."""
    graph = method.graph
    edges = {} if graph is None else graph.edges(state)._asdict()
    return edges if graph is None or graph.doubts is None else {**edges, "doubts": graph.doubts(state)}
