"""The page in a real browser: it draws without an error, asks nothing of the network, does what it says."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.graph.certificate import Doubt
from apportion.report.episodes import Extra, Extras
from apportion.report.page import LIMIT, make_page
from apportion.runs.folder import RunFolder
from synthetic_runs import HOSTILE, Recipe, make_run

pytestmark = pytest.mark.slow

playwright = pytest.importorskip("playwright.sync_api")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 600_000.0  # milliseconds: only a page that hangs takes so long, not one on a busy machine
PIXEL = bytes.fromhex(  # the smallest JPEG there is
    "ffd8ffdb004300" + "01" * 64 + "ffc0000b080001000101011100"
    "ffc40014000100000000000000000000000000000003ffc40014100100000000000000000000000000000000"
    "ffda0008010100003f0037ffd9"
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("APPORTION_REQUIRE_BROWSER"):
            pytest.fail(f"no browser: install one of {', '.join(BROWSERS)}")
        pytest.skip(f"no browser among {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu"]
        started = driver.chromium.launch(executable_path=found, args=flags, timeout=PATIENCE)
        yield started
        started.close()


class Opened:
    """A page, and what it complained of or asked for."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.route("**/*", self._allow)
        self.url = path.as_uri()
        page.goto(self.url)
        page.wait_for_selector("body[data-ready]")

    def _allow(self, route: Any) -> None:
        url = route.request.url
        if url == self.url or url.startswith("data:"):
            route.continue_()
        else:
            self.complaints.append(f"request {url}")
            route.abort()

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def fits_the_screen(self) -> bool:
        """Nothing sticks out to the side."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def open_page(*runs: RunFolder, extras: Any = "none", **options: Any) -> Opened:
        path = make_page(runs, tmp_path / "page.html", extras=extras).path
        contexts.append(browser.new_context(**options))
        return Opened(contexts[-1].new_page(), path)

    yield open_page
    for context in contexts:
        context.close()


def test_what_was_paid_is_not_called_true(opened: Callable[..., Opened], tmp_path: Path) -> None:
    report = opened(make_run(tmp_path / "late", Recipe(paid_at_end=True, truth=False)))
    assert "no true reward of a step" in report.text("#overview")
    tiles = [tile.inner_text().split("\n")[0] for tile in report.page.locator(".stat").all()]
    assert tiles[:3] == ["Return", "Return error", "Reward correlation"]
    assert report.page.locator("[title*='1 is perfect']").count() == 0
    assert not re.search("true (reward|return)", report.text("#episodes"), re.IGNORECASE)
    assert "paid return" in report.text("#episodes")
    assert "Reward correlation" not in report.text("#learning")
    assert report.complaints == []


def test_undecided_edges_look_different_and_certificates_give_reasons(
    opened: Callable[..., Opened], tmp_path: Path
) -> None:
    few = Doubt.FEW_TRANSITIONS
    report = opened(make_run(tmp_path / "run", Recipe(doubts=((), (), (few,)))))
    assert "The edges are certified (seeds 5, 6)." in report.text("#overview")
    assert few in report.text("#overview")
    assert "reward only" in report.text("#numbers")
    assert "undecided: kept because the data cannot tell" in report.text("#structure")
    report.page.click("[data-value=drawn]")
    assert report.page.locator(".graph path.undecided").count() == 1
    assert report.page.locator(".graph path.reward").count() == 4
    assert report.complaints == []


def explained(run: RunFolder) -> Extras:
    """Credit for the first dimension only, and a picture of the first and the last step."""

    def extras(place: Any, episode: Any) -> Extra:
        credit = np.zeros((30, 6))
        credit[:, 0] = episode["redistributed"] - 0.5
        return Extra(credit, 0.5, {0: PIXEL, 29: PIXEL})

    return extras


def test_a_whole_report_works(opened: Callable[..., Opened], tmp_path: Path) -> None:
    """Several runs, hostile names, a diverged lane: curves, slider, graph and player, in one visit."""
    full = make_run(tmp_path / "full", Recipe(names=HOSTILE, nan_lanes=(1,), dead=(3,)))
    without = make_run(tmp_path / "oracle", Recipe(method="oracle", graph=False, lanes=1))
    report = opened(full, without, extras=explained, color_scheme="light")
    page = report.page
    assert HOSTILE[0] in report.text("#overview")

    # Hovering over a curve says its value.
    curve = page.locator(".curve .nsewdrag").first
    curve.hover(position={"x": 300, "y": 100})
    page.wait_for_function("document.querySelector('.curve .hoverlayer').textContent.includes('full')")

    # The slider goes through training; the words beside it follow.
    assert report.text("#moment-step") == "step 50,000"
    page.focus("#moment")
    page.keyboard.press("Home")
    assert report.text("#moment-step") == "step 10,000"
    page.locator("#map .nsewdrag").first.hover(position={"x": 5, "y": 5})
    page.locator("#tip", has_text=re.compile("→.*kept by")).wait_for()
    page.keyboard.press("End")

    # The drawn graph says who drives the reward, and that the policy sees them.
    page.click("[data-value=drawn]")
    label = page.locator(".graph .node").last.get_attribute("aria-label")
    assert label == f"reward: driven by {HOSTILE[0]}, {HOSTILE[1]}, lever 0"
    assert page.locator(".graph .node.policy").count() == 2
    page.check("text=mark against the true graph")
    assert page.locator(".graph path.missing").count() == 0

    # The player: arrow keys, slider, play; contributions and the picture follow.
    page.focus("#player")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert report.text("#cursor-step") == "step 2 of 30"
    assert "At step 2\n" in report.text("#episodes")
    assert "minus a baseline of 0.500." in report.text("#episodes")
    assert page.locator(".frame img").get_attribute("alt") == "The environment at step 0"
    page.fill("#cursor", "28")
    assert page.locator(".frame img").get_attribute("alt") == "The environment at step 29"
    page.click("#play")
    page.wait_for_function("document.getElementById('cursor').value === '29'")
    assert report.text("#play") == "▶ Play"

    # Light and dark.
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert report.fits_the_screen()
    assert report.complaints == []


ONE = Recipe(lanes=1, evaluations=1, length=1, truth=False)
DIVERGED = Recipe(nan_lanes=(0, 1, 2), env="another/Env-v0")
EARLY = Recipe(evaluations=0, state="running")
WIDE = Recipe(states=376, actions=17, lanes=2, evaluations=2, dead=tuple(range(292, 376)))
TELEPHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.mark.parametrize(
    ("recipes", "words"),
    [
        pytest.param([EARLY], "There is no evaluation yet", id="no evaluation yet"),
        pytest.param([ONE, DIVERGED], "every seed diverged", id="one lane, one moment, one step; NaN only"),
        pytest.param([WIDE], "of 393 dimensions", id="376 dimensions"),
    ],
)
def test_odd_runs_are_drawn_on_a_telephone_in_the_dark(
    opened: Callable[..., Opened], tmp_path: Path, recipes: list[Recipe], words: str
) -> None:
    runs = [make_run(tmp_path / str(number), recipe) for number, recipe in enumerate(recipes)]
    report = opened(*runs, color_scheme="dark", **TELEPHONE)
    assert words in report.text("main")
    assert report.page.evaluate("document.documentElement.dataset.theme") == "dark"
    if recipes == [WIDE]:
        report.page.check("text=all dimensions")
        assert report.page.locator("#map").evaluate("div => div.data[0].z.length") == 376
    assert report.fits_the_screen()
    assert report.complaints == []


def test_a_long_run_of_twenty_lanes_stays_below_the_limit(tmp_path: Path) -> None:
    """A million steps, 100 evaluations, and as many lines of losses as a run keeps."""
    recipe = Recipe(
        states=17,
        actions=6,
        lanes=20,
        evaluations=100,
        length=1000,
        steps=10**6,
        truth=False,
        train_lines=2000,
    )
    written = make_page([make_run(tmp_path / "long", recipe)], tmp_path / "page.html", extras="none")
    assert written.size < LIMIT
