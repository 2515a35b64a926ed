"""The site that `make docs` builds: it has every page, nothing in it is broken, and it needs no network."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import scripts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. What Sphinx warns of is an error, as in the Makefile: dead links and anchors, too."""
    folder = tmp_path_factory.mktemp("site")
    options = [
        "--quiet",
        "--fail-on-warning",
        "--conf-dir",
        "docs",
        "--doctree-dir",
        str(folder / "doctrees"),
    ]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(folder / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder / "site"


def test_the_side_bar_leads_to_every_page() -> None:
    groups = scripts.load("docs/conf.py").navigation((DOCS / "index.md").read_text())
    linked = {(DOCS / f"{page}.md").resolve() for pages in groups.values() for page in pages}
    assert linked == {*ROOT.glob("*.md"), *DOCS.rglob("*.md")} - {DOCS / "index.md"}


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    missing = [page for page in pages if not (site / page.relative_to(ROOT)).with_suffix(".html").exists()]
    assert not missing
    assert "url=docs/index.html" in (site / "index.html").read_text()


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """Links may lead out; scripts, styles, fonts and pictures may not."""
    loads = r'<(?:script|img|iframe|source)[^>]+src="([^"]+)"|<link[^>]+href="([^"]+)"'
    for page in site.rglob("*.html"):
        found = {first or second for first, second in re.findall(loads, page.read_text())}
        assert not {address for address in found if "//" in address}, page
    for style in site.rglob("*.css"):
        assert not re.search(
            r"""url\(\s*["']?(?:https?:)?//|@import\s+["'](?:https?:)?//""", style.read_text()
        )


def test_the_reference_lists_fields_as_the_source_declares_them(site: Path) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "docs/reference.html").read_text()))
    assert "paid (Float[Array, '*B']): the delayed reward as the agent sees it" in text
    assert "segments (int = 0): how many segments (M); 0 for none" in text
    assert "terminated: NDArray[Any] | None = None, names: Sequence[str] = ()) → Identification" in text
