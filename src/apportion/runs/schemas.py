"""What the JSON files of a run hold. Reading them, `core.schema` holds their data against these types."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from apportion.core.config import UserError, check

MOST_LEVELS = 10_000  # categories of one dimension

Vector = tuple[float | bool, ...]
Matrix = tuple[Vector, ...]


class GraphFile(TypedDict):
    """A known causal graph, in spec.json."""

    state_to_reward: Vector
    action_to_reward: Vector
    state_to_state: Matrix
    action_to_state: Matrix


class SpecFile(TypedDict):
    """spec.json."""

    env_id: str
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    max_episode_steps: int
    max_segment_steps: int
    true_graph: GraphFile | None
    discrete: bool
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    first_action: int
    padded: int
    levels: tuple[int, ...]
    choices: NotRequired[tuple[tuple[float, ...], ...]]  # older versions did not write any
    inputs: NotRequired[tuple[str, ...]]


class FaultsMeta(TypedDict):
    """What went wrong in the lanes of a training, as `Faults.to_dict` says it."""

    restarts: tuple[int, ...]
    reasons: tuple[str | None, ...]
    frozen: tuple[tuple[int, int], ...]  # lane, and the iteration from which on it stands still


class FaultFile(TypedDict):
    """A lane that had faults, in status.json."""

    lane: int
    seed: int
    restarts: int
    frozen_since: int | None
    reason: str


class StatusFile(TypedDict):
    """status.json."""

    state: str
    step: int
    seconds: float
    lines: NotRequired[int]  # that metrics.jsonl has by now, at the least
    faults: NotRequired[tuple[FaultFile, ...]]


class VersionsFile(TypedDict):
    """versions.json: packages and where they ran."""

    apportion: str
    jax: str | None
    jaxlib: str | None
    optax: str | None
    equinox: str | None
    gymnasium: str | None
    mujoco: str | None
    numpy: str | None
    python: str
    platform: str
    devices: tuple[str, ...]
    commit: str | None
    dirty: bool | None


class FileFacts(TypedDict):
    """How a file of a checkpoint was written."""

    bytes: int
    crc32: int


class Header(TypedDict):
    """meta.json of a checkpoint."""

    format: int
    step: int
    files: dict[str, FileFacts]
    keys: dict[str, str]  # leaves that are random keys, and their kind
    meta: dict[str, Any]


class TrainingMeta(TypedDict):
    """What a checkpoint of a training says beside its arrays."""

    iteration: int
    seconds: float
    settings: dict[str, Any]
    faults: FaultsMeta


class BestMeta(TypedDict):
    """When each lane was best."""

    steps: tuple[int, ...]
    returns: tuple[float | None, ...]  # None while every return was NaN
    settings: dict[str, Any]


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """What is wrong inside is wrong with this file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path} is damaged ({error}): correct it, or restore it from a copy") from error


def check_spec(data: SpecFile) -> None:
    """Sizes that fit together."""
    states, actions = len(data["observation_names"]), len(data["action_names"])
    check(states > 0, "names of observations are missing")
    padded = data["padded"]
    check(0 <= padded < states, f"padded={padded} must be from 0 to {states - 1}")
    for bounds in (data["action_low"], data["action_high"]):
        check(len(bounds) in (0, actions), f"action_low and action_high must have {actions} numbers")
    levels = data["levels"]
    sized = len(levels) in (0, states + actions) and all(0 <= each <= MOST_LEVELS for each in levels)
    check(sized, f"levels must be {states + actions} numbers from 0 to {MOST_LEVELS}")
    graph = data["true_graph"]
    if graph is not None:
        sizes = (len(graph["state_to_reward"]), len(graph["action_to_reward"]))
        check(sizes == (states, actions), "true_graph has other sizes than the names")
        for block, wanted in ((graph["state_to_state"], states), (graph["action_to_state"], actions)):
            rows = [len(row) for row in block]
            check(rows == [states] * wanted, "true_graph has other sizes than the names")
