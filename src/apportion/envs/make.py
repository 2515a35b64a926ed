"""From a config to an environment that learners can trust, and the facts about it (Spec).

Whatever comes in, this goes out: float32 vectors, actions in [-1, 1] (discrete ones as one-hot vectors), a
time limit, delayed reward.
An environment may declare `observation_names`, `action_names`, `true_graph` and, where it truncates its own
episodes, `max_episode_steps`; none is required.
"""

import contextlib
import difflib
import math
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import RescaleAction, TransformAction, TransformObservation

from apportion.core.config import UserError, check, extra, nearest, one_line, parse_json
from apportion.core.registry import import_module, in_this_folder
from apportion.core.spec import Spec
from apportion.envs.delayed import DelayedReward, Every, max_segment_steps
from apportion.envs.factories import AnyEnv as AnyEnv
from apportion.envs.factories import call_factory, find_factory, only_here
from apportion.envs.mujoco import TASKS, MujocoTask
from apportion.envs.spaces import Names, check_graph, documented, flattened_names, numbered, size_of, spec_of

TimeUp = Literal["auto", "end", "pause"]


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and how its reward is delayed."""

    id: str
    """Gymnasium id, module:id for one that this module registers when imported, or module:function."""
    delay: str = "episode"
    """When reward is paid: episode (its end), none (every step), 20 (every 20 steps), 10-30 (at random)."""
    max_episode_steps: int | None = None
    """Time limit; by default the environment's own."""
    time_up: TimeUp = "auto"
    """What the time limit means to a policy: the end, a pause (values look beyond it), or auto: the end where
    an observation tells the time, a pause where none does."""
    kwargs: str = "{}"
    """Constructor arguments, as a JSON object."""
    paper: bool = True
    """Set the paper's MuJoCo tasks up as the paper did: 1000 steps, its padding and its dead dimensions."""
    timeout: float = 120.0
    """Seconds without a sign of life after which a step or a reset counts as failed."""
    restarts: int = 10
    """How often a seed's environment is restarted after a failure, before that seed is frozen."""

    def __post_init__(self) -> None:
        parse_delay(self.delay)
        _parse_kwargs(self.kwargs)
        steps = self.max_episode_steps
        check(steps is None or steps >= 1, f"--env.max-episode-steps {steps} must be at least 1")
        timed = 0 < self.timeout < math.inf
        check(timed, f"--env.timeout {self.timeout} must be a number of seconds above 0")
        check(self.restarts >= 0, f"--env.restarts {self.restarts} must not be negative")

    @property
    def task(self) -> MujocoTask | None:
        """The paper's task of this id, if it is one."""
        return TASKS.get(_split_id(self.id)[1])

    @property
    def zero_from(self) -> int | None:
        """The dimension from which on the paper's set-up overwrites what is observed with zeros."""
        return self.task.zero_from if self.paper and self.task else None


def parse_delay(delay: str) -> Every:
    """The text of --env.delay as DelayedReward's `every`."""
    if delay == "episode":
        return None
    if delay == "none":
        return 1
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", delay)
    shortest, longest = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= shortest <= longest:
        raise UserError(
            f"--env.delay {delay!r} is no delay: use episode (pay at its end), none (pay every step), "
            "20 (every 20 steps), or 10-30 (after 10 to 30 steps, at random)"
        )
    return shortest if shortest == longest else (shortest, longest)


def make(config: EnvConfig, render_mode: str | None = None) -> tuple[AnyEnv, Spec]:
    """Build the environment and say what is known about it."""
    with in_this_folder() if _split_id(config.id)[0] else contextlib.nullcontext():
        env = _build(config, render_mode)
    limit = time_limit(env)
    if limit is None:
        raise UserError(f"{config.id} has no time limit: set one, such as --env.max-episode-steps 1000")
    own = spec_of(config.id, env.observation_space, env.action_space, limit)
    names, true_graph = _names(config, env), _declared(env, "true_graph")
    env = _observing(config, _acting(env))
    padded = size_of(env.observation_space) - own.observation_size
    padding = tuple(f"padding {index}" for index in range(padded))
    check_graph(config.id, true_graph, own.observation_size + padded, own.action_size)
    every = parse_delay(config.delay)
    spec = replace(
        own,
        observation_names=names.observation + padding,
        action_names=names.action,
        max_segment_steps=max_segment_steps(every, limit),
        true_graph=true_graph,
        padded=padded,
    )
    return DelayedReward(env, every), spec


