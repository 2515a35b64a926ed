"""Fitting into a run folder: what is learned from logged episodes is logged and saved like a training."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from apportion.core.categories import collapsed, expanded
from apportion.core.children import StopRequest
from apportion.core.config import check, to_dict
from apportion.core.spec import Spec
from apportion.data.reading import Read
from apportion.data.rows import Log
from apportion.envs.messages import Arrays
from apportion.runs import checkpoint
from apportion.runs.atomic import write_json
from apportion.runs.credit import (
    INTERVAL,
    MOST_BEHIND,
    SPEAKS,
    Credit,
    edges_told,
    fit_credit,
    supported,
    weighed,
    write_credit,
)
from apportion.runs.folder import RunFolder
from apportion.runs.identifying import check_answers
from apportion.runs.learned import Learned
from apportion.runs.listeners import Events
from apportion.runs.logged import plain_episode, records_of, spec_of
from apportion.runs.offline import check_policy, evaluate_fit, recommended, with_policy
from apportion.runs.progress import Progress
from apportion.runs.recording import Recorder, Write
from apportion.runs.settings import Checkpoints, as_data
from apportion.training.offline import Fitting, Logged, Look, offline
from apportion.training.outcomes import measure
from apportion.training.settings import Config, Schedule

FEWEST = 10  # episodes
SHOWN = 16  # held-out episodes of each lane at least, for pages and explanations

_NOT_LEARNING = ("observed", "oracle")
# Their rewards are moved to sum to what a segment paid, held-out ones included: nothing would be held out.
_SEES_OUTCOMES = ("rudder", "hopfield-rudder", "align-rudder", "ircr")
ANSWERING = ("grd", "rd", "transformer", "rbt")  # with a loss for yes and no, as losses.return_loss has


def fit_run(config: Config, fitting: Fitting, read: Read, out: Path, quiet: bool) -> RunFolder:
    """Learn from the episodes into a new run folder."""
    source, choice, encoding, log = read
    method, count = config.method, len(log.totals)
    check(method not in _NOT_LEARNING, f"{method} learns nothing from a log: choose another --method")
    check(
        method not in _SEES_OUTCOMES,
        f"{method} makes the rewards of every episode sum to its outcome, so none could judge it: "
        "choose another --method, and `relabel --exact` afterwards",
    )
    check(count >= FEWEST, f"{source} holds {count} episodes: at least {FEWEST} are needed")
    if log.answers is not None:
        ways = f"choose --method {', '.join(ANSWERING)}, or --outcome-kind amount"
        check(method in ANSWERING, f"{method} has no loss for outcomes that are yes or no: {ways}")
        check_answers(log, source)
        what = "policies are learned from amounts only: leave out --backbone, or say --outcome-kind amount"
        check(not config.has_policy, f"{source} has outcomes that are yes or no, and {what}")
    spec = spec_of(source, log)
    check_policy(config, spec)
    every = fitting.check_every
    # As a training would have it, for those who read the settings: a step is an update.
    schedule = Schedule(fitting.updates, every, every, warmup_steps=0, evaluate_every=every)
    config = replace(config, schedule=schedule)
    run = RunFolder.create(out, as_data(config, Checkpoints()), spec)
    held_out = set_aside(log, fitting.held_out, np.random.default_rng(config.seed))
    kept = np.setdiff1d(np.arange(count), held_out)
    records = records_of(spec, log)
    learned = [records[number]._replace(number=place) for place, number in enumerate(kept)]
    judged = [records[number]._replace(number=0) for number in held_out]
    data = Logged(learned, judged, measure(learned, log.answers is not None))
    facts = {
        "data": source,
        "columns": None if choice is None else to_dict(choice),
        "encoding": to_dict(encoding),
        "fitting": to_dict(fitting),
        "episodes": count,
        "held_out": len(held_out),
        "outcomes": to_dict(data.outcomes),
        "answers": log.answers,
        "notes": log.notes,
    }
    write_json(run.data, facts)
    # The first ones: a few, or as many as explanations have to compare with where they are short.
    steps = np.cumsum([len(log.actions[number]) for number in held_out])
    first = held_out[: max(SHOWN, int(np.searchsorted(steps, MOST_BEHIND)) + 1)]
    shown = [plain_episode(spec, log, number) for number in first]
    with run.lock():
        _Fit(run, config, fitting, spec, data, shown).record(quiet)
    return run


def set_aside(log: Log, share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """In no order: a log may begin otherwise than it ends, and the first of these are shown and judged by. Of
    yes and no, the same share of both."""
    order = rng.permutation(len(log.totals))
    kinds = [order] if log.answers is None else [order[log.totals[order] == said] for said in (0, 1)]
    chosen = np.concatenate([kind[: max(1, round(share * len(kind)))] for kind in kinds])
    return chosen if log.answers is None else rng.permutation(chosen)


@dataclass
class _Fit:
    """Writes what learning yields into the run folder."""

    run: RunFolder
    config: Config
    fitting: Fitting
    spec: Spec
    data: Logged
    shown: list[Arrays]

    def record(self, quiet: bool) -> None:
        step, config, found = 0, self.config, None
        progress = Progress(self.fitting.updates, config.lanes, quiet, early=True)
        with StopRequest() as stop, progress:
            progress.message(f"Writing to {self.run.path}. The first updates compile, which takes a while.")
            self.recorder = Recorder(self.run, [Events(self.run.tensorboard)], progress.message)
            self.recorder.status("running", 0)
            learned, held_out, outcomes = self.data
            credit = fit_credit(self.spec, learned, held_out, config.seed, outcomes.yes_no)
            known = float(credit.facts["unexplained"]) if config.method in SPEAKS else 0.0
            for look in offline(config, self.fitting, expanded(self.spec), self.data, known):
                step = look.step
                if look.last:
                    lanes = [[each["redistributed"] for each in lane] for lane in look.evaluation.episodes]
                    found = weighed(credit, config.method, look.errors, lanes, held_out, outcomes.level)
                    if config.has_policy:
                        look = self._with_policy(look, found, progress)
                    write_credit(self.run, found)
                self._write(look, credit if found is None else found)
                judged = look.evaluation
                scores = [judged.returns, judged.reward_correlation, judged.return_error]
                returns, correlation, error = (each.tolist() for each in scores)
                progress.evaluation(returns, correlation, error, step=step)
                if stop.requested and not look.last:
                    self._save(look, self._episodes(look, None))
                    break
            self.recorder.status("stopped" if stop.requested else "finished", step)
            check(self.recorder.problem is None, f"{self.run.path} is not whole: {self.recorder.problem}")
        if found is not None and config.has_policy:
            write_json(self.run.worth, evaluate_fit(self.run))

    def _with_policy(self, look: Look, credit: Credit, progress: Progress) -> Look:
        """The last look with a policy; what it is worth is written beside."""
        updates = self.fitting.policy_updates
        progress.message(f"Learning a policy: {self.config.backbone}, {updates:,} updates.")
        agent, metrics = with_policy(self.fitting, self.spec, self.data.learned, self._learned(look), credit)
        more = {f"policy_{name}": values for name, values in metrics.items()}
        return look._replace(agent=agent, metrics={**look.metrics, **more})

    def _learned(self, look: Look) -> Learned:
        outcomes = self.data.outcomes
        return Learned(self.config, expanded(self.spec), look.agent, look.step, None, [], outcomes)

    def _write(self, look: Look, credit: Credit) -> None:
        scores = {
            **look.evaluation.scores,
            "policy_mask_on": look.beliefs["policy_mask"].mean(axis=1),
            "unexplained": look.unexplained,
            "supported": supported(look.plain - look.errors),
            "step_rewards": look.evaluation.step_rewards,
        }
        edges = collapsed(self.spec, look.beliefs)
        if self.data.outcomes.yes_no:
            edges = edges_told(credit, self.spec, edges)
        files: dict[str, Write] = {self.run.edges.name: partial(self.run.write_edges, look.step, edges)}
        if look.last:
            files[self.run.episodes.name] = partial(self._save, look, self._episodes(look, credit))
        self.recorder.train_line(look.step, jax.device_get(look.metrics))
        self.recorder.eval_line(look.step, scores, files)

    def _episodes(self, look: Look, credit: Credit | None) -> list[list[Arrays]]:
        """Of each lane, the first held-out ones: with the credit of their steps, as if no outcome were known,
        and with what its policy would have done, once there are such."""
        lanes, learner = [], self._learned(look)
        for number, lane in enumerate(look.evaluation.episodes):
            records = self.data.held_out[: min(len(lane), len(self.shown))]
            episodes = [episode | shown for episode, shown in zip(lane, self.shown, strict=False)]
            if credit is not None:
                learned = [episode["redistributed"] for episode in episodes]
                steps = credit.of_records(records, learned, paid=False)
                for episode, found in zip(episodes, steps, strict=True):
                    values = (found.reward, *found.within(INTERVAL))
                    for end, each in zip(("", "_low", "_high"), values, strict=True):
                        episode[f"redistributed{end}"] = each.astype(np.float32)
            if credit is not None and self.config.has_policy:
                told = recommended(learner, self.spec, number, records)
                for episode, done in zip(episodes, told, strict=True):
                    episode["recommended"] = done
            lanes.append(episodes)
        return lanes

    def _save(self, look: Look, episodes: list[list[Arrays]]) -> None:
        self.run.write_episodes(look.step, episodes)
        meta = {"settings": as_data(self.config, Checkpoints())}
        checkpoint.save(self.run.checkpoints, look.step, {"agent": look.agent}, meta, keep=1)
