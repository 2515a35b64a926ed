"""The house rules that a machine can check: who may import whom, and how long a thing may be."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "apportion"
FILES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))
}

# From the bottom up: modules and subpackages. Each imports only from lower lines, and from within itself.
# Names that have no file yet are those of the design.
LAYERS = (
    ("errors",),
    ("spec", "config"),
    ("types",),
    ("masks", "losses", "networks", "optimise", "memory", "identify"),
    ("actor_critic", "additive", "recurrent", "attention"),
    ("methods", "backbones"),
    ("agent", "replay", "data", "envs"),
    ("settings", "devices"),
    ("updates", "evaluate", "explain"),
    ("evaluator",),
    ("train", "offline", "integrations", "presets"),
    ("runs",),
    ("report", "paper", "bench"),
    ("cli",),
    ("__main__",),
)
LAYER = {unit: number for number, units in enumerate(LAYERS) for unit in units}

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400


def unit_of(file: str) -> str:
    """The module or subpackage directly under apportion: 'envs' for envs/lane.py, 'types' for types.py."""
    return file.split("/")[0].removesuffix(".py")


def imports(file: str) -> Iterator[str]:
    """What a file imports, anywhere in it, by full name: `from apportion import masks` is apportion.masks."""
    for node in ast.walk(FILES[file]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively: write the full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(file: str) -> Iterator[tuple[str, ...]]:
    """Those of the package itself, without its name: ('envs', 'wire', 'Arrays')."""
    parts = (tuple(name.split(".")) for name in imports(file))
    return (name[1:] for name in parts if name[0] == "apportion" and name[1:] != ("__version__",))


def test_there_is_something_to_check() -> None:
    assert {"types.py", "methods/grd.py", "envs/lane.py"} <= FILES.keys()


@pytest.mark.parametrize("file", [file for file in FILES if file != "__init__.py"])
def test_a_file_imports_only_from_lower_layers(file: str) -> None:
    unit = unit_of(file)
    assert unit in LAYER, f"{file} is in no layer: give it one in this test and in the design"
    for name in own_imports(file):
        lower = LAYER.get(name[0], len(LAYERS)) < LAYER[unit]
        assert lower or name[0] == unit, f"{file} imports {'.'.join(name)}, which is not below it"


def test_the_package_itself_imports_the_environments_only() -> None:
    assert {name[0] for name in own_imports("__init__.py")} == {"envs"}


@pytest.mark.parametrize("file", [file for file in FILES if unit_of(file) in ("methods", "backbones")])
def test_methods_and_backbones_know_nothing_of_each_other_nor_of_their_siblings(file: str) -> None:
    if not file.endswith("__init__.py"):  # the registry, which knows them all
        assert not {"methods", "backbones"} & {name[0] for name in own_imports(file)}


@pytest.mark.parametrize("file", [file for file in FILES if unit_of(file) in ("envs", "errors", "spec")])
def test_what_workers_import_is_light(file: str) -> None:
    assert {name[0] for name in own_imports(file)} <= {"envs", "errors", "spec"}
    heavy = {"jax", "jaxtyping", "equinox", "optax"}
    assert not heavy & {name.split(".")[0] for name in imports(file)}


def test_nobody_imports_the_integrations() -> None:
    users = {file for file in FILES if any(name[0] == "integrations" for name in own_imports(file))}
    assert all(unit_of(file) == "integrations" for file in users)


@pytest.mark.parametrize("file", FILES)
def test_functions_and_files_stay_short(file: str) -> None:
    lines = (ROOT / file).read_text().count("\n")
    assert lines <= MAX_FILE_LINES, f"{file} has {lines} lines: split it"
    for node in ast.walk(FILES[file]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{file}: {node.name} has {length} lines"
