"""The front door: `train` and `load` give a `Run` to be asked, `compare` sets runs beside each other."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

from apportion.core.spec import BLOCKS, Graph, Spec
from apportion.envs.factories import Factory, name_factory
from apportion.front.choosing import Job
from apportion.report.comparison import Compared, Metric, compare_runs, data_frame
from apportion.report.page import make_page
from apportion.runs import recording
from apportion.runs.contributions import Precision
from apportion.runs.crediting import credit_by
from apportion.runs.explaining import Selection, explain_run
from apportion.runs.folder import Episode, RunFolder, default_path
from apportion.runs.learned import check_lane, learned_rewards
from apportion.runs.listeners import Listener
from apportion.runs.logs import STORED
from apportion.runs.offline import evaluate_fit
from apportion.runs.policy import EvaluationSettings, Policy, evaluate_run, export_policy, read_policy
from apportion.runs.recording import Outcome
from apportion.runs.refuting import refute
from apportion.runs.settings import Checkpoints
from apportion.runs.summary import summarise
from apportion.training.settings import Config


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended a training early, after it was saved: `run.resume()` goes on from there."""

    def __init__(self, run: "Run", step: int, signal: int) -> None:
        super().__init__(f"stopped at step {step:,} and saved in {run.path}: load it and call resume()")
        self.run = run
        self.step = step
        self.signal = signal


class Run:
    """A run folder, read whenever it is asked: also one that is still being written.

    Lanes are counted from 0; lane i was trained with seed + i. With `best=True` a policy or reward is that of
    the lane's best evaluation, else that of the newest checkpoint.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @classmethod
    def open(cls, path: str | os.PathLike[str], env: str | Factory | None = None) -> Self:
        """An existing run folder; `env` takes the place of the environment it names."""
        env_id = env if env is None or isinstance(env, str) else name_factory(env)
        return cls(RunFolder.open(Path(path), env_id))

    @classmethod
    def ended(cls, outcome: Outcome) -> Self:
        """The run of a training that has come to its end; one that was stopped raises Stopped."""
        run = cls(outcome.run)
        if outcome.signal is not None:
            raise Stopped(run, outcome.step, outcome.signal)
        return run

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def spec(self) -> Spec:
        """Names, sizes and limits of its environment."""
        return self.folder.read_spec()

    @property
    def config(self) -> dict[str, Any]:
        """Every setting, defaults included."""
        return self.folder.read_config()

    @property
    def seeds(self) -> list[int]:
        """Of each lane."""
        config = self.config
        return [config["seed"] + lane for lane in range(config["lanes"])]

    # --- What it brought

    @property
    def steps(self) -> NDArray[np.int64]:
        """[K] when it was evaluated."""
        return np.array([entry["step"] for entry in self.folder.evaluations()], np.int64)

    @property
    def returns(self) -> NDArray[np.float64]:
        """[L, K] mean return of each lane at each evaluation."""
        found = [entry["return"] for entry in self.folder.evaluations()]
        return np.array(found, np.float64).reshape(-1, len(self.seeds)).T

    @property
    def graph(self) -> Graph | None:
        """Edge probabilities, the mean over lanes; None for methods without a graph."""
        return self._graph(slice(None))

    def lane_graph(self, lane: int) -> Graph | None:
        """Edge probabilities as one lane found them."""
        check_lane(lane, len(self.seeds), self.folder)
        return self._graph(slice(lane, lane + 1))

    def metrics(self) -> list[dict[str, Any]]:
        """All that was logged, as records for a data frame: one for each step, kind and lane; NaN for what
        was no number."""
        records, seeds = [], self.seeds
        for entry in self.folder.read_metrics():
            values = {name: value for name, value in entry.items() if name not in ("step", "kind", STORED)}
            for lane, seed in enumerate(seeds):
                whose = {"step": entry["step"], "kind": entry["kind"], "lane": lane, "seed": seed}
                own = {name: x[lane] if isinstance(x, list) else x for name, x in values.items()}
                records.append(whose | {name: float("nan") if x is None else x for name, x in own.items()})
        return records

    def frame(self) -> Any:
        """The same as a pandas.DataFrame; pandas is loaded when this is asked for."""
        return data_frame(self.metrics())

    def episodes(self) -> list[list[Episode]]:
        """By lane, the evaluation episodes stored last, with the reward `redistributed` to each step. Actions
        are as learners know them: in [-1, 1] or one-hot."""
        stored = self.folder.episode_steps()
        return self.folder.read_episodes(stored[-1]) if stored else [[] for _ in self.seeds]

    def summary(self) -> dict[str, Any]:
        """What `apportion show --json` prints."""
        return summarise(self.folder)

    # --- What it learned

    def policy(self, lane: int = 0, best: bool = False) -> Policy:
        """A function: one observation in the environment's own units in, an action in its own range out."""
        return read_policy(self.folder, lane, best)

    @overload
    def reward(
        self, observations: Any, actions: Any, lane: int = 0, best: bool = False, *, interval: None = None
    ) -> NDArray[np.float32]: ...

    @overload
    def reward(
        self, observations: Any, actions: Any, lane: int = 0, best: bool = False, *, interval: float
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]: ...

    def reward(
        self,
        observations: Any,
        actions: Any,
        lane: int = 0,
        best: bool = False,
        *,
        interval: float | None = None,
    ) -> Any:
        """[T] the learned reward of each step, of actions [T, A] in the environment's own range (numbers [T]
        where they are discrete) and observations [T, S], or [T+1, S] with the one after the last step.

        With an `interval`, such as 0.9, also the ends between which a step's reward lies with that
        probability: (reward, low, high). Runs of `apportion fit` know them."""
        rewards, low, high = learned_rewards(self.folder, observations, actions, lane, best, interval)
        return rewards if interval is None else (rewards, low, high)

    def evaluate(
        self,
        episodes: int = 10,
        *,
        seed: int = 10_000,
        noise: float = 0.0,
        noise_dims: Sequence[str] = (),
        best: bool = False,
    ) -> dict[str, Any]:
        """Scores of every lane over fresh episodes: what `apportion eval --json` prints."""
        playing = EvaluationSettings(episodes, seed, noise, tuple(noise_dims))
        return evaluate_run(self.folder, playing, best)[0]

    def evaluate_offline(
        self,
        data: str | os.PathLike[str] | None = None,
        policy: str | os.PathLike[str] | None = None,
        play: int = 0,
    ) -> dict[str, Any]:
        """What its policy, or an exported one, is worth by logged episodes, by default its own: what
        `apportion evaluate-offline --json` prints."""
        log = None if data is None else os.fspath(data)
        return evaluate_fit(self.folder, log, None if policy is None else Path(policy), play)

    def explain(
        self,
        *,
        episode: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        lanes: Sequence[int] = (),
        steps: Sequence[int] = (),
        best: bool = False,
        precision: Precision | None = None,
        embed: str | None = None,
    ) -> dict[str, Any]:
        """Who earned the learned reward: what `apportion explain --out` writes. By default of the episodes
        that training stored last; else of a file's (`episode`), or of a fresh one from a seed."""
        file = None if episode is None else Path(episode)
        selection = Selection(file, seed, tuple(lanes), tuple(steps), embed)
        return explain_run(self.folder, selection, precision or Precision(), best)

    def credit(
        self, by: str, data: str | os.PathLike[str] | None = None, embed: str | None = None
    ) -> list[dict[str, Any]]:
        """What all steps with the same value of a column earned together, the largest first, with intervals
        and what simple rules say: the table of `apportion credit`. Of the data that it was fitted to, or of
        others."""
        return credit_by(self.folder, None if data is None else os.fspath(data), by, embed=embed)["kinds"]

    def refute(
        self, data: str | os.PathLike[str] | None = None, draws: int = 5, embed: str | None = None
    ) -> dict[str, Any]:
        """What stays of the credit where outcomes are shuffled, a random column is added, or half of the
        episodes are left out, as `apportion refute --json` has it."""
        return refute(self.folder, None if data is None else os.fspath(data), draws, embed=embed)

    # --- What it leaves

    def export(self, path: str | os.PathLike[str], lane: int = 0, best: bool = False) -> Path:
        """Write a policy into one file (.npz) that NumPy alone can run."""
        export_policy(self.policy(lane, best), Path(path))
        return Path(path)

    def report(
        self, path: str | os.PathLike[str] | None = None, extras: Literal["auto", "all", "none"] = "auto"
    ) -> Path:
        """Make the HTML page about this run, by default as report.html in its folder."""
        return make_page([self.folder], None if path is None else Path(path), extras=extras).path

    def resume(
        self, steps: int | None = None, quiet: bool = False, callback: Listener | None = None
    ) -> "Run":
        """Go on from the newest checkpoint as if it had never stopped, up to `steps` if given.

        `callback` is that of `apportion.train`."""
        listeners = () if callback is None else (callback,)
        return Run.ended(recording.resume(self.folder, quiet, steps, listeners))

    def _graph(self, lanes: slice) -> Graph | None:
        edges = self.folder.read_last_edges()
        if not all(name in edges for name in BLOCKS):
            return None
        return Graph(**{name: edges[name][lanes].mean(axis=0) for name in BLOCKS})


