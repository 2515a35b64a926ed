"""The greenhouse as a picture: weather, levers, plants, the tomatoes so far, ten gauges."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

WIDTH, HEIGHT = 320, 240
_FINE = 2  # drawn larger by this, then averaged: smooth edges

_COLOURS = {
    "night": (58, 84, 128),
    "day": (118, 184, 236),
    "horizon": (226, 240, 250),
    "sun": (255, 214, 92),
    "grass": (112, 148, 92),
    "panel": (38, 44, 52),
    "soil": (104, 74, 54),
    "frame": (236, 240, 242),
    "curtain": (92, 84, 104),
    "steel": (86, 92, 100),
    "cold": (128, 176, 240),
    "hot": (255, 120, 72),
    "water": (84, 160, 236),
    "dry": (186, 172, 84),
    "lush": (62, 142, 66),
    "tomato": (214, 52, 44),
    "glint": (255, 190, 176),
    "slot": (66, 74, 86),
    "gauge": (120, 200, 190),
    "needle": (250, 250, 250),
}

_LEFT, _RIGHT, _EAVES, _FLOOR, _RIDGE = 84, 292, 88, 182, 44
_PLANTS = tuple(range(116, 281, 32))
_PER_PLANT = 6  # tomatoes that a plant can show
_MIDDLE = (_LEFT + _RIGHT) / 2
_HOUSE = ((_LEFT, _FLOOR), (_LEFT, _EAVES), (_MIDDLE, _RIDGE), (_RIGHT, _EAVES), (_RIGHT, _FLOOR))


class Canvas:
    """Painted in the picture's coordinates: x to the right, y down."""

    def __init__(self, sky: NDArray[np.float32]) -> None:
        """`sky` [H, 3]: the colour of each row to begin with."""
        column = Image.fromarray(np.clip(sky[:, None] + 0.5, 0, 255).astype(np.uint8))
        self.image = column.resize((WIDTH * _FINE, HEIGHT * _FINE), Image.Resampling.BILINEAR)
        self.brush = ImageDraw.Draw(self.image, "RGBA")

    def box(
        self, left: float, top: float, right: float, bottom: float, colour: Any, opacity: float = 1.0
    ) -> None:
        corners = [round(each * _FINE) for each in (left, top, right, bottom)]
        if corners[2] > corners[0] and corners[3] > corners[1]:
            last = (corners[2] - 1, corners[3] - 1)  # Pillow paints it, too
            self.brush.rectangle((*corners[:2], *last), _ink(colour, opacity))

    def ellipse(
        self, x: float, y: float, width: float, height: float, colour: Any, opacity: float = 1.0
    ) -> None:
        corners = [each * _FINE for each in (x - width, y - height, x + width, y + height)]
        self.brush.ellipse(corners, _ink(colour, opacity))

    def polygon(self, corners: Any, colour: Any, opacity: float = 1.0) -> None:
        self.brush.polygon([(x * _FINE, y * _FINE) for x, y in corners], _ink(colour, opacity))

    def finish(self) -> NDArray[np.uint8]:
        return np.asarray(self.image.reduce(_FINE))


def _ink(colour: Any, opacity: float) -> tuple[int, ...]:
    return (*(round(float(part)) for part in colour), round(255 * opacity))


def draw(gauges: dict[str, float], levers: dict[str, float], harvest: float) -> NDArray[np.uint8]:
    """[240, 320, 3]. Gauges are between -2 and 2, levers between -1 and 1; `harvest` is the return so far."""
    canvas = _weather(_share(gauges["sunlight"], 2))
    canvas.polygon(_HOUSE, _between(_COLOURS["cold"], _COLOURS["hot"], _share(gauges["temperature"], 2)), 0.3)
    canvas.polygon(_HOUSE, (255, 255, 255), 0.25 + 0.3 * _share(gauges["light"], 2))
    canvas.box(_LEFT, _FLOOR - 8, _RIGHT, _FLOOR, _COLOURS["soil"])
    _heater(canvas, _share(levers["heater"], 1))
    _plants(canvas, gauges, harvest)
    _water(canvas, _share(levers["valve"], 1))
    _roof(canvas, _share(levers["shade"], 1))
    _panel(canvas, list(gauges.values()))
    return canvas.finish()


def _weather(sunlight: float) -> Canvas:
    sky = _between(_COLOURS["night"], _COLOURS["day"], sunlight)
    depth = 0.7 * (np.arange(HEIGHT, dtype=np.float32)[:, None] / _FLOOR)
    canvas = Canvas(
        sky + depth * (np.asarray(_COLOURS["horizon"], np.float32) * (0.5 + 0.5 * sunlight) - sky)
    )
    canvas.ellipse(40, 44, 26 + 8 * sunlight, 26 + 8 * sunlight, _COLOURS["sun"], 0.25 * sunlight)
    canvas.ellipse(40, 44, 14, 14, _COLOURS["sun"], 0.25 + 0.75 * sunlight)
    canvas.box(0, _FLOOR - 4, WIDTH, HEIGHT, _COLOURS["grass"])
    return canvas


