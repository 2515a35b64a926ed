"""Ways in which a file gets damaged: by disks, by crashes, by editors, and by people who mean harm."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apportion.runs.atomic import CHECKSUM, sealed

Damage = Callable[[Path, random.Random], None]

ODD: tuple[Any, ...] = (None, True, -1, 0, 2**70, 1e308, "x", "", "🌱", [], {}, [[1]], {"a": {}}, 0.5, [None])


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def cut(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(max(1, len(content)))])


def halve(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 1, 8))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def zeros(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.choice((1, 16, 512)))
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice((1, 40, 4000))))


def longer(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.choice((b"\0", b"{}", b"\n{", b"x" * 99)))


def gone(path: Path, rng: random.Random) -> None:
    path.unlink()


def folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def neighbour(path: Path, rng: random.Random) -> None:
    """The content of another file beside it, or of any."""
    others = [each for each in path.parent.iterdir() if each.is_file() and each != path] or [path]
    path.write_bytes(rng.choice(sorted(others)).read_bytes())


def utf16(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes().decode("latin1").encode("utf-16"))


def nested(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.choice((b"[", b'{"a":')) * rng.choice((40, 5_000, 200_000)))


def digit(path: Path, rng: random.Random) -> None:
    """Another digit somewhere: still a number, and a wrong one."""
    content = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    if places:
        place = rng.choice(places)
        content[place] = ord(rng.choice([each for each in "0123456789" if ord(each) != content[place]]))
    path.write_bytes(content)


def line(path: Path, rng: random.Random) -> None:
    """A line less, twice, or a blank one."""
    lines = path.read_bytes().splitlines(keepends=True)
    place = rng.randrange(max(1, len(lines)))
    lines[place : place + 1] = rng.choice(([], lines[place : place + 1] * 2, [b"\n"]))
    path.write_bytes(b"".join(lines))


def value(path: Path, rng: random.Random) -> None:
    """An odd value in valid JSON; the checksum is as it was."""
    _change(path, rng, seal=False)


def forged(path: Path, rng: random.Random) -> None:
    """The same with a new checksum, as somebody would who means it."""
    _change(path, rng, seal=True)


def key_twice(path: Path, rng: random.Random) -> None:
    text = path.read_text("latin1")
    path.write_bytes(text.replace("{", '{"step": 1, "step": 2, ', 1).encode("latin1"))


ANY: tuple[Damage, ...] = (empty, cut, halve, flip, flip, zeros, garbage, longer, gone, folder, neighbour)
TEXT: tuple[Damage, ...] = (*ANY, digit, digit, value, value, forged, key_twice, nested, utf16, line)


def kinds(path: Path) -> tuple[Damage, ...]:
    """What may happen to a file of this name."""
    return TEXT if path.suffix in (".json", ".jsonl") else ANY


def _change(path: Path, rng: random.Random, seal: bool) -> None:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    place = rng.randrange(len(lines))
    data = json.loads(lines[place])
    spots = list(_spots(data))
    holder, key = rng.choice([spot for spot in spots if spot[1] != CHECKSUM])
    holder[key] = rng.choice(ODD)
    if seal and isinstance(data, dict):
        data.pop(CHECKSUM, None)
        data = sealed(data)
    lines[place] = json.dumps(data)
    path.write_text("\n".join(lines) + "\n")


def _spots(data: Any) -> Any:
    """Each place of a value in nested data."""
    for key, inner in list(data.items() if isinstance(data, dict) else enumerate(data)):
        yield data, key
        if isinstance(inner, dict | list):
            yield from _spots(inner)
