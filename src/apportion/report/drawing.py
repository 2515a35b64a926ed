"""Static figures with matplotlib, which is loaded only when one is asked for: panels, and marks in them."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from apportion.core.config import check, extra
from apportion.report.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")

# Okabe and Ito's colours, which colour-blind readers can tell apart; dark ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")

_STYLE: Any = {
    "text.parse_math": False,  # names of dimensions are no formulas, whatever signs they hold
    "svg.hashsalt": "apportion",  # the same figure is the same file
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
}


class Line(NamedTuple):
    """A mark: a curve over x, and around it where it lies with 95% confidence, where that is known."""

    x: Any
    curve: Any  # an Interval, or numbers alone
    label: str
    colour: str
    style: str = "-"
    marker: str | None = None  # by default a dot where there is but one number


class Row(NamedTuple):
    """A mark: a dot with its interval, one row below the other."""

    label: str
    centre: float | None
    interval: Sequence[float | None]
    colour: str


class Panel(NamedTuple):
    """What stands in one pair of axes."""

    title: str
    x: str
    y: str = ""
    lines: Sequence[Line] = ()
    rows: Sequence[Row] = ()
    at: float | None = None  # of a vertical line
    share_x: bool = False  # goes from 0 to 1
    share_y: bool = False

    def draw(self, axes: "Axes") -> None:
        for line in self.lines:
            marker = line.marker or ("o" if len(line.x) == 1 else None)
            if isinstance(line.curve, Interval):
                draw_band(axes, line.x, line.curve, line.colour, line.label, marker)
            else:
                axes.plot(line.x, line.curve, color=line.colour, label=line.label, linestyle=line.style)
        for place, row in enumerate(self.rows):
            bounds = np.array(row.interval, float)  # None becomes NaN
            axes.plot(bounds, [place, place], color=row.colour, linewidth=4, alpha=0.4)
            axes.plot(np.array([row.centre], float), [place], color=row.colour, marker="o")
        if self.rows:
            axes.set_yticks(range(len(self.rows)), [shortened(row.label) for row in self.rows])
            axes.set_ylim(len(self.rows) - 0.5, -0.5)
        if self.at is not None:
            axes.axvline(self.at, color="grey", linewidth=0.8, linestyle=":")
        if self.share_x:
            axes.set_xlim(-0.02, 1.02)
        if self.share_y:
            axes.set_ylim(-0.02, 1.02)
        axes.set(title=self.title, xlabel=self.x, ylabel=self.y)
        if self.lines:
            axes.legend(fontsize=7.5)


def draw_panels(panels: Sequence[Panel], path: Path, width: float = 4.0, height: float = 3.0) -> Path:
    """A figure of panels that are so large, in inches."""
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    with drawing():
        figure = new_figure(width * columns, height * lines)
        places = list(figure.subplots(lines, columns, squeeze=False).ravel())
        for axes, panel in zip(places, panels, strict=False):
            panel.draw(axes)
        for axes in places[len(panels) :]:
            axes.set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        return save(figure, path)


def check_file(path: Path) -> None:
    """Complain of a figure that cannot be written, before any work."""
    endings = ", ".join(f".{each}" for each in FORMATS)
    check(path.suffix[1:] in FORMATS, f"no figure as {path.name!r}: let its name end in {endings}")
    need_matplotlib()


@contextmanager
def drawing() -> Iterator[None]:
    """Our style inside the block; a clear word where matplotlib is missing."""
    need_matplotlib()
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box for letters that the font lacks
        yield


def need_matplotlib() -> None:
    extra("matplotlib", "figures need matplotlib", "figures")


def new_figure(width: float, height: float) -> "Figure":
    """In inches. Drawn without any screen, and forgotten by matplotlib when we do."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def save(figure: "Figure", path: Path) -> Path:
    """Into a file whose ending says its format. The same figure is the same file on every day."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(path, metadata=dates.get(path.suffix[1:]))
    return path


def draw_band(
    axes: "Axes", x: Any, curve: Interval, colour: str, label: str, marker: str | None = None
) -> None:
    """A line, and around it where it lies with 95% confidence."""
    axes.plot(x, curve.centre, color=colour, label=label, marker=marker)
    axes.fill_between(x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def shortened(name: str, length: int = 28) -> str:
    """On one line, and not too long for an axis."""
    name = " ".join(name.split())
    return name if len(name) <= length else f"{name[: length - 1]}…"
