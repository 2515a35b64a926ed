"""The greenhouse as a picture, in plain NumPy: weather, levers, plants, the tomatoes so far, ten gauges."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 320, 240
_FINE = 2  # drawn larger by this, then averaged: smooth edges

Area = tuple[slice, slice]
Mask = NDArray[np.bool_]

_Y, _X = (np.mgrid[: HEIGHT * _FINE, : WIDTH * _FINE].astype(np.float32) + 0.5) / _FINE

_NIGHT, _DAY, _HORIZON = (58, 84, 128), (118, 184, 236), (226, 240, 250)
_SUN, _GRASS, _PANEL, _SOIL = (255, 214, 92), (112, 148, 92), (38, 44, 52), (104, 74, 54)
_FRAME, _CURTAIN, _STEEL = (236, 240, 242), (92, 84, 104), (86, 92, 100)
_COLD, _HOT, _WATER = (128, 176, 240), (255, 120, 72), (84, 160, 236)
_DRY, _LUSH, _TOMATO, _GLINT = (186, 172, 84), (62, 142, 66), (214, 52, 44), (255, 190, 176)
_SLOT, _GAUGE, _NEEDLE = (66, 74, 86), (120, 200, 190), (250, 250, 250)

_LEFT, _RIGHT, _EAVES, _FLOOR, _RIDGE = 84, 292, 88, 182, 44
_PLANTS = tuple(range(116, 281, 32))
_PER_PLANT = 6  # tomatoes that a plant can show


class Canvas:
    """Pixels, painted in the picture's coordinates: x to the right, y down."""

    def __init__(self) -> None:
        self.pixels = np.zeros((HEIGHT * _FINE, WIDTH * _FINE, 3), np.float32)

    def paint(self, area: Area, shape: Mask | None, colour: Any, opacity: float = 1.0) -> None:
        """Lay a colour over an area, or over the pixels in it that belong to a shape."""
        over = self.pixels[area]
        painted = over + np.float32(opacity) * (np.asarray(colour, np.float32) - over)
        self.pixels[area] = painted if shape is None else np.where(shape[..., None], painted, over)

    def box(
        self, left: float, top: float, right: float, bottom: float, colour: Any, opacity: float = 1.0
    ) -> None:
        self.paint(_area(left, top, right, bottom), None, colour, opacity)

    def ellipse(
        self, x: float, y: float, width: float, height: float, colour: Any, opacity: float = 1.0
    ) -> None:
        area = _area(x - width, y - height, x + width, y + height)
        shape = ((_X[area] - x) / width) ** 2 + ((_Y[area] - y) / height) ** 2 < 1
        self.paint(area, shape, colour, opacity)

    def finish(self) -> NDArray[np.uint8]:
        coarse = self.pixels.reshape(HEIGHT, _FINE, WIDTH, _FINE, 3).mean(axis=(1, 3))
        return np.clip(coarse + 0.5, 0, 255).astype(np.uint8)


def _area(left: float, top: float, right: float, bottom: float) -> Area:
    """The pixels of a rectangle."""
    (x, width), (y, height) = (
        (max(0, round(low * _FINE)), max(0, round(high * _FINE)))
        for low, high in ((left, right), (top, bottom))
    )
    return slice(y, height), slice(x, width)


@cache
def _house() -> Mask:
    """Walls and roof, filled."""
    middle, half = (_LEFT + _RIGHT) / 2, (_RIGHT - _LEFT) / 2
    roof = _RIDGE + (_EAVES - _RIDGE) * np.abs(_X - middle) / half
    return (np.abs(_X - middle) <= half) & (roof <= _Y) & (_Y < _FLOOR)


@cache
def _outline() -> Mask:
    """The edge of the house, two pixels wide."""
    house, step = _house(), 2 * _FINE
    shifted = [np.roll(house, move, axis) for axis in (0, 1) for move in (-step, step)]
    return house & ~np.logical_and.reduce(shifted)


def draw(gauges: dict[str, float], levers: dict[str, float], harvest: float) -> NDArray[np.uint8]:
    """[240, 320, 3]. Gauges are between -2 and 2, levers between -1 and 1; `harvest` is the return so far."""
    canvas = Canvas()
    _weather(canvas, _share(gauges["sunlight"], 2))
    warmth = _share(gauges["temperature"], 2)
    lot = _area(_LEFT, _RIDGE, _RIGHT, _FLOOR)
    canvas.paint(lot, _house()[lot], _between(_COLD, _HOT, warmth), 0.3)
    canvas.paint(lot, _house()[lot], (255, 255, 255), 0.25 + 0.3 * _share(gauges["light"], 2))
    canvas.box(_LEFT, _FLOOR - 8, _RIGHT, _FLOOR, _SOIL)
    _heater(canvas, _share(levers["heater"], 1))
    _plants(canvas, gauges, harvest)
    _water(canvas, _share(levers["valve"], 1))
    _roof(canvas, _share(levers["shade"], 1))
    _panel(canvas, list(gauges.values()))
    return canvas.finish()


