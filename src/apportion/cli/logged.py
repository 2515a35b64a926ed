"""Verbs for logged episodes: identify, fit, relabel, credit and refute."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from apportion.cli import display
from apportion.cli.arguments import READ, flag_value, naming_settings, parse, usage_errors
from apportion.cli.display import FitRun, Flag, Output, RunPath, ToFile, bar, print_data
from apportion.core.config import check
from apportion.data.columns import Columns
from apportion.data.reading import Read, read_log
from apportion.envs.make import EnvConfig
from apportion.front.logs import relabel, start_fit
from apportion.report.comparison import write_table
from apportion.report.figures import check_plot, plot_kinds
from apportion.runs.contributions import Precision
from apportion.runs.crediting import credit_by
from apportion.runs.folder import RunFolder
from apportion.runs.identifying import identify_log
from apportion.runs.learned import read_learned
from apportion.runs.offline import evaluate_fit
from apportion.runs.refuting import refute
from apportion.runs.summary import fit_warnings
from apportion.training.offline import Fitting
from apportion.training.presets import logged
from apportion.training.settings import NO_POLICY, Config

Embed = Annotated[
    str | None,
    tyro.conf.arg(help="The embedder of the fit once more, where that was a module:function."),
]
Data = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]


@dataclass(frozen=True)
class Identify:
    """Find which dimensions feed the reward, and each other, in logged episodes."""

    data: Data
    """A table (.csv, .parquet) with a row for each step; JSON Lines (.jsonl) with a line for each
    episode, an object with a list of steps; arrays (.npz) observations [E, T+1, S], actions
    [E, T, A], lengths [E], totals [E]; if you like terminated [E] (whether an episode ended by itself),
    observation_names [S], action_names [A]; a file of d3rlpy (.h5); or the id of a Minari data set."""
    columns: tyro.conf.OmitArgPrefixes[Columns] = field(default_factory=Columns)
    negligible: float = 0.01
    """Share of the totals' variance; a dimension worth less counts as absent."""
    why: str = ""
    """A dimension by its name: say why it is called present, absent or undecided."""
    out: ToFile = None
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __post_init__(self) -> None:
        check(0 < self.negligible < 1, f"--negligible {self.negligible} must be between 0 and 1")

    def __call__(self) -> int:
        log = _read(self.data, self.columns, self.output).log
        names = (*log.observation_names, *log.action_names)
        if self.why:
            check(self.why in names, f"--why: {self.why!r} is none of {', '.join(map(repr, names))}")
        data = {"file": self.data, **identify_log(log, self.negligible), "why": self.why}
        print_data(data, self.output, display.reason if self.why else display.identification, self.out)
        return 0


def _read(data: str, columns: Columns, output: Output) -> Read:
    with bar("Reading", output) as tell:
        return READ.pop((data, columns), None) or read_log(data, columns, tell)


def fit(argv: list[str]) -> int:
    """Learn from logged episodes who earned their outcomes."""
    with usage_errors():
        config = logged("", flag_value(argv, "--method", "grd"), flag_value(argv, "--backbone", NO_POLICY))
        chosen = {"method": (config.method, config.method_config)}
        if config.has_policy:
            chosen["backbone"] = (config.backbone, config.backbone_config)
        with naming_settings(argv, **chosen):
            args = parse(_fit_flags(config), argv, "apportion fit")
        config = replace(
            config,
            env=EnvConfig(args.data),
            method_config=args.method_config,
            backbone_config=args.backbone_config if config.has_policy else None,
            seed=args.seed,
            lanes=args.seeds,
        )
    read = _read(args.data, args.columns, args.output)
    run = start_fit(config, args.fitting, read, args.out, args.output.quiet)
    print_data(run.summary(), args.output, display.summary)
    return 0


@dataclass(frozen=True)
class _NoPolicy:
    """Settings that nobody has."""


def _fit_flags(config: Config) -> Any:
    """The flags of `fit`; tyro takes the types of the two configs from their values."""
    of_backbone = config.backbone_config if config.has_policy else _NoPolicy()

    @dataclass(frozen=True)
    class Fit:
        """Learn from logged episodes which steps earned their outcomes, into a run folder. No simulator."""

        data: Data
        """A table (.csv, .parquet) with a row for each step, JSON Lines (.jsonl) with a line for each
        episode, arrays (.npz), a file of d3rlpy (.h5), or the id of a Minari data set."""
        columns: tyro.conf.OmitArgPrefixes[Columns] = field(default_factory=Columns)
        out: Path | None = None
        """Run folder to write; runs/DATA-METHOD-TIME when not given."""
        method: str = config.method
        """How reward is given to steps: see `apportion list methods`."""
        backbone: str = config.backbone
        """How a policy learns from the same log, by these rewards: iql, rebrac or bc; none when not given."""
        seeds: int = config.lanes
        """How many seeds to fit at once, each in its own lane."""
        seed: int = config.seed
        """The first seed; lanes have seed, seed+1, ... It also decides which episodes are held out."""
        fitting: tyro.conf.OmitArgPrefixes[Fitting] = field(default_factory=Fitting)
        output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)
        method_config: Annotated[Any, tyro.conf.arg(name="method")] = config.method_config
        backbone_config: Annotated[Any, tyro.conf.arg(name="backbone")] = of_backbone

    return Fit


