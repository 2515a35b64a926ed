"""Which column of a table is what: as the user says, else by its name."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from apportion.core.config import UserError, check, nearest

_USUAL = {  # names by which a column is recognised, the likeliest first
    "episode": (
        "episode",
        "episode_id",
        "ep",
        "trajectory",
        "traj",
        "batch",
        "batch_id",
        "run",
        "patient",
        "id",
    ),
    "step": ("step", "timestep", "time_step", "t", "time", "index"),
    "outcome": ("outcome", "total", "return", "score", "yield", "result", "reward", "y"),
    "terminated": ("terminated", "termination", "terminations", "terminal", "terminals", "done", "dones"),
}
_OPTIONAL = ("step", "terminated")
_CUTS = ("truncated", "truncation", "truncations", "timeout", "timeouts")
_ENDS = (*_USUAL["terminated"], *_CUTS)  # never guessed as states: they tell when an episode ends
FIELDS = ("episode", "step", "states", "actions", "outcome", "terminated")
_OF_PATHS = ("count", "null", "value")  # what may be said of a table with a row for each path
_PREFIXES = {"states": ("s_", "state_", "obs_", "observation_"), "actions": ("a_", "act_", "action_")}


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what. Guessed from their names when not given."""

    episode: str | None = None
    """Column that names each row's episode."""
    step: str | None = None
    """Column that counts an episode's steps; rows are taken as they come when there is none, or by ''. If it
    has numbers, it is a state as well where states are guessed from all that is left."""
    states: str | None = None
    """What was observed: columns as a comma list of names or prefixes, such as s_ or temp,pressure."""
    actions: str | None = None
    """What was done: the same. Empty ('') for none."""
    outcome: str | None = None
    """Column with each episode's outcome, on every row or on the last."""
    terminated: str | None = None
    """Column that says, on each episode's last row, whether it ended by itself, in failure or success (1), or
    was cut (0). Empty ('') for none."""
    without: str | None = None
    """Columns to leave aside, such as a second outcome or a remark: a comma list of names or prefixes."""
    lags: int = 0
    """Let the reward of a step depend on so many earlier steps, too: each becomes a dimension."""
    steps: str | None = None
    """Of JSON Lines: the field with an episode's list of steps, where there is more than one list."""
    seen: str | None = None
    """Let the reward of a step depend on which categories of these columns came before it in its episode: a
    comma list, such as channel. All of a column's together are one input."""
    outcome_kind: Literal["auto", "amount", "yes-no"] = "auto"
    """Whether outcomes are amounts, or yes and no, as which two values are read when nothing is said."""
    path: str | None = None
    """Of a table with a row for each path, A > B > C: the column of paths, whose touches are the steps."""
    count: str | None = None
    """With --path: the column that counts the row's journeys that converted. Without, a row is a journey, and
    has an --outcome."""
    null: str | None = None
    """With --count: the column that counts those that did not."""
    value: str | None = None
    """With --count: the column with what all conversions of the row are worth; outcomes are amounts then."""
    embed: str | None = None
    """Turn columns of more than 50 different texts into vectors, one input each: hashing, of words and pairs
    of them, or module:function, which gets a list of texts and gives an array with a row for each."""

    def __post_init__(self) -> None:
        check(0 <= self.lags <= 100, f"--lags {self.lags} must be from 0 to 100")
        for name in _OF_PATHS:
            needed = "path" if name == "count" else "count"
            there = getattr(self, name) is None or getattr(self, needed) is not None
            check(there, f"--{name} {getattr(self, name)} needs --{needed}")
        for name in (*FIELDS, "without", "steps") if self.path is not None else ():
            wrong = f"--{name} says nothing of a table of paths: leave it out"
            check(getattr(self, name) is None or (name == "outcome" and self.count is None), wrong)


@dataclass(frozen=True)
class Choice:
    """Every column that is read, and what it is."""

    episode: str
    step: str | None
    states: tuple[str, ...]
    actions: tuple[str, ...]
    outcome: str
    guessed: tuple[str, ...]  # which of these fields nobody gave
    terminated: str | None = None  # runs of older versions do not say
    steps: str | None = None  # of JSON Lines, the field with the list of steps
    unsure: str | None = None  # a column like that, where every end is true: cuts may be meant as well
    path: str | None = None  # of a table of paths, which has no column of episodes; and what counts journeys
    count: str | None = None
    null: str | None = None
    value: str | None = None

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        first = self.episode if self.path is None else self.path
        single = (first, self.step, self.outcome, self.terminated, self.null, self.value)
        return list(dict.fromkeys([*filter(None, single), *self.states, *self.actions]))

    def in_words(self) -> str | None:
        """What was guessed; None where nothing was."""
        said = {
            "episode": self.episode,
            "step": self.step or "none, rows as they come",
            "states": ", ".join(self.states),
            "actions": ", ".join(self.actions) or "none",
            "outcome": self.outcome,
            "terminated": self.terminated,
        }
        parts = [
            f"--{field} {name}" for field, name in said.items() if field in self.guessed and name is not None
        ]
        if self.unsure is not None:
            all_true = f"{self.unsure!r} is true for every episode, cuts perhaps as well, and left aside"
            parts.append(f"{all_true}: --terminated {self.unsure} if all ended by themselves")
        return f"Guessed by names: {'; '.join(parts)}" if parts else None


