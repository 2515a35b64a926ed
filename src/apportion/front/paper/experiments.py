"""What the paper ran and what it prints, as data. Sections, tables and figures have its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from apportion.envs.mujoco import TASKS

Kind = Literal["scores", "swimmer", "robustness", "structure", "rewards"]


@dataclass(frozen=True)
class Variant:
    """What was trained, under the name that the paper gives it."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    backbone: str | None = None
    published_only: bool = False  # a setting that only the published form has


class Printed(NamedTuple):
    """A number that the paper prints."""

    task: str
    variant: str
    step: int
    text: str
    where: str


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper."""

    name: str
    title: str
    source: str
    kind: Kind
    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]
    steps: int  # that the paper trained for
    metric: Literal["return", "success"] = "return"
    printed: tuple[Printed, ...] = ()
    differs: tuple[str, ...] = ()
    differs_ours: tuple[str, ...] = ()  # beside these, where our settings are run
    smoke_tasks: int = 1  # the first so many of them
    smoke_variants: int = 2  # the same


SEEDS = 5
BUDGET = 3_000_000  # Appendix C.5: 3 epochs of 100 cycles of 100 iterations of 100 steps

GRD = Variant("GRD", "grd")
WITHOUT_COMPACT = Variant("GRD w/o CR", "grd", {"method.compact": "none"})
RRD = Variant("RRD (biased)", "rrd")
UNBIASED = Variant("RRD (unbiased)", "rrd-unbiased")
IRCR = Variant("IRCR", "ircr")
NONE = Variant("None", "observed")
COMPARED = (GRD, WITHOUT_COMPACT, RRD, UNBIASED, IRCR)
BEST_RIVAL = "best baseline"

_V4 = "Environments are v4 on current MuJoCo; the paper's are v2 on its old bindings."
_CRITIC = "The critic's discount is 0.99 and its Polyak step 0.005; the paper prints 1.00 and 0.0005."
_CURVES = "The paper smooths its curves and shades the standard deviation; ours are plain, with 95% bands."
_READ_OFF = "Only numbers in the paper's text are set beside ours; nothing was read off its figures."
_OURS = (
    "With our settings, GRD finds edges by regression, without λ1 to λ5, and observations are normalised "
    "for all methods."
)
_CROSSQ = "With our settings, Swimmer is trained by CrossQ with a discount of 0.999, not by SAC with 0.99."

# Table 1: mean, standard deviation and share of s→r edges that are on, for each λ1 at these steps.
TABLE_1_STEPS = (100_000, 200_000, 300_000, 500_000, 800_000, 1_000_000)
TABLE_1 = {
    "0": ("87 41 .77", "153 43 .80", "151 32 .80", "131 55 .80", "170 36 .77", "159 25 .78"),
    "3e-6": ("182 103 .72", "201 109 .71", "217 108 .72", "217 100 .68", "229 95 .52", "220 102 .50"),
    "5e-6": ("130 103 .56", "245 104 .69", "261 100 .74", "286 77 .77", "272 78 .75", "262 94 .66"),
    "5e-5": ("118 100 .46", "109 107 .41", "123 103 .34", "141 96 .25", "152 93 .19", "158 90 .17"),
}
SWIMMER_SPARSITY = (1e-9, 1e-9, 0.0, 1e-9)  # λ2 to λ5, Table 3

NOISE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
DEAD = tuple(range(27, 111))  # of Ant's 111 dimensions; the paper counts from one, and says 28 to 111
STRUCTURE_MOMENTS = (10_000, 500_000, 1_000_000)


def _lambda(value: str) -> Variant:
    settings = {"method.sparsity": (float(value), *SWIMMER_SPARSITY)}
    return Variant(f"λ1 = {value}", "grd", settings, published_only=True)


def _spread(cell: str) -> str:
    mean, std, on = cell.split()
    return f"{mean} ± {std} (0{on})"


def _with(backbone: str, variant: Variant) -> Variant:
    return Variant(variant.name, variant.method, variant.settings, backbone)


_ALL = (
    Experiment(
        name="main",
        title="Learning curves on eight MuJoCo tasks",
        source="Figure 3 and Section 6.2",
        kind="scores",
        tasks=tuple(TASKS),
        variants=COMPARED,
        steps=BUDGET,
        printed=(
            Printed("HalfCheetah-v4", "GRD", BUDGET, "1.5e4", "Section 6.2"),
            Printed("HalfCheetah-v4", BEST_RIVAL, BUDGET, "1.25e4", "Section 6.2"),
            Printed("Ant-v4", "GRD", BUDGET, "6.5e3", "Section 6.2"),
            Printed("Ant-v4", BEST_RIVAL, BUDGET, "6e3", "Section 6.2"),
            Printed("HumanoidStandup-v4", "GRD", BUDGET, "2.3e5", "Section 6.2"),
        ),
        differs=(_V4, _CRITIC, _CURVES, _READ_OFF),
        differs_ours=(_OURS, _CROSSQ),
        smoke_tasks=1,
        smoke_variants=5,
    ),
    Experiment(
        name="swimmer",
        title="Return and sparsity for different λ1 in Swimmer",
        source="Table 1",
        kind="swimmer",
        tasks=("Swimmer-v4",),
        variants=tuple(_lambda(value) for value in TABLE_1),
        steps=1_000_000,
        printed=tuple(
            Printed("Swimmer-v4", f"λ1 = {value}", step, _spread(cell), "Table 1")
            for value, row in TABLE_1.items()
            for step, cell in zip(TABLE_1_STEPS, row, strict=True)
        ),
        differs=(_V4, _CRITIC),
        differs_ours=(_OURS, "Without λ1, our settings have one row instead of four.", _CROSSQ),
        smoke_variants=4,
    ),
    Experiment(
        name="robustness",
        title="Noise on the dimensions of Ant that are always zero, at evaluation",
        source="Figure 6",
        kind="robustness",
        tasks=("Ant-v4",),
        variants=COMPARED,
        steps=BUDGET,
        differs=(
            _V4,
            _CRITIC,
            "The paper prints no number here: GRD is to be unaffected by noise, and rivals are not.",
        ),
        differs_ours=(_OURS,),
    ),
    Experiment(
        name="backbones",
        title="SAC, TD3 and DDPG on HalfCheetah",
        source="Figure 5",
        kind="scores",
        tasks=("HalfCheetah-v4",),
        variants=tuple(
            _with(backbone, variant)
            for variant in (GRD, NONE, RRD, UNBIASED, IRCR)
            for backbone in ("sac", "td3", "ddpg")
        ),
        steps=BUDGET,
        differs=(
            _V4,
            _CRITIC,
            _CURVES,
            "The paper prints no number here: GRD is to be best with each of the three.",
        ),
        differs_ours=(_OURS,),
        smoke_variants=6,
    ),
    Experiment(
        name="metaworld",
        title="Success rates on three tasks of MetaWorld",
        source="Figure 9 and Appendix D.1",
        kind="scores",
        tasks=("Meta-World/door-lock-v3", "Meta-World/push-wall-v3", "Meta-World/pick-place-v3"),
        variants=(GRD, RRD),
        steps=BUDGET,
        metric="success",
        differs=(
            "MetaWorld is v3 on current MuJoCo; the paper does not say which version it had.",
            _CRITIC,
            _CURVES,
            "The paper prints neither λ1 to λ5 nor a number of steps here: ours are those of HalfCheetah.",
            "An episode succeeds when MetaWorld reports so at any of its 500 steps.",
        ),
        differs_ours=(_OURS,),
    ),
    Experiment(
        name="structure",
        title="Causal edges of Ant and Swimmer over training",
        source="Figures 4 and 11",
        kind="structure",
        tasks=("Ant-v4", "Swimmer-v4"),
        variants=(GRD,),
        steps=1_000_000,
        printed=(
            Printed("Ant-v4", "state_to_reward", 10_000, "75% off", "Section 6.4"),
            Printed("Ant-v4", "action_to_state", 10_000, "70% off", "Section 6.4"),
            Printed("Ant-v4", "state_to_state", 10_000, "98% off", "Section 6.4"),
        ),
        differs=(
            _V4,
            _CRITIC,
            "The shares of the text speak of 376 dimensions, though Ant has 111.",
            "All blocks are in one map, with all dimensions; the paper shows the first 27 and 54 of them.",
        ),
        differs_ours=(_OURS, _CROSSQ),
        smoke_tasks=2,
    ),
    Experiment(
        name="rewards",
        title="Redistributed against true rewards in Ant",
        source="Figures 7 and 10",
        kind="rewards",
        tasks=("Ant-v4",),
        variants=(GRD,),
        steps=1_000_000,
        differs=(
            _V4,
            _CRITIC,
            "The paper prints no number here: the redistributed rewards are to align with the true ones.",
        ),
        differs_ours=(_OURS,),
    ),
)

EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
