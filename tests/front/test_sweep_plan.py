"""A sweep file becomes jobs, each of them one training; whatever is wrong with it is said in one line."""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from apportion.cli import verbs
from apportion.core.config import UserError
from apportion.front.choosing import Job
from apportion.front.sweep import on_ray
from apportion.front.sweep.carrying import How, carry_out, survey
from apportion.front.sweep.folder import SweepFolder
from apportion.front.sweep.planning import check_jobs, plan, read_plan, train_words
from apportion.runs.folder import held
from apportion.training.presets import GREENHOUSE

SMALL: dict[str, Any] = {"tasks": [GREENHOUSE]}


# --- What is planned


def test_every_task_is_trained_with_every_method_and_backbone_by_default_that_which_suits_it() -> None:
    sweep = {"tasks": [GREENHOUSE, "Hopper-v4"], "methods": ["grd", "rd"], "backbones": ["sac", "td3"]}
    jobs = plan({"sweep": {**sweep, "seeds": 5, "steps": 1e5}})
    assert len(jobs) == 8
    assert (jobs[0].name, jobs[-1].name) == ("greenhouse-v0-grd-sac", "hopper-v4-rd-td3")
    assert {(job.seeds, job.steps) for job in jobs} == {(5, 100_000)}
    tasks = {"tasks": [GREENHOUSE, "CartPole-v1", "Swimmer-v4"]}
    assert [job.backbone for job in plan({"sweep": tasks})] == ["sac", "dqn", "crossq"]
    assert [job.backbone for job in plan({"sweep": {**tasks, "preset": "paper"}})] == ["sac", "dqn", "sac"]


def test_settings_go_to_those_that_have_them() -> None:
    data = {"sweep": {**SMALL, "methods": ["rd", "oracle"]}, "set": {"method.hidden": [4], "warmup-steps": 7}}
    rd, oracle = plan(data)
    assert rd.settings == {"method.hidden": [4], "warmup_steps": 7}
    assert oracle.settings == {"warmup_steps": 7}


def test_varied_settings_make_a_job_for_each_combination_that_matters() -> None:
    vary = {"method.hidden": [[4], [8, 8]], "env": {"delay": ["5", "episode"]}}
    jobs = plan({"sweep": {**SMALL, "methods": ["rd", "oracle"]}, "vary": vary})
    assert [job.name.removeprefix("greenhouse-v0-") for job in jobs] == [
        "rd-sac-hidden-4-delay-5",
        "rd-sac-hidden-4-delay-episode",
        "rd-sac-hidden-8-8-delay-5",
        "rd-sac-hidden-8-8-delay-episode",
        "oracle-sac-delay-5",
        "oracle-sac-delay-episode",
    ]
    assert jobs[2].settings == {"method.hidden": [8, 8], "env.delay": "5"}


def test_varied_values_that_make_no_name_are_numbered_and_equal_names_too() -> None:
    vary = {"method.hidden": [[256] * 8, [4, 4]], "env.delay": ["a b", "a/b"]}
    names = [job.name.partition("sac-")[2] for job in plan({"sweep": SMALL, "vary": vary})]
    assert names == [
        f"hidden-{each}" for each in ("1-delay-a-b", "1-delay-a-b-2", "4-4-delay-a-b", "4-4-delay-a-b-2")
    ]


TRICKY: dict[str, Any] = {
    "method.log_std_range": [-4.0, 1.5],
    "method.sparsity": [1e-7, 0, 0, 0, 2],
    "method.target_identity": False,
    "method.segments": 3,
    "method.structure": "gradient",
    "backbone.hidden": [8],
    "env.kwargs": {"noise": 0.1},
    "env.paper": False,
    "env.delay": "10-30",
    "normalise": False,
    "overlap": False,
    "strict": True,
    "replay_steps": 2e4,
    "keep": 3,
}


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_command_of_a_job_trains_what_was_planned(preset: str, tmp_path: Path) -> None:
    """A false flag, a negative number, a list: what the command line reads is what was checked."""
    job = Job("odd", GREENHOUSE, seeds=3, seed=7, steps=900, preset=preset, settings=TRICKY)
    args, config = verbs._train_settings(train_words(job, tmp_path)[1:])
    assert (config, args.checkpoints, args.out) == (*job.chosen(), tmp_path)


