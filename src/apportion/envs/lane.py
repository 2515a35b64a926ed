"""One lane's environment: acts for a chunk of steps, plays evaluation episodes, can be put back exactly.

Every episode starts from a seed made of the lane's seed and the episode's number. So "where the environment
is" needs no access to its inside: the episode's number and the actions since its start say it, for any
environment that honours `reset(seed=...)`.
"""

import contextlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError
from apportion.core.spec import Spec
from apportion.envs.acting import Actor, act, random_action, repeated_noise
from apportion.envs.faults import FAILURES
from apportion.envs.make import EnvConfig, make
from apportion.envs.messages import BEATS, EPISODE, Activity, Arrays, no_activity
from apportion.envs.spaces import not_finite

# --- Chunks of steps, as the replay takes them


_ROW = {"observation": "f4", "action": "f4", "paid": "f4", "true_reward": "f4", "terminated": "?"}
_SEGMENT = {"segment_start": "i4", "segment_length": "i4", "segment_total": "f4", "episode_start": "i4"}


class ChunkWriter:
    """Fills the padded arrays of replay.Chunk, row by row."""

    def __init__(self, steps: int, states: int, actions: int) -> None:
        rows = 2 * steps + 1  # the worst case: each episode one step, and a row for its final observation
        sizes = {"observation": (rows, states), "action": (rows, actions)}
        self.arrays: Arrays = {name: np.zeros(sizes.get(name, rows), kind) for name, kind in _ROW.items()}
        self.arrays |= {name: np.zeros(steps, kind) for name, kind in _SEGMENT.items()}
        self.rows = 0
        self.segments = 0
        self.steps = steps
        self.taken = 0  # of these

    def step(self, *row: Any) -> None:
        """An observation, the action, what was paid and earned, and whether the episode terminated."""
        for name, value in zip(_ROW, row, strict=True):
            self.arrays[name][self.rows] = value
        self.rows += 1
        self.taken += 1

    def segment(self, length: int, total: float, steps_in_episode: int) -> None:
        """The rows just written close a segment."""
        values = (self.rows - length, length, total, self.rows - steps_in_episode)
        for name, value in zip(_SEGMENT, values, strict=True):
            self.arrays[name][self.segments] = value
        self.segments += 1

    def final(self, observation: NDArray[np.float32]) -> None:
        """The observation after the episode's last step takes a row of its own."""
        self.arrays["observation"][self.rows] = observation
        self.rows += 1

    def failed(self, observation: NDArray[np.float32]) -> None:
        """A step that failed takes only the last observation before it."""
        self.final(observation)
        self.taken += 1

    def finish(self, next_observation: NDArray[np.float32]) -> Arrays:
        self.arrays["observation"][self.rows] = next_observation
        self.arrays["rows"] = np.asarray(self.rows, np.int32)
        self.arrays["segments"] = np.asarray(self.segments, np.int32)
        return self.arrays


def blank_chunk(spec: Spec, steps: int) -> Arrays:
    """What a lane hands over that has not acted."""
    size = spec.observation_size
    return ChunkWriter(steps, size, spec.action_size).finish(np.zeros(size, np.float32))


LARGEST_REWARD = 1e15  # its square, and sums of such squares, still fit into single precision

# Separate streams of randomness for one seed.
_EPISODES, _EXPLORATION, _EVALUATION, _NOISE, _EPISODES_AGAIN, _EVALUATION_AGAIN, _REPEATED = range(7)


# --- Lanes


class Noise(NamedTuple):
    """Gaussian noise on what the policy sees, for robustness checks."""

    std: float
    dims: tuple[int, ...]  # empty: all


# Where a lane is whose next episode is the first.
BEFORE_THE_START: Arrays = {
    "episode": np.asarray(-1, np.int64),
    "restarts": np.asarray(0, np.int64),
    "left": np.asarray(True),
    "actions": np.zeros((0, 0), np.float32),
}


def after_faults(where: Arrays, faults: int) -> Arrays:
    """Where a lane goes on whose environment has failed: in the episode after that one."""
    restarts = np.asarray(int(where["restarts"]) + faults, np.int64)
    return {**where, "restarts": restarts, "left": np.asarray(True)}


class UnrepeatableError(UserError):
    """The same seed and actions led elsewhere."""


