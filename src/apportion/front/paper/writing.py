"""The result of an experiment as files: results.json, and one page with table, figures and what differs."""

from typing import Any

from apportion.front.paper.planning import jobs_of
from apportion.front.paper.presenting import Finished, Presented
from apportion.front.paper.scales import scale_of
from apportion.runs.atomic import plain, write_json
from apportion.runs.folder import versions

PAGE = "README.md"
RESULTS = "results.json"


def write(finished: Finished, presented: Presented) -> dict[str, Any]:
    """All of it into the experiment's folder; the data that results.json has."""
    experiment, scale, folder = finished.experiment, finished.scale, finished.folder
    ours = experiment.differs_ours if "ours" in finished.columns else ()
    differs = [*experiment.differs, *ours, *_budget(finished)]
    data: dict[str, Any] = plain(
        {
            "experiment": experiment.name,
            "title": experiment.title,
            "source": experiment.source,
            "scale": scale.name,
            "settings": finished.columns,
            "steps": scale.steps,
            "seeds": scale.seeds,
            "out": str(folder),
            "page": str(folder / PAGE),
            "figures": [str(figure) for figure in presented.figures],
            "ours": presented.data,
            "paper": [printed._asdict() for printed in experiment.printed],
            "differs": differs,
            "notes": presented.notes,
            "jobs": [job.to_dict() for job in jobs_of([each.planned for each in finished.done])],
            "configs": {each.planned.job.name: each.run.read_config() for each in finished.done},
            "versions": versions(),
        }
    )
    write_json(folder / RESULTS, data)
    (folder / PAGE).write_text("\n".join(_page(finished, presented, differs, data["versions"])) + "\n")
    return data


def _page(
    finished: Finished, presented: Presented, differs: list[str], made_with: dict[str, Any]
) -> list[str]:
    experiment, scale = finished.experiment, finished.scale
    figures = [f"![{figure.stem}]({figure.relative_to(finished.folder)})" for figure in presented.figures]
    commit = (made_with["commit"] or "unknown")[:12] + (" with changes" if made_with["dirty"] else "")
    packages = ", ".join(f"{name} {made_with[name]}" for name in ("jax", "mujoco"))
    devices = ", ".join(dict.fromkeys(made_with["devices"]))
    return [
        f"# {experiment.title}",
        "",
        f"{experiment.source} of the paper, by `{_command(finished)}`: {scale.steps:,} steps, {scale.seeds} "
        f"seed(s). apportion {made_with['apportion']} (commit {commit}), {packages}, on {devices}.",
        "",
        *presented.text,
        *(line for figure in figures for line in (figure, "")),
        "## What differs from the paper",
        "",
        *(f"- {line}" for line in differs),
        *(f"- {line}" for line in presented.notes),
    ]


def _command(finished: Finished) -> str:
    """What was asked for."""
    given, columns = finished.scale, finished.columns
    usual = scale_of(finished.experiment, given.name)
    settings = "both" if len(columns) > 1 else columns[0]
    words = ["apportion paper", finished.experiment.name, f"--scale {given.name} --settings {settings}"]
    words += [f"--steps {given.steps}"] if given.steps != usual.steps else []
    words += [f"--seeds {given.seeds}"] if given.seeds != usual.seeds else []
    return " ".join(words)


def _budget(finished: Finished) -> list[str]:
    """What this scale leaves out."""
    experiment, scale = finished.experiment, finished.scale
    lines = []
    if scale.steps != experiment.steps:
        lines.append(f"{scale.steps:,} steps of training instead of {experiment.steps:,}.")
    if scale.name == "smoke":
        lines.append(
            "Scale smoke: tiny networks, episodes of 50 steps, updates so few that methods may end alike. It "
            "shows that it works, no more."
        )
    if len(scale.tasks) < len(experiment.tasks):
        lines.append(f"{len(scale.tasks)} of {len(experiment.tasks)} tasks: {', '.join(scale.tasks)}.")
    if len(scale.variants) < len(experiment.variants):
        names = ", ".join(variant.name for variant in scale.variants)
        lines.append(f"{len(scale.variants)} of {len(experiment.variants)} methods: {names}.")
    return lines
