"""`apportion paper`: what the paper ran and prints, which trainings that takes, and how results are shown."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion import cli
from apportion.core.config import UserError
from apportion.front.paper import door, robustness
from apportion.front.paper.door import default_folder
from apportion.front.paper.experiments import DEAD, EXPERIMENTS, TABLE_1_STEPS, Experiment
from apportion.front.paper.planning import plan
from apportion.front.paper.presenting import Done, Finished
from apportion.front.paper.scales import NAMES, scale_of
from apportion.front.paper.writing import write
from apportion.front.sweep.planning import Job
from apportion.methods import METHODS
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder
from apportion.training.presets import PAPER_SPARSITY
from synthetic_runs import Recipe, make_run

# The rows of Table 1, as they stand in the paper's source.
TABLE_1 = """
 0    &  87 ± 41(0.77)& 153± 43(0.80) & 151± 32(0.80) & 131± 55(0.80) & 170± 36(0.77)  & 159± 25(0.78)
 3e-6 & 182±103(0.72) & 201±109(0.71) & 217±108(0.72) & 217±100(0.68) & 229± 95(0.52)  & 220±102(0.50)
 5e-6 & 130±103(0.56) & 245±104(0.69) & 261±100(0.74) & 286± 77(0.77) & 272± 78(0.75)  & 262± 94(0.66)
 5e-5 & 118±100(0.46) & 109±107(0.41) & 123±103(0.34) & 141± 96(0.25) & 152± 93(0.19)  & 158± 90(0.17)
