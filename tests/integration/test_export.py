"""A policy in one file, run by the loader of the docs where neither JAX nor this package can be imported;
and the best one of each lane."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apportion as door
from apportion.runs.learned import read_learned
from driver import Answer, Run, apportion, assert_same_run, tiny, train

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/guides/run-a-policy-elsewhere.md"

# What a program elsewhere does. It refuses to import what it must not need.
ELSEWHERE = """
import json, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "apportion", "gymnasium"):
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, Missing())
from run_policy import load_policy
policy = load_policy(sys.argv[1])
print(json.dumps([policy(observation).tolist() if sys.argv[2] == "box" else policy(observation)
                  for observation in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the docs' run_policy.py."""
    folder = tmp_path_factory.mktemp("elsewhere")
    [code] = re.findall(r"^```python\n(# run_policy\.py\n.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(code.splitlines()) <= 46
    (folder / "run_policy.py").write_text(code)
    return folder


def _elsewhere(loader: Path, file: Path, observations: Any, kind: str = "box") -> Any:
    words = [sys.executable, "-c", ELSEWHERE, str(file), kind]
    given = json.dumps(np.asarray(observations).tolist())
    answer = subprocess.run(words, input=given, capture_output=True, text=True, check=True, cwd=loader)
    return json.loads(answer.stdout)


@pytest.mark.parametrize("best", [False, True])
def test_a_file_acts_as_the_run_s_own_policy_does(
    greenhouse_run: Run, loader: Path, tmp_path: Path, best: bool
) -> None:
    run, file = door.load(greenhouse_run.path), tmp_path / "deep" / "policy.npz"
    flags = ["--lane", "1", "--out", file, *(["--best"] if best else [])]
    assert apportion("export", run.path, *flags, "--quiet") == Answer(0, "", "")
    observations = np.random.default_rng(0).normal(0, 3, (50, 10))
    policy = run.policy(1, best)
    expected = [policy(observation) for observation in observations]
    np.testing.assert_allclose(_elsewhere(loader, file, observations), expected, atol=1e-5)
    with np.load(file) as arrays:
        assert arrays["step"] == (run.summary()["best"][1]["step"] if best else 2000)
        assert arrays["observation_names"].tolist() == list(run.spec.observation_names)
        assert (str(arrays["env"]), int(arrays["seed"])) == (run.spec.env_id, 1)
        assert str(arrays["apportion"]) == door.__version__


@pytest.mark.parametrize(
    ("env", "backbone", "kind"),
    [
        ("Pendulum-v1", "td3", "box"),
        ("Pendulum-v1", "crossq", "box"),
        ("Pendulum-v1", "simba", "box"),
        ("Pendulum-v1", "flashsac", "box"),
        ("CartPole-v1", "dqn", "number"),
        ("CartPole-v1", "ppo", "number"),
    ],
)
def test_every_head_has_its_reading(
    env: str, backbone: str, kind: str, loader: Path, tmp_path: Path, out: Path
) -> None:
    """Pendulum's actions reach from -2 to 2."""
    flags = tiny("observed", "--backbone", backbone, "--steps", "200", "--evaluation-episodes", "1")
    if backbone in ("crossq", "simba", "flashsac"):
        flags += ["--backbone.critic-hidden", "8"]
    run = door.load(train(out, env, *flags).path)
    file = run.export(tmp_path / "policy.npz")
    observations = np.random.default_rng(0).normal(0, 1, (50, run.spec.observation_size))
    observations[25:] *= 100
    expected = np.array([run.policy()(observation) for observation in observations])
    np.testing.assert_allclose(_elsewhere(loader, file, observations, kind), expected, atol=1e-5)
    assert len(np.unique(expected)) > 1


def test_a_line_says_what_was_written(greenhouse_run: Run, tmp_path: Path) -> None:
    answer = apportion("export", greenhouse_run.path, "--out", tmp_path / "policy.npz")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("kB): the policy of seed 0 at step 2,000\n")
    data = apportion("export", greenhouse_run.path, "--out", tmp_path / "policy.npz", "--json").json
    assert data["bytes"] == (tmp_path / "policy.npz").stat().st_size
    assert (data["lane"], data["seed"], data["step"], data["method"]) == (0, 0, 2000, "grd")


# --- Each lane's best policy: kept with the newest, found by --best, honest where there is none


@pytest.fixture(scope="module")
def run(greenhouse_run: Run) -> door.Run:
    return door.load(greenhouse_run.path)


def test_show_says_when_each_lane_was_best_and_the_best_policy_is_that_of_then(run: door.Run) -> None:
    best = run.summary()["best"]
    assert [lane["return"] for lane in best] == run.returns.max(axis=1).tolist()
    assert [lane["step"] for lane in best] == run.steps[run.returns.argmax(axis=1)].tolist()
    for lane, best in enumerate(run.summary()["best"]):
        episode = run.folder.read_episodes(best["step"])[lane][0]
        policy = run.policy(lane, best=True)
        found = np.array([policy(observation) for observation in episode["observations"][:-1]])
        np.testing.assert_allclose(found, episode["actions"], atol=1e-6)
        rewards = run.reward(episode["observations"], episode["actions"], lane, best=True)
        np.testing.assert_allclose(rewards, episode["redistributed"], atol=1e-5)


def test_verbs_take_the_best(run: door.Run) -> None:
    steps = [lane["step"] for lane in run.summary()["best"]]
    assert steps != [2000, 2000]  # or nothing is shown here
    scores = apportion("eval", run.path, "--best", "--episodes", "2", "--json").json
    assert (scores["step"], scores["best_steps"]) == (None, steps)
    assert scores == run.evaluate(2, best=True)
    assert scores["returns"] != run.evaluate(2)["returns"]
    credit = apportion("explain", run.path, "--best", "--step", "0", "--json").json
    assert credit["best_steps"] == steps
    for verb in ("eval", "explain"):
        assert "at each seed's best step" in apportion(verb, run.path, "--best").out


def test_without_its_checkpoint_the_best_is_that_of_the_one_before(tmp_path: Path, run: door.Run) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    back = Run(tmp_path / "run")
    (back.checkpoints / "step_000000002000.safetensors").unlink()
    assert max(read_learned(back, best=True).best_steps or [2000]) <= 1000
    door.load(back.path).resume(quiet=True)
    assert_same_run(back, run.folder)
