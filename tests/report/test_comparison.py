"""`apportion compare`: which runs stand beside each other, where, on what scale, and what is said of more."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import apportion as door
from apportion.core.config import UserError
from apportion.envs.make import EnvConfig
from apportion.report.comparison import compare_curves, compare_runs
from apportion.report.curves import SECTIONS, read_curves
from apportion.runs.folder import RunFolder
from apportion.training.settings import Config
from driver import apportion
from synthetic_runs import Recipe, make_run

GREENHOUSE = "apportion/Greenhouse-v0"
RANDOM = {"toy/A": 0.0, "toy/B": 50.0}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, two methods and an oracle on each; read it, do not write into it."""
    root = tmp_path_factory.mktemp("sweep")
    levels = {"grd": 80.0, "rd": 60.0, "oracle": 100.0}
    for env, (method, level) in itertools.product("AB", levels.items()):
        make_run(root / env / method, Recipe(env=f"toy/{env}", method=method, level=level, success=True))
    return root


def _returns(run: Path) -> list[float]:
    """Of the last evaluation."""
    return [entry["return"] for entry in RunFolder.open(run).read_metrics() if entry["kind"] == "eval"][-1]


def test_scores_of_each_task_and_method(sweep: Path) -> None:
    data = apportion("compare", sweep, "--no-env", "--json").json
    assert set(data["tasks"]) == {"toy/A", "toy/B"}
    assert set(data["tasks"]["toy/A"]) == {"grd", "rd", "oracle"}
    grd = data["tasks"]["toy/A"]["grd"]
    returns = _returns(sweep / "A/grd")
    assert (grd["values"], grd["seeds"]) == (returns, [5, 6, 7])
    assert grd["iqm"] == grd["mean"] == pytest.approx(np.mean(returns))  # of three, none is cut off
    low, high = grd["interval"]
    assert min(returns) <= low < grd["iqm"] < high <= max(returns)
    assert grd["improvement_over"]["rd"]["probability"] == 1
    assert grd["improvement_over"]["rd"]["interval"] == pytest.approx([1, 1])
    assert 0 < grd["auc"]["iqm"] < grd["iqm"]
    assert grd["success"]["iqm"] == pytest.approx(1, abs=0.1)
    assert (data["steps"], data["random"]) == ({"toy/A": 50_000, "toy/B": 50_000}, {})
    assert data["aggregate"]["methods"]["grd"]["iqm"] is None
    assert any("no scale on toy/A, toy/B" in line for line in data["notes"])
    assert data["aggregate"]["methods"]["grd"]["improvement_over"]["rd"]["probability"] == 1


def test_all_tasks_on_the_scale_from_random_actions_to_the_oracle(sweep: Path) -> None:
    found = compare_runs([sweep], random=RANDOM)
    data = found.summary()
    assert data["aggregate"]["tasks"] == data["aggregate"]["scaled_tasks"] == ["toy/A", "toy/B"]
    scores = []
    for task, random in RANDOM.items():
        oracle = np.mean(_returns(sweep / task[-1] / "oracle"))
        scores.append((np.array(_returns(sweep / task[-1] / "grd")) - random) / (oracle - random))
    together = data["aggregate"]["methods"]
    middle = np.sort(np.concatenate(scores))[1:-1]  # six, less a quarter at each end
    assert together["grd"]["iqm"] == pytest.approx(np.mean(middle))
    assert together["oracle"]["mean"] == pytest.approx(1)
    assert together["grd"]["profile"]["share"][0] == 1
    assert together["grd"]["profile"]["share"][-1] == 0


def test_random_actions_are_played_where_an_oracle_needs_them(tmp_path: Path) -> None:
    recipe = Recipe(env=GREENHOUSE, method="oracle", level=30)
    make_run(tmp_path / "oracle", recipe)
    make_run(tmp_path / "more", Recipe(env="no_such_module:Env-v0", method="oracle"))
    found = compare_runs([tmp_path])
    assert found.random[GREENHOUSE] == pytest.approx(6.0, abs=1.5)  # docs/environments.md has more episodes
    assert found.summary() == compare_runs([tmp_path]).summary()
    [line] = [line for line in found.notes if "could not be played" in line]
    assert "no_such_module" in line
    assert "give --random FILE" in line


