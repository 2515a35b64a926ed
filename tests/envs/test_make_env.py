"""From config to environment: what a user may bring, what comes out, and one line for each mistake."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from toy_envs import Toy

from apportion.core.config import UserError
from apportion.core.spec import Graph
from apportion.envs import register
from apportion.envs.acting import random_action
from apportion.envs.delayed import DelayedReward
from apportion.envs.make import EnvConfig, list_environments, make, parse_delay
from apportion.envs.spaces import documented

TOY = "apportion-tests/Toy-v0"


@pytest.fixture
def toy() -> Iterator[Any]:
    """Registers a Toy made with the given arguments, for one test."""

    def use(max_episode_steps: int | None = 10, **arguments: Any) -> None:
        gymnasium.register(TOY, entry_point=Toy, max_episode_steps=max_episode_steps, kwargs=arguments)

    yield use
    gymnasium.registry.pop(TOY, None)


def complaint(config: dict[str, Any]) -> str:
    """The error that a config leads to; always one line."""
    with pytest.raises(UserError) as caught:
        make(EnvConfig(**config))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_comes_out_is_canonical(toy: Any) -> None:
    toy(action_space=spaces.Box(np.array([0.0, -4.0]), np.array([2.0, 4.0]), dtype=np.float64))
    env, spec = make(EnvConfig(TOY))
    observation, _ = env.reset(seed=0)
    assert observation.dtype == np.float32
    assert env.observation_space.contains(observation)
    assert isinstance(env, DelayedReward)
    env.step(np.array([-1.0, 0.5], np.float32))
    np.testing.assert_allclose(env.unwrapped.last_action, [0.0, 2.0])
    assert spec.observation_names == ("s0", "s1", "s2")
    assert spec.action_names == ("a0", "a1")
    assert spec.true_graph is None
    assert env.spec is not None


def test_an_observation_is_not_overwritten_by_the_next(toy: Any) -> None:
    toy(observation_space=spaces.Box(-1.0, 1.0, (3,), np.float32))
    env, _ = make(EnvConfig(TOY))
    buffer = np.zeros(3, np.float32)
    env.unwrapped.observation_space.sample = lambda: buffer
    first, _ = env.reset()
    buffer += 1
    assert first.tolist() == [0, 0, 0]


@pytest.mark.parametrize("start", [0, -1, 7])
def test_discrete_actions_are_one_hot_outside(toy: Any, start: int) -> None:
    toy(action_space=spaces.Discrete(3, start=start))
    env, spec = make(EnvConfig(TOY))
    assert spec.discrete
    assert spec.action_names == ("a0", "a1", "a2")
    assert env.action_space == spaces.Box(0.0, 1.0, (3,), np.float32)
    env.reset(seed=0)
    for index, one_hot in enumerate(np.eye(3, dtype=np.float32)):
        env.step(one_hot)
        assert env.unwrapped.last_action == start + index
        assert env.unwrapped.action_space.contains(env.unwrapped.last_action)
    env.step(np.zeros(3, np.float32))  # what a policy does that diverged
    assert env.unwrapped.last_action == start


def test_warm_up_tries_every_discrete_action() -> None:
    _, spec = make(EnvConfig("CartPole-v1"))
    rng = np.random.default_rng(0)
    tried = np.stack([random_action(spec, rng) for _ in range(1000)])
    assert tried.dtype == np.float32
    assert set(map(tuple, tried)) == {(1.0, 0.0), (0.0, 1.0)}
    np.testing.assert_allclose(tried.mean(axis=0), 0.5, atol=0.05)


def test_declared_facts_reach_the_spec_through_all_wrappers(toy: Any) -> None:
    graph = Graph(np.ones(3, bool), np.ones(2, bool), np.eye(3, dtype=bool), np.ones((2, 3), bool))
    names = {"observation_names": ["x", "y", "z"], "action_names": ["push", "turn"]}
    toy(action_space=spaces.Box(-2.0, 2.0, (2,), np.float32), true_graph=graph, **names)
    _, spec = make(EnvConfig(TOY))
    assert spec.observation_names == ("x", "y", "z")
    assert spec.action_names == ("push", "turn")
    assert spec.true_graph is not None
    np.testing.assert_array_equal(spec.true_graph.state_to_state, graph.state_to_state)


@pytest.mark.parametrize(
    ("delay", "every", "longest"),
    [("episode", None, 40), ("none", 1, 1), ("20", 20, 20), ("10-30", (10, 30), 30), ("10-99", (10, 99), 40)],
)
def test_delays(delay: str, every: Any, longest: int) -> None:
    assert parse_delay(delay) == every
    _, spec = make(EnvConfig("apportion/Greenhouse-v0", delay=delay))
    assert spec.max_segment_steps == longest


def test_an_environment_that_truncates_itself_declares_its_limit() -> None:
    config = EnvConfig("apportion/Factored-v0", kwargs='{"episode_steps": 25, "state_size": 5}')
    env, spec = make(config)
    assert (spec.max_episode_steps, spec.observation_size) == (25, 5)
    assert spec.true_graph is not None
    assert make(EnvConfig(config.id, kwargs=config.kwargs, max_episode_steps=9))[1].max_episode_steps == 9
    env.reset(seed=0)
    *_, last = (env.step(np.zeros(2, np.float32)) for _ in range(25))
    assert last[3]
    assert last[4]["segment_end"]


def test_a_module_before_the_id_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"import gymnasium\ngymnasium.register({TOY!r}, entry_point='toy_envs:Toy', max_episode_steps=5)\n"
    (tmp_path / "my_farm.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        _, spec = make(EnvConfig(f"my_farm:{TOY}"))
    finally:
        gymnasium.registry.pop(TOY, None)
    assert spec.env_id == f"my_farm:{TOY}"
    assert spec.max_episode_steps == 5


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("Greenhouse-v0", "apportion/Greenhouse-v0"),
        ("apportion/Greenhuose-v0", "apportion/Greenhouse-v0"),
        ("halfcheetah", "HalfCheetah-v4"),
        ("HalfCheeta-v4", "HalfCheetah-v4"),
        ("Hopper-v99", "Hopper-v4"),
        ("no such/thing at all", None),
    ],
)
def test_an_unknown_id_names_the_nearest(wrong: str, right: str | None) -> None:
    message = complaint({"id": wrong})
    assert f"unknown environment '{wrong}'" in message
    assert f"as in my_module:{wrong}" in message
    assert (f"did you mean {right}?" in message) == (right is not None)


NAMED = "make toy_envs register it when it is imported, or name a function or class in"
IMPORT = "cannot import the module 'no_farm' of no_farm:Farm-v0: install it, or put its folder on"
OBJECT = """write it like '{"noise": 0.1}'"""
FACTORED = "apportion/Factored-v0"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"id": "toy_envs:Nowhere-v0"}, NAMED),
        ({"id": "toy_envs.py:Toy-v0"}, "'toy_envs.py' is a path, not a module: say my_module:Toy-v0"),
        ({"id": "tests/toy_envs:Toy-v0"}, "'tests/toy_envs' is a path, not a module: say my_module:Toy-v0"),
        ({"id": "no_farm:Farm-v0"}, IMPORT),
        ({"id": "HalfCheetah-v2"}, "HalfCheetah-v2 needs MuJoCo's old bindings: use HalfCheetah-v4"),
        *(({"id": FACTORED, "kwargs": kwargs}, OBJECT) for kwargs in ("{noise: 1}", "[1]", "3")),
        *(
            ({"id": FACTORED, "kwargs": kwargs}, f"{FACTORED} does not accept --env.kwargs '{kwargs}'")
            for kwargs in ('{"noize": 0.1}', '{"max_episode_steps": 3}')
        ),
        *(
            ({"id": "x", "delay": delay}, "use episode (pay at its end), none (pay every step), 20 (every")
            for delay in ("", "0", "-3", "30-10", "1-2-3", "0-5", "late", "2.5", "10 - 30")
        ),
        ({"id": "x", "max_episode_steps": 0}, "must be at least 1"),
    ],
)
def test_a_wrong_config_says_how_to_mend_it(config: dict[str, Any], said: str) -> None:
    assert said in complaint(config)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metaworld", None)  # as if it were not installed
    assert "pip install 'apportion[metaworld]'" in complaint({"id": "Meta-World/MT1"})


def test_a_missing_dependency_of_the_environment(toy: Any) -> None:
    gymnasium.register(TOY, entry_point="no_such_package:Env", max_episode_steps=5)
    assert "needs a package that is missing: No module named 'no_such_package'" in complaint({"id": TOY})


FLATTEN = "is needed: register it wrapped in gymnasium.wrappers.FlattenObservation"
PICTURES = "observes a Box of shape (84, 84, 3), but a vector (Box with one axis) is needed: pictures are not"
POINT = spaces.Box(np.array([0.0, 1.0]), np.array([1.0, 1.0]), dtype=np.float64)
TURNED = Graph(np.ones(3), np.ones(2), np.ones((3, 3)), np.ones((3, 2)))


@pytest.mark.parametrize(
    ("what", "value", "found"),
    [
        *(
            ("observation_space", space, f"observes a {kind}, but a vector (Box with one axis) {FLATTEN}")
            for space, kind in (
                (spaces.Dict({"a": spaces.Box(0, 1, (2,))}), "Dict"),
                (spaces.Discrete(4), "Discrete"),
                (spaces.Box(0, 255, (8, 8, 3), np.uint8), "Box of shape (8, 8, 3)"),
                (spaces.Box(0, 1, ()), "Box"),
            )
        ),
        ("observation_space", spaces.Box(0, 255, (84, 84, 3), np.uint8), PICTURES),
        (
            "observation_space",
            spaces.Box(-1, 1, (0,)),
            "observes nothing (shape (0,)): add at least one number",
        ),
        *(
            ("action_space", space, said)
            for space, said in (
                (spaces.MultiDiscrete([2, 2]), "from a MultiDiscrete, but a Box of floats or a Discrete"),
                (spaces.MultiDiscrete([2, 3]), "number its 6 combinations in a Discrete(6)"),
                (spaces.MultiBinary((2, 2)), "number its 16 combinations in a Discrete(16)"),
                (spaces.Box(0, 9, (2,), np.int64), "takes actions from a Box of int64, but"),
                (spaces.Box(-1, 1, (2, 2)), "a vector (one axis) is needed"),
                (spaces.Box(-1, 1, (0,)), "has no action to choose (shape (0,)): add at least one"),
                (spaces.Box(-np.inf, np.inf, (2,)), "gymnasium.wrappers.RescaleAction"),
                (POINT, "low bound is not below"),
            )
        ),
        ("observation_names", ["x"], "observation_names = ['x']: give exactly 3 names"),
        ("observation_names", "xyz", "give exactly 3 names"),
        ("action_names", ["a", "b", "c"], "give exactly 2 names"),
        ("true_graph", np.eye(3), "make it apportion.core.spec.Graph"),
        ("true_graph", TURNED, "true_graph.action_to_state of shape (3, 2): make it (2, 3)"),
        ("max_episode_steps", None, "has no time limit: set one, such as --env.max-episode-steps 1000"),
    ],
)
def test_an_environment_that_cannot_be_learned_from_says_why(
    toy: Any, what: str, value: Any, found: str
) -> None:
    toy(**{what: value})
    assert found in complaint({"id": TOY})


def test_a_type_error_inside_the_constructor_is_not_blamed_on_arguments() -> None:
    def broken() -> Toy:
        return Toy(*[None] * 9)

    gymnasium.register(TOY, entry_point=broken, max_episode_steps=5)
    try:
        with pytest.raises(TypeError, match="positional arguments"):
            make(EnvConfig(TOY))
    finally:
        gymnasium.registry.pop(TOY)


def test_every_listed_environment_is_registered() -> None:
    register()  # once more is harmless
    listed = list_environments()
    assert len(listed) == 13
    assert all(env_id in gymnasium.registry and line and "\n" not in line for env_id, line in listed)


def test_environments_without_names_get_those_of_their_documentation() -> None:
    _, spec = make(EnvConfig("CartPole-v1"))
    assert spec.observation_names == ("cart position", "cart velocity", "pole angle", "pole angular velocity")
    assert spec.action_names == ("push left", "push right")
    metaworld = documented("Meta-World/MT1")
    assert metaworld is not None
    assert (len(set(metaworld.observation)), len(set(metaworld.action))) == (39, 4)
    assert metaworld.observation[3] == "gripper opening"
    assert metaworld.observation[18 + 3] == "previous gripper opening"
    assert metaworld.observation[36:] == ("goal x", "goal y", "goal z")
    assert documented("Oven-v0") is None


def test_a_task_of_metaworld_has_an_id_and_follows_its_seed() -> None:
    pytest.importorskip("metaworld")
    env, _ = make(EnvConfig("Meta-World/door-lock-v3"))
    starts = [env.reset(seed=seed)[0] for seed in (1, 2, 1)]
    np.testing.assert_array_equal(starts[2], starts[0])
    assert not np.array_equal(starts[1], starts[0])
    nearest = r"MetaWorld has no task 'door-lok-v3'.*door-lock-v3"
    with pytest.raises(UserError, match=nearest):
        make(EnvConfig("Meta-World/door-lok-v3"))
