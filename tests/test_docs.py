"""What README and docs say is true: their code runs, their commands parse, their links lead somewhere, and
their tables of settings and metrics are those of the program."""

import ast
import dataclasses
import importlib
import inspect
import json
import re
import shlex
import shutil
import sys
import tomllib
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
import tyro

import scripts
from apportion import cli
from apportion.backbones import BACKBONES
from apportion.cli import compare, logged, sweep, verbs
from apportion.core import registry
from apportion.core.config import to_dict
from apportion.core.registry import Entry
from apportion.core.spec import Spec
from apportion.data import replay as replays
from apportion.envs.factored import Factored
from apportion.envs.greenhouse import Greenhouse
from apportion.envs.make import EnvConfig, list_environments
from apportion.envs.mujoco import TASKS
from apportion.front.sweep.planning import check_jobs, plan
from apportion.methods import METHODS
from apportion.runs.folder import RunFolder
from apportion.runs.settings import Checkpoints
from apportion.training.offline import Fitting
from apportion.training.presets import (
    CARTPOLE,
    GREENHOUSE,
    KEY_DOOR,
    KEY_DOOR_LOTTERY,
    PAPER_SPARSITY,
    default_backbone,
    preset,
)
from apportion.training.settings import Schedule

# Pages train what others have trained, and must not leave a cache in the home folder.
pytestmark = pytest.mark.usefixtures("compiled_once")

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
PEERS = ("torch", "stable_baselines3", "sbx")  # whom some benchmarks stand beside: `make peers` installs them
GRD, METRICS, ENVIRONMENTS = DOCS / "methods/grd.md", DOCS / "metrics.md", DOCS / "environments.md"
OWN, STOP, READ, ELSEWHERE, LOGGED = (
    DOCS / "guides" / f"{name}.md"
    for name in (
        "train-your-own-environment",
        "stop-and-resume",
        "read-a-run",
        "run-a-policy-elsewhere",
        "fit-logged-episodes",
    )
)

SPEC = Spec("toy", ("height", "speed"), ("push",), max_episode_steps=6, max_segment_steps=4)


# --- Reading pages


