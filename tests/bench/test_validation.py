"""The comparison with other libraries: equal settings, honest statistics, nothing trained twice."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import jax
import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.core.spec import Spec
from lib import peer
from scripts import load

COMPARED = ("sac", "td3", "ddpg")


validation = load("benchmarks/validation.py")


@pytest.fixture
def args(tmp_path: Path) -> Any:
    return validation.Validation(
        out=tmp_path / "v.json", tasks=("Pendulum-v1",), seeds=2, steps=600, folder=tmp_path
    )


def settings(args: Any, backbone: str, library: str = "sb3") -> dict[str, Any]:
    config = validation.our_settings(args, "Pendulum-v1", backbone)
    found: dict[str, Any] = validation.peer_settings(config, library, 1)
    return found


# --- Equal settings


@pytest.mark.parametrize("backbone", [*COMPARED, "crossq"])
def test_peers_get_every_setting_of_ours(args: Any, backbone: str) -> None:
    """Whatever setting a backbone gains must be passed on, or this fails."""
    passed = settings(args, backbone)
    chosen = peer.arguments(passed)
    ours = dict(passed["backbone"])
    ours.pop("name")
    ours.pop("exploration_noise", None)  # an object of the peer's, made with the environment
    networks = chosen.pop("policy_kwargs")
    if backbone == "crossq":
        assert networks.pop("optimizer_kwargs") == {"b1": ours.pop("momentum")}
        assert networks.pop("batch_norm_momentum") == 1 - ours.pop("statistics_rate")
        assert networks.pop("renorm_warmup_steps") == ours.pop("renorm_after")
        assert networks == {"net_arch": {"pi": ours.pop("hidden"), "qf": ours.pop("critic_hidden")}}
    else:
        assert networks == {"net_arch": ours.pop("hidden")}
    renamed = {"discount": "gamma", "polyak": "tau", "actor_every": "policy_delay"}
    renamed |= {"smoothing_noise": "target_policy_noise", "smoothing_clip": "target_noise_clip"}
    if backbone in ("sac", "crossq"):
        assert chosen.pop("ent_coef") == f"auto_{ours.pop('initial_temperature')}"
        assert chosen.pop("target_entropy") == "auto"
        assert ours.pop("target_entropy") is None
    assert ours.pop("critic_learning_rate", None) is None
    assert ours.pop("critic_pool", "min") == "min"  # as the peers have it
    assert ours.pop("critic_norm", False) is False  # as well
    assert {renamed.get(name, name): value for name, value in ours.items()}.items() <= chosen.items()
    assert chosen["train_freq"] == chosen["gradient_steps"] == 100


def test_a_learning_rate_of_the_critics_goes_where_the_peer_has_one(args: Any) -> None:
    passed = {library: settings(args, "sac", library) for library in ("sb3", "sbx")}
    for each in passed.values():
        each["backbone"]["critic_learning_rate"] = 1e-3
    assert peer.arguments(passed["sbx"])["qf_learning_rate"] == 1e-3
    with pytest.raises(ValueError, match="one learning rate"):
        peer.arguments(passed["sb3"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backbone", COMPARED)
def test_peers_have_as_many_weights_as_ours(args: Any, backbone: str) -> None:
    pytest.importorskip("stable_baselines3")
    config = validation.our_settings(args, "Pendulum-v1", backbone)
    model = peer.make_model(settings(args, backbone))
    theirs = [*model.actor.parameters(), *model.critic.parameters()]
    assert our_weights(config) == sum(each.numel() for each in theirs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_narrow_critics_are_as_narrow_on_the_other_side(args: Any) -> None:
    pytest.importorskip("sbx")
    narrow = dataclasses.replace(args, critic_hidden=(16, 16))
    config = validation.our_settings(narrow, "Pendulum-v1", "crossq")
    assert config.backbone_config.critic_hidden == (16, 16)
    policy = peer.make_model(validation.peer_settings(config, "sbx", 1)).policy
    theirs = jax.tree.leaves((policy.actor_state.params, policy.qf_state.params))
    assert our_weights(config) == sum(array.size for array in theirs)


def our_weights(config: Any) -> int:
    """How many numbers actor and critics learn on Pendulum."""
    spec = Spec("pendulum", ("x", "y", "speed"), ("torque",), max_episode_steps=200, max_segment_steps=1)
    state = jax.eval_shape(lambda key: config.make_backbone().init(key, spec), jax.random.key(0))
    return sum(array.size for array in jax.tree.leaves((state.actor, state.critics)))


@pytest.mark.parametrize("steps", [100, 300, 2_500, 10_000])
def test_both_sides_are_evaluated_at_the_same_steps(args: Any, steps: int) -> None:
    from apportion.training import loop as train

    schedule = validation.scaled(validation.our_settings(args, "Pendulum-v1", "sac").schedule, "x", steps)
    due = [i for i in range(schedule.iterations) if train._evaluation_due(i, schedule)]
    ours = [(iteration + 1) * schedule.steps_per_iteration for iteration in due]
    assert ours == peer.evaluation_steps(validation.to_dict(schedule))
    assert ours[-1] == steps
    assert 3 * schedule.warmup_steps <= steps


def test_half_an_iteration_is_refused(args: Any) -> None:
    schedule = validation.our_settings(args, "Pendulum-v1", "sac").schedule
    with pytest.raises(UserError, match="multiple of 100"):
        validation.scaled(schedule, "Pendulum-v1", 250)


def test_an_on_policy_peer_gets_every_setting_of_ours(args: Any) -> None:
    pytest.importorskip("stable_baselines3")
    args = dataclasses.replace(args, steps=20_480)
    config = validation.our_settings(args, "CartPole-v1", "ppo")
    given = validation.peer_settings(config, "sb3", 1)
    chosen, ours = peer.arguments(given), dict(given["backbone"])
    assert ours.pop("name") == "ppo"
    assert chosen.pop("policy_kwargs")["net_arch"] == ours.pop("hidden")
    assert chosen.pop("n_steps") == config.schedule.steps_per_iteration == 2_048
    assert config.schedule.warmup_steps == 0
    renamed = {"discount": "gamma", "trace": "gae_lambda", "clip": "clip_range", "epochs": "n_epochs"}
    renamed |= {"value_weight": "vf_coef", "entropy_weight": "ent_coef", "largest_gradient": "max_grad_norm"}
    assert {renamed.get(name, name): value for name, value in ours.items()} == chosen


# --- Nothing is trained twice


@pytest.fixture
def train_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Instead of training, a child writes a straight line and ends with this code."""

    def prepare(code: int) -> list[str]:
        called: list[str] = []

        def call(self: Any, command: list[str], output: Any) -> int:
            file, given = Path(command[command.index("--out") + 1]), json.loads(command[-1])
            called.append(file.stem)
            if code == 0:
                steps = peer.evaluation_steps(given["schedule"])
                line = [float(step + given["seed"]) for step in steps]
                file.write_text(
                    json.dumps({"settings": given, "versions": {}, "steps": steps, "returns": line})
                )
            return code

        monkeypatch.setattr(validation.Children, "_call", call)
        return called

    return prepare


