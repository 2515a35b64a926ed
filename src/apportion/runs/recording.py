"""Training into a run folder: what the loop yields is logged and checkpointed, and can be resumed."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from apportion.core.config import check, from_dict, to_dict
from apportion.core.errors import UserError
from apportion.core.types import Metrics
from apportion.data.replay import capacity_for
from apportion.envs.factories import only_here
from apportion.envs.workers import Pool
from apportion.runs import best as bests
from apportion.runs import checkpoint, logs, trouble
from apportion.runs import saved as saving
from apportion.runs.atomic import write_json
from apportion.runs.best import Best
from apportion.runs.divergence import Watch
from apportion.runs.folder import RunFolder
from apportion.runs.logs import Events, MetricsLog
from apportion.runs.progress import Progress, over_some
from apportion.runs.signals import StopRequest
from apportion.training import devices, loop
from apportion.training.conformance import check_own
from apportion.training.evaluator import Report
from apportion.training.loop import Saved, Snapshot
from apportion.training.settings import Config

TRAIN_LINES = 2_000  # lines of training metrics in a whole run, at the most
EDGE_SNAPSHOTS = 100
EPISODE_SNAPSHOTS = 20
EPISODES_KEPT = 2  # per lane and snapshot

_ONLY_HERE = (
    "Only this process knows the environment's function: it runs here, without workers, and whoever resumes "
    "or evaluates the run later must give it again: apportion.load(run, env=...)"
)


@dataclass(frozen=True)
class Checkpoints:
    """When to save. A run is also saved when it ends, and when it is asked to stop."""

    checkpoint_minutes: float = 5.0
    """Save after so many minutes."""
    checkpoint_every: int | None = None
    """Save after so many steps, too."""
    keep: int = 2
    """How many checkpoints to keep."""

    def __post_init__(self) -> None:
        check(self.checkpoint_minutes > 0, f"checkpoint_minutes={self.checkpoint_minutes} must be positive")
        check(
            self.checkpoint_every is None or self.checkpoint_every >= 1, "checkpoint_every must be at least 1"
        )
        check(self.keep >= 1, f"keep={self.keep} must be at least 1")


class Outcome(NamedTuple):
    """How a training ended."""

    run: RunFolder
    step: int
    signal: int | None  # the signal that stopped it early


Listener = Callable[[dict[str, Any]], object]  # hears of each line of metrics; False asks for a stop


def train(
    config: Config, checkpoints: Checkpoints, out: Path, quiet: bool, listeners: Sequence[Listener] = ()
) -> Outcome:
    """Train from the start into a new run folder."""
    with loop.open_pool(config) as pool:
        config.check_actions(pool.spec)  # what cannot work: complain before there is a folder
        check_own(config, pool.spec)
        schedule = config.schedule
        capacity_for(pool.spec, schedule.replay_steps, schedule.steps_per_iteration)
        run = RunFolder.create(out, settings_data(config, checkpoints), pool.spec)
        with run.lock():
            return _Recorder(run, config, checkpoints, quiet, listeners, pool).record(None, 0.0)


def resume(
    run: RunFolder, quiet: bool, steps: int | None = None, listeners: Sequence[Listener] = ()
) -> Outcome:
    """Continue a run from its newest checkpoint, exactly as if it had never stopped."""
    check(steps is None or steps >= 1, f"--steps {steps} must be at least 1")
    config, checkpoints = read_settings(run)
    with run.lock():
        spec = run.read_spec()
        saved, loaded = saving.read(run.checkpoints, config, spec)
        if steps is not None:
            config = replace(config, schedule=replace(config.schedule, steps=steps))
            behind = config.schedule.iterations < saved.iteration
            check(not behind, f"--steps {steps} is behind the run, which is at step {loaded.step}: raise it")
        stuck = len(saved.faults["frozen"]) == config.lanes
        check(not stuck, f"every seed of {run.path} is frozen: see `apportion show`, and start a new run")
        with loop.open_pool(config, saved.faults) as pool:
            recorder = _Recorder(run, config, checkpoints, quiet, listeners, pool)
            recorder.best = bests.read(run.best, config, spec, loaded.step)
            recorder.notes = loaded.skipped + recorder.notes_on_best(loaded.step)
            pool.put_back(saved.where)
            write_json(run.config, settings_data(config, checkpoints))  # with the new number of steps, if any
            run.truncate_after(loaded.step)
            checkpoint.drop_after(run.best, loaded.step)
            MetricsLog(run.metrics).truncate_after(loaded.step)
            recorder.watch.remember(logs.read(run.metrics))
            return recorder.record(saved, loaded.meta["seconds"])


def settings_data(config: Config, checkpoints: Checkpoints) -> dict[str, Any]:
    """What config.json holds, and `read_settings` reads."""
    return {**config.to_dict(), "checkpoints": to_dict(checkpoints)}


def read_settings(run: RunFolder) -> tuple[Config, Checkpoints]:
    """The settings that a run was made with."""
    data = run.read_config()
    try:
        if run.env is not None:
            data["env"]["id"] = run.env
        checkpoints = from_dict(Checkpoints, data.pop("checkpoints"), "checkpoints.")
        return Config.from_dict(data), checkpoints
    except KeyError as error:
        raise UserError(f"{run.config} has no {error}: it was not written by this version") from error
    except (TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{run.config} has a setting of a wrong type ({reason}): correct it") from error


class _Line(NamedTuple):
    """What a line about training says; numbers that are still being computed."""

    step: int
    metrics: Metrics  # [L]
    sound: Array  # [L]
    frozen: NDArray[np.bool_]  # [L]


class _Recorder:
    """Writes what a training yields into its run folder."""

    def __init__(
        self,
        run: RunFolder,
        config: Config,
        checkpoints: Checkpoints,
        quiet: bool,
        listeners: Sequence[Listener],
        pool: Pool,
    ) -> None:
        self.run = run
        self.pool = pool
        self.config = config
        self.checkpoints = checkpoints
        self.quiet = quiet
        self.listeners = listeners
        self.stop_wanted = False  # by a listener
        self.log = MetricsLog(run.metrics)
        self.notes: list[str] = []
        self.watch = Watch(config.seeds, config.normalise)
        self.best: Best | None = None
        self.metrics_to_come: _Line | None = None  # not written yet

    def record(self, saved: Saved | None, seconds: float) -> Outcome:
        """Run the loop to its end, or until a signal asks for a stop."""
        schedule = self.config.schedule
        first = 0 if saved is None else saved.iteration * schedule.steps_per_iteration
        self.began = time.monotonic() - seconds
        self.saved_at = time.monotonic()
        total = schedule.iterations * schedule.steps_per_iteration
        with (
            StopRequest(self.pool.hurry, self.pool.kill) as stop,
            Events(self.run.tensorboard, resumed_at=None if saved is None else first) as self.events,
            Progress(total, self.config.lanes, self.quiet, first) as self.progress,
        ):
            idle = devices.advice(self.config.lanes)
            here = [_ONLY_HERE] if only_here(self.config.env.id) else []
            start = f"Writing to {self.run.path}. The first updates compile, which takes a while."
            before = [*self.notes, *trouble.in_words(self._faults())]
            self._say([*before, *([idle] if idle else []), *here, start])
            self.progress.frozen(len(self.pool.faults.frozen))
            step = first
            self._status("running", step)
            for snapshot in loop.online(self.config, self.pool, saved):
                step = snapshot.step
                self._write(snapshot)
                last = snapshot.iteration + 1 == schedule.iterations
                ends = last or stop.requested or self.stop_wanted or bool(snapshot.frozen.all())
                if ends or self._checkpoint_due(step):
                    self._checkpoint(snapshot, must_succeed=ends)
                if ends:
                    break
            self._tell_faults()
        self._end_if_all_are_frozen(step)
        self._status("finished" if step >= total else "stopped", step)
        return Outcome(self.run, step, stop.signal if step < total else None)

    def _write(self, snapshot: Snapshot) -> None:
        self._write_metrics()  # of an earlier iteration: by now they are there
        if snapshot.metrics and snapshot.iteration % -(-self.config.schedule.iterations // TRAIN_LINES) == 0:
            self.metrics_to_come = _Line(snapshot.step, snapshot.metrics, snapshot.sound, snapshot.frozen)
        self._tell_faults()
        self.progress.update(snapshot.step)
        self._write_reports(snapshot.reports)
        if snapshot.reports:
            self._status("running", snapshot.step)

    def _write_metrics(self) -> None:
        """The numbers of the last iteration that has a line. To read them is to wait for the device."""
        if self.metrics_to_come is None:
            return
        step, values, sound, frozen = self.metrics_to_come
        self.metrics_to_come = None
        metrics: dict[str, NDArray[np.float32]] = jax.device_get(values)
        metrics |= _frozen(frozen | ~np.asarray(sound))
        self._tell(self.log.write(step, "train", metrics))
        self.events.write(step, "train", metrics)
        self._say(self.watch.look(step, metrics))
        shown = ("reward_loss", "critic_loss")
        self.progress.metrics({k: over_some(v) for k, v in metrics.items() if k in shown})

    def _write_reports(self, reports: list[Report]) -> None:
        for report in reports:
            self._write_report(report)

    def _write_report(self, report: Report) -> None:
        step, evaluation = report.step, report.evaluation
        self.best = bests.better(self.best, report)
        scores: dict[str, Any] = {
            "return": evaluation.returns,
            "return_std": evaluation.return_std,
            "length": evaluation.lengths,
            "reward_correlation": evaluation.reward_correlation,
            "episode_correlation": evaluation.episode_correlation,
            "return_error": evaluation.return_error,
            "policy_mask_on": report.policy_mask.mean(axis=1),
            **_frozen(report.frozen),
        }
        facts = {"step_rewards": evaluation.step_rewards, "seconds": time.monotonic() - self.began}
        self._tell(self.log.write(step, "eval", scores | facts))
        self.events.write(step, "eval", scores)
        self.events.flush()
        schedule = self.config.schedule
        last = step >= schedule.iterations * schedule.steps_per_iteration
        if last or _thinned(step, schedule.steps, schedule.evaluate_every, EDGE_SNAPSHOTS):
            self.run.write_edges(step, {**report.edges, "policy_mask": report.policy_mask})
        if last or _thinned(step, schedule.steps, schedule.evaluate_every, EPISODE_SNAPSHOTS):
            self.run.write_episodes(step, [lane[:EPISODES_KEPT] for lane in evaluation.episodes])
        shown = (evaluation.returns, evaluation.reward_correlation, evaluation.return_error)
        self.progress.evaluation(*(values.tolist() for values in shown))

    def _checkpoint_due(self, step: int) -> bool:
        every = self.checkpoints.checkpoint_every
        iteration = self.config.schedule.steps_per_iteration
        by_steps = every is not None and step // every > (step - iteration) // every
        return by_steps or time.monotonic() - self.saved_at > 60 * self.checkpoints.checkpoint_minutes

    def _checkpoint(self, snapshot: Snapshot, must_succeed: bool) -> None:
        self._write_metrics()
        self._write_reports(snapshot.settle())
        try:
            seconds = time.monotonic() - self.began
            if self.best is not None:
                # One more than checkpoints: after a crash right here, the last of those still has its own.
                bests.write(self.run.best, snapshot.step, self.best, self.checkpoints.keep + 1)
            saving.write(self.run.checkpoints, snapshot.step, snapshot.save(), seconds, self.checkpoints.keep)
        except OSError as error:
            # The earlier checkpoints are untouched: a run that goes on may still find room later.
            reason = f"no checkpoint at step {snapshot.step}: {error.strerror or error}"
            if must_succeed:
                raise UserError(f"{reason}; make room, then `apportion resume {self.run.path}`") from error
            self._say([reason])
        self.saved_at = time.monotonic()

    def notes_on_best(self, step: int) -> list[str]:
        """What to say when evaluations came before this step, but the best of them was not kept."""
        earlier = [entry for entry in logs.read(self.run.metrics) if entry["step"] <= step]
        if self.best is not None or all(entry["kind"] != "eval" for entry in earlier):
            return []
        return [f"{self.run.best} has no best policy so far: one is kept from here on"]

    def _status(self, state: str, step: int) -> None:
        seconds = round(time.monotonic() - self.began, 1)
        faults = self._faults()
        status = {"state": state, "step": step, "seconds": seconds}
        write_json(self.run.status, {**status, "faults": faults} if faults else status)

    def _faults(self) -> list[dict[str, Any]]:
        return trouble.facts(self.pool.faults, self.config.seeds, self.config.schedule.steps_per_iteration)

    def _tell_faults(self) -> None:
        faults, schedule = self.pool.faults, self.config.schedule
        news = faults.news()
        if news:
            seeds, limit = self.config.seeds, self.config.env.restarts
            self._say(trouble.news_in_words(news, limit, seeds, schedule.steps_per_iteration))
            self.progress.frozen(len(faults.frozen))

    def _end_if_all_are_frozen(self, step: int) -> None:
        if len(self.pool.faults.frozen) == self.config.lanes:
            self._status("frozen", step)
            first = trouble.in_words(self._faults())[0]
            raise UserError(f"no seed is left to train in {self.run.path}. {first}")

    def _tell(self, line: dict[str, Any]) -> None:
        for listener in self.listeners:
            if listener(line) is False:
                self.stop_wanted = True

    def _say(self, messages: Iterable[str]) -> None:
        for message in messages:
            self.progress.message(message)


def _frozen(lanes: NDArray[np.bool_]) -> dict[str, NDArray[np.float32]]:
    """For a line of the log: 1 for lanes that stand still, whose other numbers are missing."""
    return {"frozen": lanes.astype(np.float32)} if lanes.any() else {}


def _thinned(step: int, steps: int, every: int, at_most: int) -> bool:
    """True for at most about `at_most` evenly spaced evaluations."""
    stride = max(1, -(-(steps // every) // at_most))
    return (step // every) % stride == 0
