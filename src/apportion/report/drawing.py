"""Static figures with matplotlib, which is loaded only when one is asked for."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apportion.core.config import UserError
from apportion.report.statistics import Band

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

NAME_LENGTH = 28


@contextmanager
def drawing() -> Iterator[None]:
    """Our style inside the block; a clear word where matplotlib is missing."""
    need_matplotlib()
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box for letters that the font lacks
        yield


def need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401 - is it there?
    except ImportError as error:
        raise UserError("figures need matplotlib: pip install 'apportion[figures]'") from error


def new_figure(width: float, height: float) -> "Figure":
    """In inches. Drawn without any screen, and forgotten by matplotlib when we do."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def save(figure: "Figure", path: Path) -> Path:
    """Into a file whose ending says its format. The same figure is the same file on every day."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(path, metadata=dates.get(path.suffix[1:]))
    return path


def draw_band(axes: "Axes", x: Any, curve: Band, colour: str, label: str, marker: str | None = None) -> None:
    """A line, and around it where it lies with 95% confidence."""
    axes.plot(x, curve.centre, color=colour, label=label, marker=marker)
    axes.fill_between(x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)


def colour(number: int) -> str:
    """The colours in turn."""
    return COLOURS[number % len(COLOURS)]


def shortened(name: str, length: int = NAME_LENGTH) -> str:
    """On one line, and not too long for an axis."""
    name = " ".join(name.split())
    return name if len(name) <= length else f"{name[: length - 1]}…"
