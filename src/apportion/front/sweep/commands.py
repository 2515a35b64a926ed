"""A job as the command that carries it out: what one would type to train the same by hand."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from apportion.front.choosing import flat
from apportion.front.sweep.jobs import Job


def train_words(job: Job, run: Path) -> list[str]:
    """The words after `apportion`, for a run folder that is not there yet."""
    config = job.chosen().config
    words = ["train", job.env, "--out", str(run), "--method", job.method, "--backbone", config.backbone]
    words += ["--seeds", str(job.seeds), "--seed", str(job.seed)]
    words += [] if job.preset == "default" else ["--preset", job.preset]
    words += [] if job.steps is None else ["--steps", str(job.steps)]
    for name, value in flat(job.settings).items():
        words += _flag(name.replace("_", "-"), value)
    return words


def _flag(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        group, dot, last = name.rpartition(".")
        yield f"--{name}" if value else f"--{group}{dot}no-{last}"
    elif isinstance(value, list | tuple):
        yield from (f"--{name}", *map(_word, value))
    elif _word(value).startswith("-"):  # else it would be taken for a flag
        yield f"--{name}={_word(value)}"
    else:
        yield from (f"--{name}", _word(value))


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping) else str(value)
