"""Arrays and texts as a page can carry them: few bytes, and no character that HTML could mistake for its own.

The page's own JavaScript (page/unpack.js) is the other half of this file.
"""

import base64
import gzip
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.runs.atomic import plain

Packed = dict[str, Any]

_MISSING_BYTE, _MISSING_SHORT = (np.iinfo(kind).max for kind in (np.uint8, np.uint16))


def probabilities(values: NDArray[Any]) -> Packed:
    """Numbers from 0 to 1 as bytes, NaN as 255. What is below a half stays below it: an edge that is off."""
    values = np.asarray(values, np.float64)
    codes = np.floor(values * (_MISSING_BYTE - 1) + 0.5)
    half = _MISSING_BYTE // 2
    codes = np.where(values < 0.5, np.minimum(codes, half - 1), codes)
    codes = np.where(np.isnan(values), _MISSING_BYTE, codes)
    return _packed("byte", codes.astype(np.uint8))


def counts(values: NDArray[Any]) -> Packed:
    """Whole numbers from 0 to 65535, in as few bytes as they need."""
    values = np.asarray(values)
    small = values.size == 0 or values.max() < 256
    return _packed("uint8", values.astype(np.uint8)) if small else _packed("uint16", values.astype("<u2"))


def floats(values: NDArray[Any]) -> Packed:
    """Single precision."""
    return _packed("float32", np.asarray(values).astype("<f4"))


def columns(values: NDArray[Any]) -> Packed:
    """A table [T, D] whose columns have their own scales, in two bytes a number; not finite is missing."""
    values = np.asarray(values, np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    low = np.nan_to_num(np.fmin.reduce(values, axis=0, initial=np.nan))
    high = np.nan_to_num(np.fmax.reduce(values, axis=0, initial=np.nan))
    scale = (high - low) / (_MISSING_SHORT - 1)
    codes = np.round((values - low) / np.where(scale > 0, scale, 1.0))
    codes = np.where(np.isnan(values), _MISSING_SHORT, codes)
    return {**_packed("short", codes.astype("<u2")), "low": low.tolist(), "scale": scale.tolist()}


def compressed_json(data: Any) -> str:
    """Any plain data, NaN as null: JSON, then gzip, then base64."""
    text = json.dumps(plain(data), allow_nan=False, separators=(",", ":"))
    return compressed(text)


def compressed(text: str) -> str:
    """gzip, then base64: the same text gives the same bytes."""
    return encoded(gzip.compress(text.encode(), 9, mtime=0))


def encoded(content: bytes) -> str:
    """base64."""
    return base64.b64encode(content).decode()


def _packed(kind: str, values: NDArray[Any]) -> Packed:
    return {
        "kind": kind,
        "shape": list(values.shape),
        "data": encoded(np.ascontiguousarray(values).tobytes()),
    }
