"""Training into a run folder: what the loop yields is logged and checkpointed, and can be resumed."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from apportion.core.children import StopRequest
from apportion.core.config import UserError, check
from apportion.core.types import Metrics
from apportion.envs.factories import only_here
from apportion.envs.supervisor import Pool
from apportion.runs import checkpoint, progress
from apportion.runs.atomic import write_json
from apportion.runs.folder import RunFolder, notes, on_age
from apportion.runs.listeners import Events, Listener
from apportion.runs.logs import STORED, MetricsLog
from apportion.runs.progress import Progress, Watch, over_some
from apportion.runs.settings import Checkpoints, as_data, changes, read_settings
from apportion.runs.summary import faults_in_words
from apportion.training import devices, loop
from apportion.training.conformance import check_own
from apportion.training.evaluate import Report
from apportion.training.loop import Saved, Snapshot
from apportion.training.settings import Config, Schedule

Write = Callable[[], None]

TRAIN_LINES = 2_000  # lines of training metrics in a whole run, at the most,
EDGE_SNAPSHOTS = 100  # and of these, which are larger;
EPISODE_SNAPSHOTS = 20  # each of two episodes of a lane

_HARD = (
    "SAC learns little here from standardised observations, whoever gives the rewards: --backbone crossq "
    "learns it on a GPU, and --no-normalise helps"
)
_ONLY_HERE = (
    "Only this process knows the environment's function: it runs here, without workers, and whoever resumes "
    "or evaluates the run later must give it again: apportion.load(run, env=...)"
)


class Outcome(NamedTuple):
    """How a training ended."""

    run: RunFolder
    step: int
    signal: int | None  # the signal that stopped it early


def train(
    config: Config, checkpoints: Checkpoints, out: Path, quiet: bool, listeners: Sequence[Listener] = ()
) -> Outcome:
    """Train from the start into a new run folder."""
    with loop.open_pool(config) as pool:
        config.check_actions(pool.spec)  # what cannot work: complain before there is a folder
        check_own(config, pool.spec)
        loop.check_room(config, pool.spec)
        run = RunFolder.create(out, as_data(config, checkpoints), pool.spec)
        with run.lock():
            return _Training(run, config, checkpoints, quiet, listeners, pool).record(None)


def resume(
    run: RunFolder, quiet: bool, steps: int | None = None, listeners: Sequence[Listener] = ()
) -> Outcome:
    """Continue a run from its newest checkpoint, exactly as if it had never stopped."""
    check(steps is None or steps >= 1, f"--steps {steps} must be at least 1")
    config, checkpoints = read_settings(run)
    with run.lock():
        spec = run.read_spec()
        edited = changes(run, checkpoint.trained_settings(run.checkpoints), as_data(config, checkpoints))
        found = checkpoint.read_training(run.checkpoints, config, spec)
        if steps is not None:
            config = replace(config, schedule=replace(config.schedule, steps=steps))
        behind = config.schedule.iterations < found.saved.iteration
        wanted = f"--steps {steps}" if steps is not None else f"steps={config.schedule.steps} in {run.config}"
        check(not behind, f"{wanted} is behind the run, which is at step {found.step}: raise it")
        why = faults_in_words(run.read_status().get("faults", []))
        stuck = f"every seed of {run.path} is frozen{f': {why[0]}' if why else '.'} Start a new run"
        check(len(found.saved.faults["frozen"]) < config.lanes, stuck)
        with loop.open_pool(config, found.saved.faults) as pool:
            spec.check_same(pool.spec)
            training = _Training(run, config, checkpoints, quiet, listeners, pool)
            training.notes = [*found.skipped, *edited]
            pool.put_back(found.saved.where)
            training.go_back_to(found)
            return training.record(found.saved)


class Recorder:
    """Writes what a run yields, one after the other, and tells listeners each line once it is written.

    While there is no room, what is to be written waits, and the run goes on. What a listener raises is its
    own: an OSError (no connection, say) is not taken for want of room, nor the line written again.
    """

    def __init__(self, run: RunFolder, listeners: Sequence[Listener], say: Callable[[str], None]) -> None:
        self.run = run
        self.log = MetricsLog(run.metrics)
        self.listeners = list(listeners)
        self.faults: Callable[[], list[dict[str, Any]]] = list  # of lanes so far
        self.began = time.monotonic()
        self.problem: str | None = None  # why something waits
        self.wants_stop = False
        self._say = say
        self._waiting: deque[Callable[[], dict[str, Any] | None]] = deque()

    @property
    def seconds(self) -> float:
        """Since the run began, pauses left out."""
        return time.monotonic() - self.began

    def train_line(self, step: int, values: Mapping[str, Any]) -> None:
        """One line on the training."""
        self._waiting.append(partial(self.log.write, step, "train", values))
        self.retry()

    def eval_line(self, step: int, values: Mapping[str, Any], files: Mapping[str, Write]) -> None:
        """Files, and then the line that names them: so these are there, or were damaged."""
        line = {**values, "seconds": self.seconds, STORED: list(files)}
        self._waiting.extend([*files.values(), partial(self.log.write, step, "eval", line)])
        self.retry()

    def status(self, state: str, step: int) -> None:
        """How far the run is."""
        self._waiting.append(partial(self.write_status, state, step))
        self.retry()

    def write_status(self, state: str, step: int) -> None:
        status = {"state": state, "step": step, "seconds": round(self.seconds, 1), "lines": self.log.lines}
        faults = self.faults()
        write_json(self.run.status, {**status, "faults": faults} if faults else status)

    def retry(self) -> None:
        """Do what waits. The first failure is said, and the success after it."""
        waited, written = self.problem is not None, []
        self.problem = None
        while self._waiting and self.problem is None:
            try:
                written.append(self._waiting[0]())
                self._waiting.popleft()
            except OSError as error:
                self.problem = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        if self.problem is not None and not waited:
            self._say(f"{self.problem}: training goes on, what it logs waits for room")
        if self.problem is None and waited:
            self._say("there is room again: what waited has been written")
        for line in (each for each in written if each is not None):
            answers = [listener(line) for listener in self.listeners]
            self.wants_stop |= False in answers


@dataclass(eq=False)
class _Training:
    """Writes what a training yields into its run folder."""

    run: RunFolder
    config: Config
    checkpoints: Checkpoints
    quiet: bool
    listeners: Sequence[Listener]
    pool: Pool

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.run, self.listeners, lambda line: self._say([line]))
        self.recorder.faults = self._faults
        self.notes: list[str] = []
        self.watch = Watch(self.config.seeds, self.config.normalise)
        self.best: checkpoint.Best | None = None
        # A step, its metrics [L] that are still being computed, and which lanes stand still: not written yet.
        self.to_come: tuple[int, Metrics, Callable[[], NDArray[np.bool_]]] | None = None

    def go_back_to(self, found: checkpoint.Read) -> None:
        """Make the folder what it was at a checkpoint, and note what had been damaged since."""
        run, step = self.run, found.step
        self.recorder.began = time.monotonic() - found.seconds
        self.notes += [] if found.skipped else on_age(run, step)
        write_json(run.config, as_data(self.config, self.checkpoints))  # with what has changed, if anything
        self.notes += checkpoint.set_aside(run.checkpoints, step)
        checkpoint.prune(run.checkpoints, self.checkpoints.keep)  # if it was killed before it did
        self.notes += self.recorder.log.restore(found.log, step)
        run.truncate_after(step)
        self.best = found.best
        self.recorder.write_status("running", step)
        self.notes += notes(run)
        self.watch.remember(run.read_metrics())

    def record(self, saved: Saved | None) -> Outcome:
        """Run the loop to its end, or until a signal asks for a stop."""
        schedule = self.config.schedule
        first = 0 if saved is None else saved.iteration * schedule.steps_per_iteration
        self.saved_at = time.monotonic()
        total = schedule.iterations * schedule.steps_per_iteration
        with (
            StopRequest(self.pool.hurry, self.pool.kill) as stop,
            Progress(total, self.config.lanes, self.quiet, first) as self.progress,
            loop.full_memory_explained(self.config, self.pool.spec, self._what_is_saved),
        ):
            self.recorder.listeners += [Events(self.run.tensorboard, None if saved is None else first)]
            idle = devices.advice(self.config.lanes)
            here = [_ONLY_HERE] if only_here(self.config.env.id) else []
            here += [_HARD] if hard_for_sac(self.config) else []
            start = f"Writing to {self.run.path}. The first updates compile, which takes a while."
            before = [*self.notes, *faults_in_words(self._faults())]
            self._say([*before, *([idle] if idle else []), *here, start])
            self.progress.frozen(len(self.pool.faults.frozen))
            step = first
            self.recorder.status("running", step)
            for snapshot in loop.online(self.config, self.pool, saved):
                step = snapshot.step
                self._write(snapshot)
                last = snapshot.iteration + 1 == schedule.iterations
                ends = last or stop.requested or self.recorder.wants_stop or bool(snapshot.frozen.all())
                if ends or self._checkpoint_due(step):
                    self._checkpoint(snapshot, must_succeed=ends)
                if ends:
                    break
            self._tell_faults()
            stuck = len(self.pool.faults.frozen) == self.config.lanes
            self.recorder.status("frozen" if stuck else "finished" if step >= total else "stopped", step)
            problem, fix = self.recorder.problem, f"make room, then `apportion resume {self.run.path}`"
            check(problem is None, f"{problem} after the last checkpoint: {fix}")
        if stuck:
            why = faults_in_words(self._faults())[0]
            raise UserError(f"no seed is left to train in {self.run.path}. {why}")
        return Outcome(self.run, step, stop.signal if step < total else None)

    def _write(self, snapshot: Snapshot) -> None:
        self._write_metrics()  # of an earlier iteration: by now they are there
        if snapshot.metrics and snapshot.iteration % -(-self.config.schedule.iterations // TRAIN_LINES) == 0:
            sound, frozen = snapshot.sound, snapshot.frozen
            self.to_come = snapshot.step, snapshot.metrics, lambda: frozen | ~np.asarray(sound)
        self._tell_faults()
        self.progress.update(snapshot.step)
        for report in snapshot.reports:
            self._write_report(report)
        if snapshot.reports:
            self.recorder.status("running", snapshot.step)

    def _write_metrics(self) -> None:
        """The numbers of the last iteration that has a line. To read them is to wait for the device."""
        if self.to_come is None:
            return
        (step, values, still), self.to_come = self.to_come, None
        metrics: dict[str, NDArray[np.float32]] = jax.device_get(values)
        metrics |= _frozen(still())
        self.recorder.train_line(step, metrics)
        self._say(self.watch.look(step, metrics))
        shown = ("reward_loss", "critic_loss")
        self.progress.metrics({k: over_some(v) for k, v in metrics.items() if k in shown})

    def _write_report(self, report: Report) -> None:
        step, evaluation = report.step, report.evaluation
        self.best = checkpoint.better(self.best, report)
        scores: dict[str, Any] = {
            **evaluation.scores,
            "policy_mask_on": report.beliefs["policy_mask"].mean(axis=1),
            **_frozen(report.frozen),
            "step_rewards": evaluation.step_rewards,
        }
        self.recorder.eval_line(step, scores, self._snapshots(report))
        quality = (evaluation.reward_correlation, evaluation.return_error, evaluation.success)
        self.progress.evaluation(evaluation.returns.tolist(), *(values.tolist() for values in quality))

    def _snapshots(self, report: Report) -> dict[str, Write]:
        """Which files an evaluation gets, and how they are written."""
        step, schedule = report.step, self.config.schedule
        last = step >= schedule.iterations * schedule.steps_per_iteration
        files: dict[str, Write] = {}
        if last or _thinned(step, schedule, EDGE_SNAPSHOTS):
            files[self.run.edges.name] = partial(self.run.write_edges, step, report.beliefs)
        if last or _thinned(step, schedule, EPISODE_SNAPSHOTS):
            kept = [lane[:2] for lane in report.evaluation.episodes]
            files[self.run.episodes.name] = partial(self.run.write_episodes, step, kept)
        return files

    def _checkpoint_due(self, step: int) -> bool:
        every = self.checkpoints.checkpoint_every
        iteration = self.config.schedule.steps_per_iteration
        by_steps = every is not None and step // every > (step - iteration) // every
        return by_steps or time.monotonic() - self.saved_at > 60 * self.checkpoints.checkpoint_minutes

    def _checkpoint(self, snapshot: Snapshot, must_succeed: bool) -> None:
        self._write_metrics()
        for report in snapshot.settle():
            self._write_report(report)
        self.recorder.retry()
        reason, saved = self.recorder.problem, as_data(self.config, self.checkpoints)
        keep, place = self.checkpoints.keep, self.run.checkpoints
        try:
            if reason is None:
                seconds, log, state = self.recorder.seconds, self.recorder.log.content(), snapshot.save()
                checkpoint.write_training(place, snapshot.step, state, self.best, seconds, keep, saved, log)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason is not None:
            # The earlier checkpoints are untouched: a run that goes on may still find room later.
            line = f"no checkpoint at step {snapshot.step}: {reason}"
            check(not must_succeed, f"{line}; make room, then `apportion resume {self.run.path}`")
            self._say([line])
        self.saved_at = time.monotonic()

    def _what_is_saved(self) -> str:
        """For those whose training has ended in the middle."""
        steps = checkpoint.steps(self.run.checkpoints)
        if not steps:
            return "Nothing is saved yet"
        return f"`apportion resume {self.run.path}` goes on from step {steps[-1]:,}"

    def _faults(self) -> list[dict[str, Any]]:
        steps = self.config.schedule.steps_per_iteration
        return progress.fault_facts(self.pool.faults, self.config.seeds, steps)

    def _tell_faults(self) -> None:
        faults, schedule = self.pool.faults, self.config.schedule
        news = faults.news()
        if news:
            seeds, limit = self.config.seeds, self.config.env.restarts
            self._say(progress.fault_warnings(news, limit, seeds, schedule.steps_per_iteration))
            self.progress.frozen(len(faults.frozen))

    def _say(self, messages: Iterable[str]) -> None:
        for message in messages:
            self.progress.message(message)


def _frozen(lanes: NDArray[np.bool_]) -> dict[str, NDArray[np.float32]]:
    """For a line of the log: 1 for lanes that stand still, whose other numbers are missing."""
    return {"frozen": lanes.astype(np.float32)} if lanes.any() else {}


def _thinned(step: int, schedule: Schedule, at_most: int) -> bool:
    """True for at most about `at_most` evenly spaced evaluations."""
    stride = max(1, -(-(schedule.steps // schedule.evaluate_every) // at_most))
    return (step // schedule.evaluate_every) % stride == 0


def hard_for_sac(config: Config) -> bool:
    """Whether it is the task that SAC was found not to learn as it is set up (docs/studies.md)."""
    return config.env.id.startswith("Humanoid-") and config.backbone == "sac" and config.normalise
