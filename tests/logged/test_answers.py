"""Outcomes that are yes or no: read as such, and explained in log odds and changes of probability."""

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from logged_data import SMALL, write_csv
from scipy.optimize import approx_fprime
from scipy.special import expit

import apportion
from apportion.core.config import UserError, silent
from apportion.data.columns import Columns
from apportion.data.reading import read_log
from apportion.graph import posterior, relevance
from apportion.graph.bernoulli import Laplace
from apportion.graph.features import Scale
from apportion.graph.posterior import Summed
from apportion.graph.products import BLOCKS, Products
from apportion.runs import crediting
from apportion.runs.contributions import Precision
from apportion.runs.credit import calibration, read_credit
from apportion.runs.crediting import removal_effects
from driver import apportion as command

EFFECTS = {"mail": 1.5, "search": 0.6, "shop": 0.0}


def journeys(count: int = 500, seed: int = 0) -> list[dict[str, Any]]:
    """A row for each touch; the shop earns nothing, and is the last of most."""
    rng, rows, names = np.random.default_rng(seed), [], list(EFFECTS)
    for number in range(count):
        steps = rng.integers(2, 7)
        touched = [names[place] for place in rng.integers(0, 3, steps)]
        touched[-1] = "shop" if rng.random() < 0.8 else touched[-1]
        bought = rng.random() < expit(-2.5 + sum(EFFECTS[name] for name in touched))
        rows += [
            {"journey": number, "channel": name, "bought": "yes" if bought else "no"} for name in touched
        ]
    return rows


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("journeys") / "log.csv", journeys())


@pytest.fixture(scope="module")
def fitted(log: Path) -> apportion.Run:
    named = {"episode": "journey", "states": "channel", "actions": "", "outcome": "bought"}
    return apportion.fit(log, out=log.parent / "run", settings=SMALL, quiet=True, **named)


# --- Reading


def said_of(outcomes: list[Any]) -> list[dict[str, Any]]:
    """Two rows for each outcome."""
    return [{"episode": n, "s_0": n * s, "outcome": each} for n, each in enumerate(outcomes) for s in (1, 2)]


@pytest.mark.parametrize(
    ("outcomes", "answers"),
    [
        (["yes", "No", "TRUE"], (0.0, 1.0)),
        (["won", "lost", "lost"], (0.0, 1.0)),
        ([0, 1, 1], (0.0, 1.0)),
        ([-1, 10, 10], (-1.0, 10.0)),
        ([1, 2, 3], None),
    ],
)
def test_two_values_are_no_and_yes(tmp_path: Path, outcomes: list[Any], answers: Any) -> None:
    found = read_log(str(write_csv(tmp_path / "log.csv", said_of(outcomes))), Columns())
    assert found.log.answers == answers
    assert any("log odds" in note for note in found.log.notes) == (answers is not None)
    if answers is not None:
        assert set(found.log.totals) == {0, 1}


@pytest.mark.parametrize(
    ("outcomes", "kind", "said"),
    [
        (["yes", "no"], "amount", "words"),
        ([1, 2, 3], "yes-no", "3 different outcomes"),
        (["yes", "perhaps"], "auto", "'perhaps'"),
        (["yes", "yes"], "auto", "the same"),
    ],
)
def test_what_is_no_answer_is_refused(tmp_path: Path, outcomes: list[Any], kind: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_log(str(write_csv(tmp_path / "log.csv", said_of(outcomes))), Columns(outcome_kind=kind))


def test_methods_without_a_loss_for_answers_and_too_few_answers_are_refused(tmp_path: Path) -> None:
    rows = journeys(20)
    for row in rows:
        row["bought"] = int(row["journey"] < 2)
    few = write_csv(tmp_path / "few.csv", rows)
    with pytest.raises(UserError, match="2 of 20 outcomes are yes"):
        apportion.fit(few, episode="journey", outcome="bought", quiet=True)
    with pytest.raises(UserError, match="rrd has no loss for outcomes that are yes or no"):
        apportion.fit(few, "rrd", episode="journey", outcome="bought", quiet=True)


# --- The model


@pytest.mark.parametrize("flips", [0.0, 0.1])
def test_the_evidence_of_answers_has_the_slope_that_it_claims(flips: float) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(8, 3)) for _ in range(40)]
    said = np.array([rng.random() < expit(each[:, 0].sum()) for each in rows], np.float64)
    single = Products.single(Scale.over(rows), np.concatenate(rows))
    problem = Summed.of(single, rows, said, True, yes_no=True).problem()
    objective = relevance._Objective(problem._replace(flips=flips))
    at = rng.normal(-1.5, 0.5, 3 + BLOCKS + 1)
    numeric = approx_fprime(at, lambda at: objective(at)[0], 1e-4)
    assert objective(at)[1] == pytest.approx(numeric, rel=1e-3 + 0.2 * flips, abs=1e-3 + 0.2 * flips)


