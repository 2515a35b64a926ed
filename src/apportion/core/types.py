"""The data that flows between layers, and the two contracts: Method and Backbone.

Letters, the same everywhere: B batch, M segments, T steps, S state, A action, L lanes.
Everything is written for one lane; the trainer vmaps it over lanes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from apportion.core.spec import Spec

State = Any  # a pytree of arrays, private to the method or backbone that made it
Findings = Any  # a pytree of arrays, what a method's look at many segments brings
Metrics = dict[str, Array]  # name → scalar


class Acted(NamedTuple):
    """What else is known of steps that lie in their order, and of which there may be fewer than places."""

    log_density: Float[Array, "*B"]  # of the action, under the policy that acted
    follows: Bool[Array, "*B"]  # whether the step in the next place is the episode's next one
    real: Bool[Array, "*B"]  # False on padding


class Transitions(NamedTuple):
    """Single steps, drawn uniformly from the steps of all closed segments."""

    observation: Float[Array, "*B S"]
    action: Float[Array, "*B A"]  # in [-1, 1]; one-hot where Spec.discrete
    next_observation: Float[Array, "*B S"]
    paid: Float[Array, "*B"]  # the delayed reward as the agent sees it
    true_reward: Float[Array, "*B"]  # hidden from learning; only the oracle and the metrics read it
    terminated: Bool[Array, "*B"]  # a true end: no bootstrap. To backbones, a time limit may be one.
    segment_total: Float[Array, "*B"]  # what the step's segment paid
    segment_length: Int[Array, "*B"]
    step_in_segment: Int[Array, "*B"]
    step_in_episode: Int[Array, "*B"]
    credit: Float[Array, "*B"]  # from Method.credit; the segment's mean reward until it has been asked
    acted: Acted | None = None  # not drawn but in order: the newest ones, for on-policy backbones
    next_action: Float[Array, "*B A"] | None = None  # what was done next, where all lies in a log


def single_steps(observation: Any, action: Any, next_observation: Any, terminated: Any) -> Transitions:
    """Steps of which nothing else is known: each a segment of its own, that paid nothing."""
    nothing: Any = np.zeros(len(action), np.float32)
    place: Any = np.zeros(len(action), np.int32)
    return Transitions(
        observation=observation,
        action=action,
        next_observation=next_observation,
        paid=nothing,
        true_reward=nothing,
        terminated=terminated,
        segment_total=nothing,
        segment_length=place + 1,
        step_in_segment=place,
        step_in_episode=place,
        credit=nothing,
    )


class Segments(NamedTuple):
    """Runs of consecutive steps whose reward sum is known, padded to the longest one (T)."""

    observations: Float[Array, "M T+1 S"]  # with the observation after the last step
    actions: Float[Array, "M T A"]
    true_rewards: Float[Array, "M T"]  # hidden from learning, as above
    length: Int[Array, "M"]
    total: Float[Array, "M"]  # what the segment paid
    mask: Bool[Array, "M T"]  # True on real steps, False on padding
    terminated: Bool[Array, "M"]  # whether its last step is a true end
    number: Int[Array, "M"]  # which segment it is, counted from the start of training
    base: Float[Array, ""] | None = None  # log odds before any step, where totals are yes (1) or no (0)


class Batch(NamedTuple):
    """What one update sees. `segments` is None for methods that ask for none."""

    segments: Segments | None
    transitions: Transitions


@dataclass(frozen=True)
class Sampling:
    """What a method wants to see at each update, beside the backbone's transitions."""

    segments: int = 0  # how many segments (M); 0 for none
    weight: Literal["uniform", "length"] = "uniform"  # how segments are chosen
    every: int = 1  # updates of the policy for one of the method, at the most
    steps: int = 0  # above 0: more segments where they are short, to see so many steps together

    def suited(self, longest: int) -> "Sampling":
        """For segments of so many steps at the longest: what a step of the policy costs stays the same."""
        if self.steps == 0:
            return self
        # Beyond eight segments, more updates teach more than larger ones.
        segments = max(self.segments, min(self.steps // longest, 8))
        every = max(1, round(self.every * segments * longest / self.steps))
        return replace(self, segments=segments, every=every, steps=0)


class Survey(NamedTuple):
    """All segments in the replay (N places), for a look over them once per iteration."""

    total: Float[Array, "N"]
    length: Int[Array, "N"]
    live: Bool[Array, "N"]  # False where there is no whole segment
    gather: Callable[[Int[Array, "K"]], Segments]  # the segments at some places


class Edges(NamedTuple):
    """Edge probabilities (or logits, or masks) of the causal graph. Rows are sources."""

    state_to_reward: Float[Array, "S"]
    action_to_reward: Float[Array, "A"]
    state_to_state: Float[Array, "S S"]
    action_to_state: Float[Array, "A S"]


class Record(NamedTuple):
    """One closed segment, on the host and without padding."""

    observations: NDArray[np.float32]  # [T+1, S]; [T, S] where a log does not have the last one
    actions: NDArray[np.float32]  # [T, A]
    total: float
    terminated: bool  # whether its last step is a true end
    number: int  # which segment it is, counted from the start of training


class Revision(NamedTuple):
    """A look at many segments at once, on the host, each time their number has grown enough. The training
    goes on meanwhile, and accepts what was found at a later iteration that is known beforehand."""

    look: Callable[[State, list[Record], int], Findings]  # with how many segments have been closed so far
    accept: Callable[[State, Findings], State]  # in JAX
    findings: Callable[[State], Findings]  # those that would change nothing: the same arrays, of a state
    first: float  # how many closed segments the first look waits for
    growth: float  # the next look comes after so many times more
    max_rows: int  # steps it can look at; of more, segments are chosen evenly over the replay
    shown: tuple[Record, ...] = ()  # segments from elsewhere, in the environment's units; numbered below 0


class GraphView(NamedTuple):
    """What a method with a causal graph says of it."""

    edges: Callable[[State], Edges]  # their probabilities
    reads: Callable[[State], Float[Array, "D"]]  # 1 for states and actions that r̂ depends on
    doubts: Callable[[State], Float[Array, "N"]] | None = None  # 1 for each graph.certificate.Doubt of edges


class EpisodeMemory(NamedTuple):
    """A method's own memory of episodes: filled by looks over the replay, and taught to the policy."""

    survey: Callable[[State, Survey], State]
    recall: Callable[[State, int, PRNGKeyArray], Transitions] | None  # so many, beside the replay's


# PopArt (van Hasselt et al., 2016): with rewards so many times as large, and so much larger, for each step.
Rescale = Callable[[State, Float[Array, ""], Float[Array, ""]], State]


class Method(NamedTuple):
    """Turns sums of reward into a reward for each step. Pure functions of an explicit state.

    Most methods need the first four only. Those that judge a step by its whole segment have `credit`: what it
    gives to the segments of an update is kept in the replay, and comes back as Transitions.credit.
    """

    init: Callable[[PRNGKeyArray, Spec], State]
    update: Callable[[State, Batch, PRNGKeyArray], tuple[State, Metrics]]
    reward: Callable[[State, Transitions], Float[Array, "*B"]]
    sampling: Sampling
    policy_mask: Callable[[State], Float[Array, "S"]] | None = None  # 1 where the policy may look; None: all
    credit: Callable[[State, Segments], Float[Array, "M T"]] | None = None
    graph: GraphView | None = None
    memory: EpisodeMemory | None = None
    revision: Revision | None = None
    rescale: Rescale | None = None


LogDensity = Callable[[State, Float[Array, "*B S"], Float[Array, "*B A"]], Float[Array, "*B"]]


class Returns(NamedTuple):
    """In which unit a backbone wants its rewards: that of the returns they add up to."""

    discount: float  # of returns
    largest: float  # what no return is to exceed, in that unit


class Backbone(NamedTuple):
    """Learns a policy from transitions and rewards. Pure functions of an explicit state.

    With `log_density` it is on-policy: nobody acts while it learns, and once an iteration `update` gets all
    steps of the segments that have just been closed, in their order, with Transitions.acted.
    """

    init: Callable[[PRNGKeyArray, Spec], State]
    update: Callable[[State, Transitions, Float[Array, "B"], PRNGKeyArray], tuple[State, Metrics]]
    act: Callable[[State, Float[Array, "S"], PRNGKeyArray, bool], Float[Array, "A"]]
    actor: Callable[[State], dict[str, Array]]  # plain arrays for envs.acting, which acts in NumPy
    head: str  # of acting.HEADS, or module:function: how envs.acting turns outputs into an action
    batch_size: int
    discrete: bool | None = False  # serves discrete actions, as one-hot vectors; else continuous; None: both
    log_density: LogDensity | None = None  # log π(a|s) of given actions
    returns: Returns | None = None  # None: rewards as they come, unless they are unusually small or large
    offline: bool = False  # learns from logged episodes alone
