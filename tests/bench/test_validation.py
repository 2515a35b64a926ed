"""The comparison with other libraries: equal settings, honest statistics, nothing trained twice."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

from apportion.core.config import UserError
from apportion.runs.atomic import read_json, write_json
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
    return validation.peer_settings(config, library, 1)


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


@pytest.mark.parametrize("steps", [100, 300, 2_500, 10_000])
def test_both_sides_are_evaluated_at_the_same_steps(args: Any, steps: int) -> None:
    from apportion.training import loop as train

    schedule = validation.scaled(validation.our_settings(args, "Pendulum-v1", "sac").schedule, "x", steps)
    due = [i for i in range(schedule.iterations) if train._evaluation_due(i, schedule)]
    ours = [(iteration + 1) * schedule.steps_per_iteration for iteration in due]
    assert ours == peer.evaluation_steps(validation.to_dict(schedule))
    assert ours[-1] == steps
    assert 3 * schedule.warmup_steps <= steps


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
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Trains a peer's seeds: instead of learning, a child writes a straight line and ends with this code."""

    def train(args: Any, code: int = 0) -> list[str]:
        called: list[str] = []

        def call(command: list[str], **streams: Any) -> int:
            file, given = Path(command[command.index("--out") + 1]), json.loads(command[-1])
            called.append(file.stem)
            steps = peer.evaluation_steps(given["schedule"])
            line = [float(step + given["seed"]) for step in steps]
            if code == 0:
                write_json(file, {"settings": given, "versions": {}, "steps": steps, "returns": line})
            return code

        monkeypatch.setattr(validation.subprocess, "call", call)
        config = validation.our_settings(args, "Pendulum-v1", "sac")
        for run in validation.peer_runs(args, config):
            validation.train_peer(*run)
        return called

    return train


def test_finished_trainings_are_kept_and_not_made_again(args: Any, trained: Callable[..., list[str]]) -> None:
    called = trained(args)
    assert called == ["Pendulum-v1-sac-600-sb3-seed0", "Pendulum-v1-sac-600-sb3-seed1"]
    assert trained(args) == []
    (args.folder / f"{called[0]}.json").write_text('{"settings": {')  # torn
    assert trained(args) == called[:1]
    changed = settings(args, "sac")
    assert validation.finished(args.folder / f"{called[1]}.json", changed) is not None
    changed["backbone"]["learning_rate"] = 1.0
    assert validation.finished(args.folder / f"{called[1]}.json", changed) is None


def test_a_failed_training_leaves_its_log(args: Any, trained: Callable[..., list[str]]) -> None:
    with pytest.raises(UserError, match=r"sac-600-sb3-seed0 failed: see .*\.log"):
        trained(args, code=1)
    assert list(args.folder.glob("*.log"))


def test_half_of_the_trainings_make_half_a_table(args: Any, trained: Callable[..., list[str]]) -> None:
    """A command that was killed leaves a file that can be read."""
    trained(args)
    configs = {("Pendulum-v1", name): validation.our_settings(args, "Pendulum-v1", name) for name in COMPARED}
    rows = validation.write_results(args, configs, {"commit": "abc"})
    assert [row["seeds"] for row in rows] == [[0, 2], [0, 0], [0, 0]]
    assert rows[0]["theirs"][0] == 500.5  # steps 400, 500, 600, and the seed
    assert read_json(args.out)["rows"] == rows
    assert "| Pendulum-v1 | sac | sb3 | 0 / 2 | - | 500 [500, 501] | - | - |" in validation.table(rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", ["sb3", "sbx"])
def test_a_peer_trains_and_is_evaluated(args: Any, library: str) -> None:
    pytest.importorskip(validation.LIBRARIES[library])
    given = settings(args, "sac", library)
    given["backbone"] |= {"hidden": [8, 8], "batch_size": 8}
    given["schedule"] |= {"steps": 200, "warmup_steps": 50, "evaluate_every": 100, "evaluation_episodes": 1}
    # As JAX is by itself: the peer adds arrays of different ranks and types.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        steps, returns = peer.train(given)
    assert steps == [100, 200]
    assert all(-2000 < value < 0 for value in returns)


# --- Statistics


@pytest.mark.parametrize(
    ("curve", "score"),
    [([0.0, 100.0, 1.0, 2.0, 3.0], 2.0), ([5.0, None, None], 5.0), ([None], None), ([], None)],
)
def test_a_score_is_the_mean_of_the_last_evaluations(curve: list[float | None], score: float | None) -> None:
    assert validation.last_mean(curve) == score