def test_laplace_is_near_the_integral() -> None:
    said, variance = np.array([1.0]), 2.0
    at = np.linspace(-12, 12, 20_001)
    density = np.exp(-0.5 * at**2 / variance) / np.sqrt(2 * np.pi * variance)
    exact = np.log(np.sum(expit(at - 0.5) * density) * (at[1] - at[0]))
    assert Laplace(said, -0.5)(np.array([[variance]])).evidence == pytest.approx(exact, abs=0.05)


def test_a_rarer_answer_is_taken_whole_and_the_constant_is_that_of_all() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(3, 1)) for _ in range(4000)]
    said = np.array([rng.random() < expit(each[:, 0].sum() - 4) for each in rows], np.float64)
    before = posterior.STEPS
    try:
        posterior.STEPS = 3000
        found = posterior.fit(rows, said, yes_no=True).posterior(rng)
    finally:
        posterior.STEPS = before
    assert found.per_segment[0] + 3 * found.per_step[0] == pytest.approx(-4, abs=0.6)
    assert found.probabilities(rows).mean() == pytest.approx(said.mean(), abs=0.01)


def test_entries_of_one_input_have_one_relevance() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(5, 6)) for _ in range(200)]
    totals = np.array([each[:, 0].sum() for each in rows])
    found = posterior.fit(rows, totals, owners=np.array([0, 0, 0, 1, 2, 3])).posterior(rng)
    assert found.matters[:3].tolist() == [found.matters[0]] * 3
    assert found.matters[0] > 0.95
    assert found.matters[3:].max() < 0.5


def test_groups_of_rising_probability() -> None:
    found = calibration(np.linspace(0, 1, 100), (np.linspace(0, 1, 100) > 0.5).astype(np.float64))
    assert [each["episodes"] for each in found] == [20] * 5
    assert [each["said"] for each in found] == [0, 0, 0.5, 1, 1]


# --- What comes of it


def test_a_fit_says_what_its_rewards_are(fitted: apportion.Run) -> None:
    said = command("show", fitted.path).out
    assert "log odds of yes" in said
    assert "share of yes" in said
    assert "return error" not in said
    credit = read_credit(fitted.folder)
    assert credit is not None
    assert credit.facts["log_loss"] < credit.facts["constant_log_loss"]
    assert "log odds of yes" in command("explain", fitted.path).out


def test_relabelling_writes_log_odds_and_changes_of_probability(fitted: apportion.Run, log: Path) -> None:
    apportion.relabel(fitted, log, log.parent / "new.csv")
    table = polars.read_csv(log.parent / "new.csv")
    means = table.group_by("channel").agg(polars.col("reward", "probability_change").mean())
    rewards = dict(zip(means["channel"], means["reward"], strict=True))
    assert rewards["mail"] > rewards["search"] > rewards["shop"]
    assert rewards["mail"] - rewards["shop"] == pytest.approx(1.5, abs=0.5)
    for name in ("reward", "probability_change"):
        assert (table[f"{name}_low"] <= table[name]).all()
        assert (table[name] <= table[f"{name}_high"]).all()
    assert table["probability_change"].abs().max() < 1
    apportion.relabel(fitted, log, log.parent / "exact.csv", exact=True)
    exact = polars.read_csv(log.parent / "exact.csv").group_by("journey", "bought")
    exact = exact.agg(polars.col("reward").sum())
    np.testing.assert_allclose(exact["reward"], (exact["bought"] == "yes").cast(float), atol=1e-9)


