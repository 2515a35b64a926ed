"""Reading compiled programs: what their update loop asks the device to do."""

import re
from collections import Counter
from typing import Any

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][a-z0-9\-]*)\(")
_FREE = frozenset(  # names for data that is there already
    ("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "iota")
)


def launches(text: str) -> dict[str, Any]:
    """What the loop that launches most launches in all its turns, by kind, loops inside it included.

    A loop of unknown length counts once; `turns` is None if that is the loop itself.
    """
    parts = computations(text)
    lines = [line for line in text.splitlines() if " while(" in line]
    counted = [(_times(_count(parts, _named(line, "body")), _turns(line)), _turns(line)) for line in lines]
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
        if match[1] in ("call", "while"):
            inner = _named(line, "body" if match[1] == "while" else "to_apply")
            kinds += _times(_count(parts, inner), _turns(line))
        else:
            kinds[_kind(match[1], line)] += 1
    return kinds


def _named(line: str, attribute: str) -> str:
    match = re.search(rf"\b{attribute}=%?([\w.\-]+)", line)
    return match[1] if match else ""


def _turns(line: str) -> int | None:
    match = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
    return int(match[1]) if match else None


def _times(kinds: Counter[str], turns: int | None) -> Counter[str]:
    return Counter({kind: (turns or 1) * number for kind, number in kinds.items()})


def _kind(operation: str, line: str) -> str:
    target = re.search(r'custom_call_target="([^"]+)"', line)
    return f"{operation} {target[1]}" if target else operation
