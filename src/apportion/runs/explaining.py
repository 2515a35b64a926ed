"""What is the agent of a run paid for? Contributions of each dimension to its learned reward, in episodes."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import expand_actions, expand_observations, input_names, input_owners
from apportion.core.config import Tell, check, silent
from apportion.core.spec import REWARD_BLOCKS
from apportion.data.npz import read_npz
from apportion.envs.messages import Arrays
from apportion.runs.atomic import plain
from apportion.runs.contributions import (
    LEAST_BEHIND,
    Explanation,
    Precision,
    Steps,
    by_posterior,
    check_explainable,
    compile_reward,
    explain_reward,
    mixed,
    steps_of,
)
from apportion.runs.credit import INTERVAL, half_width, read_credit
from apportion.runs.folder import RunFolder
from apportion.runs.learned import check_lane, read_learned
from apportion.runs.logged import plain_episode, read_for
from apportion.runs.policy import play
from apportion.runs.summary import UNDECIDED, fit_warnings

_BACKGROUND, _ORDERS = range(2)  # separate streams of randomness for one lane's seed


@dataclass(frozen=True)
class Selection:
    """Which episodes to explain, and what of them. By default, the last ones that training stored."""

    episode: Path | None = None
    """Explain the episodes of this file: .npz with the arrays that `apportion identify` reads; of a run that
    `apportion fit` made, whatever it can be fitted to."""
    seed: int | None = None
    """Explain a fresh episode of each policy: the first one that `apportion eval --seed` plays."""
    lane: tuple[int, ...] = ()
    """Which lanes, counted from 0; all when not given."""
    step: tuple[int, ...] = ()
    """Which steps of each episode that has them, counted from 0; all when not given."""
    embed: str | None = None
    """The embedder of the fit once more, where that was a module:function."""

    def __post_init__(self) -> None:
        check(self.episode is None or self.seed is None, "give --episode or --seed, not both")
        check(self.seed is None or self.seed >= 0, f"--seed {self.seed} must not be negative")
        for name in ("lane", "step"):
            wrong = [value for value in getattr(self, name) if value < 0]
            check(not wrong, f"--{name} {wrong[0] if wrong else 0} must not be negative")


class Explainer:
    """The learned rewards of a run's newest agents, or of its best, ready to be asked about steps."""

    def __init__(self, run: RunFolder, precision: Precision, best: bool = False) -> None:
        self.run, self.precision = run, precision
        self.learned = read_learned(run, best)
        self.config, self.method = self.learned.config, self.learned.method
        self.spec = run.read_spec()  # with a category as one dimension
        self.owners, self.names = input_owners(self.spec), input_names(self.spec)
        stored = [run.read_episodes(step) for step in run.episode_steps()]
        check(bool(stored), f"{run.path} has no stored episodes to compare with: train until an evaluation")
        self.background = [self._background(stored, lane) for lane in range(self.config.lanes)]
        self.model = cache(self.learned.model)  # of a lane: to take one out takes a while
        states = self.learned.spec.observation_size
        check_explainable(self.config.method, self.method, self.model(0), self.background[0], states)
        self.reward_of = compile_reward(self.method, states)
        self.credit = read_credit(run)

    def explain(self, lane: int, steps: Steps, tell: Tell = silent, errors: bool = True) -> Explanation:
        """Contributions to the reward that this lane has learned; with standard errors where these count."""
        background, seen, known = self.background[lane], self._learners(steps), None
        if self.credit is not None:
            known = by_posterior(self.credit, seen, background, self.owners, errors)
            tell(1, 1)
            if self.credit.alone:
                return known
        rng = np.random.default_rng([self.config.seeds[lane], _ORDERS])
        model, precision = self.model(lane), self.precision
        part = 1.0 if self.credit is None else max(1 - self.credit.share, self.credit.doubt**0.5)
        learned = explain_reward(
            self.method, self.reward_of, model, seen, background, precision, rng, self.owners, tell, part
        )
        return learned if known is None or self.credit is None else mixed(self.credit, known, learned)

    def few(self) -> list[str]:
        """A sentence where little is stored to compare with."""
        found, wanted = min(map(len, self.background)), self.precision.steps_behind()
        if found >= min(wanted, LEAST_BEHIND):
            return []
        return [
            f"{self.run.path} stores only {found} steps to compare with, not {wanted}: "
            "baseline and contributions may be far from those of more steps"
        ]

    def doubts(self, lane: int) -> dict[str, NDArray[np.bool_] | None]:
        """[I] inputs of which a lane's data cannot tell whether they feed the reward, and that these say do
        not; None where its method has no certificate."""
        known, best = self.run.edge_steps(), self.learned.best_steps
        wanted = best[lane] if best is not None and best[lane] in known else max(known, default=None)
        edges = {} if wanted is None else self.run.read_edges_at(wanted)
        if "doubts" not in edges:
            return {"undecided": None, "denied": None}
        verdicts = np.concatenate([edges[block][lane] for block in REWARD_BLOCKS])
        places = [self.names.index(name) for name in self.spec.inputs] or range(len(verdicts))
        largest = np.zeros(max(places) + 1, np.float32)  # of each input's dimensions
        np.maximum.at(largest, places, verdicts)
        return {"undecided": largest == UNDECIDED, "denied": largest < UNDECIDED}

    def undecided(self, lanes: list[int]) -> list[str]:
        """Inputs of which no lane's data can tell whether they feed the reward."""
        doubts = [doubt for lane in lanes if (doubt := self.doubts(lane)["undecided"]) is not None]
        check(bool(doubts), f"{self.config.method} decides on no dimension: leave out --decided")
        return [name for name, *each in zip(self.names, *np.stack(doubts).tolist(), strict=True) if all(each)]

    def _learners(self, steps: Steps) -> Steps:
        """Steps as learners see them."""
        states = self.spec.observation_size
        before, actions, after = np.split(steps, [states, steps.shape[1] - states], axis=1)
        seen = (expand_observations(self.spec, each) for each in (before, after))
        return np.concatenate([next(seen), expand_actions(self.spec, actions), *seen], axis=1)

    def _background(self, stored: list[list[list[Arrays]]], lane: int) -> Steps:
        """Steps drawn from everything this lane's policies did in stored episodes, early ones included; of a
        lane that was frozen before the first evaluation, from what the others did."""
        own = [episode for snapshot in stored for episode in snapshot[lane]]
        whole = steps_of(own or [each for snapshot in stored for other in snapshot for each in other])
        rng = np.random.default_rng([self.config.seeds[lane], _BACKGROUND])
        chosen = rng.choice(len(whole), min(self.precision.steps_behind(), len(whole)), replace=False)
        return self._learners(whole[chosen])


