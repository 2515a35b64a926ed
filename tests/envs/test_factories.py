"""Environments from functions: named where they can be imported, known to this process where not."""

from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit
from toy_envs import Toy

from apportion.core.config import UserError
from apportion.envs.factories import name_factory, only_here
from apportion.envs.make import EnvConfig, make
from apportion.envs.supervisor import Pool


def make_toy() -> gymnasium.Env[Any, Any]:
    return TimeLimit(Toy(), 7)


class Nested:
    @staticmethod
    def make() -> gymnasium.Env[Any, Any]:
        return TimeLimit(Toy(), 4)


def test_what_can_be_imported_is_named_for_where_it_is() -> None:
    assert name_factory(make_toy) == "test_factories:make_toy"
    assert name_factory(Toy) == "toy_envs:Toy"
    assert name_factory(Nested.make) == "test_factories:Nested.make"
    assert not only_here(name_factory(make_toy))


def test_what_cannot_is_known_to_this_process_only() -> None:
    first, second = (lambda: TimeLimit(Toy(), 3)), (lambda: TimeLimit(Toy(), 5))
    # As of a script itself, which nobody can import.
    first.__module__, first.__qualname__ = "__main__", "local"
    names = [name_factory(first), name_factory(second), name_factory(first)]
    assert names[0] == "<script>:local"
    assert all(map(only_here, names))
    assert names[0] == names[2] != names[1]
    assert [make(EnvConfig(name))[1].max_episode_steps for name in names] == [3, 5, 3]


def test_an_imported_name_makes_the_environment() -> None:
    _, spec = make(EnvConfig("test_factories:make_toy"))
    assert (spec.env_id, spec.max_episode_steps) == ("test_factories:make_toy", 7)
    assert make(EnvConfig("test_factories:Nested.make"))[1].max_episode_steps == 4
    for name in ("toy_envs:Toy", "test_factories:make_toy"):
        assert make(EnvConfig(name, max_episode_steps=6))[1].max_episode_steps == 6
    with pytest.raises(UserError, match="toy_envs:Toy has no time limit"):
        make(EnvConfig("toy_envs:Toy"))


def test_a_class_takes_constructor_arguments_and_a_function_none() -> None:
    """A run folder names its environment: one from a stranger must not be able to call what it likes."""
    named = EnvConfig("toy_envs:Toy", max_episode_steps=5, kwargs='{"action_names": ["left", "right"]}')
    assert make(named)[1].action_names == ("left", "right")
    with pytest.raises(UserError, match=r"subprocess:run is a function and takes no --env\.kwargs"):
        make(EnvConfig("subprocess:run", kwargs='{"args": ["true"]}'))


class NeedsSize(Toy):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


def needs_size(size: int) -> gymnasium.Env[Any, Any]:
    return TimeLimit(NeedsSize(size), 3)


@pytest.mark.parametrize(
    ("name", "kwargs", "reason"),
    [
        ("NeedsSize", "{}", r"missing a required argument: 'size'; give .* with --env\.kwargs"),
        ("NeedsSize", '{"sise": 3}', "missing a required argument: 'size'"),
        ("NeedsSize", '{"size": 3, "depth": 2}', "unexpected keyword argument 'depth'"),
        ("needs_size", "{}", "is a function that needs arguments .*: name one without, or the .* class"),
    ],
)
def test_arguments_that_are_missing_or_unknown_are_named(name: str, kwargs: str, reason: str) -> None:
    with pytest.raises(UserError, match=f"^test_factories:{name} .*{reason}"):
        make(EnvConfig(f"test_factories:{name}", max_episode_steps=5, kwargs=kwargs))
    good = EnvConfig("test_factories:NeedsSize", max_episode_steps=5, kwargs='{"size": 3}')
    assert make(good)[0].get_wrapper_attr("size") == 3


def test_a_registered_id_goes_before_a_function_of_its_name() -> None:
    gymnasium.register("make_toy", entry_point=Toy, max_episode_steps=9)
    try:
        assert make(EnvConfig("test_factories:make_toy"))[1].max_episode_steps == 9
    finally:
        del gymnasium.registry["make_toy"]


def test_workers_find_what_can_be_imported_and_the_rest_runs_here() -> None:
    with Pool(EnvConfig("test_factories:make_toy"), [0], "tanh_gaussian", workers=1) as pool:
        assert (pool.spec.max_episode_steps, pool.has_spare_workers) == (7, True)
    local = name_factory(lambda: TimeLimit(Toy(), 3))
    with Pool(EnvConfig(local), [0, 1], "tanh_gaussian", workers=2) as pool:
        assert (pool.spec.max_episode_steps, pool.has_spare_workers) == (3, False)


ONE = TimeLimit(Toy(), 3)


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (ONE, "was given, but each lane needs its own: give the function or class that makes it"),
        (lambda: ONE, "returned the same environment twice: let it make a new one at each call"),
        (lambda: 7, "made no environment but a int: let it return one of Gymnasium's"),
        (7, "7 is no environment: give an id, or a function that makes one"),
    ],
)
def test_what_makes_no_environment_is_refused_in_one_line(factory: Any, reason: str) -> None:
    def twice() -> None:
        for _ in range(2):
            make(EnvConfig(name_factory(factory)))

    with pytest.raises(UserError) as refused:
        twice()
    assert str(refused.value).endswith(reason)


def test_a_function_that_is_not_here_must_be_given_again() -> None:
    with pytest.raises(UserError, match=r"made by make_env of a script: give it again .*load\(run, env="):
        make(EnvConfig("<script>:make_env"))


def test_only_a_factory_that_takes_a_render_mode_can_be_filmed() -> None:
    with pytest.raises(UserError, match="cannot be filmed: let it take an argument render_mode"):
        make(EnvConfig("test_factories:make_toy"), render_mode="rgb_array")
