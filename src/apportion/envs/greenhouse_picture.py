"""The greenhouse as a picture: weather, levers, plants, the tomatoes so far, ten gauges."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageOps

WIDTH, HEIGHT = 320, 240
_FINE = 2  # drawn larger by this, then averaged: smooth edges

_LEFT, _RIGHT, _EAVES, _FLOOR, _RIDGE = 84, 292, 88, 182, 44
_PLANTS = tuple(range(116, 281, 32))
_PER_PLANT = 6  # tomatoes that a plant can show
_MIDDLE = (_LEFT + _RIGHT) / 2
_HOUSE = ((_LEFT, _FLOOR), (_LEFT, _EAVES), (_MIDDLE, _RIDGE), (_RIGHT, _EAVES), (_RIGHT, _FLOOR))
_STEEL, _FRAME, _PANEL = "#565c64", "#ecf0f2", "#262c34"


class Canvas:
    """Painted in the picture's coordinates: x to the right, y down."""

    def __init__(self, sky: Image.Image) -> None:
        self.image = sky.resize((WIDTH * _FINE, HEIGHT * _FINE))
        self.brush = ImageDraw.Draw(self.image, "RGBA")

    def box(
        self, left: float, top: float, right: float, bottom: float, colour: str, opacity: float = 1.0
    ) -> None:
        corners = [round(each * _FINE) for each in (left, top, right, bottom)]
        if corners[2] > corners[0] and corners[3] > corners[1]:
            last = (corners[2] - 1, corners[3] - 1)  # Pillow paints it, too
            self.brush.rectangle((*corners[:2], *last), _ink(colour, opacity))

    def ellipse(
        self, x: float, y: float, width: float, height: float, colour: str, opacity: float = 1.0
    ) -> None:
        corners = [each * _FINE for each in (x - width, y - height, x + width, y + height)]
        self.brush.ellipse(corners, _ink(colour, opacity))

    def polygon(self, corners: Any, colour: str, opacity: float = 1.0) -> None:
        self.brush.polygon([(x * _FINE, y * _FINE) for x, y in corners], _ink(colour, opacity))


def draw(gauges: dict[str, float], levers: dict[str, float], harvest: float) -> NDArray[np.uint8]:
    """[240, 320, 3]. Gauges are between -2 and 2, levers between -1 and 1; `harvest` is the return so far."""
    heater, flow, shade = (_share(levers[name], 1) for name in ("heater", "valve", "shade"))
    canvas = _weather(_share(gauges["sunlight"], 2))
    canvas.polygon(_HOUSE, _between("#80b0f0", "#ff7848", _share(gauges["temperature"], 2)), 0.3)
    canvas.polygon(_HOUSE, "white", 0.25 + 0.3 * _share(gauges["light"], 2))
    canvas.box(_LEFT, _FLOOR - 8, _RIGHT, _FLOOR, "#684a36")
    # The heater is a stove in the left corner that glows.
    canvas.ellipse(_LEFT + 16, _FLOOR - 18, 12 + 4 * heater, 12 + 4 * heater, "#ff7848", 0.6 * heater)
    canvas.box(_LEFT + 7, _FLOOR - 28, _LEFT + 25, _FLOOR - 8, _STEEL)
    for slit in (22, 17, 12):
        top = _FLOOR - slit
        canvas.box(_LEFT + 10, top - 1, _LEFT + 22, top + 2, _between("#3c3c40", "#ff963c", heater))
    _plants(canvas, gauges, harvest)
    # The valve feeds a pipe under the eaves; the more it gives, the longer its drops.
    canvas.box(_LEFT + 6, _EAVES + 3, _RIGHT - 6, _EAVES + 5, _STEEL)
    for number, x in enumerate(range(_LEFT + 14, _RIGHT - 8, 11)):
        start = _EAVES + 7 + (number * 7) % 12
        canvas.box(x, start, x + 1.5, start + 14 * flow, "#54a0ec", 0.9)
    _roof(canvas, shade)
    _panel(canvas, list(gauges.values()))
    return np.asarray(canvas.image.reduce(_FINE))