class Lane:
    """The training environment of one lane."""

    def __init__(self, config: EnvConfig, seed: int, head: str, activity: Activity | None = None) -> None:
        self.config = config
        self.activity = no_activity() if activity is None else activity
        self.activity[BEATS] += 1
        self.env, self.spec = make(config)
        self.seed = seed
        self.head = head
        self.episode = -1
        self.restarts = 0
        self.left: Arrays | None = None  # where it left an unfinished episode whose end is not stored yet
        self.actions: list[NDArray[np.float32]] = []  # since the episode began

    def begin(self, seed: int) -> None:
        """Start an episode from this seed."""
        self.actions = []
        self.steps_in_segment = 0
        self.total = 0.0
        self.activity[BEATS] += 1
        observation, _ = self.env.reset(seed=seed)
        self.observation = self._checked(observation, "observation after reset")

    def _begin_next_episode(self) -> None:
        self.episode += 1
        again = (_EPISODES_AGAIN, self.restarts) if self.restarts else (_EPISODES,)
        self.begin(_seed(self.seed, *again, self.episode))

    def writer(self, steps: int) -> ChunkWriter:
        return ChunkWriter(steps, self.spec.observation_size, self.spec.action_size)

    def collect(self, actor: Actor | None, iteration: int, writer: ChunkWriter) -> None:
        """Act (at random without an actor) until the chunk has all of its steps."""
        # Another stream where an environment goes on with a chunk in which one has failed.
        again = [writer.taken] if writer.taken else []
        rng = np.random.default_rng([self.seed, _EXPLORATION, iteration, *again])
        noise = None
        if actor is not None and "longest_repeat" in actor:  # a draw serves several steps
            seeds, steps, longest = (self.seed, _REPEATED), writer.steps, int(actor["longest_repeat"])
            noise = repeated_noise(seeds, iteration * steps, steps, self.spec.action_size, longest)
        if writer.taken < writer.steps and self.left is not None:
            writer.failed(self.left["observation"])
            self.left = None
        while writer.taken < writer.steps:
            if actor is not None and noise is not None:
                actor = {**actor, "drawn_noise": noise[writer.taken]}
            self._collect_step(actor, rng, writer)

    def _collect_step(self, actor: Actor | None, rng: np.random.Generator, writer: ChunkWriter) -> None:
        before = self.observation
        action = act(actor, self.head, before, rng) if actor is not None else random_action(self.spec, rng)
        paid, info, terminated, truncated = self.step(action)
        writer.step(before, action, paid, info["true_reward"], terminated)
        if info["segment_end"]:
            writer.segment(self.steps_in_segment, self.total, len(self.actions))
            self.steps_in_segment, self.total = 0, 0.0
        if terminated or truncated:
            writer.final(self.observation)
            self._begin_next_episode()

    def step(self, action: NDArray[np.float32]) -> tuple[float, dict[str, Any], bool, bool]:
        """One checked step: payment, info, terminated, truncated."""
        self.activity[BEATS] += 1
        if action.shape != (self.spec.action_size,):
            fix = f"give one number for each of {self.spec.action_size}"
            raise UserError(f"the head {self.head} gave an action of shape {action.shape}: {fix}")
        # A copy: an environment may write into what it is given, and what was chosen is to be stored.
        observation, paid, terminated, truncated, info = self.env.step(action.copy())
        self.actions.append(action)
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if np.ndim(value) or np.asarray(value).dtype.kind not in "biu":
                raise UserError(self._complaint(f"{name} is {value!r}: return True or False"))
        checked = self._checked(observation, "observation")
        if len(self.actions) == self.spec.max_episode_steps and not (terminated or truncated):
            raise UserError(self._complaint("its declared max_episode_steps has passed, but it goes on"))
        if not abs(info["true_reward"]) <= LARGEST_REWARD:
            fix = f"return finite numbers up to {LARGEST_REWARD:g}"
            raise UserError(self._complaint(f"reward is {info['true_reward']}: {fix}"))
        self.observation = checked
        self.steps_in_segment += 1
        self.total += float(paid)
        return float(paid), info, bool(terminated), bool(truncated)

    def where(self) -> Arrays:
        """All that is needed to put the lane back here."""
        if self.left is not None:
            return {**self.left, "restarts": np.asarray(self.restarts, np.int64), "left": np.asarray(True)}
        actions = np.concatenate(self.actions or [np.zeros(0, np.float32)])
        return {
            "episode": np.asarray(self.episode, np.int64),
            "restarts": np.asarray(self.restarts, np.int64),
            "left": np.asarray(False),  # True: this episode was left, and the next has not begun
            "actions": actions.reshape(-1, self.spec.action_size).astype(np.float32),
            "observation": self.observation,
        }

    def put_back(self, where: Arrays, exactly: bool = True) -> None:
        """Start the same episode from its seed and repeat its actions. One that leads elsewhere is an error,
        or left, where the lane need not be `exactly` there."""
        self.restarts = int(where["restarts"])
        if where["left"]:
            self.leave(where)
            return
        self.episode = int(where["episode"]) - 1
        try:
            self._begin_next_episode()
            self._repeat(where)
        except UnrepeatableError:
            if exactly:
                raise
            self.leave(where)

    def _repeat(self, where: Arrays) -> None:
        for action in where["actions"]:
            _, info, terminated, truncated = self.step(action)
            if terminated or truncated:
                ended = "ended while being replayed: it is not deterministic"
                raise UnrepeatableError(self._complaint(ended))
            if info["segment_end"]:
                self.steps_in_segment, self.total = 0, 0.0
        if not np.array_equal(self.observation, where["observation"]):
            elsewhere = "is not deterministic (the same seed and actions led elsewhere), so the run "
            fix = "cannot continue exactly: make reset(seed=...) fix all of its randomness"
            raise UnrepeatableError(self._complaint(elsewhere + fix))

    def leave(self, where: Arrays) -> None:
        """Begin the episode after the one that was under way there."""
        self.left = where if len(where["actions"]) else None
        self.episode = int(where["episode"])
        self._begin_next_episode()

    def close(self) -> None:
        """Let go of the environment, however it feels about that."""
        self.activity[BEATS] += 1
        with contextlib.suppress(*FAILURES):
            self.env.close()

    def _checked(self, observation: Any, what: str) -> NDArray[np.float32]:
        observation = np.asarray(observation, np.float32)
        shape = (self.spec.observation_size,)
        if observation.shape != shape:
            other = f"{what} has shape {observation.shape}, but observation_space says {shape}"
            raise UserError(self._complaint(other))
        wrong = not_finite(observation, self.spec.observation_names)
        if wrong is not None:
            raise UserError(self._complaint(f"{what} has {wrong}"))
        return observation

    def _complaint(self, what: str) -> str:
        moment = f"seed {self.seed}, episode {self.episode}, step {len(self.actions)}"
        return f"{self.spec.env_id}, {moment}: {what}"