def _weather(canvas: Canvas, sunlight: float) -> None:
    sky = _between(_NIGHT, _DAY, sunlight)
    depth = 0.7 * (_Y[:, :1] / _FLOOR)[..., None]
    canvas.pixels[:] = sky + depth * (np.asarray(_HORIZON, np.float32) * (0.5 + 0.5 * sunlight) - sky)
    canvas.ellipse(40, 44, 26 + 8 * sunlight, 26 + 8 * sunlight, _SUN, 0.25 * sunlight)
    canvas.ellipse(40, 44, 14, 14, _SUN, 0.25 + 0.75 * sunlight)
    canvas.box(0, _FLOOR - 4, WIDTH, HEIGHT, _GRASS)


def _heater(canvas: Canvas, power: float) -> None:
    """A stove in the left corner that glows."""
    canvas.ellipse(_LEFT + 16, _FLOOR - 18, 12 + 4 * power, 12 + 4 * power, _HOT, 0.6 * power)
    canvas.box(_LEFT + 7, _FLOOR - 28, _LEFT + 25, _FLOOR - 8, _STEEL)
    glow = _between((60, 60, 64), (255, 150, 60), power)
    for slit in (22, 17, 12):
        canvas.box(_LEFT + 10, _FLOOR - slit - 1, _LEFT + 22, _FLOOR - slit + 2, glow)


def _plants(canvas: Canvas, gauges: dict[str, float], harvest: float) -> None:
    leaf = _between(_DRY, _LUSH, _share(gauges["moisture"], 1))
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
                canvas.ellipse(*spot, 3.6, 3.4, _TOMATO)
                canvas.ellipse(spot[0] - 1, spot[1] - 1, 1, 1, _GLINT)


def _water(canvas: Canvas, flow: float) -> None:
    """A pipe under the eaves; the more it gives, the longer its drops."""
    canvas.box(_LEFT + 6, _EAVES + 3, _RIGHT - 6, _EAVES + 5, _STEEL)
    for number, x in enumerate(range(_LEFT + 14, _RIGHT - 8, 11)):
        start = _EAVES + 7 + (number * 7) % 12
        canvas.box(x, start, x + 1.5, start + 14 * flow, _WATER, 0.9)


def _roof(canvas: Canvas, shade: float) -> None:
    """The curtain under the ridge, and the frame of the house."""
    curtain = _area(0, _RIDGE, WIDTH, _RIDGE + shade * (_EAVES - _RIDGE))
    canvas.paint(curtain, _house()[curtain], _CURTAIN, 0.75)
    lot = _area(_LEFT, _RIDGE, _RIGHT, _FLOOR)
    canvas.paint(lot, _outline()[lot], _FRAME)
    for x in np.linspace(_LEFT, _RIGHT, 5)[1:-1]:
        post = _area(x - 0.75, _RIDGE, x + 0.75, _FLOOR)
        canvas.paint(post, _house()[post], _FRAME, 0.7)
    canvas.box(_LEFT, _EAVES - 1, _RIGHT, _EAVES + 1, _FRAME)


def _panel(canvas: Canvas, values: list[float]) -> None:
    """Ten gauges from -2 to 2, the line in the middle being zero."""
    canvas.box(0, 192, WIDTH, HEIGHT, _PANEL)
    width = WIDTH / len(values)
    for number, value in enumerate(values):
        left, right = number * width + 7, (number + 1) * width - 7
        middle, end = 216.0, 216.0 - 18 * float(np.clip(value / 2, -1, 1))
        canvas.box(left, 197, right, 235, _SLOT)
        canvas.box(left, min(middle, end), right, max(middle, end), _GAUGE)
        canvas.box(left - 2, end - 1, right + 2, end + 1, _NEEDLE)
        canvas.box(left, middle - 0.5, right, middle + 0.5, _PANEL)


def _share(value: float, limit: float) -> float:
    """From -limit..limit to 0..1."""
    return float(np.clip((value + limit) / (2 * limit), 0, 1))


def _between(first: Any, second: Any, share: float) -> NDArray[np.float32]:
    start, end = np.asarray(first, np.float32), np.asarray(second, np.float32)
    return start + np.float32(share) * (end - start)
