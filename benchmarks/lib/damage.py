"""What may happen to a file of a run or of logged episodes: by disks, crashes, editors, and people."""

import json
import math
import os
import random
import shutil
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars

from apportion.runs.atomic import CHECKSUM, read_arrays, sealed, write_arrays

Damage = Callable[[Path, random.Random], None]
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**70, 1e308, "x", "", "🌱", [], {}, [[1]], {"a": {}}, 0.5, [None]),
    *("[/bold]", "[red]x[/red]", ":smile: [link=x]", "\x1b[2J\x1b]0;x\x07", "a\rb\nc\x9b", "\u202eabc"),
)
NUMBERS = (1e39, -math.inf, math.nan, -1, 2**62)


def rewriting(name: str, change: Callable[[bytes, random.Random], bytes]) -> Damage:
    """What makes other bytes of those in a file."""

    def harm(path: Path, rng: random.Random) -> None:
        path.write_bytes(change(path.read_bytes(), rng))

    harm.__name__ = name
    return harm


def _flipped(content: bytes, rng: random.Random) -> bytes:
    bits = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 8))):
        bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
    return bytes(bits)


def _zeroed(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.choice((1, 16, 512)))
    return content[:start] + bytes(end - start) + content[end:]


def _another_digit(content: bytes, rng: random.Random) -> bytes:
    """Still a number, and a wrong one."""
    places = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    if not places:
        return content
    place = rng.choice(places)
    other = rng.choice([each for each in b"0123456789" if each != content[place]])
    return content[:place] + bytes([other]) + content[place + 1 :]


def _another_line(content: bytes, rng: random.Random) -> bytes:
    """A line less, twice, or a blank one."""
    lines = content.splitlines(keepends=True)
    place = rng.randrange(max(1, len(lines)))
    lines[place : place + 1] = rng.choice(([], lines[place : place + 1] * 2, [b"\n"]))
    return b"".join(lines)


BYTES: tuple[Damage, ...] = (
    rewriting("empty", lambda content, rng: b""),
    rewriting("cut", lambda content, rng: content[: rng.randrange(max(1, len(content)))]),
    rewriting("halve", lambda content, rng: content[: len(content) // 2]),
    *[rewriting("flip", _flipped)] * 2,
    rewriting("zeros", _zeroed),
    rewriting("garbage", lambda content, rng: rng.randbytes(rng.choice((1, 40, 4000)))),
    rewriting("longer", lambda content, rng: content + rng.choice((b"\0", b"{}", b"\n{", b"x" * 99))),
)
LETTERS: tuple[Damage, ...] = (
    *[rewriting("digit", _another_digit)] * 2,
    rewriting("key_twice", lambda content, rng: content.replace(b"{", b'{"step": 1, "step": 2, ', 1)),
    rewriting("nested", lambda content, rng: rng.choice((b"[", b'{"a":')) * rng.choice((40, 5_000, 200_000))),
    rewriting("utf16", lambda content, rng: content.decode("latin1").encode("utf-16")),
    rewriting("line", _another_line),
    rewriting("digits", lambda content, rng: b"[" + b"9" * rng.choice((400, 5_000, 100_000)) + b"]\n"),
)


def gone(path: Path, rng: random.Random) -> None:
    path.unlink()


def folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def neighbour(path: Path, rng: random.Random) -> None:
    """The content of another file beside it, or of any."""
    others = [each for each in path.parent.iterdir() if each.is_file() and each != path] or [path]
    path.write_bytes(rng.choice(sorted(others)).read_bytes())


def value(path: Path, rng: random.Random) -> None:
    """An odd value in valid JSON; the checksum is as it was."""
    _change(path, rng, seal=False)


def forged(path: Path, rng: random.Random) -> None:
    """The same with a new checksum, as somebody would who means it."""
    _change(path, rng, seal=True)


# --- By people who mean harm


def linked(path: Path, rng: random.Random) -> None:
    """To a file outside, which must be neither read nor written."""
    path.unlink()
    path.symlink_to(_canary(path))


def linked_names(path: Path, rng: random.Random) -> None:
    """Under names that a writer might take for a while."""
    for each in taken_names(path):
        each.symlink_to(_canary(path))


def linked_folder(path: Path, rng: random.Random) -> None:
    """The one it lies in, if that is within a run."""
    if (path.parents[1] / "config.json").exists():
        path.parent.rename(_outside(path).with_name("aside"))
        path.parent.symlink_to(_outside(path))


def put_back(path: Path, whole: bytes) -> None:
    """A file as it was, whatever has taken its place."""
    if path.parent.is_symlink():
        path.parent.unlink()
        _outside(path).with_name("aside").rename(path.parent)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    for each in (path, *taken_names(path)):
        each.unlink(missing_ok=True)
    path.write_bytes(whole)


def taken_names(path: Path) -> list[Path]:
    names = (f".{path.name}.tmp", f"{path.name}.tmp", f".tmp_{os.getpid()}_{path.name}")
    return [path.with_name(name) for name in names]


def pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "/dev/tty")))


