"""How `make docs` builds the site: Sphinx reads the Markdown pages where they lie, README included.

The index page is also the navigation: each of its sections that lists pages becomes a group in the side bar.
Everything a page needs is in the site's folder, so it can be read without a network and from a disk.
"""

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from apportion import __version__

project = "apportion"
version = release = __version__
author = project_copyright = "The apportion authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]

# The source folder is the project's root, so that links from docs/ to README, results and code work.
INDEX = "docs/index"
root_doc = INDEX
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "build", "runs", "src", "tests"]

default_role = "code"  # docstrings mark code by single backticks
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = project
html_copy_source = False
myst_heading_anchors = 4  # headings are linked to as on code hosts

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # list_fields and signature_as_written write types as the source does
autodoc_class_signature = "separated"  # no arguments in the head: the fields are listed below it
autodoc_default_options = {"members": True, "exclude-members": "__init__, __new__"}


def navigation(index: str) -> dict[str, dict[str, str]]:
    """The groups of the side bar: section of the index page → page, as linked to → its title."""
    groups = {}
    for section in index.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        items = "\n".join(re.findall(r"^- .*(?:\n  .*)*", body, re.MULTILINE))
        groups[title] = {page: name for name, page in re.findall(r"\[([^\]]+)\]\(([^)#]+)\.md\)", items)}
    return {title: pages for title, pages in groups.items() if pages}


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the groups to the index page as hidden tables of contents: that is where Sphinx looks."""
    if name == INDEX:
        for title, pages in navigation(source[0]).items():
            entries = "\n".join(f"{label} <{page}>" for page, label in pages.items())
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"


def list_fields(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """List the fields of a class below its docstring, each with its type and the comment on its line."""
    if what != "class" or not thing.__module__.startswith(project):  # Sphinx asks for imported ones, too
        return
    source = inspect.getsource(thing)
    [declaration] = ast.parse(source).body
    assert isinstance(declaration, ast.ClassDef)
    for field in (node for node in declaration.body if isinstance(node, ast.AnnAssign)):
        default = "" if field.value is None else f" = {ast.unparse(field.value)}"
        comment = source.splitlines()[field.lineno - 1].partition("  #")[2]
        declared = f":code:`{ast.unparse(field.annotation)}{default}`"
        lines.append(f"- **{ast.unparse(field.target)}** ({declared}){':' if comment else ''}{comment}")


def skip_fields(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Fields of a NamedTuple are in that list; what Python says of them is only their number."""
    return True if str(member.__doc__).startswith("Alias for field number") else None


def signature_as_written(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """Types of arguments as in the source: what aliases such as State stand for would fill lines."""
    if what not in ("function", "method"):
        return None
    [node] = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(node, ast.FunctionDef)
    node.args.args = [each for each in node.args.args if each.arg not in ("self", "cls")]
    gives = None if node.returns is None else ast.unparse(node.returns).strip("'")  # it may be quoted
    return f"({ast.unparse(node.args)})", gives


def lead_to_the_index(app: Sphinx, error: Exception | None) -> None:
    """Who opens the site's folder lands on the index page, which lies one folder deeper."""
    if error is None:
        page = Path(app.outdir) / "index.html"
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={INDEX}.html">\n')


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", list_fields)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-signature", signature_as_written)
    app.connect("build-finished", lead_to_the_index)
