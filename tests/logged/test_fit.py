"""Fitting to outcome-only logs finds the hidden reward of each step, in a run that all verbs understand."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import h5py
import jax
import logged_data as data
import minari
import numpy as np
import polars
import pytest

import apportion
from apportion.core.config import UserError
from apportion.report.figures import plot_credit
from apportion.runs.explaining import Explainer
from apportion.runs.learned import Learned, read_learned
from apportion.runs.logged import read_facts
from apportion.runs.summary import fit_in_words
from apportion.training.evaluate import pearson
from driver import apportion as command

EPISODES = data.episodes(12)
HIDDEN = np.concatenate([reward for *_, reward in data.episodes()])


ENDS = ("_low", "_high")  # of intervals


def test_hidden_rewards_are_found_from_outcomes(
    fitted: apportion.Run, table_file: Path, tmp_path: Path
) -> None:
    assert apportion.relabel(fitted, table_file, tmp_path / "new.csv") == str(tmp_path / "new.csv")
    assert pearson(data.column(tmp_path / "new.csv"), HIDDEN) >= 0.95
    assert fitted.graph is not None
    assert fitted.graph.state_to_reward.tolist() == [1, 1, 0]
    assert fitted.graph.action_to_reward.tolist() == [1]
    seen, done, reward = data.episodes(40, seed=9)[0]
    assert pearson(fitted.reward(seen, done), reward) > 0.8


def test_the_unit_and_the_level_of_outcomes_do_not_matter(tmp_path: Path) -> None:
    """The same in hundred-thousandths, and from a level that no step has earned: all is found alike."""
    rows = [row | {"outcome": 1e-5 * row["outcome"] + 0.01} for row in data.table(data.episodes())]
    file = data.write_csv(tmp_path / "log.csv", rows)
    run = apportion.fit(file, out=tmp_path / "run", settings=data.SMALL, quiet=True)
    apportion.relabel(run, file, tmp_path / "new.csv")
    rewards = data.column(tmp_path / "new.csv")
    assert pearson(rewards, HIDDEN) >= 0.95
    assert np.std(rewards) == pytest.approx(1e-5 * np.std(HIDDEN), rel=0.2)
    outcomes = read_facts(run.folder)["outcomes"]
    assert outcomes.level == pytest.approx(0.01, rel=0.01)
    seen, done, _ = data.episodes(1)[0]
    assert run.reward(seen, done) == pytest.approx(rewards[: len(done)], abs=5e-7)  # an outcome tells more
    found = polars.read_csv(tmp_path / "new.csv").group_by("episode", maintain_order=True)
    sums = found.agg(polars.col("reward").sum(), polars.col("outcome").first())
    assert pearson(sums["reward"].to_numpy(), sums["outcome"].to_numpy()) >= 0.95


def test_relabelling_adds_columns_and_touches_nothing_else(
    fitted: apportion.Run, table_file: Path, tmp_path: Path
) -> None:
    apportion.relabel(fitted, table_file, tmp_path / "new.csv", exact=True)
    before, after = table_file.read_text().splitlines(), (tmp_path / "new.csv").read_text().splitlines()
    assert [line.rsplit(",", 3)[0] for line in after] == before
    assert after[0].endswith(",reward,reward_low,reward_high")
    sums = polars.read_csv(tmp_path / "new.csv").group_by("episode", maintain_order=True)
    sums = sums.agg(polars.col("reward").sum(), polars.col("outcome").first())
    np.testing.assert_allclose(sums["reward"], sums["outcome"], rtol=1e-9)


def test_credit_adds_up_to_the_reward(fitted: apportion.Run, tmp_path: Path) -> None:
    few = data.write_csv(tmp_path / "few.csv", data.table(data.episodes(3, seed=5)))
    apportion.relabel(fitted, few, tmp_path / "new.csv", credit=True, precision=data.FEW)
    found = polars.read_csv(tmp_path / "new.csv")
    _adds_up(found, ["s_0", "s_1", "s_2", "a_0", "baseline"])
    size = {name: float(found[f"credit_{name}"].abs().mean()) for name in ("s_0", "s_2", "a_0")}
    assert size["s_2"] < 0.2 * min(size["s_0"], size["a_0"])


def test_credit_of_undecided_dimensions_may_go_to_the_baseline(
    fitted: apportion.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = data.write_csv(tmp_path / "few.csv", data.table(data.episodes(3, seed=5)))
    monkeypatch.setattr(Explainer, "doubts", lambda *_: {"undecided": np.array([False, True, False, False])})
    more = ("--background", "5")
    command("relabel", fitted.path, few, "--out", tmp_path / "new.csv", "--credit", "--decided", *more)
    found = polars.read_csv(tmp_path / "new.csv")
    _adds_up(found, ["s_0", "s_2", "a_0", "baseline"])
    assert not [name for name in found.columns if "s_1_" in name]
    with pytest.raises(UserError, match="add --credit"):
        apportion.relabel(fitted, few, tmp_path / "new.csv", decided=True)


def _adds_up(found: polars.DataFrame, names: list[str]) -> None:
    shares = [name for name in found.columns if name.startswith("credit_") and not name.endswith(ENDS)]
    assert shares == [f"credit_{name}" for name in names]
    np.testing.assert_allclose(found.select(shares).sum_horizontal(), found["reward"], atol=1e-5)


def test_a_seed_that_diverged_is_left_out(
    fitted: apportion.Run, table_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made every reward NaN."""
    learned = read_learned(fitted.folder)

    def broken(lanes: tuple[int, ...]) -> Learned:
        def lose(leaf: Any) -> Any:
            lost = np.array(leaf)
            if lost.dtype.kind == "f":
                lost[list(lanes)] = np.nan
            return lost

        return dataclasses.replace(learned, agent=jax.tree.map(lose, learned.agent))

    for lanes, said in (((1,), ["seed 1 has no finite reward and is left out"]), ((), [])):
        found = broken(lanes)
        assert found.left_out() == said
        monkeypatch.setattr("apportion.runs.crediting.read_learned", lambda _, found=found: found)
        apportion.relabel(fitted, table_file, tmp_path / f"{len(lanes)}.csv")
        assert polars.read_csv(tmp_path / f"{len(lanes)}.csv")["reward"].is_finite().all()
    with pytest.raises(UserError, match="not finite in any seed"):
        broken((0, 1)).left_out()


