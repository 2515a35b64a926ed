"""What each verb does: read its flags, call the layers below, print."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from apportion.backbones import BACKBONES
from apportion.cli import display
from apportion.cli.arguments import flag_value, naming_settings, parse, usage_errors
from apportion.cli.display import AnyRun, Flag, NoEnv, Output, ToFile, bar, print_data
from apportion.core.config import UserError, check
from apportion.core.registry import from_folder
from apportion.core.terminal import say
from apportion.envs.make import EnvConfig, list_environments
from apportion.front.choosing import starting_point
from apportion.front.run import Run, Stopped, load, start
from apportion.methods import METHODS
from apportion.report import video
from apportion.report.figures import check_plot, plot_credit
from apportion.runs.contributions import Precision
from apportion.runs.explaining import Selection, explain_run
from apportion.runs.folder import RunFolder, default_path
from apportion.runs.listeners import Listener, WandbLog
from apportion.runs.policy import EvaluationSettings, check_export, evaluate_run, export_policy, read_policy
from apportion.runs.settings import Checkpoints, read_settings
from apportion.training.presets import default_backbone
from apportion.training.settings import Config, Schedule


@dataclass(frozen=True)
class _EnvFlags(EnvConfig):
    id: tyro.conf.Suppress[str] = ""  # given as ENV


def train(argv: list[str]) -> int:
    """Train on an environment, into a run folder."""
    with usage_errors():
        args, config = _train_settings(argv)
    if config.backbone == "dqn" and not flag_value(argv, "--backbone", "") and not args.output.quiet:
        say(f"{args.id} has discrete actions: --backbone dqn")
    out = from_folder(args.out or default_path(config.env.id, config.method, from_folder(Path("runs"))))
    with _listener(args.wandb, out, config.to_dict()) as log:
        listeners = () if log is None else (log,)
        return _ended(lambda: start(config, args.checkpoints, out, args.output.quiet, listeners), args.output)


def _train_settings(argv: list[str]) -> tuple[Any, Config]:
    """The flags, and the training they describe."""
    method, backbone = flag_value(argv, "--method", "grd"), flag_value(argv, "--backbone", "")
    # Whatever else was typed there, the parser complains of.
    origin = "paper" if flag_value(argv, "--preset", "default") == "paper" else "default"

    def flags(words: list[str], env_id: str, backbone: str) -> Any:
        config = starting_point(env_id, method, backbone, origin)
        chosen = (config.method, config.method_config), (config.backbone, config.backbone_config)
        with naming_settings(words, method=chosen[0], backbone=chosen[1]):
            return parse(_train_flags(config), words, "apportion train")

    # Parsed twice: only then the environment is known, and with it the settings that suit it.
    without_help = [word for word in argv if word not in ("-h", "--help")]
    try:
        env_id = flags(without_help, "", backbone or "sac").id
    except UserError:
        if without_help == argv:
            raise
        env_id = ""
    args = flags(argv, env_id, backbone or default_backbone(env_id, origin))
    config = Config(
        env=EnvConfig(**{**vars(args.env), "id": args.id}),
        method=args.method,
        method_config=args.method_config,
        backbone=args.backbone,
        backbone_config=args.backbone_config,
        schedule=args.schedule,
        seed=args.seed,
        lanes=args.seeds,
        normalise=args.normalise,
    )
    return args, config


def _train_flags(config: Config) -> Any:
    """The flags of `train`; tyro takes the types of the two configs from their values."""

    @dataclass(frozen=True)
    class Train:
        """Train on an environment, into a run folder."""

        id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
        """Environment: a Gymnasium id, module:id, or module:function. See `apportion list envs`."""
        out: Path | None = None
        """Run folder to write; runs/ENV-METHOD-TIME when not given."""
        preset: Literal["default", "paper"] = "default"
        """Where settings start: what serves best by our measurements, or GRD as it was published."""
        method: str = config.method
        """How reward is given to steps: see `apportion list methods`."""
        backbone: str = config.backbone
        """How the policy learns: see `apportion list backbones`."""
        seeds: int = config.lanes
        """How many seeds to train at once, each in its own lane."""
        seed: int = config.seed
        """The first seed; lanes have seed, seed+1, ..."""
        normalise: bool = config.normalise
        """Standardise observations by what was seen so far; scale rewards that are far from size one."""
        wandb: Flag = False
        """Also log to Weights & Biases: the extra `wandb`."""
        output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)
        schedule: tyro.conf.OmitArgPrefixes[Schedule] = config.schedule
        checkpoints: tyro.conf.OmitArgPrefixes[Checkpoints] = field(default_factory=Checkpoints)
        env: _EnvFlags = field(default_factory=_EnvFlags)
        method_config: Annotated[Any, tyro.conf.arg(name="method")] = config.method_config
        backbone_config: Annotated[Any, tyro.conf.arg(name="backbone")] = config.backbone_config

    return Train


@dataclass(frozen=True)
class Resume:
    """Continue a run from its newest checkpoint, as if it had never stopped."""

    run: AnyRun
    steps: int | None = None
    """Train up to so many steps instead of those the run was made for."""
    wandb: Flag = False
    """Also log to Weights & Biases: the extra `wandb`."""
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __post_init__(self) -> None:
        check(self.steps is None or self.steps >= 1, f"--steps {self.steps} must be at least 1")

    def __call__(self) -> int:
        run = load(self.run)
        with _listener(self.wandb, run.path, run.config) as callback:
            return _ended(lambda: run.resume(self.steps, self.output.quiet, callback), self.output)


@dataclass(frozen=True)
class Eval:
    """Play fresh episodes with the policies of a run, scored by the true reward."""

    run: AnyRun
    playing: tyro.conf.OmitArgPrefixes[EvaluationSettings] = field(default_factory=EvaluationSettings)
    best: Flag = False
    """Play each seed's best policy, by the return of its evaluations, instead of the newest."""
    out: ToFile = None
    video: Path | None = None
    """Also film the first episode of the best seed, with its rewards drawn under it: an .mp4 file."""
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __call__(self) -> int:
        run = RunFolder.open(self.run)
        env = read_settings(run)[0].env
        if self.video is not None:
            video.check_video(self.video, env)
        data, episodes = evaluate_run(run, self.playing, self.best)
        print_data(data, self.output, display.evaluation, self.out)
        if self.video is not None:
            video.write_video(env, video.best_lane(data["returns"], episodes)[0], from_folder(self.video))
        return 0