def peers_of(args: Any) -> None:
    config = validation.our_settings(args, "Pendulum-v1", "sac")
    with validation.Children(2) as children:
        for each in [children.submit(*run) for run in validation.peer_runs(args, config)]:
            each.result()


def test_finished_trainings_are_kept_and_not_made_again(
    args: Any, train_as: Callable[[int], list[str]]
) -> None:
    called = train_as(0)
    peers_of(args)
    assert sorted(called) == ["Pendulum-v1-sac-600-sb3-seed0", "Pendulum-v1-sac-600-sb3-seed1"]
    peers_of(args)
    assert len(called) == 2
    (args.folder / f"{called[0]}.json").write_text('{"settings": {')  # torn
    peers_of(args)
    assert called[2:] == called[:1]


def test_other_settings_are_another_training(args: Any, train_as: Callable[[int], list[str]]) -> None:
    train_as(0)
    peers_of(args)
    file = args.folder / "Pendulum-v1-sac-600-sb3-seed1.json"
    changed = settings(args, "sac")
    assert validation.finished(file, changed) is not None
    changed["backbone"]["learning_rate"] = 1.0
    assert validation.finished(file, changed) is None


def test_a_failed_training_leaves_its_log(args: Any, train_as: Callable[[int], list[str]]) -> None:
    train_as(1)
    with pytest.raises(RuntimeError, match="sac-600-sb3-seed"):
        peers_of(args)
    assert list(args.folder.glob("*.log"))