def test_a_dimension_may_be_called_baseline(tmp_path: Path) -> None:
    """Its credit is not lost: all columns add up to the reward as well."""
    names = {"s_0": "baseline", "s_1": "baseline_"}
    rows = [{names.get(key, key): value for key, value in row.items()} for row in data.table(EPISODES)]
    file = data.write_csv(tmp_path / "log.csv", rows)
    named = {"states": "baseline,baseline_,s_2", "out": tmp_path / "run"}
    run = apportion.fit(file, "rd", **named, settings=data.QUICK, quiet=True)
    apportion.relabel(run, file, tmp_path / "new.csv", credit=True, precision=data.FEW)
    wanted = ["baseline", "baseline_", "s_2", "a_0", "baseline__"]
    _adds_up(polars.read_csv(tmp_path / "new.csv"), wanted)


def test_other_formats_come_back_in_their_own(
    fitted: apportion.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same rewards; what was paid stays beside them."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    episodes = data.episodes(5, seed=6)
    rows = [row | {"reward": 1.0} for row in data.table(episodes)]
    apportion.relabel(fitted, data.write_parquet(tmp_path / "a.parquet", rows), tmp_path / "b.parquet")
    wanted = data.column(tmp_path / "b.parquet")
    assert set(data.column(tmp_path / "b.parquet", "paid_reward")) == {1.0}
    apportion.relabel(fitted, data.write_npz(tmp_path / "a.npz", episodes), tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as arrays:
        inside = np.arange(arrays["reward"].shape[1]) < arrays["lengths"][:, None]
        np.testing.assert_allclose(arrays["reward"][inside], wanted, atol=1e-5)
    apportion.relabel(fitted, data.write_d3rlpy(tmp_path / "a.h5", episodes), tmp_path / "b.h5")
    apportion.relabel(fitted, data.write_flat(tmp_path / "c.h5", episodes), tmp_path / "d.h5")
    with h5py.File(tmp_path / "b.h5") as dumped, h5py.File(tmp_path / "d.h5") as flat:
        joined = np.concatenate([dumped[f"rewards_{i}"][:, 0] for i in range(5)])
        np.testing.assert_allclose(joined, wanted, atol=1e-5)
        np.testing.assert_allclose(flat["rewards"], wanted, atol=1e-5)
        assert flat["paid_rewards"][()].sum() == pytest.approx(sum(r.sum() for *_, r in episodes))
    name = data.write_minari("toy/log-v0", episodes)
    assert apportion.relabel(fitted, name) == "toy/log-grd-v0"
    found = minari.load_dataset("toy/log-grd-v0")
    np.testing.assert_allclose(
        np.concatenate([episode.rewards for episode in found.iterate_episodes()]), wanted, atol=1e-5
    )
    with pytest.raises(apportion.UserError, match="already: name another --out"):
        apportion.relabel(fitted, name)


def test_relabelling_refuses_what_does_not_fit(
    fitted: apportion.Run, table_file: Path, tmp_path: Path
) -> None:
    rows = data.table(data.episodes(3))
    for row in rows:
        del row["s_1"]
    narrow = data.write_csv(tmp_path / "narrow.csv", rows)
    for file, out, message in (
        (narrow, tmp_path / "x.csv", "no column 's_1', which the run was fitted to"),
        (table_file, table_file, "is the data itself"),
        (table_file, tmp_path / "x.parquet", "must end in '.csv'"),
        (table_file, None, "Give --out"),
    ):
        with pytest.raises(apportion.UserError, match=message):
            apportion.relabel(fitted, file, out)
    assert [path.name for path in tmp_path.iterdir()] == ["narrow.csv"]


def test_all_verbs_understand_the_run(fitted: apportion.Run) -> None:
    path = fitted.path
    shown = command("show", path, "--json").json
    assert set(shown["graph"]) == {*apportion.core.spec.BLOCKS, "policy_mask", "per_lane"}
    assert shown["data"]["supported"] == [True, True]
    assert max(shown["data"]["unexplained"]) < 0.1
    table = command("show", path).out
    assert "no policy" in table
    assert "return error" in table
    assert "correlation" not in table  # no log can tell
    assert command("explain", path, "--background", "8", "--step", "0", "1").code == 0
    for verb in (["eval", path], ["resume", path], ["export", path, "--out", "x.npz"]):
        assert re.search("fitted to logged episodes .* and has no policy", command(*verb).err)


def test_a_category_is_one_dimension_everywhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = data.table(data.episodes(170, seed=3))
    for number, row in enumerate(rows):
        row["s_2"], row["a_0"] = rng.choice(["up", "down", "off"]), rng.choice(["x", "y", "z"])
        row["outcome"] = row["s_0"] + 2.0 * (row["s_2"] == "up") - 1.0 * (row["a_0"] == "y")
        row["episode"], row["step"] = number // 4, number % 4
    for start in range(0, len(rows), 4):
        total = sum(row["outcome"] for row in rows[start : start + 4])
        for row in rows[start : start + 4]:
            row["outcome"] = total
    file = data.write_csv(tmp_path / "log.csv", rows)
    flags = ["--states", "s_", "--actions", "a_"]
    found = command("identify", file, *flags, "--json").json
    assert found["verdict"]["state_to_reward"] == ["present", "absent", "present"]
    assert found["verdict"]["action_to_reward"] == ["present"]
    small = ["--updates", "20", "--check-every", "20", "--method.hidden", "8", "--quiet"]
    assert command("fit", file, *flags, "--out", tmp_path / "run", *small).code == 0
    run = apportion.load(tmp_path / "run")
    assert run.graph is not None
    assert run.graph.state_to_reward.tolist() == [1, 0, 1]
    credit = run.explain(precision=data.FEW, steps=[0])
    assert {row["name"] for row in credit["dimensions"]} == {"s_0", "s_1", "s_2", "a_0"}
    assert {row["name"] for row in credit["dimensions"][:3]} == {"s_0", "s_2", "a_0"}


def test_data_are_not_blamed_for_what_learning_missed() -> None:
    """Outcomes that are missed by far more than they differ: it was learning that failed."""
    facts = {"episodes": 50, "held_out": 10, "unexplained": [0.2, 0.97, 113.4, None]}
    facts |= {"credit": None, "answers": None}
    said = fit_in_words(facts | {"supported": [True, False, False, False]}, [0, 1, 2, 3])
    assert [line.split(":")[0] for line in said[1:]] == [
        "The data cannot support an answer (seed 1)",
        "No answer was learned (seed 2, 3)",
    ]


def test_no_more_updates_are_made_than_asked_for(tmp_path: Path) -> None:
    """Also where they are fewer than lie between two looks."""
    file = data.write_csv(tmp_path / "log.csv", data.table(EPISODES))
    sums = []
    for name, check_every in (("few", 7), ("fewer", 250)):
        quick = data.QUICK | {"updates": 7, "check_every": check_every}
        run = apportion.fit(file, "rd", states="s_", out=tmp_path / name, settings=quick, quiet=True)
        sums.append(run.reward(*EPISODES[0][:2]))
    np.testing.assert_array_equal(*sums)


def test_what_cannot_be_judged_is_refused_before_a_run_is_begun(table_file: Path, tmp_path: Path) -> None:
    """Methods that are told every outcome, and episodes of one step."""
    out = tmp_path / "run"
    for method in ("rudder", "hopfield-rudder", "align-rudder", "ircr"):
        with pytest.raises(apportion.UserError, match=f"{method} makes the rewards of every episode sum"):
            apportion.fit(table_file, method, states="s_", out=out, quiet=True)
    single = data.write_csv(tmp_path / "log.csv", [r for r in data.table(EPISODES) if r["step"] == 0])
    with pytest.raises(apportion.UserError, match="every episode has one step, whose reward is its outcome"):
        apportion.fit(single, out=out, quiet=True)
    assert not out.exists()


# --- Logs without outcomes are relabelled and explained: only rewards that shall sum up to them need them


UNPAID_EPISODES = data.episodes(6, seed=3)
ROWS = data.table(UNPAID_EPISODES)


def rewards(run: Any, file: Path, **settings: Any) -> Any:
    out = file.with_stem("new")
    apportion.relabel(run, file, out, **settings)
    return data.column(out)


UNPAID = {
    "no column": [{key: value for key, value in row.items() if key != "outcome"} for row in ROWS],
    "an empty column": [row | {"outcome": None} for row in ROWS],
    "one episode": [row | ({"outcome": None} if row["episode"] == 2 else {}) for row in ROWS],
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("rows", UNPAID.values(), ids=UNPAID)
def test_a_table_without_outcomes_gets_the_same_rewards(
    fitted: apportion.Run, tmp_path: Path, suffix: str, rows: list[dict[str, Any]]
) -> None:
    (tmp_path / "paid").mkdir()
    write = {".csv": data.write_csv, ".parquet": data.write_parquet}[suffix]
    paid = rewards(fitted, write(tmp_path / f"paid/log{suffix}", ROWS))
    file = write(tmp_path / f"log{suffix}", rows)
    np.testing.assert_allclose(rewards(fitted, file), paid, atol=1e-3)  # an outcome tells a little more
    told = fitted.explain(episode=file, precision=data.FEW)["lanes"][0]["episodes"]
    assert len(told) == len(UNPAID_EPISODES)
    with pytest.raises(UserError, match=r"log.*: episode [13] of 6 has no outcome: .* without --exact"):
        apportion.relabel(fitted, file, tmp_path / f"exact{suffix}", exact=True)


def test_arrays_without_totals_are_relabelled(fitted: apportion.Run, tmp_path: Path) -> None:
    file = data.write_npz(tmp_path / "log.npz", UNPAID_EPISODES)
    apportion.relabel(fitted, file, tmp_path / "paid.npz")
    with np.load(file) as arrays:
        np.savez(tmp_path / "unpaid.npz", **{name: arrays[name] for name in arrays if name != "totals"})
    apportion.relabel(fitted, tmp_path / "unpaid.npz", tmp_path / "new.npz")
    with np.load(tmp_path / "paid.npz") as paid, np.load(tmp_path / "new.npz") as new:
        np.testing.assert_allclose(new["reward"], paid["reward"], atol=1e-3)
    with pytest.raises(UserError, match="no array 'totals'"):
        apportion.fit(tmp_path / "unpaid.npz", out=tmp_path / "run", quiet=True)


SHARES = """
from apportion.methods import rd
from apportion.methods.rd import Config

def make(config: Config):
    method = rd.make(config)
    return method._replace(reward=lambda state, steps: steps.segment_total / 10.0)
"""


def test_a_method_that_divides_outcomes_says_that_it_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shares.py").write_text(SHARES)
    monkeypatch.syspath_prepend(tmp_path)
    file = data.write_csv(tmp_path / "log.csv", data.table(data.episodes(20)))
    quick = {"updates": 2, "check_every": 1, "method.hidden": (4,)}
    run = apportion.fit(file, "shares:make", out=tmp_path / "run", settings=quick, quiet=True)
    unpaid = data.write_csv(tmp_path / "unpaid.csv", UNPAID["one episode"])
    with pytest.raises(UserError, match="episode 3 of 6 has no outcome, by which shares:make divides it"):
        apportion.relabel(run, unpaid, tmp_path / "new.csv")


# --- What people are told: by the names of their columns, of the steps that they ask for, or why not


def test_a_copy_is_called_by_its_column(tmp_path: Path) -> None:
    rows = [row | {"s_fahrenheit": 32 - 1.8 * row["s_0"]} for row in data.table(data.episodes(60))]
    rows = [row | {"s_kind": "abc"[row["step"] % 3]} for row in rows]
    file = data.write_csv(tmp_path / "log.csv", rows)
    notes = command("identify", file, "--json").json["certificate"]["notes"]
    assert "'s_fahrenheit' equals 's_0' up to its unit: the edges of both stand at 's_0'" in notes


def test_a_step_is_explained_in_the_episodes_that_have_it(fitted: apportion.Run, tmp_path: Path) -> None:
    episodes = sorted(data.episodes(8, seed=4), key=lambda each: len(each[1]))
    lengths = [len(done) for _, done, _ in episodes]
    assert lengths[0] < lengths[-1]
    file, last = data.write_csv(tmp_path / "log.csv", data.table(episodes)), lengths[-1] - 1
    found = fitted.explain(episode=file, steps=[0, last], precision=data.FEW)
    told = [[step for step in (0, last) if step < length] for length in lengths]
    for lane in found["lanes"]:
        assert [episode["steps"] for episode in lane["episodes"]] == told
    late = fitted.explain(episode=file, steps=[last], precision=data.FEW)["lanes"][0]
    assert [episode["steps"] for episode in late["episodes"]] == [each[1:] for each in told]
    assert late["episodes"][0]["contributions"] == []
    assert np.isfinite(late["mean"]).all()
    plot_credit(fitted.explain(episode=file, steps=[last], precision=data.FEW), tmp_path / "credit.svg")
    with pytest.raises(UserError, match=f"--step {last + 1} is beyond every episode, of {last + 1} steps at"):
        fitted.explain(episode=file, steps=[last + 1], precision=data.FEW)


@pytest.mark.parametrize("unit", [1e39, 1e200, 1e-40])
def test_outcomes_that_single_precision_cannot_hold_are_refused(tmp_path: Path, unit: float) -> None:
    rows = [row | {"outcome": unit * row["outcome"]} for row in data.table(data.episodes(12))]
    with pytest.raises(UserError, match="which rewards cannot hold: give another unit"):
        apportion.fit(data.write_csv(tmp_path / "log.csv", rows), out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_outcomes_that_are_all_the_same_have_no_answer(tmp_path: Path) -> None:
    """Their variance is none, of which no share can be told."""
    rows = [row | {"outcome": 0.1} for row in data.table(data.episodes(40))]
    file = data.write_csv(tmp_path / "log.csv", rows)
    apportion.fit(file, "rd", out=tmp_path / "run", settings=data.QUICK, quiet=True)
    said = " ".join(command("show", tmp_path / "run").out.split())
    assert "Fitted to 32 episodes; the outcomes of 8 others are all the same." in said
    assert "The data cannot support an answer (seed 0)" in said
    assert "unexplained" not in said