"""


def _bare(text: str) -> str:
    return "".join(text.split())


# --- What the paper ran and prints


def test_table_1_is_that_of_the_paper() -> None:
    printed = EXPERIMENTS["swimmer"].printed
    for row in TABLE_1.strip().splitlines():
        value, *cells = (part.strip() for part in row.split("&"))
        found = {p.step: p.text for p in printed if p.variant == f"λ1 = {value}"}
        assert [_bare(found[step]) for step in TABLE_1_STEPS] == [_bare(cell) for cell in cells]
    lambdas = [variant.settings["method.sparsity"] for variant in EXPERIMENTS["swimmer"].variants]
    assert [each[0] for each in lambdas] == [0, 3e-6, 5e-6, 5e-5]
    assert {each[1:] for each in lambdas} == {PAPER_SPARSITY["Swimmer-v4"][1:]}


def test_other_printed_numbers_are_those_of_the_text() -> None:
    numbers = (*EXPERIMENTS["main"].printed, *EXPERIMENTS["structure"].printed)
    assert {(each.task, each.variant): each.text for each in numbers} == {
        ("HalfCheetah-v4", "GRD"): "1.5e4",
        ("HalfCheetah-v4", "best baseline"): "1.25e4",
        ("Ant-v4", "GRD"): "6.5e3",
        ("Ant-v4", "best baseline"): "6e3",
        ("HumanoidStandup-v4", "GRD"): "2.3e5",
        ("Ant-v4", "state_to_reward"): "75% off",
        ("Ant-v4", "action_to_state"): "70% off",
        ("Ant-v4", "state_to_state"): "98% off",
    }
    assert all(not EXPERIMENTS[n].printed for n in ("robustness", "backbones", "metaworld", "rewards"))


def test_the_experiments_are_the_papers() -> None:
    assert list(EXPERIMENTS) == [
        "main", "swimmer", "robustness", "backbones", "metaworld", "structure", "rewards",
    ]  # fmt: skip
    assert set(EXPERIMENTS["main"].tasks) == set(PAPER_SPARSITY)
    methods = {(v.method, v.settings.get("method.compact")) for v in EXPERIMENTS["main"].variants}
    assert methods == {(m, None) for m in ("grd", "rrd", "rrd-unbiased", "ircr")} | {("grd", "none")}
    pairs = {(v.method, v.backbone) for v in EXPERIMENTS["backbones"].variants}
    rivals = ("grd", "rrd", "rrd-unbiased", "ircr", "observed")
    assert pairs == set(itertools.product(rivals, ("sac", "td3", "ddpg")))
    assert (len(DEAD), DEAD[-1]) == (84, 110)  # of 111
    assert EXPERIMENTS["metaworld"].metric == "success"
    assert {v.method for each in EXPERIMENTS.values() for v in each.variants} <= set(METHODS)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_every_scale_has_trainings_that_can_start(experiment: Experiment) -> None:
    short = experiment.name in ("swimmer", "structure", "rewards")
    assert experiment.steps == (1_000_000 if short else 3_000_000)
    steps = {"smoke": 600, "half": experiment.steps // 2, "full": experiment.steps}
    for name in NAMES:
        planned = plan(experiment, scale_of(experiment, name), "both")
        jobs = list({id(each.job): each.job for each in planned}.values())
        assert len({job.name for job in jobs}) == len(jobs)
        assert {job.preset for job in jobs} == {"paper", "default"}
        assert all(job.chosen().config.schedule.steps == steps[name] for job in jobs)


def test_steps_are_those_that_trainings_make() -> None:
    experiment = EXPERIMENTS["swimmer"]
    for asked, made in ((1, 100), (100, 100), (101, 200)):
        assert scale_of(experiment, "half", steps=asked).steps == made


# --- Results, from made-up runs


def _present(
    experiment: str, folder: Path, choice: Any = "published", diverged: tuple[int, ...] = ()
) -> tuple[dict[str, Any], str]:
    """The result of an experiment whose runs are random numbers."""
    found = EXPERIMENTS[experiment]
    size = scale_of(found, "full", seeds=2)._replace(tasks=found.tasks[:1])
    done = []
    for number, planned in enumerate(plan(found, size, choice)):
        config = planned.job.chosen().config
        recipe = Recipe(
            env=planned.task,
            method=planned.variant.method,
            backbone=planned.job.backbone or "sac",
            steps=size.steps,
            lanes=config.lanes,
            evaluations=6,
            nan_lanes=diverged,
            level=100 + 10 * number,
            success=True,
            truth=False,
        )
        place = folder / "runs" / planned.job.name
        done.append(Done(planned, RunFolder.open(place) if place.exists() else make_run(place, recipe)))
    if experiment == "robustness":
        _write_noise(done, folder)
    finished = Finished(found, size, done, folder)
    data = write(finished, door._PRESENTERS[found.kind](finished))
    return data, (folder / "README.md").read_text()


def _write_noise(done: list[Done], folder: Path) -> None:
    """As if the evaluations had been played already."""
    (folder / "noise").mkdir()
    for each in done:
        for std in robustness.NOISE:
            noise = {"std": std, "dims": list(DEAD)} if std else None
            facts = {"step": each.planned.job.steps, "episodes": robustness.EPISODES, "noise": noise}
            returns = [100 - 50 * std, 90.0]
            result = {"run": str(each.run.path), **facts, "returns": returns}
            write_json(folder / "noise" / f"{each.planned.job.name}-{std:g}.json", result)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_results_stand_in_json_and_on_a_page_with_figures(name: str, tmp_path: Path) -> None:
    data, page = _present(name, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["experiment"] == name
    assert {"commit", "jax", "mujoco"} <= set(data["versions"])
    assert set(data["configs"]) == {job["name"] for job in data["jobs"]}
    assert data["figures"]
    for figure in data["figures"]:
        assert Path(figure).read_bytes().startswith(b"<?xml")
        assert f"({Path(figure).name})" in page
    for line in EXPERIMENTS[name].differs:
        assert line in page


def test_published_and_our_settings_stand_side_by_side(tmp_path: Path) -> None:
    data, page = _present("main", tmp_path, "both")
    assert set(data["ours"]) == {"published", "ours"}
    head = next(line for line in page.splitlines() if line.startswith("| task"))
    assert head == "| task | method | published settings | our settings | the paper prints |"
    cheetah = [line for line in page.splitlines() if line.startswith("| HalfCheetah-v4")]
    assert [line.split("|")[2].strip() for line in cheetah][-1] == "best baseline"
    assert cheetah[0].endswith("| 1.5e4 |")
    values = data["ours"]["published"]["tasks"]["HalfCheetah-v4"]["GRD"]["values"]
    form = ",.0f" if max(values) >= 100 else ".2f"
    assert f"| {np.mean(values):{form}} ± {np.std(values):{form}};" in cheetah[0]


def test_notes_are_on_what_the_page_shows_each_once(tmp_path: Path) -> None:
    data, _ = _present("backbones", tmp_path, "both")
    panels = [f"HalfCheetah-v4, {backbone}" for backbone in ("SAC", "TD3", "DDPG")]
    assert [line.partition(":")[0] for line in data["notes"]] == panels
    assert all("fewer than 5 seeds" in line for line in data["notes"])


def test_what_our_settings_change_is_said_where_they_are_run(tmp_path: Path) -> None:
    for choice in ("published", "both"):
        data, page = _present("swimmer", tmp_path / choice, choice)
        said = [line in data["differs"] and line in page for line in EXPERIMENTS["swimmer"].differs_ours]
        assert said == [choice == "both"] * len(said)
    for name, experiment in EXPERIMENTS.items():
        planned = plan(experiment, scale_of(experiment, "full"), "both")
        chosen = {each.settings: set[str]() for each in planned}
        for each in planned:
            chosen[each.settings].add(each.job.chosen().config.backbone)
        other = chosen["ours"] != chosen["published"]
        assert any("CrossQ" in line for line in experiment.differs_ours) == other, name


def test_edges_of_a_seed_that_diverged_are_neither_on_nor_off(tmp_path: Path) -> None:
    data, _ = _present("structure", tmp_path / "one", diverged=(1,))
    [(label, shares)] = data["ours"].items()
    [run] = (tmp_path / "one" / "runs").iterdir()
    steps, edges = RunFolder.open(run).read_edges()
    for place, step in ((list(steps).index(step), step) for step in shares["steps"]):
        expected = {name: np.mean(edges[name][place, 0] < 0.5) for name in shares["off"][str(step)]}
        assert shares["off"][str(step)] == pytest.approx(expected), label
    _, page = _present("structure", tmp_path / "all", diverged=(0, 1))
    assert "| - | - | - | - |" in page


def test_the_table_of_swimmer_has_the_papers_rows_below_ours(tmp_path: Path) -> None:
    data, page = _present("swimmer", tmp_path, "both")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    labels = [row[:2] for row in rows[2:]]
    assert labels[:2] == [["λ1 = 0 (published)", "ours"], ["", "paper"]]
    assert labels[-1] == ["GRD (ours)", "ours"]
    assert rows[3][2] == "87 ± 41 (0.77)"
    at = data["ours"]["λ1 = 0 (published)"]["at"]["1000000"]
    assert rows[2][-2].endswith(f"({np.mean(at['sparsity']):.2f})")
    assert re.match(r"[\d.]+ ± [\d.]+ \(", rows[2][-2])


def test_what_a_lambda_gains_over_none_has_its_interval(tmp_path: Path) -> None:
    data, page = _present("swimmer", tmp_path, "both")
    last = {label: np.mean(row["at"]["1000000"]["returns"]) for label, row in data["ours"].items()}
    gain = data["ours"]["λ1 = 3e-6 (published)"]["gain"]
    assert gain["centre"] == pytest.approx(last["λ1 = 3e-6 (published)"] - last["λ1 = 0 (published)"])
    assert gain["low"] <= gain["centre"] <= gain["high"]
    [line] = [line for line in page.splitlines() if line.startswith("| λ1 = 3e-6")]
    assert line.endswith(f"| {gain['centre']:+,.0f} [{gain['low']:+,.0f}, {gain['high']:+,.0f}] |")
    assert data["notes"] == ["Fewer than 5 seeds, so intervals are too narrow."]
    assert data["ours"]["λ1 = 0 (published)"]["gain"] is data["ours"]["GRD (ours)"]["gain"] is None


# --- From the command line


def test_an_experiment_from_its_trainings_to_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paper", "rewards", "--seeds", "1", "--steps", "300", "--out", str(tmp_path), "--quiet"]
    assert cli._run([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    [lanes] = data["ours"].values()
    assert [lane["seed"] for lane in lanes] == [0]
    [run] = [path for path in (tmp_path / "runs").iterdir() if (path / "config.json").exists()]
    before = RunFolder.open(run).metrics.read_bytes()
    assert cli._run(words) == 0  # nothing is left to do
    assert RunFolder.open(run).metrics.read_bytes() == before


def test_numbers_stand_beside_the_papers_of_the_same_step_as_far_as_a_training_goes() -> None:
    experiment = EXPERIMENTS["swimmer"]
    half, smoke = (
        scale_of(experiment, name).moments(TABLE_1_STEPS, experiment) for name in ("half", "smoke")
    )
    assert half == {step: step for step in (100_000, 200_000, 300_000, 500_000)}
    assert smoke == {100_000: 60, 200_000: 120, 300_000: 180, 500_000: 300, 800_000: 480, 1_000_000: 600}


def test_what_is_not_usual_has_a_folder_of_its_own() -> None:
    assert default_folder("main", "half") == Path("runs/paper-main-half")
    other = default_folder("main", "half", "both", 300_000, 3)
    assert other == Path("runs/paper-main-half-both-300000-steps-3-seeds")


def test_help_lists_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli._run(["paper", "--help"])
    said = capsys.readouterr().out
    assert all(re.search(rf"^{name} ", said, re.MULTILINE) for name in EXPERIMENTS)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown experiment 'swimer'.*swimmer") as caught:
        cli._run(["paper", "swimer"])
    assert caught.value.usage


def test_a_folder_with_files_of_ones_own_is_left_alone(tmp_path: Path) -> None:
    """As --out . in a repository, whose README.md would be gone."""
    readme = tmp_path / "README.md"
    readme.write_text("mine")
    with pytest.raises(UserError, match="holds no experiment, but other files: choose another --out"):
        door.run_experiment("rewards", out=tmp_path, quiet=True)
    assert (readme.read_text(), [path.name for path in tmp_path.iterdir()]) == ("mine", ["README.md"])


def test_all_smoke_trainings_are_small() -> None:
    jobs: list[Job] = []
    for experiment in EXPERIMENTS.values():
        planned = plan(experiment, scale_of(experiment, "smoke"), "published")
        assert len(planned) <= 6
        jobs += [each.job for each in planned]
    assert all(job.chosen().config.schedule.iterations == 6 for job in jobs)
