"""What a training leaves in its folder, and what `apportion show` reads out of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from apportion.core.spec import BLOCKS
from apportion.runs.folder import read_json
from apportion.training.presets import preset
from driver import EPISODE, GREENHOUSE, Answer, Run, apportion, tiny, train

EVALUATIONS = [400, 800, 1200, 1600, 2000]


def test_the_config_holds_every_setting_given_or_not(greenhouse_run: Run) -> None:
    config = greenhouse_run.read_config()
    assert config["env"]["id"] == GREENHOUSE
    assert (config["seed"], config["lanes"]) == (0, 2)
    assert config["method"]["hidden"] == [8, 8]
    assert config["schedule"]["steps_per_iteration"] == 200
    assert config["schedule"]["overlap"] is True
    assert config["checkpoints"] == {"checkpoint_minutes": 1e9, "checkpoint_every": 1000, "keep": 2}
    defaults = json.loads(json.dumps(preset(GREENHOUSE, "grd", "sac").to_dict()))
    given = {"hidden", "batch_size"}
    for part in ("method", "backbone"):
        assert config[part].keys() == defaults[part].keys()
        assert {k: v for k, v in config[part].items() if k not in given} == {
            k: v for k, v in defaults[part].items() if k not in given
        }
    assert config["schedule"].keys() == defaults["schedule"].keys()


def test_metrics_have_lines_of_training_and_of_evaluation(greenhouse_run: Run) -> None:
    lines = greenhouse_run.read_metrics()
    training = [line for line in lines if line["kind"] == "train"]
    evaluations = [line for line in lines if line["kind"] == "eval"]
    assert [line["step"] for line in training] == list(range(400, 2001, 200))  # the warm-up has no updates
    assert [line["step"] for line in evaluations] == EVALUATIONS
    for line in lines:
        numbers = [value for name, value in line.items() if name not in ("step", "kind", "seconds", "stored")]
        assert np.shape(numbers) == (len(numbers), 2)
    assert {"reward_loss", "held_out_error", "restricted_share", "critic_loss"} <= training[0].keys()
    assert {"return", "return_std", "length", "reward_correlation", "return_error"} <= evaluations[0].keys()
    assert evaluations[-1]["length"] == [EPISODE, EPISODE]
    seconds = [line["seconds"] for line in evaluations]
    assert seconds == sorted(seconds)


def test_episodes_hold_true_and_redistributed_rewards(greenhouse_run: Run) -> None:
    assert greenhouse_run.episode_steps() == EVALUATIONS
    lanes = greenhouse_run.read_episodes(2000)
    assert [len(lane) for lane in lanes] == [2, 2]
    for episode in (episode for lane in lanes for episode in lane):
        assert {name: array.shape for name, array in episode.items()} == {
            "observations": (EPISODE + 1, 10),
            "actions": (EPISODE, 3),
            "paid": (EPISODE,),
            "true_rewards": (EPISODE,),
            "redistributed": (EPISODE,),
            "segment_end": (EPISODE,),
            "terminated": (),
            "seed": (),
        }
        assert episode["segment_end"].tolist() == [False] * (EPISODE - 1) + [True]
        assert episode["paid"][:-1].tolist() == [0.0] * (EPISODE - 1)
        assert episode["paid"][-1] == pytest.approx(episode["true_rewards"].sum(), rel=1e-5)
        assert episode["redistributed"].std() > 0
        assert np.abs(episode["actions"]).max() <= 1


def test_show_prints_one_json_object_with_the_promised_keys(greenhouse_run: Run) -> None:
    answer = apportion("show", greenhouse_run.path, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.count("\n") == 1
    data = answer.json
    evaluations = greenhouse_run.evaluations()
    assert data["steps"] == EVALUATIONS
    assert data["returns"] == [[line["return"][lane] for line in evaluations] for lane in (0, 1)]
    assert data["final_return"] == evaluations[-1]["return"]
    for score in ("reward_correlation", "return_error"):
        assert data[score] == pytest.approx(np.median(evaluations[-1][score]))
        assert data[f"{score}_per_lane"] == evaluations[-1][score]
    shapes = {name: np.shape(data["graph"][name]) for name in (*BLOCKS, "policy_mask")}
    assert list(shapes.values()) == [(10,), (3,), (10, 10), (3, 10), (10,)]
    assert len(data["graph"]["per_lane"]) == 2
    assert data["structure"].keys() == set(BLOCKS)
    assert all(0 <= f1 <= 1 for f1 in data["structure"].values())
    assert data["config"] == greenhouse_run.read_config()
    assert data["versions"] == read_json(greenhouse_run.versions)
    assert data["status"]["state"] == "finished"


def test_show_is_a_table_for_people_and_nothing_when_quiet(greenhouse_run: Run) -> None:
    answer = apportion("show", greenhouse_run.path)
    assert (answer.code, answer.err) == (0, "")
    for words in (GREENHOUSE, "Last evaluation", "Edges to the reward", "leaf mass", "F1 against the true"):
        assert words in answer.out
    assert apportion("show", greenhouse_run.path, "--quiet") == Answer(0, "", "")


def test_a_method_without_a_graph_shows_too(out: Path) -> None:
    train(out, GREENHOUSE, *tiny("oracle"))
    data = apportion("show", out, "--json").json
    assert [data["graph"][block] for block in BLOCKS] == [None] * 4
    assert data["graph"]["policy_mask"] == [1.0] * 10
    assert (data["structure"], data["structure_scores"]) == (None, None)
    assert data["reward_correlation"] == pytest.approx(1.0)
    assert data["return_error"] == pytest.approx(0.0, abs=1e-5)
    answer = apportion("show", out)
    assert answer.code == 0
    assert "Last evaluation" in answer.out
    assert "Edges" not in answer.out


def test_an_unknown_graph_has_no_structure_scores(out: Path) -> None:
    """Pendulum, with too few steps for an update or for a correlation."""
    flags = tiny("grd", "--steps", "100", "--steps-per-iteration", "100", "--evaluation-episodes", "1")
    flags += ["--env.max-episode-steps", "200"]
    train(out, "Pendulum-v1", *flags)
    data = apportion("show", out, "--json").json
    assert data["structure"] is None
    assert np.shape(data["graph"]["state_to_state"]) == (3, 3)
    assert data["reward_correlation"] is None
    assert data["reward_correlation_per_lane"] == [None, None]
    assert apportion("show", out).code == 0