@dataclass(frozen=True)
class EvaluateOffline:
    """Say what a policy would earn, by logged episodes alone: fitted Q evaluation with an interval,
    weighted importance sampling where enough episodes are like it, and how much of what it does was never
    tried."""

    run: RunPath
    """A run folder that `apportion fit` wrote; with --backbone it has a policy."""
    data: str | None = None
    """Logged episodes with the columns of those that it was fitted to; the same ones when not given."""
    policy: Path | None = None
    """Another policy, that `apportion export` wrote, instead of the run's own."""
    play: int = 0
    """Also play so many fresh episodes in the environment that a Minari data set names."""
    out: ToFile = None
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __call__(self) -> int:
        data = evaluate_fit(RunFolder.open(self.run), self.data, self.policy, self.play)
        print_data(data, self.output, display.worth, self.out)
        return 0


@dataclass(frozen=True)
class Relabel:
    """Write logged episodes again with a column `reward`, what each step earned, by what a run has
    learned, and `reward_low` and `reward_high`, between which it is in 90% of cases. Row for row, and all
    other columns as they are."""

    run: FitRun
    data: Data
    """Logged episodes, as for `apportion fit`: the same, or others with the same columns."""
    out: str | None = None
    """File to write, in the format of DATA. For a Minari data set a new id, such as NAME-METHOD-v0, which
    it is when not given."""
    credit: Flag = False
    """Also write what each dimension has earned: Shapley values, which add up to the reward."""
    decided: Flag = False
    """With --credit: only of dimensions of which the log can tell whether they matter. What others earn goes
    to the baseline."""
    exact: Flag = False
    """Make the rewards of each episode sum up to its outcome: what is missing is spread evenly. Without
    it a level that all outcomes have in common is nobody's."""
    precision: tyro.conf.OmitArgPrefixes[Precision] = field(default_factory=Precision)
    embed: Embed = None
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __call__(self) -> int:
        with bar("Relabelling", self.output) as tell:
            written = relabel(
                self.run,
                self.data,
                self.out,
                credit=self.credit,
                decided=self.decided,
                exact=self.exact,
                precision=self.precision,
                embed=self.embed,
                tell=tell,
            )
        run = RunFolder.open(self.run)
        notes = [*fit_warnings(run), *read_learned(run).left_out()]
        data = {"run": str(self.run), "data": self.data, "written": written, "notes": notes}
        print_data(data, self.output, lambda console, _: console.print(f"Wrote {written}", soft_wrap=True))
        return 0


@dataclass(frozen=True)
class Credit:
    """Say what all steps with the same value of a column earned together, in the unit of outcomes, with
    90% intervals; beside it what rules say: first step, last step, all alike, the later the more, and, of
    yes and no, what a chain of kinds loses without one."""

    run: FitRun
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """Logged episodes, as for `apportion fit`; those that the run was fitted to when not given."""
    by: str = ""
    """The column whose values are kinds of steps, such as channel or tool."""
    csv: Path | None = None
    """Also write the table to this file."""
    plot: Path | None = None
    """Also draw it, into this file: .svg, .png, .pdf or .html."""
    embed: Embed = None
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __post_init__(self) -> None:
        check(bool(self.by), "which column? Give --by, such as --by channel")
        if self.plot is not None:
            check_plot(self.plot)

    def __call__(self) -> int:
        with bar("Dividing", self.output) as tell:
            found = credit_by(RunFolder.open(self.run), self.data, self.by, tell, self.embed)
        if self.csv is not None:
            write_table(self.csv, found["kinds"])
        if self.plot is not None:
            plot_kinds(found, self.plot)
        print_data(found, self.output, display.kinds)
        return 0


@dataclass(frozen=True)
class Refute:
    """Try to refute the credit that a run gives: the posterior is fitted again with outcomes shuffled among
    episodes, with a random column, and with half of the episodes left out."""

    run: FitRun
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """Logged episodes, as for `apportion fit`; those that the run was fitted to when not given."""
    draws: int = 5
    """How often each is done."""
    embed: Embed = None
    out: ToFile = None
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)

    def __post_init__(self) -> None:
        check(self.draws >= 1, f"--draws {self.draws} must be at least 1")

    def __call__(self) -> int:
        with bar("Fitting again", self.output) as tell:
            found = refute(RunFolder.open(self.run), self.data, self.draws, tell, self.embed)
        print_data(found, self.output, display.refutation, self.out)
        return 0
