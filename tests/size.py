"""How much there is to hold: lines, files, words and numbers, beside limits and goals. `make size` prints it.

Limits are what there was when somebody last took something away: whoever adds takes away, and lowers them.
They were last raised for policies played beside d3rlpy's and in Minari's environments, and for traces."""

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Measure(NamedTuple):
    """Something that is counted, the most that there may be, and how much there should be one day."""

    name: str
    count: int
    limit: int
    goal: int


def measures(root: Path = ROOT) -> list[Measure]:
    """Everything that has a limit."""
    package, scripts = root / "src/apportion", sorted((root / "benchmarks").glob("*.py"))
    source, tests = sorted(package.rglob("*.py")), sorted((root / "tests").rglob("*.py"))
    graph, lib = sorted((package / "graph").glob("*.py")), sorted((root / "benchmarks/lib").glob("*.py"))
    pages = [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]
    return [
        Measure("src/apportion: lines", lines(source), 29_655, 24_000),
        Measure("src/apportion: files", len(source), 178, 190),
        Measure("src/apportion: numeric constants", constants(source), 149, 150),
        Measure("src/apportion/graph: numeric constants", constants(graph), 29, 30),
        Measure("tests: lines", lines(tests), 22_483, 18_000),
        Measure("benchmarks: scripts", len(scripts), 14, 16),
        Measure("benchmarks: lines of scripts", lines(scripts), 3_303, 3_500),
        Measure("benchmarks/lib: lines", lines(lib), 3_537, 3_500),
        Measure("docs, README, CHANGELOG: words", words(pages), 39_990, 40_000),
        Measure("results: files", len(list((root / "results").iterdir())), 31, 29),
    ]


def words(files: list[Path]) -> int:
    return sum(len(file.read_text().split()) for file in files)


def lines(files: list[Path]) -> int:
    return sum(file.read_text().count("\n") for file in files)


def constants(files: list[Path]) -> int:
    """Names that a module gives a number, or a tuple of numbers."""
    bodies = (ast.parse(file.read_text()).body for file in files)
    return sum(_numbers(node) for body in bodies for node in body)


def _numbers(node: ast.stmt) -> int:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return 0
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    together = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
    return sum(_is_number(value) for value in (node.value.elts if together else [node.value]))


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Tuple) and len(node.elts) > 0 and all(_is_number(each) for each in node.elts)


if __name__ == "__main__":
    print(f"{'':<40}{'now':>8}{'limit':>8}{'goal':>8}")
    for each in measures():
        over = "  over" if each.count > each.limit else ""
        print(f"{each.name:<40}{each.count:>8,}{each.limit:>8,}{each.goal:>8,}{over}")