def test_random_returns_may_come_from_a_file(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "random.json").write_text(json.dumps(RANDOM))
    data = apportion("compare", sweep, "--random", tmp_path / "random.json", "--json").json
    assert data["random"] == RANDOM
    (tmp_path / "before.json").write_text(json.dumps(data))
    assert apportion("compare", sweep, "--random", tmp_path / "before.json", "--json").json == data
    (tmp_path / "bad.json").write_text('{"toy/A": "much"}')
    for name in ("bad.json", "absent.json"):
        assert apportion("compare", sweep, "--random", tmp_path / name).err.startswith("error: ")


def test_who_never_reports_a_success_where_others_do_has_none(tmp_path: Path) -> None:
    """Some environments speak of success only when there is one: the worst method would be left out."""
    make_run(tmp_path / "good", Recipe(success=True))
    make_run(tmp_path / "bad", Recipe(method="observed", nan_lanes=(1,)))
    make_run(tmp_path / "mute", Recipe(env="toy/Mute-v0"))
    data = compare_runs([tmp_path], metric="success").summary()
    assert set(data["tasks"]) == {"toy/Toy-v0"}
    assert data["tasks"]["toy/Toy-v0"]["observed"]["values"] == [0, 0]
    said = "reports no success, while others of its task do: its success rate counts as 0"
    assert f"{tmp_path / 'bad'}: {said}" in data["notes"]
    assert not any("mute" in line and said in line for line in data["notes"])


def test_success_rates_need_no_scale_and_stand_in_their_table_once(sweep: Path) -> None:
    data = compare_runs([sweep], metric="success").summary()
    assert data["aggregate"]["scaled_tasks"] == ["toy/A", "toy/B"]
    assert 0.9 < data["aggregate"]["methods"]["rd"]["iqm"] <= 1
    header = apportion("compare", sweep, "--metric", "success", "--no-env").out.splitlines()[2]
    columns = [cell.strip() for cell in header.strip("┃").split("┃")]
    assert columns == ["method", "seeds", "IQM", "mean", "area under curve", "beats others"]