def list_environments() -> list[tuple[str, str]]:
    """Ids that work out of the box, each with a line on what it is."""
    return [
        ("apportion/Greenhouse-v0", "who grew the tomatoes? ten gauges, three levers; known graph"),
        ("apportion/KeyDoor-v0", "a key taken early opens a door late; nothing shows who has it"),
        ("apportion/KeyDoorLottery-v0", "the same beside a lottery that only the whole episode explains"),
        ("apportion/Factored-v0", "synthetic tasks drawn at random; known graph"),
        ("CartPole-v1", "keep a pole upright by pushing its cart left or right; discrete actions"),
        *((env_id, f"{task.summary} (MuJoCo)") for env_id, task in TASKS.items()),
    ]


# --- Building


def _build(config: EnvConfig, render_mode: str | None) -> AnyEnv:
    """gymnasium.make or a factory, with every failure that the user can mend turned into one line."""
    name = config.id if only_here(config.id) else _registered(config.id)
    factory = find_factory(config.id)
    successor = re.sub(r"-v[123]$", "-v4", name)  # those who type the paper's own ids (v2)
    old = successor != name and successor in TASKS
    check(not old, f"{name} needs MuJoCo's old bindings: use {successor}, its closest successor")
    name, arguments = by_task(name, _parse_kwargs(config.kwargs))
    if render_mode is not None:
        arguments["render_mode"] = render_mode
    try:
        if factory is not None:
            return call_factory(config.id, factory, arguments, config.max_episode_steps)
        with warnings.catch_warnings():
            # The paper's tasks are v4 on purpose; Gymnasium would advise v5 at every start.
            warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)
            limit = config.max_episode_steps
            if limit is None and config.paper and config.task:
                limit = 1000
            env = gymnasium.make(name, max_episode_steps=limit, disable_env_checker=True, **arguments)
            return SeededTasks(env) if name.startswith(PREFIX) else env
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise UserError(f"{config.id} needs a package that is missing: {one_line(error)}") from error
    except TypeError as error:
        cause = error.__cause__ or error
        if not arguments and cause.__traceback__ and cause.__traceback__.tb_next:
            raise  # nothing was asked of the constructor: the mistake is inside it
        reason = one_line(cause)
        raise UserError(f"{config.id} does not accept --env.kwargs '{config.kwargs}': {reason}") from error
    except gymnasium.error.Error as error:
        if name not in gymnasium.registry:
            raise UserError(_unknown_id(config.id)) from error
        raise UserError(f"{config.id} cannot be made: {one_line(error)}") from error


def _split_id(env_id: str) -> tuple[str, str]:
    module, _, name = env_id.rpartition(":")
    return module, name


def _registered(env_id: str) -> str:
    """The id without its module, which is imported so that it may register the environment."""
    module, name = _split_id(env_id)
    if module:
        import_module(module, name, env_id)
    elif name.startswith(PREFIX):
        extra("metaworld", f"{env_id} needs an extra", "metaworld")
    return name


def _parse_kwargs(text: str) -> dict[str, Any]:
    fix = "write it like '{\"noise\": 0.1}'"
    try:
        arguments = parse_json(text)
    except ValueError as error:
        raise UserError(f"--env.kwargs '{text}' is not JSON ({error}): {fix}") from error
    check(isinstance(arguments, dict), f"--env.kwargs '{text}' is not a JSON object: {fix}")
    return dict(arguments)


def _unknown_id(env_id: str) -> str:
    module, name = _split_id(env_id)
    # Compared without case, namespace and version: people misremember these first.
    listed = [env_id for env_id, _ in list_environments()]
    known = {_bare(env_id): env_id for env_id in [*gymnasium.registry, *listed]}
    nearest = difflib.get_close_matches(_bare(name), known, n=1, cutoff=0.5)
    guess = f"did you mean {known[nearest[0]]}? If not, " if nearest else ""
    if module:
        fix = f"make {module} register it when it is imported, or name a function or class in it"
        return f"unknown environment {name!r}: {guess}{fix}"
    return f"unknown environment {name!r}: {guess}name the module that registers it, as in my_module:{name}"


