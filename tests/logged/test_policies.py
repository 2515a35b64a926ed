"""A policy from a log: better than what was done where the log can tell, and a sentence where it cannot."""

import subprocess
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import logged_data as data
import minari
import numpy as np
import pytest

import apportion
from apportion.core.config import UserError
from apportion.runs.offline import verdict
from driver import apportion as command
from offline import D3RLPY_PYTHON, PEER

SETTINGS = {**data.SMALL, "policy_updates": 1_000, "backbone.hidden": (16, 16)}


def _choosing(count: int, kinds: tuple[Any, ...], seed: int = 0) -> list[dict[str, Any]]:
    """Episodes of four steps, in which the last kind of action pays where s_0 > 0 and the first elsewhere."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(count):
        seen, done = rng.normal(size=(4, 2)), rng.integers(0, len(kinds), 4)
        paid = np.where(seen[:, 0] > 0, done == len(kinds) - 1, done == 0).sum()
        for step in range(4):
            states = {"s_0": seen[step, 0], "s_1": seen[step, 1]}
            rows.append(
                {"episode": number, "step": step, **states, "a_0": kinds[done[step]], "outcome": float(paid)}
            )
    return rows


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> apportion.Run:
    folder = tmp_path_factory.mktemp("choices")
    log = data.write_csv(folder / "log.csv", _choosing(200, ("rest", "walk", "run")))
    settings = {**SETTINGS, "method.hidden": (16,)}
    return apportion.fit(log, "grd", backbone="iql", out=folder / "run", settings=settings, quiet=True)


@pytest.mark.slow
def test_a_continuous_policy_earns_more_and_says_so(table_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = apportion.fit(table_file, backbone="rebrac", out=out, settings=SETTINGS, quiet=True)
    seen = np.random.default_rng(0).normal(size=(50, 3))
    policy = run.policy()
    assert np.mean([policy(each)[0] > 5 for each in seen]) > 0.8  # above 5 a step earns 2 more
    [found] = run.summary()["data"]["worth"]
    assert found["verdict"] == "better"
    assert found["policy_low"] > found["behaviour"]
    assert found["sentence"].startswith("better than what was done by")
    exported = run.export(tmp_path / "policy.npz")
    [again] = run.evaluate_offline(policy=exported)["lanes"]
    assert again["policy"] == pytest.approx(found["policy"], rel=1e-4)


def test_a_discrete_policy_chooses_among_what_was_done(chosen: apportion.Run) -> None:
    assert chosen.spec.choices == ((0.0,), (1.0,), (2.0,))  # rest, run, walk by name
    policy = chosen.policy()
    assert [policy([2.0, 0.0]).tolist(), policy([-2.0, 0.0]).tolist()] == [[1.0], [0.0]]
    [found] = chosen.summary()["data"]["worth"]
    assert found["verdict"] == "better"
    episode = chosen.episodes()[0][0]
    assert episode["recommended"].shape == episode["actions"].shape
    assert set(np.unique(episode["recommended"])) <= {-1.0, 0.0, 1.0}
    assert chosen.report(chosen.path / "page.html").is_file()


def test_the_verb_prints_what_the_run_knows(chosen: apportion.Run) -> None:
    [printed] = command("evaluate-offline", chosen.path, "--json").json["lanes"]
    assert printed["sentence"] == chosen.summary()["data"]["worth"][0]["sentence"]
    assert "iql" in command("show", chosen.path).out
    with pytest.raises(UserError, match="evaluate-offline"):
        chosen.evaluate()
    with pytest.raises(UserError):
        chosen.resume()


@pytest.mark.slow
def test_random_actions_in_a_large_space_claim_no_gain(tmp_path: Path) -> None:
    """Paid is the sign of a product of eight: random actions do not show which of 256 corners pays."""
    rng = np.random.default_rng(0)
    seen, done = rng.normal(size=(300, 11, 8)), rng.uniform(-1, 1, size=(300, 10, 8))
    paid = np.sign(np.prod(done * seen[:, :-1], axis=-1)).sum(axis=1)
    arrays = {"observations": seen, "actions": done, "lengths": np.full(300, 10), "totals": paid}
    np.savez(tmp_path / "log.npz", allow_pickle=False, **arrays)
    settings = {"policy_updates": 500}
    run = apportion.fit(
        tmp_path / "log.npz", backbone="rebrac", out=tmp_path / "run", settings=settings, quiet=True
    )
    [found] = run.summary()["data"]["worth"]
    assert found["sentence"].startswith("these data cannot tell: the learned rewards do not explain")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "kinds", "words"),
    [
        (40, ("rest", "run"), "these data cannot tell: 40 episodes are too few"),
        (80, ("rest",), "only one action"),
    ],
    ids=["too few", "one action"],
)
def test_logs_that_cannot_tell(tmp_path: Path, count: int, kinds: tuple[Any, ...], words: str) -> None:
    log = data.write_csv(tmp_path / "log.csv", _choosing(count, kinds))
    settings, out = SETTINGS | {"policy_updates": 100}, tmp_path / "run"
    run = apportion.fit(log, backbone="bc", out=out, settings=settings, quiet=True)
    [found] = run.summary()["data"]["worth"]
    assert words in found["sentence"]
    assert found["verdict"] != "better"


def test_backbones_that_cannot_act_are_refused(table_file: Path, tmp_path: Path) -> None:
    log = data.write_csv(tmp_path / "log.csv", _choosing(20, (0, 1)))
    with pytest.raises(UserError, match=r"rebrac needs actions that are numbers.*--backbone iql"):
        apportion.fit(log, backbone="rebrac", out=tmp_path / "run")
    with pytest.raises(UserError, match=r"sac learns by acting.*--backbone iql"):
        apportion.fit(log, backbone="sac", out=tmp_path / "run")
    with pytest.raises(UserError, match="iql learns from logged episodes"):
        apportion.train("apportion/Greenhouse-v0", backbone="iql", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_sentence() -> None:
    """Percentages of what was earned, or the unit of outcomes where these are losses."""
    told: dict[str, Any] = {"single_action": False, "episodes": 300, "supported": True, "untried": 0.1}
    told |= {"behaviour": 100.0, "spread": 20.0, "policy": 112.0, "policy_low": 103.0, "policy_high": 120.0}
    assert verdict(told) == ("better", "better than what was done by 12% [3, 20]")
    assert verdict(told | {"behaviour": 110.0})[1].startswith("no better by these data")
    untried = "these data cannot tell: 40% of its actions were never tried"
    assert verdict(told | {"untried": 0.4})[1] == untried
    assert verdict(told | {"supported": False})[0] == "unknown"
    assert verdict(told | {"episodes": 40})[1].startswith("these data cannot tell: 40 episodes are too few")
    assert "only one action" in verdict(told | {"single_action": True})[1]
    losses = {name: value - 600 for name, value in told.items() if name.startswith(("behaviour", "policy"))}
    assert verdict(told | losses)[1] == "better than what was done by 12 [3, 20]"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Minari's own folder
def test_a_policy_is_played_in_the_environment_of_a_minari_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the offline estimate, and normalised by the set's references."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gymnasium.make("Pendulum-v1", max_episode_steps=20))
    env.action_space.seed(0)
    for number in range(12):
        env.reset(seed=number)
        while not any(env.step(env.action_space.sample())[2:4]):
            pass
    references = {"ref_min_score": -200.0, "ref_max_score": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of authors and addresses
        env.create_dataset("toy/pendulum-v0", algorithm_name="random", **references)
    env.close()
    settings, out = SETTINGS | {"policy_updates": 20}, tmp_path / "run"
    run = apportion.fit("toy/pendulum-v0", "rd", backbone="bc", out=out, settings=settings, quiet=True)
    [found] = command("evaluate-offline", out, "--play", 3, "--json").json["lanes"]
    assert -200 < found["played"] < 0
    assert found["played_normalised"] == pytest.approx(100 + found["played"] / 2)
    assert found["policy_normalised"] == pytest.approx(100 + found["policy"] / 2)
    exported = run.export(tmp_path / "policy.npz")
    with pytest.raises(UserError, match="leave --policy out"):
        run.evaluate_offline(policy=exported, play=3)
    assert "when played" in command("evaluate-offline", out, "--play", 1).out


@pytest.mark.slow
def test_d3rlpy_loads_and_trains_on_what_was_relabelled(tmp_path: Path) -> None:
    """It pins a Gymnasium of its own, so an interpreter of its own has it: `make peers`."""
    if not Path(D3RLPY_PYTHON).is_file():
        pytest.skip("d3rlpy is not installed: make peers")
    log = data.write_d3rlpy(tmp_path / "log.h5", data.episodes(30, seed=0))
    run = apportion.fit(log, "rd", out=tmp_path / "run", settings=data.QUICK, quiet=True)
    apportion.relabel(run, log, tmp_path / "credited.h5", exact=True)
    words = [D3RLPY_PYTHON, PEER, tmp_path / "credited.h5"]
    seen = np.zeros((2, 3), np.float32)
    for learner in ("iql", "rebrac"):
        done = subprocess.run([*words, learner, "20", "0"], input=seen.tobytes(), capture_output=True)
        assert done.stdout[:1] == b"!", done.stderr.decode()[-2_000:]
        actions = np.frombuffer(done.stdout[1:], np.float32)
        assert actions.size == 2 * len(data.ACTIONS)
        assert np.isfinite(actions).all()
