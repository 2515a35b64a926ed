"""Files of logged episodes from anywhere: what is no plain array of numbers is refused in one line, and
nothing is unpacked to find that out."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.data.npz import read_npz

GOOD: dict[str, Any] = {
    "observations": np.zeros((2, 4, 3)),
    "actions": np.zeros((2, 3, 1)),
    "lengths": np.array([3, 2]),
    "totals": np.array([1.0, 2.0]),
}


def saved(path: Path, **changes: Any) -> Path:
    np.savez(path, **{**GOOD, **changes})
    return path


def _head(path: Path, descr: str, shape: tuple[int, ...], more: bytes = b"") -> Path:
    """A file whose observations claim to be what they are not."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    saved(path)
    with zipfile.ZipFile(path) as old:
        others = {name: old.read(name) for name in old.namelist() if name != "observations.npy"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("observations.npy", file.getvalue() + more)
        for name, content in others.items():
            archive.writestr(name, content)
    return path


def _one_array(path: Path) -> None:
    np.save(path.with_suffix(".npy"), np.zeros(3))
    path.with_suffix(".npy").rename(path)


def _renamed(path: Path) -> None:
    """The name of an array is damaged where the file lists its arrays, but not where that begins."""
    content = saved(path, action_names=["a"]).read_bytes()
    last = content.rindex(b"action_names")
    path.write_bytes(content[: last + 6] + b"\0" + content[last + 7 :])


TABLE = np.zeros((2, 4, 3), [("a", "f4"), ("b", "i4")])
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "texts": (lambda path: saved(path, observations=np.full((2, 4, 3), "x")), "observations holds str"),
    "complex": (lambda path: saved(path, actions=np.zeros((2, 3, 1), complex)), "actions holds complex128"),
    "dates": (lambda path: saved(path, totals=np.array(["2026-01-01"] * 2, "M8[D]")), "totals holds date"),
    "spans": (lambda path: saved(path, lengths=np.array([1, 2], "m8[s]")), "lengths holds timedelta64"),
    "table": (lambda path: saved(path, observations=TABLE), "observations holds void"),
    "objects": (lambda path: saved(path, observations=np.full((2, 4, 3), None)), "observations holds object"),
    "names": (lambda path: saved(path, action_names=np.array([1.0])), "action_names holds float64"),
    "huge": (lambda path: _head(path, "<f8", (2, 4, 10**15)), "observations says it has 64,000,000.0 GB"),
    "negative": (lambda path: _head(path, "<f8", (-2, 4, 3)), "is damaged (observations.npy has"),
    "no type": (lambda path: _head(path, "<z9", (2, 4, 3)), "is damaged ("),
    "code": (lambda path: _head(path, "__import__('os')", (2, 4, 3)), "is damaged ("),
    "another name": (_renamed, "is damaged (File name in directory"),
    "one array": (_one_array, "is no .npz file"),
    "text file": (lambda path: path.write_text("hello"), "is no .npz file"),
    "empty file": (lambda path: path.write_bytes(b""), "is no .npz file"),
    "folder": (lambda path: path.mkdir(), "is no .npz file"),
    "nothing": (lambda path: None, "no file "),
    "empty": (lambda path: saved(path, observations=np.zeros((2, 4, 0))), "need one dimension and one step"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_log_of_numbers_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    make, reason = BAD[kind]
    make(path)
    with pytest.raises(UserError) as refused:
        read_npz(path)
    assert reason in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_trap_is_not_unpacked(tmp_path: Path) -> None:
    """Many zeros, which take a thousandth of their size in the file."""
    path = tmp_path / "log.npz"
    _head(path, "<i1", (1, 70_000_000, 1), bytes(70_000_000))
    tracemalloc.start()
    with pytest.raises(UserError, match=r"would unpack to 70,000,\d+ bytes from [0-9,]+ bytes: if that"):
        read_npz(path)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_arrays_that_nobody_asked_for_are_left_alone(tmp_path: Path) -> None:
    path = saved(tmp_path / "log.npz", notes=np.full(2, None), observation_names=["a", "b", "c"])
    log = read_npz(path)
    assert (log.observation_names, log.action_names) == (("a", "b", "c"), ("a0",))