def explain_run(
    run: RunFolder, selection: Selection, precision: Precision, best: bool = False, tell: Tell = silent
) -> dict[str, Any]:
    """Plain data for JSON: contributions at each step, by lane and episode, and what they come to."""
    explainer = Explainer(run, precision, best)
    source, episodes = _episodes(explainer, selection)
    lanes = selection.lane or tuple(lane for lane, played in enumerate(episodes) if played) or (0,)
    check_lane(max(lanes), explainer.config.lanes, run)
    per_lane = []
    for place, lane in enumerate(lanes):
        check(bool(episodes[lane]), f"lane {lane} has no episode {source}: it was frozen by then; add --seed")

        def on(done: int, whole: int, before: int = place) -> None:
            tell(before * whole + done, len(lanes) * whole)

        per_lane.append(_explain_lane(explainer, lane, episodes[lane], selection.step, on))
    said = [*explainer.learned.skipped, *explainer.few(), *fit_warnings(run)]
    data: dict[str, Any] = plain(
        {
            "run": run.path,
            **explainer.learned.moment(),
            "env": explainer.spec.env_id,
            "method": explainer.config.method,
            "source": source,
            "unit": "log odds of yes" if explainer.learned.outcomes.yes_no else None,
            "background": min(each.pop("background") for each in per_lane),
            "exact": all(each["exact"] for each in per_lane),
            "observation_names": explainer.spec.observation_names,
            "action_names": explainer.spec.action_names,
            "dimensions": _over_lanes(per_lane, explainer.names),
            "lanes": per_lane,
            "skipped": list(dict.fromkeys(said)),
        }
    )
    return data


def _episodes(explainer: Explainer, selection: Selection) -> tuple[str, list[list[Arrays]]]:
    """Where the episodes come from, and those of each lane."""
    config, spec, run, path = explainer.config, explainer.spec, explainer.run, selection.episode
    if path is not None and config.from_log:
        log = read_for(run, str(path), selection.embed)[1]
        logged = [plain_episode(spec, log, number) for number in range(len(log.totals))]
        return str(path), [logged] * config.lanes
    if path is not None:
        log = read_npz(path)
        states, actions = log.observations[0].shape[1], log.actions[0].shape[1]
        check(
            (states, actions) == (spec.observation_size, spec.action_size),
            f"{path} has {states} observed dimensions and {actions} actions, but {spec.env_id} has "
            f"{spec.observation_size} and {spec.action_size}: give episodes of that environment",
        )
        finite = all(np.isfinite(each).all() for each in (*log.observations, *log.actions))
        check(finite, f"{path} holds NaN or infinity: remove those episodes first")
        pairs = zip(log.observations, log.actions, strict=True)
        return str(path), [[{"observations": seen, "actions": done} for seen, done in pairs]] * config.lanes
    if selection.seed is not None:
        run.need_trust("the environment")
        return f"seed {selection.seed}", play(explainer.learned, 1, selection.seed, None)
    last = run.episode_steps()[-1]
    return f"stored at step {last}", run.read_episodes(last)