def _weather(sunlight: float) -> Canvas:
    sky, horizon = _between("#3a5480", "#76b8ec", sunlight), _between("#717879", "#e2f0fa", sunlight)
    lowest = _between(sky, horizon, 0.7 * HEIGHT / _FLOOR)
    canvas = Canvas(ImageOps.colorize(Image.linear_gradient("L"), sky, lowest))
    canvas.ellipse(40, 44, 26 + 8 * sunlight, 26 + 8 * sunlight, "#ffd65c", 0.25 * sunlight)
    canvas.ellipse(40, 44, 14, 14, "#ffd65c", 0.25 + 0.75 * sunlight)
    canvas.box(0, _FLOOR - 4, WIDTH, HEIGHT, "#70945c")
    return canvas


def _plants(canvas: Canvas, gauges: dict[str, float], harvest: float) -> None:
    leaf = _between("#baac54", "#3e8e42", _share(gauges["moisture"], 1))
    height = 26 + 38 * _share(gauges["leaf mass"], 2)
    ripe = min(len(_PLANTS) * _PER_PLANT, max(0, int(harvest)))
    for number, x in enumerate(_PLANTS):
        top = _FLOOR - 8 - height
        canvas.box(x - 1, top, x + 1, _FLOOR - 8, _between(leaf, "#285028", 0.4))
        for level in range(4):
            y, side = top + 3 + level * height / 4.6, 1 if (level + number) % 2 else -1
            size = 4.5 + level * 1.1
            canvas.ellipse(x + side * size, y + 2, size, size / 2, leaf)
            canvas.ellipse(x - side * size * 0.8, y + 5, size * 0.9, size / 2.4, leaf)
        for fruit in range(_PER_PLANT):
            if number + fruit * len(_PLANTS) < ripe:  # spread over the plants
                side = -1 if fruit % 2 else 1
                spot = (x + side * (5 + fruit % 3), _FLOOR - 14 - fruit * height / 8)
                canvas.ellipse(*spot, 3.6, 3.4, "#d6342c")
                canvas.ellipse(spot[0] - 1, spot[1] - 1, 1, 1, "#ffbeb0")


def _roof(canvas: Canvas, shade: float) -> None:
    """The curtain under the ridge, and the frame of the house."""
    half, bottom = shade * (_RIGHT - _LEFT) / 2, _RIDGE + shade * (_EAVES - _RIDGE)
    canvas.polygon(((_MIDDLE, _RIDGE), (_MIDDLE - half, bottom), (_MIDDLE + half, bottom)), "#5c5468", 0.75)
    edges = [(x * _FINE, y * _FINE) for x, y in (*_HOUSE, _HOUSE[0])]
    canvas.brush.line(edges, _FRAME, 2 * _FINE, "curve")
    for x in np.linspace(_LEFT, _RIGHT, 5)[1:-1]:
        top = _RIDGE + (_EAVES - _RIDGE) * abs(x - _MIDDLE) / (_RIGHT - _MIDDLE)
        canvas.box(x - 0.75, top, x + 0.75, _FLOOR, _FRAME, 0.7)
    canvas.box(_LEFT, _EAVES - 1, _RIGHT, _EAVES + 1, _FRAME)


def _panel(canvas: Canvas, values: list[float]) -> None:
    """Ten gauges from -2 to 2, the line in the middle being zero."""
    canvas.box(0, 192, WIDTH, HEIGHT, _PANEL)
    width = WIDTH / len(values)
    for number, value in enumerate(values):
        left, right = number * width + 7, (number + 1) * width - 7
        middle, end = 216.0, 216.0 - 18 * float(np.clip(value / 2, -1, 1))
        canvas.box(left, 197, right, 235, "#424a56")
        canvas.box(left, min(middle, end), right, max(middle, end), "#78c8be")
        canvas.box(left - 2, end - 1, right + 2, end + 1, "#fafafa")
        canvas.box(left, middle - 0.5, right, middle + 0.5, _PANEL)


def _share(value: float, limit: float) -> float:
    """From -limit..limit to 0..1."""
    return float(np.clip((value + limit) / (2 * limit), 0, 1))


def _between(first: str, second: str, share: float) -> str:
    pairs = zip(ImageColor.getrgb(first), ImageColor.getrgb(second), strict=True)
    return "rgb({}, {}, {})".format(*(round(start + share * (end - start)) for start, end in pairs))


def _ink(colour: str, opacity: float) -> tuple[int, ...]:
    return (*ImageColor.getrgb(colour)[:3], round(255 * opacity))