@dataclass(frozen=True)
class Explain:
    """Say what the agents of a run are paid for: contributions of each dimension to the learned reward,
    which add up to it at every step (Shapley values)."""

    run: AnyRun
    selection: tyro.conf.OmitArgPrefixes[Selection] = field(default_factory=Selection)
    precision: tyro.conf.OmitArgPrefixes[Precision] = field(default_factory=Precision)
    best: Flag = False
    """Explain the rewards of each seed's best evaluation, instead of the newest."""
    out: Path | None = None
    """Also write everything, step by step, as JSON, to this file."""
    plot: Path | None = None
    """Also draw it, into this file: .svg, .png, .pdf or .html."""
    no_env: NoEnv = False
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __post_init__(self) -> None:
        if self.plot is not None:
            check_plot(self.plot)

    def __call__(self) -> int:
        run = RunFolder.open(self.run, trusted=not self.no_env)
        with bar("Explaining", self.output) as tell:
            data = explain_run(run, self.selection, self.precision, self.best, tell)
        print_data(data, self.output, display.explanation, self.out)
        if self.plot is not None:
            plot_credit(data, from_folder(self.plot))
        return 0


@dataclass(frozen=True)
class Show:
    """Say in a few numbers how a run went: returns, reward correlation, edges, structure scores."""

    run: AnyRun
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __call__(self) -> int:
        print_data(load(self.run).summary(), self.output, display.summary)
        return 0


@dataclass(frozen=True)
class List:
    """List methods, backbones or environments, with a line on each."""

    what: Annotated[Literal["all", "methods", "backbones", "envs"], tyro.conf.Positional] = "all"
    """What to list."""
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __call__(self) -> int:
        listings = {
            "methods": [(name, _first_line(entry.config)) for name, entry in METHODS.items()],
            "backbones": [(name, _first_line(entry.config)) for name, entry in BACKBONES.items()],
            "envs": [
                *list_environments(),
                ("any id or module:id", "Gymnasium, with Box observations and Box or Discrete actions"),
                ("any module:function", "a function or class that makes such an environment"),
            ],
        }
        wanted = {kind: entries for kind, entries in listings.items() if self.what in ("all", kind)}

        def tables(console: Console, data: dict[str, Any]) -> None:
            for kind, entries in wanted.items():
                display.listing(console, kind, entries)

        print_data({kind: dict(entries) for kind, entries in wanted.items()}, self.output, tables)
        return 0


def _first_line(documented: type[Any]) -> str:
    return (documented.__doc__ or "").strip().splitlines()[0]


def _listener(wandb: bool, run: Path, config: dict[str, Any]) -> AbstractContextManager[Listener | None]:
    """Who else hears of the metrics."""
    return WandbLog(run, config) if wandb else nullcontext()


def _ended(training: Callable[[], Run], output: Output) -> int:
    """Train, and say where the run is; after a signal, how to go on."""
    code = 0
    try:
        run = training()
    except Stopped as stopped:
        run, code = stopped.run, 128 + stopped.signal
        line = f"Stopped at step {stopped.step:,} and saved. Continue: apportion resume {run.path}"
        say(line)
    print_data(run.summary(), output, display.summary)
    return code


@dataclass(frozen=True)
class Export:
    """Write a policy of a run into one file that NumPy alone can run, and other programs can read."""

    run: AnyRun
    out: Path
    """The file to write: .npz."""
    lane: int = 0
    """Which lane's policy, counted from 0."""
    best: Flag = False
    """The policy of the lane's best evaluation, instead of the newest."""
    no_env: NoEnv = False
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __post_init__(self) -> None:
        check_export(self.out)
        check(self.lane >= 0, f"--lane {self.lane} must not be negative")

    def __call__(self) -> int:
        policy = read_policy(RunFolder.open(self.run, trusted=not self.no_env), self.lane, self.best)
        size = export_policy(policy, self.out)
        facts = {**policy.facts, "skipped": list(policy.skipped)}
        data = {"policy": str(self.out), "bytes": size, "lane": self.lane, **facts}
        print_data(data, self.output, _line)
        return 0


def _line(console: Console, data: dict[str, Any]) -> None:
    size, whose = f"{data['bytes'] / 1e3:.0f} kB", f"the policy of seed {data['seed']}"
    console.print(Text(f"{data['policy']} ({size}): {whose} at step {data['step']:,}"))  # a path is no markup
