"""What is to be said about a run folder before one relies on it: a line for all that is damaged or gone."""

from typing import Any

from apportion.core.config import UserError, from_dict
from apportion.runs import best as bests
from apportion.runs import logs, snapshots
from apportion.runs.atomic import read_json
from apportion.runs.folder import RunFolder
from apportion.runs.schemas import StatusFile, VersionsFile, blamed_on


def notes(run: RunFolder) -> list[str]:
    """On everything but the newest checkpoint, whose reader has lines of its own."""
    _, on_status = read_status(run)
    _, on_versions = read_versions(run)
    _, on_best = bests.moments(run.best, run.sizes().lanes)
    said = [*_on_config(run), *on_status, *on_versions, *_on_metrics(run), *_on_snapshots(run)]
    return [*said, *on_best]


def on_age(run: RunFolder, step: int) -> list[str]:
    """On a newest checkpoint of this step: a run that was saved when it ended has one of that step."""
    status = read_status(run)[0]
    if status.get("state") not in ("finished", "stopped") or status["step"] <= step:
        return []
    return [f"the newest checkpoint is of step {step}, but the run had come to step {status['step']}"]


def read_status(run: RunFolder) -> tuple[dict[str, Any], list[str]]:
    """How far the run is, as it was said last; empty, with a line, where nobody can tell."""
    return _optional(run, "status", StatusFile)


def read_versions(run: RunFolder) -> tuple[dict[str, Any], list[str]]:
    """What the run was made with; empty, with a line, where nobody can tell."""
    return _optional(run, "versions", VersionsFile)


def _optional(run: RunFolder, name: str, schema: type[Any]) -> tuple[dict[str, Any], list[str]]:
    path = run.path / f"{name}.json"
    if not path.exists():
        return {}, [f"{path} is missing"]
    try:
        data = read_json(path)
        with blamed_on(path):
            from_dict(schema, data)
        return data, []
    except UserError as error:
        return {}, [str(error)]


def _on_config(run: RunFolder) -> list[str]:
    try:
        read_json(run.config)
    except UserError:  # what cannot be read at all has been refused before
        return [f"{run.config} was changed after it was written: the run was trained with other settings"]
    return []


def _on_metrics(run: RunFolder) -> list[str]:
    promised = read_status(run)[0].get("lines", 0)
    found = logs.examine(run.metrics, run.sizes().lanes)
    lost = len(found.lines) < promised and not found.notes
    said = [f"{run.metrics} has {len(found.lines)} of {promised} lines"] if lost else []
    return [*found.notes, *said]


def _on_snapshots(run: RunFolder) -> list[str]:
    sizes = run.sizes()
    said = snapshots.damaged(run.edges, snapshots.check_edges, sizes)
    said += snapshots.damaged(run.episodes, snapshots.check_episodes, sizes)
    for entry in run.read_metrics():
        for name in entry.get(logs.STORED, ()):
            path = snapshots.place(run.path / name, entry["step"])
            if not path.exists():
                said.append(f"{path} is missing")
    return said
