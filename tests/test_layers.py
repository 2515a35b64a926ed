"""The house rules that a machine can check: who may import whom, and how long a thing may be."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from size import Measure, measures

ROOT = Path(__file__).parents[1] / "src" / "apportion"
FILES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))
}

# From the bottom up. Each room imports only from lower lines, and from within itself.
LAYERS = (
    ("core",),
    ("nn", "graph", "data"),
    ("methods", "backbones", "envs"),
    ("training",),
    ("runs",),
    ("report",),
    ("front",),
    ("cli",),
    ("__main__",),
)
LAYER = {unit: number for number, units in enumerate(LAYERS) for unit in units}

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 500
MAX_ENTRIES = 16


def unit_of(file: str) -> str:
    """The module or subpackage directly under apportion: 'envs' for envs/lane.py, 'types' for types.py."""
    return file.split("/")[0].removesuffix(".py")


def imports(file: str) -> Iterator[str]:
    """What a file imports, anywhere in it, by full name: `from apportion import nn` is apportion.nn."""
    for node in ast.walk(FILES[file]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively: write the full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(file: str) -> Iterator[tuple[str, ...]]:
    """Those of the package itself, without its name: ('envs', 'messages', 'Arrays')."""
    parts = (tuple(name.split(".")) for name in imports(file))
    return (name[1:] for name in parts if name[0] == "apportion" and name[1:] != ("__version__",))


def test_a_file_imports_only_from_lower_layers() -> None:
    assert {"core/types.py", "methods/rd.py", "envs/lane.py"} <= FILES.keys()  # there is something to check
    for file in [file for file in FILES if file != "__init__.py"]:
        unit = unit_of(file)
        assert unit in LAYER, f"{file} is in no layer: give it one in this test and in the design"
        for name in own_imports(file):
            lower = LAYER.get(name[0], len(LAYERS)) < LAYER[unit]
            assert lower or name[0] == unit, f"{file} imports {'.'.join(name)}, which is not below it"


def test_the_package_itself_imports_the_environments_only() -> None:
    """All else is for type checkers; those who ask for a name at run time get it then."""
    [checking] = [node for node in FILES["__init__.py"].body if isinstance(node, ast.If) and _for_types(node)]
    named = {f"{node.module}".split(".")[1] for node in checking.body if isinstance(node, ast.ImportFrom)}
    assert {name[0] for name in own_imports("__init__.py")} - named == {"envs"}
    assert "envs" not in named


def _for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


# Parts that the files of a room stand on.
SHARED = ("actor_critic", "foresight", "regression", "soft", "deterministic", "imitation")


def test_methods_and_backbones_know_nothing_of_each_other_nor_of_their_siblings() -> None:
    for file in [file for file in FILES if unit_of(file) in ("methods", "backbones")]:
        room, *rest = file.removesuffix(".py").split("/")
        for name in own_imports(file) if rest != ["__init__"] else ():  # the registry knows them all
            own = name[0] == room and name[1] in (rest[0], *SHARED)
            assert own or name[0] not in ("methods", "backbones"), f"{file} imports {'.'.join(name)}"


LIGHT_CORE = ("children", "config", "files", "registry", "spec")
LIGHT = {f"core/{name}.py" for name in LIGHT_CORE} | {file for file in FILES if unit_of(file) == "envs"}


def test_what_workers_import_is_light() -> None:
    allowed = {("envs",), *(("core", name) for name in LIGHT_CORE)}
    heavy = {"jax", "jaxtyping", "equinox", "optax"}
    for file in LIGHT:
        assert all(name[:1] in allowed or name[:2] in allowed for name in own_imports(file)), file
        assert not heavy & {name.split(".")[0] for name in imports(file)}, file


def test_a_newcomer_s_map_fits_on_a_screen() -> None:
    entries = [path.name for path in ROOT.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MAX_ENTRIES, sorted(entries)


def test_functions_and_files_stay_short() -> None:
    for file, tree in FILES.items():
        lines = (ROOT / file).read_text().count("\n")
        assert lines <= MAX_FILE_LINES, f"{file} has {lines} lines: split it"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= MAX_FUNCTION_LINES, f"{file}: {node.name} has {length} lines"


@pytest.mark.parametrize("measure", measures(), ids=lambda measure: measure.name)
def test_whoever_adds_takes_away(measure: Measure) -> None:
    fix = "take something away; where nothing can go, raise the limit in tests/size.py and say why"
    assert measure.count <= measure.limit, (
        f"{measure.name}: {measure.count:,}, at most {measure.limit:,}: {fix}"
    )