def choose(source: str, given: Columns | Choice, known: list[str], paid: bool = True) -> Choice:
    """The columns of a table that are read, among those it has. Of those that were chosen before, the outcome
    may be absent where nobody asks what was `paid`."""
    if isinstance(given, Choice):
        for name in given.names:
            there = name in known or (name == given.outcome and not paid)
            check(there, f"{source} has no column {name!r}, which the run was fitted to")
        return given
    if given.path is not None:
        return _of_paths(source, given, known)
    known = _kept(source, given, known)
    episode = _one(source, "episode", given.episode, known, [given.terminated])
    outcome = _one(source, "outcome", given.outcome, known, [given.terminated])
    if episode is None or outcome is None:
        field = "episode" if episode is None else "outcome"
        more = f" and {len(known) - 12} more" if len(known) > 12 else ""
        has = f"it has {', '.join(known[:12])}{more}"
        raise UserError(f"{source}: no column looks like the {field}: name it with --{field} ({has})")
    step = _one(source, "step", given.step, known, [episode, outcome, given.terminated])
    named = [*words(given.states), *words(given.actions)]
    terminated = _one(source, "terminated", given.terminated, known, [episode, outcome, step, *named])
    taken = (episode, outcome, step, terminated)
    free = [name for name in known if name not in taken and name.lower() not in _ENDS]
    actions = _several(source, "actions", given.actions, known, free)
    states = _several(source, "states", given.states, known, [name for name in free if name not in actions])
    if given.states is None and not states:
        left = [name for name in free if name not in actions]
        # Rewards may depend on when a step was, too, but not on that alone.
        states = tuple(name for name in known if name in left or (left and name == step))
    roles = (("episode", episode), ("outcome", outcome), ("step", step), ("flag of ends", terminated))
    _check_apart(source, states, actions, roles)
    guessed = tuple(field for field in FIELDS if getattr(given, field) is None)
    return Choice(episode, step, states, actions, outcome, guessed, terminated)


def _of_paths(source: str, given: Columns, known: list[str]) -> Choice:
    """The columns of a table with a row for each path."""
    for field in ("path", *_OF_PATHS):
        name = getattr(given, field)
        there = name is None or name in known
        check(there, f"{source} has no column {name!r} for --{field}{nearest(str(name), known)}")
    outcome = given.count or _one(source, "outcome", given.outcome, known, [given.path])
    if outcome is None:
        raise UserError(f"{source}: no column looks like the outcome: name it by --outcome, or give --count")
    assert given.path is not None
    named = [name for name in (given.path, outcome, given.null, given.value) if name is not None]
    check(len(set(named)) == len(named), f"{source}: a column is named twice among {', '.join(named)}")
    guessed = ("outcome",) if given.count is None and given.outcome is None else ()
    paths = {"path": given.path, "count": given.count, "null": given.null, "value": given.value}
    return Choice("", None, (given.path,), (), outcome, guessed, **paths)


def _kept(source: str, given: Columns, known: list[str]) -> list[str]:
    """The columns that nobody left aside."""
    aside = _several(source, "without", given.without or "", known, known)
    for field in FIELDS:
        for name in (getattr(given, field), *words(getattr(given, field))):
            both = f"is named by --{field} and left aside by --without"
            check(name not in aside, f"{source}: column {name!r} {both}: choose")
    return [name for name in known if name not in aside]


def _one(
    source: str, field: str, given: str | None, known: list[str], taken: Collection[str | None]
) -> str | None:
    """The column that was given; else one with a usual name that is not taken. Empty for none of those that
    need not be there."""
    if given == "" and field in _OPTIONAL:
        return None
    if given is not None:
        check(given in known, f"{source} has no column {given!r} for --{field}{nearest(given, known)}")
        return given
    lower = {name.lower(): name for name in reversed(known) if name not in taken}
    return next((lower[name] for name in _USUAL[field] if name in lower), None)


def _several(
    source: str, field: str, given: str | None, known: list[str], free: list[str]
) -> tuple[str, ...]:
    """Columns by their names or prefixes, in the table's order; by the usual prefixes where none is given."""
    if given is None:
        return tuple(name for name in free if name.lower().startswith(_PREFIXES[field]))
    found: set[str] = set()
    for word in words(given):
        matching = {word} if word in known else {name for name in free if name.startswith(word)}
        check(bool(matching), f"{source} has no column {word!r} for --{field}{nearest(word, known)}")
        found |= matching
    return tuple(name for name in known if name in found)


def words(given: str | None) -> list[str]:
    """Of a comma list."""
    return [word for word in (word.strip() for word in (given or "").split(",")) if word]


def _check_apart(
    source: str, states: Sequence[str], actions: Sequence[str], roles: Iterable[tuple[str, str | None]]
) -> None:
    for state in states:
        both = f"{source}: column {state!r} is both state and action: leave it out of one"
        check(state not in actions, both)
    firsts: dict[str, str] = {}
    for role, name in roles:
        as_well = f"{source}: column {name!r} is the {role}, and cannot be a state or action as well"
        check(name not in actions and (role == "step" or name not in states), as_well)
        first = role if name is None else firsts.setdefault(name, role)
        check(first == role, f"{source}: column {name!r} is the {first}, and cannot be the {role} as well")
    check(bool(states), f"{source} has no column with a state: name them with --states")