def blocks(page: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def commands(page: Path) -> list[str]:
    """Command lines of a page: all lines of bash blocks, and what follows a $ in console blocks."""
    lines = "\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    shown = "\n".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    lines += [line.removeprefix("$ ") for line in shown if line.startswith("$ ")]
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def section(page: Path, title: str) -> str:
    """A second-level section, with its subsections."""
    return page.read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def tables(text: str, *header: str) -> list[list[str]]:
    """The rows of all tables with these first columns; cells without their backticks."""
    rows: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if not line.startswith("|"):
            inside = False
        elif tuple(cells[: len(header)]) == header:
            inside = True
        elif inside and not set(line) <= set("|-: "):
            rows.append(cells)
    return rows


def names(text: str, *header: str) -> set[str]:
    found = [row[0] for row in tables(text, *header)]
    assert len(found) == len(set(found)), f"listed twice: {found}"
    return set(found)


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


# --- Code blocks


def run_blocks(page: Path, folder: Path) -> None:
    """Run a page's Python blocks in one namespace, in a folder. One that starts `# name.py` is a module."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    with pytest.MonkeyPatch.context() as patch, own_modules():
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        for code in blocks(page, "python"):
            if module := re.match(r"# (\w+)\.py\n", code):
                (folder / f"{module[1]}.py").write_text(code)
                importlib.import_module(module[1])
            else:
                exec(compile(code, relative(page), "exec"), namespace)


@contextmanager
def peers_may_be_missing(where: str) -> Iterator[None]:
    """What stands beside other libraries is skipped where these are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in PEERS:
            raise
        pytest.skip(f"{where} needs {error.name}: `make peers`")


def write_modules(page: Path, folder: Path) -> None:
    """The blocks of a page that are modules, as files."""
    for code in blocks(page, "python"):
        if module := re.match(r"# (\w+)\.py\n", code):
            (folder / f"{module[1]}.py").write_text(code)


class own_modules:  # noqa: N801 - reads like a function
    """Forget the modules and environments that were added inside the block."""

    def __enter__(self) -> None:
        self.modules, self.registry = set(sys.modules), set(gymnasium.registry)

    def __exit__(self, *error: object) -> None:
        for env_id in set(gymnasium.registry) - self.registry:
            del gymnasium.registry[env_id]
        for name in (set(sys.modules) - self.modules) & {"oven", "ovens", "boat", "run_policy", "even"}:
            del sys.modules[name]
        registry._import.cache_clear()


@pytest.fixture(scope="module")
def trained(compiled_once: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the GRD page trains: two lanes."""
    folder = tmp_path_factory.mktemp("grd")
    run_blocks(GRD, folder)
    return folder / "runs/small"


SMALL = "--workers 0 --quiet --steps 400 --warmup-steps 200 --evaluate-every 400 --evaluation-episodes 1"
SMALL += " --steps-per-iteration 100 --updates-per-iteration 2 --backbone.batch-size 8 --backbone.hidden 8"
SELF_CONTAINED = [page for page in PAGES if page not in (GRD, READ, ELSEWHERE) and blocks(page, "python")]


@pytest.mark.slow
@pytest.mark.parametrize("page", SELF_CONTAINED, ids=relative)
def test_code_blocks_run(page: Path, tmp_path: Path) -> None:
    with peers_may_be_missing(relative(page)):
        run_blocks(page, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", [READ, ELSEWHERE], ids=relative)
def test_code_blocks_that_read_a_run_can_read_one(page: Path, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "runs/greenhouse")
    run_blocks(page, tmp_path)


@pytest.mark.slow
def test_the_method_of_the_guide_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered as docs/architecture.md says, in one line."""
    example: dict[str, Any] = {"__name__": "even"}
    monkeypatch.setitem(sys.modules, "even", types.ModuleType("even"))  # where dataclasses look types up
    exec(compile(blocks(DOCS / "guides/your-method.md", "python")[0], "even.py", "exec"), example)
    monkeypatch.setitem(METHODS, "even", Entry(example["Config"], example["make"]))
    run = str(tmp_path / "run")
    argv = ["train", GREENHOUSE, "--method", "even", "--method.rate", "0.1", "--out", run, *SMALL.split()]
    assert cli._run(argv) == 0
    entries = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert any("average_share" in entry for entry in entries)


@pytest.mark.slow
def test_the_environment_in_the_readme_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's module and its two commands, with less of everything."""
    train, show = (shlex.split(line) for line in commands(README) if "runs/oven" in line)
    (tmp_path / "oven.py").write_text(blocks(README, "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with own_modules():
        assert cli._run([*train[1:], *SMALL.split(), "--method.hidden", "8"]) == 0
    assert cli._run(show[1:]) == 0
    assert "draught" in capsys.readouterr().out


# --- Commands


class Parsed(Exception):  # noqa: N818 - no error
    """Everything was understood; what would follow is the work itself."""

    def __init__(self, config: Any = None) -> None:
        self.config = config


@pytest.fixture
def only_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: Any, **options: Any) -> None:
        raise Parsed(arguments[0])

    monkeypatch.setattr(verbs, "start", stop)
    monkeypatch.setattr(verbs.RunFolder, "open", stop)
    monkeypatch.setattr(logged, "read_log", stop)
    monkeypatch.setattr(logged, "relabel", stop)
    monkeypatch.setattr(logged, "evaluate_fit", stop)
    monkeypatch.setattr(compare, "compare_runs", stop)
    monkeypatch.setattr(sweep, "run_experiment", stop)
    monkeypatch.setattr(sweep, "read_plan", stop)


def all_commands() -> Iterator[Any]:
    for page in PAGES:
        for command in commands(page):
            yield pytest.param(page, command, id=f"{relative(page)}: {command[:60]}")


@pytest.mark.usefixtures("only_parse")
@pytest.mark.parametrize(("page", "command"), list(all_commands()))
def test_commands_are_understood(
    page: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_modules(page, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with own_modules():
        check_command(page, command)


def check_command(page: Path, command: str) -> None:
    words = shlex.split(command)
    if words[:3] == ["python", "-m", "apportion"]:
        words = words[2:]
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets)
    elif words[0] == "apportion":
        check_verb(page, words[1:])
    elif words[0] == "python":
        check_script(words[1], words[2:])
    else:
        assert words[0] == "tensorboard", f"a command that no test knows: {command}"


def check_verb(page: Path, argv: list[str]) -> None:
    try:
        assert cli._run(argv) == 0
    except Parsed as parsed:
        if argv[0] == "train":
            check_environment(page, parsed.config.env.id)
        elif argv[0] == "compare":
            assert re.search(rf"--out {argv[1]}[\s/]", page.read_text()), f"nothing here makes {argv[1]}"
        elif argv[0] not in ("identify", "fit", "sweep", "paper"):  # which need no run of the page
            assert f"--out {argv[1]} " in page.read_text(), f"nothing on this page makes {argv[1]}"


def check_environment(page: Path, env_id: str) -> None:
    module, _, name = env_id.rpartition(":")
    if module:
        [code] = [code for code in blocks(page, "python") if code.startswith(f"# {module}.py\n")]
        assert f'gymnasium.register("{name}"' in code or f"class {name}(" in code
    elif not name.startswith("Meta-World/"):  # which needs an extra, so it is not listed
        assert name in dict(list_environments()) or name in gymnasium.registry


def check_script(path: str, argv: list[str]) -> None:
    """Scripts have one class of flags, named like the file."""
    flags = Path(path).stem.title().replace("_", "")
    with peers_may_be_missing(path):
        script = scripts.load(path)
    tyro.cli(getattr(script, flags), args=argv)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=relative)
def test_sweep_files_are_understood(page: Path) -> None:
    for text in blocks(page, "toml"):
        check_jobs(plan(tomllib.loads(text)))


# --- Links


def anchors(page: Path) -> set[str]:
    """How headings are linked to: lower case, no punctuation, hyphens for spaces."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https://)([^)\s]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.is_relative_to(ROOT), (page, target)
            assert file.exists(), (page, target)
            assert not anchor or anchor in anchors(file), (page, target)


def test_functions_that_pages_name_exist() -> None:
    named = [found for page in PAGES for found in re.findall(r"`([\w/]+\.py):(\w+)`", page.read_text())]
    for file, name in named:
        tree = ast.parse((ROOT / "src/apportion" / file).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in defined, f"{file}:{name}"


def test_the_readme_lists_every_method_and_backbone() -> None:
    listed = set(re.findall(r"\(docs/((?:methods|backbones)/[\w-]+)\.md\)", README.read_text()))
    assert listed >= {*(f"methods/{name}" for name in METHODS), *(f"backbones/{name}" for name in BACKBONES)}


def test_no_page_names_a_commit() -> None:
    """A page says what holds now; hexadecimal words of seven letters and digits are commits."""
    for page in PAGES:
        words = re.findall(r"`([0-9a-f]{7,40})`", page.read_text())
        assert not [word for word in words if not word.isdigit()], relative(page)


# --- Settings


SETTINGS = [
    *(pytest.param(DOCS / f"methods/{n}.md", e.config, "method.", id=n) for n, e in METHODS.items()),
    *(pytest.param(DOCS / f"backbones/{n}.md", e.config, "backbone.", id=n) for n, e in BACKBONES.items()),
    pytest.param(ENVIRONMENTS, EnvConfig, "env.", id="env"),
    pytest.param(OWN, Schedule, "", id="schedule"),
    pytest.param(STOP, Checkpoints, "", id="checkpoints"),
    pytest.param(LOGGED, Fitting, "", id="fitting"),
]


@pytest.mark.parametrize(("page", "config", "prefix"), SETTINGS)
def test_every_setting_is_documented_with_its_default(page: Path, config: type[Any], prefix: str) -> None:
    documented = {row[0]: ast.literal_eval(row[1]) for row in tables(page.read_text(), "flag", "default")}
    fields = [field for field in dataclasses.fields(config) if field.name != "id"]
    assert documented == {flag(prefix, field.name): field.default for field in fields}
    if not fields:
        assert section(page, "Settings").strip() == "None."


def flag(prefix: str, name: str) -> str:
    return f"--{prefix}{name.replace('_', '-')}"


SMALL_TASKS = {
    "Greenhouse": GREENHOUSE,
    "KeyDoor": KEY_DOOR,
    "KeyDoorLottery": KEY_DOOR_LOTTERY,
    "CartPole": CARTPOLE,
}


@pytest.mark.parametrize("title", SMALL_TASKS)
def test_small_tasks_start_from_the_documented_settings(title: str) -> None:
    env_id = SMALL_TASKS[title]
    config = preset(env_id, "grd", default_backbone(env_id, "default"))
    parts = {"": config.schedule, "method.": config.method_config, "backbone.": config.backbone_config}
    changed = {
        flag(prefix, name): value
        for prefix, part in parts.items()
        for name, value in to_dict(part).items()
        if value != to_dict(type(part)())[name]
    }
    rows = tables(section(ENVIRONMENTS, "Settings of the small tasks"), "flag", *SMALL_TASKS)
    column = [*SMALL_TASKS].index(title) + 1
    assert {row[0]: ast.literal_eval(row[column]) for row in rows if row[column] != "-"} == changed


# --- Metrics


def update_metrics(method_name: str, backbone_name: str, settings: Any = None) -> list[set[str]]:
    """What one update of each logs; traced only, nothing is computed."""
    method = METHODS[method_name].make(settings or METHODS[method_name].config())
    backbone = BACKBONES[backbone_name].make(BACKBONES[backbone_name].config())

    def update(key: jax.Array) -> Any:
        replay = replays.init(SPEC, 20)
        drawn = replays.draw(replay, key, method.sampling, backbone.batch_size, method.sampling.every)
        batch = replays.gather(replay, jax.tree.map(lambda x: x[0], drawn), SPEC.max_segment_steps)
        state = method.init(key, SPEC)
        rewards = method.reward(state, batch.transitions)
        policy = backbone.update(backbone.init(key, SPEC), batch.transitions, rewards, key)
        return method.update(state, batch, key)[1], policy[1]

    return [set(metrics) for metrics in jax.eval_shape(update, jax.random.key(0))]


@pytest.mark.parametrize("method", METHODS)
def test_every_metric_of_a_method_is_documented(method: str) -> None:
    text = section(DOCS / f"methods/{method}.md", "Logged metrics")
    logged = update_metrics(method, "sac")[0]
    if method == "grd":  # whose other form has metrics of its own
        logged |= update_metrics(method, "sac", METHODS[method].config(structure="gradient"))[0]
    assert names(text, "metric") == logged
    assert logged or text.strip().startswith("None of its own.")


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_metric_of_a_backbone_is_documented(backbone: str) -> None:
    text = section(DOCS / f"backbones/{backbone}.md", "Logged metrics")
    assert names(text, "metric") == update_metrics("observed", backbone)[1]


@pytest.mark.slow
def test_the_metrics_page_has_what_a_run_logs(trained: Path) -> None:
    entries = RunFolder.open(trained).read_metrics()
    for kind, title in (("train", "Training lines"), ("eval", "Evaluation lines")):
        logged = {name for entry in entries if entry["kind"] == kind for name in entry}
        assert names(section(METRICS, title), "metric") == logged - {"step", "kind"}


def test_the_example_line_of_the_metrics_page_is_json() -> None:
    [line] = blocks(METRICS, "json")
    assert set(json.loads(line)) - {"step", "kind"} <= names(section(METRICS, "Evaluation lines"), "metric")


@pytest.mark.slow
def test_the_run_folder_is_as_described(trained: Path) -> None:
    found = {f"{path.name}/" if path.is_dir() else path.name for path in trained.iterdir()}
    assert names(section(READ, "The folder"), "file") == found - {".lock"}


# --- Environments


def test_the_greenhouse_graph_is_as_described() -> None:
    graph, observed, acted = Greenhouse.true_graph, Greenhouse.observation_names, Greenhouse.action_names

    def causes(states: Any, actions: Any) -> str:
        parts = [np.array(observed)[np.asarray(states)], np.array(acted)[np.asarray(actions)]]
        return "; ".join(", ".join(part) for part in parts if part.size)

    truth = {"reward": causes(graph.state_to_reward, graph.action_to_reward)}
    for column, name in enumerate(observed):
        truth[name] = causes(graph.state_to_state[:, column], graph.action_to_state[:, column])
    assert dict(tables(section(ENVIRONMENTS, "Greenhouse"), "target", "causes")) == truth


def test_the_arguments_of_factored_are_documented() -> None:
    rows = tables(section(ENVIRONMENTS, "Factored"), "argument", "default")
    parameters = inspect.signature(Factored).parameters.values()
    assert {row[0]: ast.literal_eval(row[1]) for row in rows} == {p.name: p.default for p in parameters}


def test_the_mujoco_table_is_that_of_the_presets() -> None:
    rows = tables(section(ENVIRONMENTS, "MuJoCo"), "task", "S", "A")
    assert {task: tuple(map(float, weights)) for task, _, _, *weights in rows} == PAPER_SPARSITY
    sizes = {
        name: (task.pad_to or len(task.names.observation), len(task.names.action))
        for name, task in TASKS.items()
    }
    assert {task: (int(states), int(actions)) for task, states, actions, *_ in rows} == sizes


# --- Figures that stand twice


def test_the_hardware_page_repeats_figures_of_the_performance_page() -> None:
    measured, told = (DOCS / "performance.md").read_text(), (DOCS / "hardware.md").read_text()
    trainings = tables(measured, "task", "method", "lanes")
    speeds = [(row[2], row[-1]) for row in trainings if row[:2] == ["HalfCheetah-v4", "grd"]]
    assert [(row[1], row[2]) for row in tables(told, "machine", "seeds")] == speeds