# --- What is refused


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"sweep": 3}, "sweep must be a table: [sweep]"),
        ({"sweep": {}}, "sweep.tasks is missing"),
        ({"sweep": {"tasks": []}}, "sweep.tasks is empty: name at least one environment"),
        ({"sweep": {**SMALL, "methods": []}}, "sweep.methods is empty: name at least one, or leave it out"),
        ({"sweep": {"tasks": "Ant-v4"}}, "sweep.tasks='Ant-v4' must be a list"),
        ({"sweep": {"tasks": ["Ant-v4", "Ant-v4"]}}, "sweep.tasks has Ant-v4 twice"),
        ({"sweep": {**SMALL, "sedes": 5}}, "unknown setting sweep.sedes (did you mean 'seeds'?)"),
        ({"sweep": {**SMALL, "seeds": "5"}}, "sweep.seeds='5' must be a whole number"),
        ({"sweep": {**SMALL, "methods": ["gdr"]}}, "unknown method 'gdr' (did you mean 'grd'?)"),
        ({"sweep": {**SMALL, "backbones": ["td4"]}}, "unknown backbone 'td4' (did you mean 'td3'?)"),
        (
            {"set": {"method.hiden": [4]}},
            "unknown setting 'method.hiden' in [set] (did you mean 'method.hidden'?)",
        ),
        (
            {"vary": {"warmup-step": [4]}},
            "unknown setting 'warmup_step' in [vary] (did you mean 'warmup_steps'?)",
        ),
        ({"set": {"seed": 3}}, "unknown setting 'seed' in [set]: it belongs in [sweep]"),
        (
            {"set": {"backbone": "dqn"}},
            "unknown setting 'backbone' in [set]: it belongs in backbones of [sweep]",
        ),
        (
            {"sweep": {**SMALL, "methods": ["observed", "oracle"]}, "set": {"method.compact": "none"}},
            "unknown setting 'method.compact' in [set]: grd have it, but not observed, oracle",
        ),
        ({"vary": {"env.delay": "5"}}, "vary.env.delay must be a list of values, one for each job"),
        ({"vary": {"keep": []}}, "vary.keep is empty: give it values, or leave it out"),
        ({"vary": {"keep": [2, 2]}}, "vary.keep has a value twice"),
        ({"set": {"keep": 2}, "vary": {"keep": [3]}}, "keep stands in [set] and in [vary]: leave one out"),
        (
            {"sweep": {**SMALL, "steps": 9}, "set": {"steps": 8}},
            "steps stands in [sweep] and below: leave one out",
        ),
    ],
)
def test_what_a_file_must_not_say(tables: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError) as refused:
        plan({"sweep": SMALL} | tables)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (Job("a", "Greenhouse-v9"), "job a: unknown environment 'Greenhouse-v9': did you mean"),
        (Job("a", "CartPole-v1", backbone="sac"), "job a: CartPole-v1 has discrete actions"),
        (Job("a", GREENHOUSE, settings={"env.delay": "x"}), "job a: --env.delay 'x' is no delay"),
        (Job("a", GREENHOUSE, settings={"method.hidden": [0]}), "job a: method.hidden=(0,) must be at least"),
        (Job("a", GREENHOUSE, seeds=0), "job a: seeds=0 must be from 1"),
        (Job("../a", GREENHOUSE), "'../a' is no name for a job"),
        (Job("logs", GREENHOUSE), "'logs' is no name for a job"),
    ],
)
def test_every_job_is_checked_before_any_begins(job: Job, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        survey([Job("good", GREENHOUSE), job], tmp_path / "out")
    assert str(refused.value).startswith(reason)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        ([Job("a", GREENHOUSE, settings={"env.delay": "x"})], " (a flag is a key of [set] in a sweep file)"),
        ([Job("a", GREENHOUSE, backbone="dqn")], " (in a sweep file it stands in backbones of [sweep])"),
        ([Job("a", GREENHOUSE), Job("a", GREENHOUSE, "rd")], "two jobs are named 'a'"),
        ([], "there is no job to do"),
    ],
)
def test_reasons_are_in_the_words_of_the_file(jobs: list[Job], reason: str) -> None:
    with pytest.raises(UserError, match=f"{re.escape(reason)}$"):
        check_jobs(jobs)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[sweep", "is not TOML: Expected ']'"),
        (b"\xff", "is not TOML: 'utf-8' codec"),
        (b"", r"there is no table \[sweep\]: it says which tasks, methods and seeds"),
        (b"[swep]", r"unknown table \[swep\] \(did you mean 'sweep'\?\)"),
    ],
)
def test_a_bad_file_is_named(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(UserError, match=f"bad.toml.* {reason}"):
        read_plan(tmp_path / "bad.toml")
    with pytest.raises(UserError, match=r"other.toml cannot be read \(No such file"):
        read_plan(tmp_path / "other.toml")
    marked = b'\xef\xbb\xbf[sweep]\ntasks = ["Pendulum-v1"]'  # as some editors begin a file
    (tmp_path / "marked.toml").write_bytes(marked)
    assert [job.env for job in read_plan(tmp_path / "marked.toml")] == ["Pendulum-v1"]


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"method": "rd"}, "a had method = grd"),
        ({"name": "b"}, "it has no job b"),
        ({"settings": {"keep": 3}}, "a had settings = {'keep': 2}"),
    ],
)
def test_a_sweep_folder_of_another_file_is_refused(
    change: dict[str, Any], difference: str, tmp_path: Path
) -> None:
    job = Job("a", GREENHOUSE, settings={"keep": 2})
    SweepFolder.open(tmp_path / "out", [job])
    SweepFolder.open(tmp_path / "out", [job])
    with pytest.raises(UserError) as refused:
        SweepFolder.open(tmp_path / "out", [replace(job, **change)])
    assert f"is the folder of another sweep ({difference}): choose another --out" in str(refused.value)


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    for path in (tmp_path, tmp_path / "letters"):
        with pytest.raises(UserError, match="choose another --out"):
            SweepFolder.open(path, [Job("a", GREENHOUSE)])