def test_a_tidy_table_and_a_figure_from_the_command_and_from_python(sweep: Path, tmp_path: Path) -> None:
    files = ("--csv", tmp_path / "new/table.csv", "--figure", tmp_path / "new/figure.svg")
    assert apportion("compare", sweep, "--no-env", *files, "--json").json["tasks"]
    with (tmp_path / "new/table.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * 3 * 3 * 5  # tasks, methods, seeds, evaluations
    assert (
        len({tuple(row[key] for key in ("task", "method", "backbone", "seed", "step")) for row in rows}) == 90
    )
    last = {row["seed"]: float(row["return"]) for row in rows if row["run"].endswith("A/rd")}
    assert list(last.values()) == _returns(sweep / "A/rd")
    assert b"toy/A" in (tmp_path / "new/figure.svg").read_bytes()

    found = door.compare(sweep / "A", sweep / "B/grd", random=RANDOM)
    assert isinstance(found, door.Compared)
    frame = found.frame()
    best = frame[(frame.method == "oracle") & (frame.step == 50_000)]
    assert best.normalised.mean() == pytest.approx(1)
    assert found.figure(tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert any("toy/B" in line for line in found.notes)


# --- Which runs are one, and what they are called


def _labels(root: Path) -> list[str]:
    return list(compare_runs([root]).summary()["tasks"]["toy/Toy-v0"])


def test_equal_runs_are_pooled_others_told_apart_by_settings_and_backbones(tmp_path: Path) -> None:
    make_run(tmp_path / "one", Recipe())
    make_run(tmp_path / "two", Recipe(seed=8))
    data = compare_runs([tmp_path]).summary()
    assert data["tasks"]["toy/Toy-v0"]["grd"]["seeds"] == [5, 6, 7, 8, 9, 10]
    make_run(tmp_path / "zwei", Recipe(rate=0.01))
    make_run(tmp_path / "three", Recipe(method="rd", backbone="td3"))
    assert _labels(tmp_path) == ["grd · method.rate=0.001", "rd", "grd · method.rate=0.01"]
    make_run(tmp_path / "four", Recipe(method="rd"))
    assert set(_labels(tmp_path)) >= {"rd · td3", "rd · sac"}


def test_no_part_of_the_settings_is_overlooked() -> None:
    parts = Config(EnvConfig(id="Pendulum-v1")).to_dict()
    assert parts.keys() == {*SECTIONS, "env", "seed", "lanes"}


def test_the_same_seeds_of_the_same_settings_are_told_apart_by_where_they_lie(tmp_path: Path) -> None:
    for when in ("before", "after"):
        make_run(tmp_path / when / "run", Recipe())
    found = compare_runs([tmp_path / "before", tmp_path / "after", tmp_path / "before/run"])
    assert list(found.summary()["tasks"]["toy/Toy-v0"]) == ["grd · before", "grd · after"]


# --- Where they are compared, and what is left out


def test_the_last_step_that_all_have_or_another(tmp_path: Path) -> None:
    make_run(tmp_path / "long", Recipe())
    run = make_run(tmp_path / "short", Recipe(method="rd"))
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(b"".join(line for line in lines if b'"step": 50000' not in line))
    found = compare_runs([tmp_path])
    assert found.steps == {"toy/Toy-v0": 40_000}
    [line] = [line for line in found.notes if "compared at" in line]
    assert f"compared at step 40,000, since {run.path} stopped there" in line
    later = compare_runs([tmp_path], at=50_000)
    assert later.on("toy/Toy-v0") == ["grd"]
    assert any(str(run.path) in line and "left out" in line for line in later.notes)
    assert any("only grd" in line for line in later.notes)
    assert (later.labels, later.common) == (["grd"], ["toy/Toy-v0"])
    with pytest.raises(UserError, match="no run was evaluated at step 7"):
        compare_runs([tmp_path], at=7)


def test_frozen_lanes_single_seeds_and_damaged_lines_are_said(tmp_path: Path) -> None:
    frozen = make_run(tmp_path / "frozen", Recipe(nan_lanes=(1,)))
    make_run(tmp_path / "single", Recipe(method="rd", lanes=1))
    damaged = make_run(tmp_path / "damaged", Recipe(method="ircr"))
    content = damaged.metrics.read_text().replace('"kind": "eval"', '"kind": "evil"', 1)
    damaged.metrics.write_text(content)
    found = compare_runs([tmp_path])
    assert [len(found.of("toy/Toy-v0", label)) for label in ("grd", "rd", "ircr")] == [2, 1, 3]
    said = "\n".join(found.notes)
    assert f"{frozen.path}: seed 6 has no return" in said
    assert "one seed of rd, so no interval" in said
    assert "fewer than 5 seeds of ircr, grd, so intervals are too narrow" in said
    assert f"{damaged.metrics}, line" in said
    numbers = found.summary()["tasks"]["toy/Toy-v0"]
    assert numbers["rd"]["interval"] == [None, None]
    assert [numbers[label]["left_out"] for label in ("grd", "rd", "ircr")] == [[6], [], []]
    assert "2 of 3" in apportion("compare", tmp_path).out
    assert all("\n" not in line for line in found.notes)


def test_areas_are_between_the_same_steps_for_all(tmp_path: Path) -> None:
    """However often each was evaluated: a straight line has the same area."""
    for method, evaluations in (("grd", 10), ("rd", 2)):  # first after 5,000 steps, and after 25,000
        make_run(tmp_path / method, Recipe(method=method, evaluations=evaluations))
    curves, _ = read_curves([tmp_path])
    straight = [curve._replace(scores={**curve.scores, "return": curve.steps / 10}) for curve in curves]
    found = compare_curves(straight, trusted=False).summary()["tasks"]["toy/Toy-v0"]
    for method in ("grd", "rd"):
        assert found[method]["auc"]["iqm"] == pytest.approx((2500 + 5000) / 2)


def test_what_is_no_run_is_refused_and_what_lies_beside_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run folder and holds none"):
        compare_runs([tmp_path])
    broken = make_run(tmp_path / "broken", Recipe())
    broken.config.write_text("{")
    with pytest.raises(UserError, match="nothing to compare"):
        compare_runs([tmp_path])
    make_run(tmp_path / "good", Recipe())
    assert any(str(broken.path) in line for line in compare_runs([tmp_path]).notes)
    make_run(tmp_path / "new", Recipe(method="rd", evaluations=0))
    assert any("no evaluation yet" in line for line in compare_runs([tmp_path]).notes)
    with pytest.raises(UserError, match="has a success that is a number"):
        compare_runs([tmp_path], metric="success")


def test_no_table_cuts_names_or_numbers_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a narrow screen they go over several lines; in a pipe, which has no edge, they stand in one."""
    for rate in (1e-3, 2e-3):
        make_run(tmp_path / f"{rate}", Recipe(rate=rate, success=True, level=-1234.5))
    piped = apportion("compare", tmp_path, "--no-env").out
    assert all(f"│ grd · method.rate={rate} │" in piped for rate in ("0.001", "0.002"))
    monkeypatch.setenv("COLUMNS", "60")
    narrow = apportion("compare", tmp_path, "--no-env").out
    assert "…" not in piped + narrow
    assert max(map(len, narrow.splitlines())) <= 60