def play_one(
    lane: Lane, actor: Actor | None, moment: tuple[int, int], noise: Noise | None = None, failed: int = 0
) -> Arrays:
    """The whole episode of a stage and a number with the policy's best guess (at random without an actor), on
    a lane kept for this. From another seed where it has `failed` before.

    Stage and number make its randomness, so it does not matter who plays which.
    """
    again = (_EVALUATION_AGAIN, failed) if failed else (_EVALUATION,)
    seed = _seed(lane.seed, *again, *moment)
    lane.activity[EPISODE] = moment[1]
    lane.begin(seed)
    rng = np.random.default_rng([lane.seed, _NOISE, *moment])
    observations, steps, reported, ended = [lane.observation], [], set[bool](), False
    while not ended:
        if actor is None:
            action = random_action(lane.spec, rng)
        else:
            action = act(actor, lane.head, _perturbed(lane.observation, noise, rng), None)
        paid, info, terminated, truncated = lane.step(action)
        observations.append(lane.observation)
        steps.append((action, paid, info["true_reward"], info["segment_end"]))
        reported |= _success(info)
        ended = terminated or truncated
    actions, payments, true_rewards, segment_end = zip(*steps, strict=True)
    outcome = {"success": np.asarray(True in reported)} if reported else {}
    return {
        "seed": np.asarray(seed, np.int64),  # with which the episode can be played again, to be filmed
        "observations": np.asarray(observations, np.float32),
        "actions": np.asarray(actions, np.float32),
        "paid": np.asarray(payments, np.float32),
        "true_rewards": np.asarray(true_rewards, np.float32),
        "segment_end": np.asarray(segment_end, np.bool_),
        "terminated": np.asarray(terminated, np.bool_),
        **outcome,
    }


def _success(info: dict[str, Any]) -> set[bool]:
    """Whether the environment reports success at this step; empty where it says nothing that means yes or no.

    Many write 0.0 and 1.0, some an array of one. Other things under this name are none of our business."""
    value = np.asarray(info.get("success"))
    meant = value.size == 1 and value.dtype.kind in "biuf" and bool(np.isfinite(value).all())
    return {bool(value.item())} if meant else set()


def _perturbed(
    observation: NDArray[np.float32], noise: Noise | None, rng: np.random.Generator
) -> NDArray[np.float32]:
    if noise is None:
        return observation
    dims = np.asarray(noise.dims or range(observation.size))
    seen = observation.copy()
    seen[dims] += noise.std * rng.standard_normal(dims.size, dtype=np.float32)
    return seen


def _seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0])
