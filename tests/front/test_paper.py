"""`apportion paper`: what the paper ran and prints, which trainings that takes, and how results are shown."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from apportion import cli
from apportion.core.config import UserError
from apportion.core.spec import BLOCKS
from apportion.front.paper.experiments import EXPERIMENTS, Experiment, Request, Scale, plan
from apportion.front.paper.presenting import Done, _moments, present, run_experiment
from apportion.methods import METHODS
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder
from apportion.training.presets import PAPER_SPARSITY
from synthetic_runs import Recipe, make_run

# --- What the paper ran and prints


def test_the_table_of_swimmer_varies_the_first_weight_of_the_papers() -> None:
    swimmer = EXPERIMENTS["swimmer"]
    lambdas = [tuple(variant.set["method.sparsity"]) for variant in swimmer.variants]
    assert [f"λ1 = {each[0]:g}".replace("e-0", "e-") for each in lambdas] == [
        each.row for each in swimmer.printed
    ]
    assert {each[1:] for each in lambdas} == {PAPER_SPARSITY["Swimmer-v4"][1:]}
    assert {len(each.cells) for each in swimmer.printed} == {len(swimmer.moments)}


def test_the_experiments_are_the_papers() -> None:
    assert list(EXPERIMENTS) == [
        "main", "swimmer", "robustness", "backbones", "metaworld", "structure", "rewards",
    ]  # fmt: skip
    assert set(EXPERIMENTS["main"].tasks) == set(PAPER_SPARSITY)
    assert EXPERIMENTS["robustness"].noise_dims == (27, 111)  # 84 of 111
    assert EXPERIMENTS["metaworld"].metric == "success"
    assert {v.method for each in EXPERIMENTS.values() for v in each.variants} <= set(METHODS)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_every_scale_has_trainings_that_can_start(experiment: Experiment) -> None:
    short = experiment.name in ("swimmer", "structure", "rewards")
    assert experiment.steps == (1_000_000 if short else 3_000_000)
    steps = {"smoke": 600, "half": experiment.steps // 2, "full": experiment.steps}
    for scale in get_args(Scale):
        jobs = [each.job for each in plan(experiment, Request(scale, "both"))]
        assert len({job.name for job in jobs}) == len(jobs)
        assert {job.preset for job in jobs} == {"paper", "default"}
        assert all(job.chosen().config.schedule.steps == steps[scale] for job in jobs)
        if scale == "smoke":
            assert len(jobs) <= 12
            assert all(job.chosen().config.schedule.iterations == 6 for job in jobs)
    for asked, made in ((1, 100), (100, 100), (101, 200)):  # steps are those that trainings make
        assert Request("half", steps=asked).of(experiment)[0].steps == made


# --- Results, from made-up runs


def _present(
    experiment: str, folder: Path, choice: Any = "published", diverged: tuple[int, ...] = ()
) -> tuple[dict[str, Any], str]:
    """The result of an experiment whose runs are random numbers."""
    found = replace(EXPERIMENTS[experiment], tasks=EXPERIMENTS[experiment].tasks[:1])
    request = Request("full", choice, seeds=2)
    done = []
    for number, planned in enumerate(plan(found, request)):
        job = planned.job
        recipe = Recipe(
            env=job.env,
            method=job.method,
            backbone=job.backbone or "sac",
            steps=found.steps,
            lanes=job.seeds,
            evaluations=6,
            nan_lanes=diverged,
            level=100 + 10 * number,
            success=True,
            truth=False,
        )
        done.append(Done(planned, make_run(folder / "runs" / job.name, recipe)))
    if experiment == "robustness":
        _write_noise(done, folder)
    data = present(found, request, done, folder)
    return data, (folder / "README.md").read_text()


def _write_noise(done: list[Done], folder: Path) -> None:
    """As if the evaluations had been played already."""
    (folder / "noise").mkdir()
    for each in done:
        for std in EXPERIMENTS["robustness"].noise:
            noise = {"std": std, "dims": []} if std else None
            facts = {"step": each.planned.job.steps, "episodes": 10, "noise": noise}
            returns = [100 - 50 * std, 90.0]
            result = {"run": str(each.run.path), **facts, "returns": returns}
            write_json(folder / "noise" / f"{each.planned.job.name}-{std:g}.json", result)


def _cells(page: str) -> list[list[str]]:
    """The rows of the page's table, without its head."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


Presented = Callable[[str], tuple[Path, dict[str, Any], str]]


@pytest.fixture(scope="module")
def presented(tmp_path_factory: pytest.TempPathFactory) -> Presented:
    """An experiment's folder, result and page; with our settings beside the published where that is shown."""

    @cache
    def made(name: str) -> tuple[Path, dict[str, Any], str]:
        folder = tmp_path_factory.mktemp(name)
        return folder, *_present(name, folder, "both" if name in BOTH else "published")

    return made


BOTH = ("main", "backbones", "swimmer")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_results_stand_in_json_and_on_a_page_with_figures(name: str, presented: Presented) -> None:
    folder, data, page = presented(name)
    assert json.loads((folder / "results.json").read_text())["experiment"] == name
    assert {"commit", "jax", "mujoco"} <= set(data["versions"])
    assert set(data["configs"]) == {job["name"] for job in data["jobs"]}
    assert data["figures"]
    for figure in data["figures"]:
        assert Path(figure).read_bytes().startswith(b"<?xml")
        assert f"({Path(figure).name})" in page
    for line in EXPERIMENTS[name].differs:
        assert line in page


