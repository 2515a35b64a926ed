"""The greenhouse as a picture: weather, levers, plants, the tomatoes so far, ten gauges."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageOps

Brush = ImageDraw.ImageDraw
Pair = tuple[float, float]

# Painted at twice its size and then averaged, for smooth edges: [480, 640], x to the right, y down.
_HOUSE = ((168, 364), (168, 176), (376, 88), (584, 176), (584, 364))
(_LEFT, _FLOOR), (_, _EAVES), (_MIDDLE, _RIDGE), (_RIGHT, _) = _HOUSE[:4]
_PLANTS = range(232, 562, 64)
_STEEL, _FRAME, _PANEL = "#565c64", "#ecf0f2", "#262c34"


def draw(gauges: dict[str, float], levers: dict[str, float], harvest: float) -> NDArray[np.uint8]:
    """[240, 320, 3]. Gauges are between -2 and 2, levers between -1 and 1; `harvest` is the return so far."""
    heater, flow, shade = (_share(levers[name], 1) for name in ("heater", "valve", "shade"))
    sunlight = _share(gauges["sunlight"], 2)
    sky, horizon = _between("#3a5480", "#76b8ec", sunlight), _between("#717879", "#e2f0fa", sunlight)
    gradient = ImageOps.colorize(Image.linear_gradient("L"), sky, _between(sky, horizon, 0.92))
    image = gradient.resize((640, 480))
    brush = ImageDraw.Draw(image, "RGBA")
    _disc(brush, 80, 88, (52 + 16 * sunlight, 52 + 16 * sunlight), "#ffd65c", 0.25 * sunlight)
    _disc(brush, 80, 88, (28, 28), "#ffd65c", 0.25 + 0.75 * sunlight)
    _box(brush, (0, _FLOOR - 8, 640, 480), "#70945c")
    air = _between("#80b0f0", "#ff7848", _share(gauges["temperature"], 2))
    brush.polygon(_HOUSE, _ink(air, 0.3))
    brush.polygon(_HOUSE, _ink("#ffffff", 0.25 + 0.3 * _share(gauges["light"], 2)))
    _box(brush, (_LEFT, _FLOOR - 16, _RIGHT, _FLOOR), "#684a36")
    # The heater is a stove in the left corner that glows.
    _disc(brush, _LEFT + 32, _FLOOR - 36, (24 + 8 * heater, 24 + 8 * heater), "#ff7848", 0.6 * heater)
    _box(brush, (_LEFT + 14, _FLOOR - 56, _LEFT + 50, _FLOOR - 16), _STEEL)
    for top in (_FLOOR - 46, _FLOOR - 36, _FLOOR - 26):
        _box(brush, (_LEFT + 20, top, _LEFT + 44, top + 6), _between("#3c3c40", "#ff963c", heater))
    leaf = _between("#baac54", "#3e8e42", _share(gauges["moisture"], 1))
    _plants(brush, leaf, 52 + 76 * _share(gauges["leaf mass"], 2), int(harvest))
    # The valve feeds a pipe under the eaves; the more it gives, the longer its drops.
    _box(brush, (_LEFT + 12, _EAVES + 6, _RIGHT - 12, _EAVES + 10), _STEEL)
    for number, x in enumerate(range(_LEFT + 28, _RIGHT - 16, 22)):
        start = _EAVES + 14 + number * 14 % 24
        _box(brush, (x, start, x + 3, start + 28 * flow), "#54a0ec", 0.9)
    _roof(brush, shade)
    _panel(brush, list(gauges.values()))
    return np.asarray(image.reduce(2))


def _plants(brush: Brush, leaf: str, height: float, ripe: int) -> None:
    """With as many tomatoes as are ripe, up to six on each."""
    for number, x in enumerate(_PLANTS):
        top = _FLOOR - 16 - height
        _box(brush, (x - 2, top, x + 2, _FLOOR - 16), _between(leaf, "#285028", 0.4))
        for level in range(4):
            y, side = top + 6 + level * height / 4.6, 1 if (level + number) % 2 else -1
            size = 9 + level * 2.2
            _disc(brush, x + side * size, y + 4, (size, size / 2), leaf)
            _disc(brush, x - side * size * 0.8, y + 10, (size * 0.9, size / 2.4), leaf)
        for fruit in range(6):
            if number + fruit * len(_PLANTS) < ripe:  # spread over the plants
                side = -1 if fruit % 2 else 1
                x_fruit, y_fruit = x + side * (10 + fruit % 3 * 2), _FLOOR - 28 - fruit * height / 8
                _disc(brush, x_fruit, y_fruit, (7.2, 6.8), "#d6342c")
                _disc(brush, x_fruit - 2, y_fruit - 2, (2, 2), "#ffbeb0")


def _roof(brush: Brush, shade: float) -> None:
    """The curtain under the ridge, and the frame of the house."""
    half, bottom = shade * (_RIGHT - _LEFT) / 2, _RIDGE + shade * (_EAVES - _RIDGE)
    curtain = ((_MIDDLE, _RIDGE), (_MIDDLE - half, bottom), (_MIDDLE + half, bottom))
    brush.polygon(curtain, _ink("#5c5468", 0.75))
    brush.line((*_HOUSE, _HOUSE[0]), _FRAME, 4, "curve")
    for x in np.linspace(_LEFT, _RIGHT, 5)[1:-1].tolist():
        top = _RIDGE + (_EAVES - _RIDGE) * abs(x - _MIDDLE) / (_RIGHT - _MIDDLE)
        _box(brush, (x - 1.5, top, x + 1.5, _FLOOR), _FRAME, 0.7)
    _box(brush, (_LEFT, _EAVES - 2, _RIGHT, _EAVES + 2), _FRAME)


def _panel(brush: Brush, values: list[float]) -> None:
    """The gauges from -2 to 2, the line in the middle being zero."""
    _box(brush, (0, 384, 640, 480), _PANEL)
    for number, value in enumerate(values):
        left, right = (number * 640 / len(values) + 14, (number + 1) * 640 / len(values) - 14)
        end = 432 - 36 * float(np.clip(value / 2, -1, 1))
        _box(brush, (left, 394, right, 470), "#424a56")
        _box(brush, (left, min(432, end), right, max(432, end)), "#78c8be")
        _box(brush, (left - 4, end - 2, right + 4, end + 2), "#fafafa")
        _box(brush, (left, 431, right, 433), _PANEL)


def _box(brush: Brush, corners: tuple[float, ...], colour: str, opacity: float = 1.0) -> None:
    left, top, right, bottom = map(round, corners)
    if right > left and bottom > top:
        brush.rectangle((left, top, right - 1, bottom - 1), _ink(colour, opacity))  # Pillow paints the last


def _disc(brush: Brush, x: float, y: float, half: Pair, colour: str, opacity: float = 1.0) -> None:
    brush.ellipse((x - half[0], y - half[1], x + half[0], y + half[1]), _ink(colour, opacity))


def _share(value: float, limit: float) -> float:
    """From -limit..limit to 0..1."""
    return float(np.clip((value + limit) / (2 * limit), 0, 1))


def _between(first: str, second: str, share: float) -> str:
    start, end = (np.array(ImageColor.getrgb(each)) for each in (first, second))
    return "#" + np.rint(start + share * (end - start)).astype(np.uint8).tobytes().hex()


def _ink(colour: str, opacity: float) -> str:
    return f"{colour}{round(255 * opacity):02x}"