def test_whoever_looks_sees_which_jobs_others_work_on(tmp_path: Path) -> None:
    jobs = [Job("a", GREENHOUSE), Job("b", GREENHOUSE)]
    folder = SweepFolder.open(tmp_path, jobs)
    folder.run(jobs[0]).mkdir()
    with (
        folder.lock(),
        pytest.raises(UserError, match=r"sweep .* is being written by process"),
        folder.lock(),
    ):
        pass
    with held(folder.run(jobs[0]), "run a"):
        assert [each.state for each in survey(jobs, tmp_path).standings] == ["running", "waiting"]
    assert [each.state for each in survey(jobs, tmp_path).standings] == ["waiting", "waiting"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"engine": "rai"}, "unknown engine 'rai' (did you mean 'ray'?)"),
        ({"jobs": 0}, "--jobs 0 must be at least 1"),
        ({"per_gpu": 0}, "--per-gpu 0 must be at least 1"),
        ({"address": "auto"}, "--address is Ray's: add --engine ray"),
    ],
)
def test_where_jobs_cannot_run(how: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError) as refused:
        How(**how)
    assert str(refused.value) == reason


def test_a_ray_that_is_not_there_or_cannot_be_imported_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(on_ray, "_VARIABLES", {})
    with pytest.raises(UserError, match=r"--engine ray needs an extra: pip install 'apportion\[ray\]'"):
        carry_out([Job("a", GREENHOUSE)], tmp_path / "out", How(engine="ray"))
    assert not (tmp_path / "out").exists()
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))  # a folder
        with pytest.raises(UserError, match="--engine ray needs an extra"):
            on_ray.set_up()
    (tmp_path / "ray.py").write_text("raise ImportError('no such symbol')")
    monkeypatch.delitem(sys.modules, "ray")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"cannot be imported \(no such symbol\): install it anew"):
        on_ray.set_up()


def test_planning_leaves_the_devices_to_the_jobs(tmp_path: Path) -> None:
    """JAX would take most of a GPU's memory when it is first asked for one; here it would fail."""
    script = (
        "from pathlib import Path\n"
        "from apportion.front.sweep.carrying import survey\n"
        "from apportion.front.sweep.planning import plan\n"
        f"survey(plan({{'sweep': {SMALL | {'methods': ['grd', 'rd']}}}}), Path('out'))"
    )
    nowhere = {**os.environ, "JAX_PLATFORMS": "nowhere"}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=nowhere)