def _bare(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id.split("/")[-1]).lower()


# --- Wrappers


def _acting(env: AnyEnv) -> AnyEnv:
    """Actions in [-1, 1] or one-hot."""
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        # The largest entry of a vector is the action; of a policy that gives zeros only, the first one.
        first, one_hot = int(space.start), spaces.Box(0.0, 1.0, (int(space.n),), np.float32)
        return TransformAction(env, lambda action: first + int(np.argmax(action)), one_hot)
    assert isinstance(space, spaces.Box)
    if (space.low == -1).all() and (space.high == 1).all():
        return env
    return RescaleAction(env, -np.ones_like(space.low), np.ones_like(space.low))


def _observing(config: EnvConfig, env: AnyEnv) -> AnyEnv:
    """Observations in float32; the paper's tasks with zeros appended, or in place of the last dimensions."""
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    size, task = size_of(space), config.task if config.paper else None
    kept, wanted = (task.zero_from or size, task.pad_to or size) if task else (size, size)
    fix = "pass --env.no-paper to keep it as it is"
    check(wanted >= size, f"cannot pad an observation of {size} dimensions to {wanted}: {fix}")

    def change(seen: Any) -> Any:
        # Always a new array: some environments write each observation into the same buffer.
        seen = np.array(seen, np.float32)
        return seen if kept == wanted else np.append(seen[:kept], np.zeros(wanted - kept, np.float32))

    with np.errstate(over="ignore"):  # a bound beyond float32 is no bound
        own = spaces.Box(change(space.low), change(space.high), dtype=np.float32)
    return TransformObservation(env, change, own)


# --- Facts


def _declared(env: AnyEnv, attribute: str) -> Any:
    """What the environment says about itself under this name, or None."""
    return env.get_wrapper_attr(attribute) if env.has_wrapper_attr(attribute) else None


def time_limit(env: AnyEnv) -> int | None:
    """After how many steps its episodes end at the latest, where anybody says so."""
    of_wrapper = _declared(env, "_max_episode_steps")  # Gymnasium's TimeLimit, around what has no spec
    registered = env.spec.max_episode_steps if env.spec else None
    limits = (registered, _declared(env, "max_episode_steps"), of_wrapper)
    return min((int(limit) for limit in limits if limit is not None), default=None)


def _names(config: EnvConfig, env: AnyEnv) -> Names:
    """What the environment declares, or else its documentation says or its flattened parts are called, where
    constructor arguments have not changed what is seen or done; or numbers."""
    known = config.task.names if config.task else documented(_split_id(config.id)[1])
    seen, done = known or (flattened_names(env), None)

    def chosen(attribute: str, size: int, others: tuple[str, ...] | None, letter: str) -> tuple[str, ...]:
        declared = _declared(env, attribute)
        if declared is None:
            return others if others and len(others) == size else numbered(letter, size)
        given = f"{config.id} declares {attribute} = {declared!r}"
        check(not isinstance(declared, str) and len(declared) == size, f"{given}: give exactly {size} names")
        return tuple(map(str, declared))

    return Names(
        chosen("observation_names", size_of(env.observation_space), seen, "s"),
        chosen("action_names", size_of(env.action_space), done, "a"),
    )


# --- MetaWorld


PREFIX = "Meta-World/"


def by_task(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What Gymnasium makes of Meta-World/TASK, and the constructor's arguments; other names as they are.

    The 50 places come from a seed. Without one they would be others in every process."""
    if not name.startswith(PREFIX) or name in gymnasium.registry:
        return name, arguments
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    task = name.removeprefix(PREFIX)
    check(task in ALL_V3_ENVIRONMENTS, f"MetaWorld has no task {task!r}{nearest(task, ALL_V3_ENVIRONMENTS)}")
    # One task, with 50 places for its goal and its objects.
    return f"{PREFIX}MT1", {"env_name": task, "seed": 0, **arguments}


class SeededTasks(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """MetaWorld draws the next place before it takes the seed: the same seed led elsewhere every time."""

    def __init__(self, env: AnyEnv) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            self.get_wrapper_attr("seed")(seed)
        return super().reset(seed=seed, options=options)