def test_half_of_the_trainings_make_half_a_table(args: Any, train_as: Callable[[int], list[str]]) -> None:
    """A command that was killed leaves a file that can be read."""
    train_as(0)
    peers_of(args)
    configs = {("Pendulum-v1", name): validation.our_settings(args, "Pendulum-v1", name) for name in COMPARED}
    rows = validation.write_results(args, configs, {"commit": "abc"})
    assert [row["seeds"] for row in rows] == [[0, 2], [0, 0], [0, 0]]
    assert rows[0]["theirs"][0] == 500.5  # steps 400, 500, 600, and the seed
    assert json.loads(args.out.read_text())["rows"] == rows
    assert "| Pendulum-v1 | sac | 0 / 2 | - | sb3 | 500 [500, 501] | - | - |" in validation.markdown(rows)


@contextmanager
def loose_types() -> Iterator[None]:
    """As JAX is by itself: the peer adds arrays of different ranks and types."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def tiny(args: Any, library: str, **schedule: int) -> dict[str, Any]:
    """A peer's settings for 300 steps of a small learner, where the peer is installed."""
    pytest.importorskip(validation.LIBRARIES[library])
    given = settings(args, "sac", library)
    given["backbone"] |= {"hidden": [8, 8], "batch_size": 8}
    given["schedule"] |= {"steps": 300, "warmup_steps": 50, "evaluation_episodes": 1, **schedule}
    return given


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", ["sb3", "sbx"])
def test_a_peer_goes_on_from_its_last_evaluation(
    args: Any, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tiny(args, library, evaluate_every=100)
    keep, plays = tmp_path / "kept", iter([-10.0, -20.0])
    monkeypatch.setattr(peer, "play", lambda *_: next(plays))  # the third ends the training
    with loose_types(), pytest.raises(StopIteration):
        peer.train(given, keep)
    assert sorted(path.name for path in keep.iterdir()) == ["curve.json", "model-200.zip", "replay-200.pkl"]
    with loose_types():
        model, returns = peer.kept(given, keep)
    assert (model.num_timesteps, model.replay_buffer.size(), returns) == (200, 200, [-10.0, -20.0])
    monkeypatch.setattr(peer, "play", lambda *_: -30.0)
    with loose_types():
        assert peer.train(given, keep) == {"steps": [100, 200, 300], "returns": [-10.0, -20.0, -30.0]}
        assert peer.kept({**given, "seed": given["seed"] + 1}, keep)[1] == []
    (keep / "of-a-user").touch()
    peer.remove(keep)
    assert [path.name for path in keep.iterdir()] == ["of-a-user"]
    (keep / "of-a-user").unlink()
    peer.remove(keep)
    assert not keep.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", ["sb3", "sbx"])
def test_a_peer_that_is_stopped_saves_between_evaluations(
    args: Any, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tiny(args, library, evaluate_every=150, steps_per_iteration=50, updates_per_iteration=50)
    monkeypatch.setattr(peer, "play", lambda *_: -10.0)
    stop, answers = Event(), iter([False, False, True, True])
    monkeypatch.setattr(stop, "is_set", lambda: next(answers))
    with loose_types():
        assert peer.train(given, tmp_path, stop) == {"steps": [], "returns": []}
        assert peer.kept(given, tmp_path)[0].num_timesteps == 100
        assert peer.train(given, tmp_path) == {"steps": [150, 300], "returns": [-10.0, -10.0]}


# --- Statistics


def test_a_score_is_the_mean_of_the_last_evaluations() -> None:
    assert validation.last_mean([0.0, 100.0, 1.0, 2.0, 3.0]) == 2.0
    assert validation.last_mean([5.0, None, None]) == 5.0
    assert validation.last_mean([None]) is None
    assert validation.last_mean([]) is None


def test_intervals_of_the_difference_find_a_gap_and_only_a_gap() -> None:
    rng = np.random.default_rng(1)
    ours, same, worse = (rng.normal(level, 1, 200).tolist() for level in (10, 10, 9))
    value, low, high = validation.difference(ours, worse)
    assert low < 1 < high
    assert 0 < low < value < high
    assert validation.welch(ours, worse) < 1e-6
    _, low, high = validation.difference(ours, same)
    assert low < 0 < high
    assert validation.welch(ours, same) > 0.05


def test_few_or_constant_scores_claim_nothing() -> None:
    assert validation.mean([]) is None
    assert validation.mean([3.0]) == [3.0]
    assert validation.difference([1.0], [1.0, 2.0]) is None
    assert validation.welch([1.0], [1.0, 2.0]) is None
    assert validation.welch([1.0, 1.0], [1.0, 1.0]) is None
    assert validation.mean([2.0, 2.0]) == [2.0, 2.0, 2.0]