def giant(path: Path, rng: random.Random) -> None:
    """A file of a terabyte, of which the disk holds nothing."""
    os.truncate(path, 2**40)


def another_task(path: Path, rng: random.Random) -> None:
    """What the run has learned of is not what its environment is now."""
    data = json.loads(path.read_text())
    data.pop(CHECKSUM)
    match rng.randrange(4):
        case 0:
            data["action_high"] = [each * 2 + 1 for each in data["action_high"]]
        case 1:
            data["action_low"] = [each - 1 for each in data["action_low"]]
        case 2:
            data["max_episode_steps"] += 1
        case 3:
            data["observation_names"] += ["one more"]
            data["true_graph"] = None
    path.write_text(json.dumps(sealed(data)))


def cell(path: Path, rng: random.Random) -> None:
    """One that no learner can hold, or that a terminal would obey."""
    lines = path.read_text().splitlines()
    place = rng.randrange(len(lines))
    cells = lines[place].split(",")
    odd = ("1e39", "-1e300", "9" * 5_000, "inf", "nan", "", "[red]x", "\x1b[2J", "x" * 200_000, '"', "1;2")
    cells[rng.randrange(len(cells))] = rng.choice(odd)
    lines[place] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")


def column(path: Path, rng: random.Random) -> None:
    """Empty, or the same value everywhere."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    place, value = rng.randrange(len(rows[0])), rng.choice(("", "0", "1e38", "text"))
    rows[1:] = [[*row[:place], value, *row[place + 1 :]] for row in rows[1:]]
    path.write_text("\n".join(map(",".join, rows)) + "\n")


def member(path: Path, rng: random.Random) -> None:
    """Another kind of thing in the place of one of its arrays."""
    with h5py.File(path, "r+") as file:
        name = rng.choice(list(file))
        before = file[name][()]
        del file[name]
        match rng.randrange(6):
            case 0:
                file[name] = h5py.ExternalLink(str(_canary(path)), "observations")
            case 1:
                file[name] = h5py.SoftLink("/nowhere")
            case 2:
                file.create_dataset(name, (2**40, 3), "f8", chunks=(2**16, 3), compression="gzip")
            case 3:
                file.create_group(name)
            case 4:
                source = h5py.VirtualSource(str(_canary(path)), "observations", before.shape)
                layout = h5py.VirtualLayout(before.shape, "f8")
                layout[:] = source
                file.create_virtual_dataset(name, layout)
            case 5:
                file[name] = _odd(before, rng)


def array(path: Path, rng: random.Random) -> None:
    """The same of arrays that may be pickles."""
    arrays = dict(np.load(path))
    name = rng.choice(list(arrays))
    arrays[name] = rng.choice((_odd(arrays[name], rng), np.array([Path("x")]), np.zeros(2**24)))
    np.savez_compressed(path, allow_pickle=True, **arrays)


def tampered(path: Path, rng: random.Random) -> None:
    """Other arrays, or another note beside them, with a checksum that fits."""
    arrays, note = read_arrays(path)
    spots = list(_spots(note))
    if spots and rng.random() < 0.5:
        holder, key = rng.choice(spots)
        holder[key] = rng.choice(ODD)
    else:
        name = rng.choice(list(arrays))
        odd = np.asarray(_odd(arrays.pop(name), rng))
        arrays |= {name: odd} if odd.dtype.kind in "biuf" else {}
    write_arrays(path, arrays, note)


def _odd(values: np.ndarray[Any, Any], rng: random.Random) -> Any:
    """Of another type or shape, or with numbers that nobody can use."""
    values = np.atleast_1d(values)
    if values.dtype.kind not in "biuf":
        return rng.choice((values[:-1], np.array(["\x1b[2J"] * len(values)), np.roll(values.repeat(2), 1)))
    with np.errstate(over="ignore"):
        holed = np.where(np.arange(values.size).reshape(values.shape) == 1, rng.choice(NUMBERS), values)
    others = (values * 1j, np.array([b"text"] * len(values)), values[:-1], 3.0, values * 0, values * -1.0)
    return rng.choice((*others, holed, np.full(values.shape, rng.choice(NUMBERS))))


def typed(path: Path, rng: random.Random) -> None:
    """A column of another type, or without a value somewhere."""
    table = polars.read_parquet(path)
    name, count = rng.choice(table.columns), len(table)
    odd = (None, [[1.0, 2.0]], {"a": 1}, b"\x1b[2J", True, date(2026, 1, 31), Decimal(10) ** 30, "9" * 5_000)
    whole = polars.Series(name, [rng.choice(odd)] * count, strict=False)
    holed = table[name].scatter(rng.randrange(count), rng.choice((None, *NUMBERS)))
    table.with_columns(rng.choice((whole, whole, holed))).write_parquet(path)


def toml(path: Path, rng: random.Random) -> None:
    """An odd value, or a key that is not known."""
    lines = path.read_text().splitlines()
    place = rng.choice([number for number, line in enumerate(lines) if "=" in line])
    texts = ('""', '"[red]x"', '"\\u001b[2J"', "1979-05-27", "[[1]]", "{a = 1}", str([*range(2000)]))
    key = rng.choice((*[lines[place].split("=")[0]] * 2, '"[/bold]\\u009b"', "out"))
    lines[place] = f"{key} = {rng.choice((*texts, '9' * 5_000, *map(str, NUMBERS)))}"
    path.write_text("\n".join(lines) + "\n")


def _canary(path: Path) -> Path:
    return _outside(path) / "canary"


def _outside(path: Path) -> Path:
    return next(each for each in path.parents if (each / "outside").is_dir()) / "outside"


HARM: tuple[Damage, ...] = (linked, linked_names, linked_folder, pipe, device, giant)
ANY: tuple[Damage, ...] = (*BYTES, gone, folder, neighbour, *HARM)
TEXT: tuple[Damage, ...] = (*ANY, *LETTERS, value, value, forged, forged, forged)
OF_FORMAT: dict[str, tuple[Damage, ...]] = {
    **dict.fromkeys((".json", ".jsonl"), TEXT),
    ".csv": (*ANY, *[cell] * 6, *[column] * 3),
    ".npz": (*ANY, *[array] * 5),
    ".h5": (*ANY, *[member] * 5),
    ".parquet": (*ANY, *[typed] * 5),
    ".safetensors": (*ANY, *[tampered] * 4),
    ".toml": (*ANY, *LETTERS, *[toml] * 12),
}
# What somebody wrote who means it, or a log that says something else: the answer may be another.
MEANT = (forged, cell, column, member, array, typed, toml, tampered, another_task)


def kinds(path: Path) -> tuple[Damage, ...]:
    """What may happen to a file of this name."""
    return OF_FORMAT.get(path.suffix, ANY)


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