def test_published_our_settings_and_the_paper_stand_below_each_other(presented: Presented) -> None:
    _, data, page = presented("main")
    assert set(data["compared"]) == {"published", "ours"}
    rows = _cells(page)
    assert [row[2] for row in rows] == ["published"] * 5 + ["ours"] * 5 + ["paper"] * 2
    assert rows[-2:] == [
        ["HalfCheetah-v4", "GRD", "paper", "1.5e4"],
        ["HalfCheetah-v4", "best baseline", "paper", "1.25e4"],
    ]
    values = data["ours"][0]["values"]["3,000,000"]
    form = ",.0f" if max(values) >= 100 else ".2f"
    assert rows[0][:3] == ["HalfCheetah-v4", "GRD", "published"]
    assert rows[0][3].startswith(f"{np.mean(values):{form}} ± {np.std(values):{form}} [")


def test_notes_are_on_what_the_page_shows_each_once(presented: Presented) -> None:
    _, data, page = presented("backbones")
    panels = [f"HalfCheetah-v4, {backbone}" for backbone in ("SAC", "TD3", "DDPG")]
    said = [line for line in data["differs"] if line.partition(":")[0] in panels]
    assert [line.partition(":")[0] for line in said] == panels
    assert all("fewer than 5 seeds" in line for line in said)
    assert {row[0] for row in _cells(page)} == set(panels)


def test_what_our_settings_change_is_said_where_they_are_run(presented: Presented) -> None:
    for name in ("swimmer", "rewards"):
        _, data, page = presented(name)
        said = [line in data["differs"] and line in page for line in EXPERIMENTS[name].differs_ours]
        assert said
        assert set(said) == {name in BOTH}
    for name, experiment in EXPERIMENTS.items():
        chosen: dict[str, set[str]] = {"published": set(), "ours": set()}
        for each in plan(experiment, Request("full", "both")):
            chosen[each.settings].add(each.job.chosen().config.backbone)
        other = chosen["ours"] != chosen["published"]
        assert any("CrossQ" in line for line in experiment.differs_ours) == other, name


def test_edges_of_a_seed_that_diverged_are_neither_on_nor_off(tmp_path: Path) -> None:
    data, _ = _present("structure", tmp_path / "one", diverged=(1,))
    [run] = (tmp_path / "one" / "runs").iterdir()
    steps, edges = RunFolder.open(run).read_edges()
    blocks = dict(zip(("s→r", "a→r", "s→s", "a→s"), BLOCKS, strict=True))
    for row in data["ours"]:
        place = [f"GRD at {step:,}" for step in steps].index(row["name"])
        expected = {arrow: [np.mean(edges[block][place, 0] < 0.5)] for arrow, block in blocks.items()}
        assert row["values"] == {arrow: pytest.approx(off) for arrow, off in expected.items()}
    _, page = _present("structure", tmp_path / "all", diverged=(0, 1))
    assert "| - | - | - | - |" in page


def test_the_table_of_swimmer_has_the_papers_rows_below_ours(presented: Presented) -> None:
    _, data, page = presented("swimmer")
    rows = _cells(page)
    assert [row[2] for row in rows] == ["published"] * 4 + ["ours"] + ["paper"] * 4
    assert rows[4][1] == "GRD"  # which has no λ1
    assert rows[5][1:4] == ["λ1 = 0", "paper", "87 ± 41 (0.77)"]
    first = data["ours"][0]
    assert list(first["values"])[-1] == "1,000,000"
    assert rows[0][-1].partition(" [")[0].endswith(f"({first['beside']['1,000,000']:.2f})")


# --- From the command line


@pytest.mark.slow
def test_an_experiment_from_its_trainings_to_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paper", "rewards", "--seeds", "1", "--steps", "300", "--out", str(tmp_path), "--quiet"]
    assert cli._run([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    [row] = data["ours"]
    assert len(row["values"]["correlation over steps"]) == 1
    [run] = [path for path in (tmp_path / "runs").iterdir() if (path / "config.json").exists()]
    before = RunFolder.open(run).metrics.read_bytes()
    assert cli._run(words) == 0  # nothing is left to do
    assert RunFolder.open(run).metrics.read_bytes() == before


def test_numbers_stand_beside_the_papers_of_the_same_step_as_far_as_a_training_goes() -> None:
    experiment = EXPERIMENTS["swimmer"]
    assert _moments(experiment, 500_000) == {step: step for step in (100_000, 200_000, 300_000, 500_000)}
    scaled = {100_000: 60, 200_000: 120, 300_000: 180, 500_000: 300, 800_000: 480, 1_000_000: 600}
    assert _moments(experiment, 600) == scaled


def test_what_is_not_usual_has_a_folder_of_its_own() -> None:
    assert Request("half").folder("main") == Path("runs/paper-main-half")
    other = Request("half", "both", 300_000, 3).folder("main")
    assert other == Path("runs/paper-main-half-both-300000-steps-3-seeds")


def test_names_are_listed_and_an_unknown_one_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UserError, match=r"unknown experiment 'swimer'.*swimmer") as caught:
        cli._run(["paper", "swimer"])
    assert caught.value.usage
    with pytest.raises(SystemExit):
        cli._run(["paper", "--help"])
    said = capsys.readouterr().out
    assert all(re.search(rf"^{name} ", said, re.MULTILINE) for name in EXPERIMENTS)


def test_a_folder_with_files_of_ones_own_is_left_alone(tmp_path: Path) -> None:
    """As --out . in a repository, whose README.md would be gone."""
    readme = tmp_path / "README.md"
    readme.write_text("mine")
    with pytest.raises(UserError, match="holds no experiment, but other files: choose another --out"):
        run_experiment("rewards", Request(), tmp_path, quiet=True)
    assert (readme.read_text(), [path.name for path in tmp_path.iterdir()]) == ("mine", ["README.md"])
