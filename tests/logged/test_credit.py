"""Credit of single steps: what it is made of, its intervals, and what is said where outcomes cannot tell."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars
import pytest
from logged_data import SMALL, episodes, table, write_csv

import apportion
from apportion import cli
from apportion.core.config import UserError
from apportion.core.types import Record
from apportion.data.rows import Log
from apportion.graph import posterior
from apportion.runs.atomic import read_arrays, write_arrays
from apportion.runs.credit import Credit, _undetermined, fit_credit, read_credit, typical, weighed
from apportion.runs.folder import RunFolder
from apportion.runs.logged import spec_of
from apportion.runs.summary import credit_in_words, fit_warnings, varies_too_much

EPISODES = episodes()


@pytest.fixture(scope="module")
def credit() -> Credit:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(steps, 3)) for steps in rng.integers(5, 15, 80)]
    totals = np.array([2 + each[:, 0].sum() for each in rows]) + rng.normal(0, 0.3, 80)
    losses = np.outer([0.1, 1.0], np.ones(4))
    facts = {"unexplained": 0.1, "allowed": 2.0}
    return Credit(posterior.fit(rows, totals).posterior(rng), 1.0, 1.0, 1.0, facts, losses)


def some(count: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(steps, 3)) for steps in range(3, 3 + count)]


def test_episodes_together_are_those_one_by_one(credit: Credit) -> None:
    totals = np.array([1.0, np.nan, 3.0, 4.0, 5.0])
    [(_, steps)], start = credit.of_blocks(some(), None, totals), 0
    for rows, total in zip(some(), totals, strict=True):
        found, start = steps.of(slice(start, start + len(rows))), start + len(rows)
        alone = credit.of_steps(rows, credit.posterior.expected(rows))
        constant = credit.posterior.per_segment
        alone = alone.paid(np.array([total]) - constant[0], constant - constant[0], np.array([len(rows)]))
        np.testing.assert_allclose(found.reward, alone.reward, atol=1e-5)
        np.testing.assert_allclose(found.variance, alone.variance, rtol=1e-4)


def test_a_known_outcome_is_summed_up_to_and_narrows_intervals(credit: Credit) -> None:
    rows = some()[4]
    before = credit.of_steps(rows, credit.posterior.expected(rows))
    after = before.paid(np.array([7.0]), np.zeros(129), np.array([len(rows)]))
    assert after.reward.sum() == pytest.approx(7.0)
    assert after.variance.mean() < before.variance.mean()
    low, high = after.within(0.9)
    wider = after.within(0.99)
    assert (wider[0] < low).all()
    assert (low < after.reward).all()
    assert (high < wider[1]).all()


def beside(credit: Credit, method: str, unexplained: float | list[float], *spreads: float) -> Credit:
    """Beside lanes whose rewards of steps vary so much, about what the posterior says."""
    records = [Record(rows[:, :1], rows[:, 1:2], 5.0, False, number) for number, rows in enumerate(some(4))]
    plain = [np.linspace(-1, 1, len(record.actions)) for record in records]
    size = float(np.concatenate(plain).std())
    lanes = [[spread / size * each for each in plain] for spread in spreads or (1.0,)]
    errors = np.repeat(np.broadcast_to(unexplained, len(lanes))[:, None], len(records), axis=1)
    return weighed(credit, method, errors, lanes, records)


def test_the_posterior_speaks_while_it_explains_as_much(credit: Credit) -> None:
    found = [beside(credit, "grd", left) for left in (0.5, 0.1, 0.05, 0.01)]
    assert [each.share for each in found] == pytest.approx([1.0, 1.0, 0.25, 0.01])
    assert [each.share for each in found] == [each.belief for each in found]
    assert beside(credit, "rd", 0.5)[1:3] == (0.0, 1.0)


def test_one_episode_that_is_missed_by_far_decides_nothing() -> None:
    rng = np.random.default_rng(0)
    errors = 2 * rng.standard_t(4, 400)
    assert typical(errors**2) == pytest.approx(4, rel=0.2)
    assert typical(np.append(errors, 1e3) ** 2) == pytest.approx(typical(errors**2), rel=0.02)
    assert typical(np.zeros(5)) == 0


def test_seeds_that_have_diverged_have_no_say(credit: Credit) -> None:
    assert beside(credit, "grd", [np.nan, 0.05], np.nan, 1.0).share == pytest.approx(0.25)
    assert beside(credit, "grd", np.nan, np.nan).share == 1


@pytest.mark.parametrize(("share", "belief"), [(1.0, 1.0), (0.0, 1.0), (0.0, 0.25), (0.25, 0.25)])
def test_doubt_is_the_variance_of_which_of_two_is_right(credit: Credit, share: float, belief: float) -> None:
    """Each is right with its probability; if the method is, there is as much less noise as it leaves less."""
    rows, rng = some()[0], np.random.default_rng(3)
    drawn = credit.posterior.rewards(rows)
    found = credit._replace(share=share, belief=belief).of_steps(rows, drawn[:, 0] + 5.0)
    np.testing.assert_allclose(found.reward, drawn[:, 0] + 5 * (1 - share), atol=1e-5)
    right = rng.random(200_000) < belief
    noise = np.where(right, 1.0, np.sqrt(belief)) * credit.posterior.noise
    errors = np.where(right, 0.0, 5.0) - 5 * (1 - share) + np.sqrt(noise) * rng.normal(size=len(right))
    spread = np.mean((drawn[:, 1:] - drawn[:, :1]) ** 2, axis=1)
    np.testing.assert_allclose(found.variance, spread + np.mean(errors**2), rtol=2e-2)


def test_a_mixture_is_of_rewards_for_the_same_level(credit: Credit) -> None:
    """So that it sums up to the mixture of what both say of an episode, however long."""
    found = credit._replace(share=0.25, facts={"method_level": 9.0})
    learned, totals = [np.ones(len(rows)) for rows in some()], np.full(5, np.nan)
    [(_, steps)] = found.of_blocks(some(), learned, totals)
    sums = [each.sum() for each in np.split(steps.reward, np.cumsum([len(rows) for rows in some()])[:-1])]
    both = 0.25 * credit.posterior.totals(some())[0] + 0.75 * (9 + np.array([len(rows) for rows in some()]))
    np.testing.assert_allclose(sums + credit.posterior.per_segment[0], both, rtol=1e-5)


def test_determined_is_the_credit_that_is_shown(credit: Credit) -> None:
    """That of a method far from a posterior that explains more is hardly determined."""
    assert beside(credit, "rd", 0.5, 3.0).facts["determined"] < 0.6
    assert beside(credit, "rd", 0.001, 3.0).facts["determined"] > 0.8


def test_rewards_that_vary_more_than_outcomes_allow_are_told(credit: Credit) -> None:
    facts = beside(credit, "grd", 0.1, 5.9, 6.1).facts
    assert [varies_too_much(facts, lane) for lane in (0, 1, 2)] == [False, True, False]
    assert not varies_too_much(None, 0)


def test_a_clock_that_every_episode_passes_is_named() -> None:
    rng = np.random.default_rng(2)
    time = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    records = []
    for number in range(150):
        state, act = rng.normal(size=24).cumsum() * 0.3, rng.uniform(-1, 1, (24, 1))
        seen, earned = np.column_stack([np.sin(time), np.cos(time), state]), (1 + np.sin(time)) * act[:, 0]
        records.append(Record(seen, act, float(np.sum(earned + state)), False, number))
    log = Log([seen], [act], np.zeros(1), ("sine", "cosine", "load"), ("lever",))
    found = fit_credit(spec_of("log", log), records[30:], records[:30], 0)
    assert found.facts["determined"] < 0.9
    assert {each["name"] for each in found.facts["undetermined"]} <= {"sine", "cosine"}
    [said] = credit_in_words(found.facts)
    assert "sine" in said
    assert "every episode has the same values of" in said


def test_an_input_varies_where_one_of_its_entries_does() -> None:
    """Of three regions, one is in no episode."""
    log = Log([np.zeros((2, 1))], [np.zeros((2, 1))], np.zeros(1), ("region",), ("act",), (3, 0))
    segments = [np.outer([1.0, 1.0], [n % 2, 1 - n % 2, *np.zeros(6)]) for n in range(9)]
    doubt = np.tile([1.0, 1.0, 1.0, 0.0, 0.0], (18, 1))
    found = SimpleNamespace(shares=lambda rows, behind: SimpleNamespace(variance=doubt))
    told = _undetermined(spec_of("log", log), cast(Any, found), segments)
    assert told == [{"name": "region", "same_in_every_episode": False}]


def test_intervals_from_python_and_in_files_hold_the_truth(fitted: apportion.Run, tmp_path: Path) -> None:
    seen, done, _ = EPISODES[0]
    reward, low, high = fitted.reward(seen, done, interval=0.9)
    assert (low < reward).all()
    assert (reward < high).all()
    np.testing.assert_array_equal(fitted.reward(seen, done), reward)
    with pytest.raises(UserError, match=r"interval=1\.5 must be between 0 and 1"):
        fitted.reward(seen, done, interval=1.5)
    few = episodes(20, seed=9)
    file = write_csv(tmp_path / "few.csv", table(few))
    apportion.relabel(fitted, file, tmp_path / "new.csv")
    found, hidden = polars.read_csv(tmp_path / "new.csv"), np.concatenate([each[2] for each in few])
    inside = (found["reward_low"].to_numpy() <= hidden) & (hidden <= found["reward_high"].to_numpy())
    assert inside.mean() > 0.8
    sums = found.group_by("episode", maintain_order=True).agg(
        polars.col("reward").sum(), polars.col("outcome").first()
    )
    level = read_credit(fitted.folder).posterior.per_segment[0]
    np.testing.assert_allclose(sums["reward"], sums["outcome"] - level, atol=1e-6)


def test_damaged_credit_is_told(fitted: apportion.Run, tmp_path: Path) -> None:
    copy = RunFolder(tmp_path)
    shutil.copy(fitted.folder.spec, copy.spec)
    copy.credit.write_bytes(fitted.folder.credit.read_bytes()[:1000])
    damaged = r"credit.safetensors is damaged .*: fit the run again"
    with pytest.raises(UserError, match=damaged):
        read_credit(copy)
    arrays, note = read_arrays(fitted.folder.credit)
    for forged in ({"share": 1e300}, {"belief": -1.0}, {"widening": 0.0}):
        write_arrays(copy.credit, arrays, note | forged)
        with pytest.raises(UserError, match=damaged):
            read_credit(copy)


def test_outcomes_that_are_noise_warn_wherever_they_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    luck = rng.normal(size=40)
    rows = [row | {"outcome": float(luck[row["episode"]])} for row in table(EPISODES) if row["episode"] < 40]
    file = write_csv(tmp_path / "noise.csv", rows)
    quick = SMALL | {"updates": 40, "check_every": 20, "method.hidden": (4,), "method.segments": 4}
    run = apportion.fit(file, states="s_", out=tmp_path / "run", settings=quick, quiet=True)
    warnings = fit_warnings(run.folder)
    assert any("cannot support an answer" in each or "No answer was learned" in each for each in warnings)
    assert cli._run(["relabel", str(run.path), str(file), "--out", str(tmp_path / "new.csv")]) == 0
    assert "Do not rely on these rewards" in " ".join(capsys.readouterr().err.split())