# --- Trainings


def train(
    env: str | Factory,
    method: str = "grd",
    *,
    backbone: str | None = None,
    steps: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    preset: Literal["default", "paper"] = "default",
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
    callback: Listener | None = None,
) -> Run:
    """Train on an environment, into a run folder.

    `env` is a Gymnasium id, module:id, or a function without arguments that makes a new environment.
    `settings` are flags of `apportion train` by name: {"method.hidden": (64, 64), "warmup_steps": 2_000}.
    `callback` is called with each line of metrics.jsonl as it is written; when it returns False, the training
    is saved and ends there. Ctrl-C saves, and raises `Stopped`.
    """
    env_id = env if isinstance(env, str) else name_factory(env)
    job = Job("", env_id, method, backbone, seeds, seed, steps, preset, settings or {})
    config, checkpoints = job.chosen()
    folder = default_path(config.env.id, config.method) if out is None else Path(out)
    return start(config, checkpoints, folder, quiet, () if callback is None else (callback,))


def start(
    config: Config, checkpoints: Checkpoints, out: Path, quiet: bool, listeners: Sequence[Listener] = ()
) -> Run:
    """Train with settings that are ready."""
    # Absolute, for an environment may go to another folder.
    return Run.ended(recording.train(config, checkpoints, out.absolute(), quiet, listeners))


def load(run: str | os.PathLike[str], env: str | Factory | None = None) -> Run:
    """A run that was trained before. `env` takes the place of its environment: needed where that came from a
    function of a script, and useful where its module has another name now."""
    return Run.open(run, env)


# --- Runs beside each other


def compare(
    *runs: str | os.PathLike[str],
    metric: Metric = "return",
    at: int | None = None,
    random: Mapping[str, float] | None = None,
) -> Compared:
    """Compare runs: each a run folder, or a folder that holds some, as a sweep leaves it.

    They are compared `at` a step, by default the last that all runs of a task have. `random` is what random
    actions earn, by task; where it is needed and not given, a few episodes are played.
    """
    given = None if random is None else dict(random)
    return compare_runs([Path(run) for run in runs], metric, at, given)