def _heater(canvas: Canvas, power: float) -> None:
    """A stove in the left corner that glows."""
    canvas.ellipse(_LEFT + 16, _FLOOR - 18, 12 + 4 * power, 12 + 4 * power, _COLOURS["hot"], 0.6 * power)
    canvas.box(_LEFT + 7, _FLOOR - 28, _LEFT + 25, _FLOOR - 8, _COLOURS["steel"])
    glow = _between((60, 60, 64), (255, 150, 60), power)
    for slit in (22, 17, 12):
        canvas.box(_LEFT + 10, _FLOOR - slit - 1, _LEFT + 22, _FLOOR - slit + 2, glow)


def _plants(canvas: Canvas, gauges: dict[str, float], harvest: float) -> None:
    leaf = _between(_COLOURS["dry"], _COLOURS["lush"], _share(gauges["moisture"], 1))
    height = 26 + 38 * _share(gauges["leaf mass"], 2)
    ripe = min(len(_PLANTS) * _PER_PLANT, max(0, int(harvest)))
    for number, x in enumerate(_PLANTS):
        top = _FLOOR - 8 - height
        canvas.box(x - 1, top, x + 1, _FLOOR - 8, _between(leaf, (40, 80, 40), 0.4))
        for level in range(4):
            y, side = top + 3 + level * height / 4.6, 1 if (level + number) % 2 else -1
            size = 4.5 + level * 1.1
            canvas.ellipse(x + side * size, y + 2, size, size / 2, leaf)
            canvas.ellipse(x - side * size * 0.8, y + 5, size * 0.9, size / 2.4, leaf)
        for fruit in range(_PER_PLANT):
            if number + fruit * len(_PLANTS) < ripe:  # spread over the plants
                side = -1 if fruit % 2 else 1
                spot = (x + side * (5 + fruit % 3), _FLOOR - 14 - fruit * height / 8)
                canvas.ellipse(*spot, 3.6, 3.4, _COLOURS["tomato"])
                canvas.ellipse(spot[0] - 1, spot[1] - 1, 1, 1, _COLOURS["glint"])


def _water(canvas: Canvas, flow: float) -> None:
    """A pipe under the eaves; the more it gives, the longer its drops."""
    canvas.box(_LEFT + 6, _EAVES + 3, _RIGHT - 6, _EAVES + 5, _COLOURS["steel"])
    for number, x in enumerate(range(_LEFT + 14, _RIGHT - 8, 11)):
        start = _EAVES + 7 + (number * 7) % 12
        canvas.box(x, start, x + 1.5, start + 14 * flow, _COLOURS["water"], 0.9)


def _roof(canvas: Canvas, shade: float) -> None:
    """The curtain under the ridge, and the frame of the house."""
    half, bottom = shade * (_RIGHT - _LEFT) / 2, _RIDGE + shade * (_EAVES - _RIDGE)
    canvas.polygon(
        ((_MIDDLE, _RIDGE), (_MIDDLE - half, bottom), (_MIDDLE + half, bottom)), _COLOURS["curtain"], 0.75
    )
    edges = [(x * _FINE, y * _FINE) for x, y in (*_HOUSE, _HOUSE[0])]
    canvas.brush.line(edges, _COLOURS["frame"], 2 * _FINE, "curve")
    for x in np.linspace(_LEFT, _RIGHT, 5)[1:-1]:
        top = _RIDGE + (_EAVES - _RIDGE) * abs(x - _MIDDLE) / (_RIGHT - _MIDDLE)
        canvas.box(x - 0.75, top, x + 0.75, _FLOOR, _COLOURS["frame"], 0.7)
    canvas.box(_LEFT, _EAVES - 1, _RIGHT, _EAVES + 1, _COLOURS["frame"])


def _panel(canvas: Canvas, values: list[float]) -> None:
    """Ten gauges from -2 to 2, the line in the middle being zero."""
    canvas.box(0, 192, WIDTH, HEIGHT, _COLOURS["panel"])
    width = WIDTH / len(values)
    for number, value in enumerate(values):
        left, right = number * width + 7, (number + 1) * width - 7
        middle, end = 216.0, 216.0 - 18 * float(np.clip(value / 2, -1, 1))
        canvas.box(left, 197, right, 235, _COLOURS["slot"])
        canvas.box(left, min(middle, end), right, max(middle, end), _COLOURS["gauge"])
        canvas.box(left - 2, end - 1, right + 2, end + 1, _COLOURS["needle"])
        canvas.box(left, middle - 0.5, right, middle + 0.5, _COLOURS["panel"])


def _share(value: float, limit: float) -> float:
    """From -limit..limit to 0..1."""
    return float(np.clip((value + limit) / (2 * limit), 0, 1))


def _between(first: Any, second: Any, share: float) -> NDArray[np.float32]:
    start, end = np.asarray(first, np.float32), np.asarray(second, np.float32)
    return start + np.float32(share) * (end - start)
