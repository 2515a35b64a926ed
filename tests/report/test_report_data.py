"""What goes into the page: statistics over lanes, packed arrays, a choice of moments and episodes."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from apportion.core.config import UserError
from apportion.graph.certificate import Doubt
from apportion.report import packing
from apportion.report.episodes import Extra, dead_dimensions, episodes, shown_dimensions
from apportion.report.overview import curves, sentence
from apportion.report.page import LIMIT, Written, labels, make_page, read_names, renamed
from apportion.report.structure import Drivers, drivers, structure
from apportion.runs.folder import RunFolder
from apportion.runs.summary import certificates_in_words, credit_in_words, misses_in_words, summarise
from synthetic_runs import HOSTILE, Recipe, make_run, make_spec

# --- Packing, read back as the page's JavaScript does


def unpacked(packed: packing.Packed) -> NDArray[Any]:
    kinds = {"byte": "u1", "uint8": "u1", "uint16": "<u2", "float32": "<f4", "short": "<u2"}
    codes = np.frombuffer(base64.b64decode(packed["data"]), kinds[packed["kind"]]).reshape(packed["shape"])
    if packed["kind"] == "byte":
        return np.where(codes == 255, np.nan, codes / 254)
    if packed["kind"] == "short":
        values = np.asarray(packed["low"]) + codes * np.asarray(packed["scale"])
        return np.where(codes == 65_535, np.nan, values)
    return codes


@given(hnp.arrays(np.float64, st.integers(0, 30), elements=st.floats(0, 1) | st.just(np.nan)))
def test_probabilities_keep_their_side_of_a_half(values: NDArray[np.float64]) -> None:
    back = unpacked(packing.probabilities(values))
    np.testing.assert_allclose(back, values, atol=1 / 254)
    np.testing.assert_array_equal(back >= 0.5, values >= 0.5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_columns_keep_five_digits_of_their_own_range(scale: float) -> None:
    values = np.random.default_rng(0).standard_normal((40, 3)) * [scale, 1, 0] + [0, 1e6, 7]
    values[3, 1], values[4, 0] = np.nan, np.inf
    back = unpacked(packing.columns(values))
    assert np.isnan(back[3, 1])
    assert np.isnan(back[4, 0])
    good = np.isfinite(values)
    tolerance = np.broadcast_to(np.array([4 * scale, 4, 0]) * 2e-5 + 1e-9, values.shape)
    assert np.all(np.abs(back - values)[good] <= tolerance[good])
    assert np.isnan(unpacked(packing.columns(np.full((2, 2), np.nan)))).all()


# --- Structure and episodes


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run", Recipe(dead=(3,)))


def test_the_page_counts_the_lanes_that_keep_an_edge(run: RunFolder) -> None:
    found = structure(run, run.read_spec(), 1_000_000)
    assert found is not None
    assert found["steps"] == run.edge_steps()
    stored = run.read_edges()[1]["state_to_state"]  # [K, L, S, S]
    block = found["blocks"]["state_to_state"]
    np.testing.assert_array_equal(unpacked(block["kept"]), (stored >= 0.5).sum(axis=1))
    np.testing.assert_allclose(unpacked(block["probability"]), stored.mean(axis=1), atol=1 / 254)
    np.testing.assert_allclose(unpacked(block["single"]), stored, atol=1 / 254)


def test_little_room_takes_moments_first_then_the_edges_between_observations(run: RunFolder) -> None:
    spec = run.read_spec()
    few, fewest = (structure(run, spec, budget) for budget in (150, 20))
    assert few is not None
    assert fewest is not None
    assert few["complete"]
    assert few["steps"] == [run.edge_steps()[0], run.edge_steps()[-1]][-len(few["steps"]) :]
    assert not fewest["complete"]
    assert set(fewest["blocks"]) == {"state_to_reward", "action_to_reward", "policy_mask"}


def test_dead_dimensions_are_those_that_never_change(run: RunFolder) -> None:
    assert dead_dimensions(run, run.read_spec()) == [3]


def test_the_newest_episode_of_the_first_lane_comes_first(run: RunFolder) -> None:
    spec = run.read_spec()
    one = 30 * (2 * 6 + 13)
    last = run.episode_steps()[-1]
    chosen = [
        {(each["step"], each["lane"], each["number"]) for each in found["episodes"]}
        for budget in (one, 3 * one, 1_000 * one)
        if (found := episodes(run, spec, [], budget)) is not None
    ]
    assert chosen[0] == {(last, 0, 0)}
    assert chosen[0] < chosen[1] < chosen[2]
    assert len(chosen[2]) == len(run.episode_steps()) * 3 * 2
    assert episodes(run, spec, [], one - 1) is None


def test_contributions_still_add_up_when_dimensions_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "wide", Recipe(states=100, lanes=1, evaluations=1, truth=False))
    spec, rng = run.read_spec(), np.random.default_rng(0)
    credit = rng.standard_normal((30, 102))
    found = episodes(
        run, spec, [], 10**6, lambda place, episode: Extra(credit, 0.5, {0: b"\xff\xd8 a picture"})
    )
    assert found is not None
    episode = found["episodes"][0]
    shown = unpacked(episode["contributions"])
    assert shown.shape == (30, 65)
    np.testing.assert_allclose(shown.sum(axis=1), credit.sum(axis=1), atol=0.01)
    assert unpacked(episode["baseline"]).tolist() == [0.5] * 30
    assert base64.b64decode(episode["frames"]["images"][0]).startswith(b"\xff\xd8")


def test_wide_environments_show_what_feeds_the_reward() -> None:
    spec = make_spec(Recipe(states=376, actions=17, truth=False))
    edges = {"state_to_reward": np.zeros((2, 376), np.float32)}
    edges["state_to_reward"][:, 371] = 1
    shown = shown_dimensions(spec, edges, dead=list(range(100)))
    assert len(shown) == 64
    assert 371 in shown
    assert set(range(376, 393)) <= set(shown)
    assert not set(range(100)) & set(shown)


# --- Words


def test_the_sentence_names_what_most_lanes_keep(run: RunFolder) -> None:
    found = drivers(run.read_last_edges(), run.read_spec())
    assert found is not None
    assert sorted(found.names) == ["gauge 0", "gauge 1", "lever 0"]
    text = sentence(found, "grd", 3, True)
    assert text.startswith("The reward is driven by ")
    assert "3 of 6 dimensions have an edge to it that most of the 3 seeds keep." in text


def test_the_sentence_does_not_claim_what_is_not_known() -> None:
    assert "no causal graph" in sentence(None, "rd", 2, True)
    assert "no evaluation" in sentence(None, "grd", 2, False)
    assert "Nothing drives" in sentence(Drivers([], 5, True), "grd", 1, True)
    assert "tells nothing apart" in sentence(Drivers(list("abcde"), 5, True), "grd", 1, True)
    assert "every seed diverged" in sentence(Drivers([], 5, False), "grd", 2, True)
    assert "and 4 more:" in sentence(Drivers(list("abcdefghijkl"), 20, True), "grd", 2, True)
    assert "for 5 of 5 dimensions the data cannot tell" in sentence(Drivers([], 5, True, 5), "grd", 1, True)


def test_undecided_edges_are_not_said_to_drive_the_reward(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(doubts=((), (), ())))
    found = drivers(run.read_last_edges(), run.read_spec())
    assert found is not None
    assert (sorted(found.names), found.undecided) == (["gauge 0", "gauge 1", "lever 0"], 1)
    assert sentence(found, "grd", 3, True).endswith("keep. For 1 more the data cannot tell.")
    packed = structure(run, run.read_spec(), 10**6)
    assert packed is not None
    counts = packed["blocks"]["state_to_reward"]["undecided"]
    shown = np.frombuffer(base64.b64decode(counts["data"]), np.uint8).reshape(counts["shape"])
    assert shown[-1].tolist() == [0, 0, 3, 0]


def test_seeds_with_the_same_certificate_share_a_sentence(tmp_path: Path) -> None:
    few, little = Doubt.FEW_TRANSITIONS, Doubt.LITTLE_EXPLAINED
    run = make_run(tmp_path / "run", Recipe(lanes=4, doubts=((), (few,), (), (little, few))))
    found = summarise(run)["certificates"]
    assert [(lane["reward"], lane["dynamics"]) for lane in found] == [
        (True, True),
        (True, False),
        (True, True),
        (False, False),
    ]
    assert certificates_in_words(found, [5, 6, 7, 8]) == [
        "The edges are certified (seeds 5, 7).",
        f"Edges to the reward are certified, those to next states are not (seed 6): {few}.",
        f"The edges are not certified (seed 8): {little}; {few}.",
    ]
    assert "by gradient" in certificates_in_words(None, [5])[0]


def test_rewards_that_miss_more_than_was_paid_are_not_to_be_relied_on() -> None:
    edges = {"state_to_reward": [0.5]}
    training = {"data": None, "return_error_per_lane": [0.1, 26266.0, None, 1.2], "graph": edges}
    [said] = misses_in_words(training, [5, 6, 7, 8])
    assert "(seed 6, 8)" in said
    assert said.endswith("Do not rely on these rewards, nor on the graph.")
    [alone] = misses_in_words({**training, "graph": {"state_to_reward": None}}, [5, 6, 7, 8])
    assert alone.endswith("Do not rely on these rewards.")
    assert misses_in_words({**training, "return_error_per_lane": [1.0]}, [5]) == []
    assert misses_in_words({**training, "return_error_per_lane": None}, [5]) == []
    assert misses_in_words({**training, "data": {}}, [5, 6, 7, 8]) == []  # a fit has words of its own


def test_without_true_rewards_of_steps_there_is_no_curve_of_correlations(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(paid_at_end=True))
    data = summarise(run)
    assert (data["step_rewards"], data["reward_correlation"]) == (False, None)
    evaluations = run.evaluations()
    names = [metric["name"] for metric in curves(evaluations, 3)["metrics"]]
    assert names[:2] == ["return", "return_error"]
    assert not set(names) & {"reward_correlation", "episode_correlation"}


# --- Names of the user's


def names_file(folder: Path, content: Any) -> Path:
    path = folder / "names.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_names_replace_those_that_they_fit(tmp_path: Path) -> None:
    spec, other = make_spec(Recipe()), make_spec(Recipe(actions=3))
    file = names_file(tmp_path, {"action_names": ["left", "right"]})
    names = read_names(file, [other, spec])
    assert renamed(spec, names).action_names == ("left", "right")
    assert renamed(spec, names).observation_names == spec.observation_names
    assert renamed(other, names).action_names == other.action_names
    with pytest.raises(UserError, match=r"has 2 action_names, but the runs have 4 and 3"):
        read_names(file, [other])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ({}, "names nothing"),
        ({"observation_name": []}, "did you mean 'observation_names'"),
        ({"action_names": "ab"}, "is not a list of texts"),
        ({"action_names": [1, 2]}, "is not a list of texts"),
    ],
)
def test_bad_names_are_explained(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_names(names_file(tmp_path, content), [])


# --- The file


def _page(path: Path, *runs: RunFolder) -> Written:
    return make_page(runs, path, extras="none")


def _packed(text: str) -> dict[str, Any]:
    """What a page shows."""
    [packed] = re.findall(r'id="data">([^<]*)<', text)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_a_run_without_a_graph_is_warned_of_too(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(graph=False, train_lines=0))
    data = _packed(_page(tmp_path / "page.html", run).path.read_text())
    assert [text[:19] for text in data["runs"][0]["certified"]] == ["Nothing was learned"]


def test_no_name_of_a_run_is_markup(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(names=HOSTILE, env=HOSTILE[1]))
    text = _page(tmp_path / "new/page.html", run).path.read_text()
    assert "alert" not in text
    data = _packed(text)
    assert data["runs"][0]["observation_names"][:3] == list(HOSTILE)
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)


def test_runs_of_the_same_name_are_told_apart() -> None:
    runs = [RunFolder(Path(path)) for path in ("/a/seed/run", "/b/seed/run", "/b/seed/other")]
    assert labels(runs) == ["a/seed/run", "b/seed/run", "b/seed/other"]
    assert labels([runs[0], runs[0]]) == ["run (1)", "run (2)"]


def test_a_page_of_many_wide_runs_stays_below_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", Recipe(states=60, lanes=2, length=200, truth=False))
    alone = _page(tmp_path / "one.html", run).size
    monkeypatch.setattr("apportion.report.page.LIMIT", alone + 60_000)
    assert _page(tmp_path / "four.html", *[run] * 4).size < alone + 60_000 < LIMIT
    monkeypatch.setattr("apportion.report.page.LIMIT", 1_000_000)
    with pytest.raises(UserError, match="give fewer runs"):
        _page(tmp_path / "four.html", *[run] * 4)


def test_a_cause_that_was_not_observed_is_warned_of() -> None:
    facts = {"determined": 0.95, "undetermined": [], "level_matters": False, "unexplained": 0.39}
    assert "39% of what outcomes differ by is unexplained by this credit" in credit_in_words(facts)[-1]
    assert len(credit_in_words(facts | {"unexplained": 0.01})) == 1
    assert len(credit_in_words(facts | {"log_loss": 0.5})) == 1  # of yes and no nothing explains all