def test_a_log_in_parts_has_the_credit_of_the_whole(
    fitted: apportion.Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def relabelled() -> dict[str, Any]:
        flags = {"exact": False, "credit": True, "precision": Precision(), "tell": silent}
        return crediting.relabel_rows(fitted.folder, str(log), **flags).columns

    whole = relabelled()
    monkeypatch.setattr(crediting, "STEPS", 50)
    parts = relabelled()
    assert list(parts) == list(whole)
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, atol=1e-5)


def test_credit_by_kind_finds_what_the_last_touch_hides(fitted: apportion.Run, log: Path) -> None:
    kinds = {each["value"]: each for each in fitted.credit(by="channel")}
    assert kinds["mail"]["credit"] > kinds["search"]["credit"] > kinds["shop"]["credit"]
    assert kinds["shop"]["last"] > kinds["mail"]["last"]
    assert kinds["shop"]["low"] < 0.1 * kinds["mail"]["credit"]
    bought = sum(each["linear"] for each in kinds.values())
    for rule in ("first", "last", "time_decay", "removal"):
        assert sum(each[rule] for each in kinds.values()) == pytest.approx(bought)
    assert sum(each["share"] for each in kinds.values()) == pytest.approx(1)
    csv, picture = log.parent / "kinds.csv", log.parent / "kinds.svg"
    shown = command("credit", fitted.path, log, "--by", "channel", "--csv", csv, "--plot", picture).out
    assert picture.is_file()
    assert "Credit by channel, in episodes of yes" in shown
    assert polars.read_csv(csv)["value"].to_list()[0] == "mail"
    with pytest.raises(UserError, match="reads no column 'chanel'"):
        fitted.credit(by="chanel")


def test_of_a_sum_that_may_be_nothing_nobody_has_a_share(
    fitted: apportion.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, drawn = len(journeys()), np.array([[3.0, 2.0, 1.0], [-3.0, -3.0, 1.0], [0.5, 0.0, 0.0]])
    monkeypatch.setattr(crediting, "_earned", lambda *given: (drawn, np.ones(steps)))
    assert [each["share"] for each in fitted.credit(by="channel")] == [None] * 3


def test_removal_effects_of_a_chain() -> None:
    """Paths A yes, B no, A B no: without A nothing comes to a yes, without B all that did still does."""
    codes, starts = np.array([0, 1, 0, 1]), np.array([0, 1, 2])
    assert removal_effects(codes, starts, np.array([1.0, 0.0, 0.0])).tolist() == [1.0, 0.0]


def test_identify_of_answers(log: Path) -> None:
    named = ("--episode", "journey", "--states", "channel", "--actions", "", "--outcome", "bought")
    said = command("identify", log, *named).out
    assert "log loss saved" in said
    assert "present" in said


def test_what_came_before_is_one_input(tmp_path: Path) -> None:
    columns = Columns(episode="journey", states="channel", actions="", outcome="bought", seen="channel")
    found = read_log(str(write_csv(tmp_path / "log.csv", journeys(20))), columns).log
    assert found.inputs == ("channel", *["channel before"] * 3)
    assert found.observation_names[1:] == tuple(f"channel={name} before" for name in sorted(EFFECTS))
    first = found.observations[0]
    assert not first[0, 1:].any()
    for step in range(1, len(first)):
        assert set(np.flatnonzero(first[step, 1:])) == set(first[:step, 0].astype(int))


def test_flipped_answers_are_told_from_weak_effects() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(6, 2)) for _ in range(1500)]
    said = np.array([rng.random() < expit(4 * each[:, 0].sum()) for each in rows])
    said ^= rng.random(1500) < 0.2
    found = posterior.fit(rows, said.astype(np.float64), yes_no=True).posterior(rng)
    assert found.flips >= 0.1
    effect = np.diff(found.expected(np.array([[0.0, 0.0], [1.0, 0.0]])))[0]
    assert effect > 2