def _explain_lane(
    explainer: Explainer, lane: int, episodes: list[Arrays], wanted: tuple[int, ...], tell: Tell
) -> dict[str, Any]:
    """One lane: its summary over all explained steps, and the steps themselves."""
    lengths = [len(episode["actions"]) for episode in episodes]
    beyond = max(wanted, default=0)
    check(beyond < max(lengths), f"--step {beyond} is beyond every episode, of {max(lengths)} steps at most")
    steps = [[step for step in wanted or range(length) if step < length] for length in lengths]
    starts = np.cumsum(lengths) - lengths
    chosen = [start + step for start, own in zip(starts, steps, strict=True) for step in own]
    found = explainer.explain(lane, steps_of(episodes)[chosen], tell)
    absolute = np.abs(found.contributions).mean(axis=0)
    total = absolute.sum()
    per_step = {
        "redistributed": found.redistributed,
        "contributions": found.contributions,
        "standard_errors": found.standard_errors,
        "intervals": _half_widths(found.deviations),
    }
    ends = np.cumsum([len(own) for own in steps])[:-1]
    parts = {
        name: [None] * len(steps) if values is None else np.split(values, ends)
        for name, values in per_step.items()
    }
    return {
        "lane": lane,
        "seed": explainer.config.seeds[lane],
        "exact": found.exact,
        "baseline": found.baseline,
        "background": found.background,
        "players": found.players,
        "mean": found.contributions.mean(axis=0),
        "mean_absolute": absolute,
        "share": absolute / total if total > 0 else np.zeros_like(absolute),
        "sampling_error": found.mean_errors,
        "interval": _half_widths(found.mean_deviations),
        "ranking": [explainer.names[i] for i in np.argsort(-absolute, kind="stable")],
        "episodes": [
            {"steps": own, **{name: _short(part[number]) for name, part in parts.items()}}
            for number, own in enumerate(steps)
        ],
        **explainer.doubts(lane),
    }


def _half_widths(deviations: NDArray[Any] | None) -> NDArray[Any] | None:
    """Of the interval around a mean."""
    return None if deviations is None else half_width(INTERVAL) * deviations


def _over_lanes(lanes: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """What the agents are paid for, most important first; lanes without a finite reward are left out."""
    finite = [lane for lane in lanes if np.isfinite(lane["mean"]).all()]
    if not finite:
        keys = ("mean", "mean_absolute", "share", "interval", "between_lanes", "sampling_error")
        nothing = {**dict.fromkeys(keys), "lanes": 0, "undecided": None, "denied": None}
        return [{"name": name, "index": i, **nothing} for i, name in enumerate(names)]
    mean, absolute, error = (
        np.stack([lane[key] for lane in finite]) for key in ("mean", "mean_absolute", "sampling_error")
    )
    count, total = len(finite), absolute.mean(axis=0).sum()
    between = mean.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else [None] * len(names)

    def in_doubt(doubt: str, i: int) -> int | None:
        """How many lanes whose reward reads it have this doubt whether it should; None where none asks."""
        asked = [lane for lane in finite if lane[doubt] is not None]
        return sum(bool(lane[doubt][i] and lane["players"][i]) for lane in asked) if asked else None

    rows = [
        {
            "name": name,
            "index": i,  # among observed dimensions, then actions
            "mean": mean[:, i].mean(),
            "mean_absolute": absolute[:, i].mean(),
            "share": absolute[:, i].mean() / total if total > 0 else 0.0,
            "interval": max(  # half of it: what outcomes cannot tell of the mean
                (float(lane["interval"][i]) for lane in finite if lane["interval"] is not None), default=None
            ),
            "between_lanes": between[i],  # standard error of the mean over lanes
            "sampling_error": np.sqrt((error[:, i] ** 2).sum()) / count,
            "lanes": sum(bool(lane["players"][i]) for lane in finite),  # whose reward reads it
            "undecided": in_doubt("undecided", i),
            "denied": in_doubt("denied", i),
        }
        for i, name in enumerate(names)
    ]
    return sorted(rows, key=lambda row: -row["mean_absolute"])


def _short(values: NDArray[np.float64] | None) -> Any:
    """As nested lists, with the seven digits that single precision has."""
    if values is None:
        return None
    return [_short(row) for row in values] if values.ndim > 1 else [float(f"{each:.7g}") for each in values]
