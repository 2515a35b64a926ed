"""Reading compiled programs: what one turn of the update loop asks the device to do."""

import re
from collections import Counter
from typing import Any

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][a-z0-9\-]*)\(")
_FREE = frozenset(  # names for data that is there already
    ("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "iota")
)


def launches(text: str) -> dict[str, Any]:
    """What a turn of the longest loop launches, by kind, and how many turns it has (None: not known).

    Loops inside count as often as they run, or once where that is not known.
    """
    parts = computations(text)
    loops = [
        (body, line) for line in text.splitlines() if " while(" in line and (body := _named(line, "body"))
    ]
    counted = [(_count(parts, body), _turns(line)) for body, line in loops]
    kinds, turns = max(counted, key=lambda each: each[0].total(), default=(Counter[str](), None))
    return {"total": kinds.total(), "turns": turns, "kinds": dict(kinds.most_common())}


def computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation of a compiled program."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            lines = found.setdefault(match[1], [])
        else:
            lines.append(line)
    return found


def _count(parts: dict[str, list[str]], name: str) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for line in parts.get(name, []):
        match = _INSTRUCTION.match(line)
        if match is None or match[1] in _FREE:
            continue
        inner = _named(line, "body" if match[1] == "while" else "to_apply")
        if match[1] in ("call", "while") and inner:
            often = _turns(line) or 1
            kinds += Counter({kind: often * number for kind, number in _count(parts, inner).items()})
        else:
            kinds[_kind(match[1], line)] += 1
    return kinds


def _named(line: str, attribute: str) -> str | None:
    match = re.search(rf"\b{attribute}=%?([\w.\-]+)", line)
    return match[1] if match else None


def _turns(line: str) -> int | None:
    match = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
    return int(match[1]) if match else None


def _kind(operation: str, line: str) -> str:
    target = re.search(r'custom_call_target="([^"]+)"', line)
    return f"{operation} {target[1]}" if target else operation
