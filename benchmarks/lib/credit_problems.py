"""Logs whose step rewards are known, and hidden from whoever fits them: kinds of what makes credit hard."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rng = np.random.Generator


class Log(NamedTuple):
    """Episodes of one problem."""

    observations: list[Floats]  # [T+1, S] each
    actions: list[Floats]  # [T, A]
    rewards: list[Floats]  # [T] the truth
    terminated: NDArray[np.bool_]  # [E]
    level: float = 0.0  # that every outcome has besides

    @property
    def totals(self) -> Floats:
        return self.level + np.array([each.sum() for each in self.rewards])


Reward = Callable[[Floats, Floats], Floats]  # of states [T, S] and actions [T, A]


def smooth_noise(rng: Rng, steps: int, count: int, memory: float = 0.9) -> Floats:
    """[T, K] that forget what they were, of variance 1."""
    x = rng.normal(size=(steps, count))
    for t in range(1, steps):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * x[t]
    return x


def world(
    rng: Rng, lengths: NDArray[np.int64], actions: int = 2, tails: float | None = None, memory: float = 0.9
) -> tuple[list[Floats], list[Floats]]:
    """Eight states that move each other and are moved by what follows them. With three actions one of them is
    chosen at each step; else they are numbers from -1 to 1."""
    size = 8
    moved, pushed = rng.normal(0, 0.02, (size, size)), rng.normal(0, 0.2, (actions, size))
    pushed *= rng.random(pushed.shape) < 0.5
    follows = rng.normal(0, 0.3, (size, actions))
    states, acted = [], []
    for steps in lengths.tolist():
        x, a, level = np.zeros((steps + 1, size)), np.zeros((steps, actions)), rng.normal(0, 0.4, actions)
        x[0] = rng.normal(size=size)
        shocks = rng.normal(size=x.shape) if tails is None else rng.standard_t(tails, x.shape)
        for t in range(steps):
            if actions == 3:
                a[t, np.argmax(x[t] @ follows + rng.gumbel(size=3))] = 1
            else:
                level = 0.8 * level + 0.3 * rng.normal(size=actions)
                a[t] = np.clip(x[t] @ follows + level, -1, 1)
            x[t + 1] = memory * x[t] + x[t] @ moved + a[t] @ pushed + np.sqrt(1 - memory**2) * shocks[t]
        states.append(x)
        acted.append(a)
    return states, acted


def paid_for(
    reward: Reward,
    episodes: int = 300,
    steps: int = 50,
    uneven: bool = False,
    noise: float = 0.0,
    **how: float,
) -> Callable[[Rng], Log]:
    """A problem whose reward is a function of states and actions, and noise of so much of its variance."""

    def draw(rng: Rng) -> Log:
        lengths = rng.integers(5, steps + 1, episodes) if uneven else np.full(episodes, steps)
        states, actions = world(rng, lengths, **how)
        rewards = [reward(x[:-1], a) for x, a in zip(states, actions, strict=True)]
        size = np.sqrt(noise) * np.std(np.concatenate(rewards))
        rewards = [each + size * rng.normal(size=len(each)) for each in rewards]
        return Log(in_units(rng, states), actions, rewards, np.zeros(episodes, np.bool_))

    return draw


def in_units(rng: Rng, states: list[Floats]) -> list[Floats]:
    """As people measure: dimensions of any size, around any level."""
    size, level = 10.0 ** rng.uniform(-2, 3, states[0].shape[1]), rng.normal(0, 3, states[0].shape[1])
    return [(x + level) * size for x in states]


def clock(
    periods: int, anywhere: bool = False, episodes: int = 300, noise: float = 0.0, earning: float = 0.0
) -> Callable[[Rng], Log]:
    """Two more states: sine and cosine of a time of so many periods an episode, from any beginning. With so
    much probability they earn something by themselves."""

    def draw(rng: Rng) -> Log:
        steps = 60
        states, actions = world(rng, np.full(episodes, steps))
        weights = rng.normal(0, 0.5, 4)
        own = (rng.random() < earning) * rng.normal(0, 1.5, 2) if earning else np.zeros(2)
        seen, rewards = [], []
        for x, a in zip(states, actions, strict=True):
            time = 2 * np.pi * periods * (np.arange(steps + 1) / steps + anywhere * rng.random())
            sine, cosine = np.sin(time), np.cos(time)
            seen.append(np.column_stack([x, sine, cosine]))
            earned = x[:-1, :4] @ weights + 2 * (1 + 0.7 * sine[:-1]) * a[:, 0]
            earned += own[0] * sine[:-1] + own[1] * cosine[:-1]
            rewards.append(earned - 2 * np.maximum(np.abs(x[:-1, 1]) - 0.8, 0) + 0.8 * anywhere * cosine[:-1])
        size = np.sqrt(noise) * np.std(np.concatenate(rewards))
        rewards = [each + size * rng.normal(size=steps) for each in rewards]
        return Log(in_units(rng, seen), actions, rewards, np.zeros(episodes, np.bool_))

    return draw


def copies(rng: Rng) -> Log:
    """Four more states: a copy in another unit, and sensors with more or less noise."""
    states, actions = world(rng, np.full(300, 50))
    rewards = [
        1.5 * x[:-1, 0] - x[:-1, 1] ** 2 + 2 * x[:-1, 2] * a[:, 0]
        for x, a in zip(states, actions, strict=True)
    ]
    noises = np.array([0.2, 0.05, 0.1])
    seen = [
        np.column_stack([x, 1.8 * x[:, 0] + 32, x[:, [1, 2, 0]] + noises * rng.normal(size=(len(x), 3))])
        for x in states
    ]
    return Log(in_units(rng, seen), actions, rewards, np.zeros(300, np.bool_))


def early_ends(rng: Rng) -> Log:
    """An episode ends where a state is too far from 0, with a fine."""
    states, actions = world(rng, np.full(300, 80), memory=0.95)
    rewards, ended = [], np.zeros(300, np.bool_)
    for number, (x, a) in enumerate(zip(states, actions, strict=True)):
        out = np.flatnonzero(np.abs(x[1:, 3]) > 2.2)
        steps, ended[number] = (out[0] + 1, True) if len(out) else (80, False)
        states[number], actions[number] = x[: steps + 1], a[:steps]
        rewards.append(1 - 0.5 * x[:steps, 0] ** 2 + a[:steps, 0] * x[:steps, 1])
        rewards[-1][-1] -= 15 * ended[number]
    return Log(in_units(rng, states), actions, rewards, ended)


def office(tariff: bool) -> Callable[[Rng], Log]:
    """A day of two heated zones in quarter hours: 24 readings, three levers, price times energy and
    discomfort. With a tariff, price and presence are the same every day, but for weekends."""

    def draw(rng: Rng) -> Log:
        days = [_office_day(rng, tariff) for _ in range(300)]
        observations, actions, rewards = (list(part) for part in zip(*days, strict=True))
        return Log(observations, actions, rewards, np.zeros(300, np.bool_))

    return draw


def _office_day(rng: Rng, tariff: bool) -> tuple[Floats, Floats, Floats]:
    steps = 96
    hour = np.arange(steps + 1) / 4
    outside = (
        278
        + rng.normal(0, 4)
        + 5 * np.sin(2 * np.pi * (hour - 9) / 24)
        + smooth_noise(rng, 97, 1, 0.97)[:, 0]
    )
    come, go = (8.0, 18.0) if tariff else (7.5 + rng.normal(0, 0.7), 17.5 + rng.normal())
    people = ((hour > come) & (hour < go)) * float(rng.random() < 0.75)
    price = 0.2 + 0.15 * ((hour > 7) & (hour < 20)) + 0.1 * ((hour > 17) & (hour < 20))
    if not tariff:
        price = price * np.exp(0.25 * rng.normal()) + 0.02 * smooth_noise(rng, 97, 1)[:, 0]
    zones, levers, rewards = np.zeros((steps + 1, 2)), np.zeros((steps, 3)), np.zeros(steps)
    air = np.full(steps + 1, 420.0)
    zones[0], habit, level = 291 + rng.normal(0, 1.5, 2), rng.normal(0, 1, 2), np.zeros(3)
    for t in range(steps):
        level = 0.7 * level + 0.3 * rng.normal(size=3)
        wanted = 294.5 if people[t] else 289
        levers[t, :2] = np.clip(0.5 * (wanted - zones[t] + habit) + 0.8 * level[:2], -1, 1)
        levers[t, 2] = np.clip(0.3 * people[t] - 0.2 + level[2], -1, 1)
        heat, fan = (levers[t, :2] + 1) / 2, (levers[t, 2] + 1) / 2
        discomfort = np.maximum(np.abs(zones[t] - 294.5) - 1, 0).sum()
        rewards[t] = -price[t] * (40 * heat.sum() + 15 * fan) - 3 * people[t] * discomfort
        lost = 0.03 * (outside[t] - zones[t]) - 0.01 * fan * (zones[t] - outside[t])
        zones[t + 1] = zones[t] + lost + 1.2 * heat + 0.1 * people[t] + 0.1 * (zones[t, ::-1] - zones[t])
        zones[t + 1] += rng.normal(0, 0.1, 2)
        air[t + 1] = air[t] + 30 * people[t] - 0.2 * (fan + 0.1) * (air[t] - 420) + rng.normal(0, 5)
    second, angle = zones + rng.normal(0, 0.3, zones.shape), 2 * np.pi * hour / 24
    readings = [
        zones,
        second,
        1.8 * zones - 459.67,
        outside,
        people,
        price,
        hour,
        np.sin(angle),
        np.cos(angle),
    ]
    others = [101_325 + 600 * smooth_noise(rng, 97, 1, 0.99), air, 10 * smooth_noise(rng, 97, 10)]
    return np.column_stack(readings + others), levers, rewards


def traces(rng: Rng) -> Log:
    """Turns of an agent, of five kinds; one that follows another in a certain order pays, and every trace has
    a base rate that no turn earned. The turn before is read, too, with a flag where there is none."""
    observations, actions, rewards = [], [], []
    for _ in range(1500):
        kinds = np.eye(5)[rng.integers(0, 5, rng.integers(3, 12))]
        before = np.concatenate([np.zeros((1, 5)), kinds[:-1]])
        first = np.arange(len(kinds))[:, None] == 0
        seen = np.column_stack([before, first, rng.normal(size=len(kinds))])
        observations.append(np.concatenate([seen, seen[-1:]]))
        actions.append(kinds)
        rewards.append(before[:, 1] * kinds[:, 3] + rng.normal(0, 0.05, len(kinds)))
    return Log(observations, actions, rewards, np.zeros(1500, np.bool_), level=0.7)


def _thresholds(x: Floats, a: Floats) -> Floats:
    steps = 3.0 * (x[:, 0] > 0.7) - 1.5 * (np.abs(x[:, 2]) < 0.4) * (a[:, 0] > 0)
    return np.asarray(steps - 2 * np.maximum(x[:, 1] - 0.3, 0) - 0.5 * a[:, 1] ** 2)


def _two(x: Floats, a: Floats) -> Floats:
    return np.asarray(2 * (1 + x[:, 0]) * (0.5 + a[:, 0]) - 0.3 * a[:, 1] ** 2 + 0.5 * x[:, 2])


def _three(x: Floats, a: Floats) -> Floats:
    return np.asarray(
        2 * (1 + x[:, 0]) * (0.5 + a[:, 0]) * (x[:, 1] > 0) - 0.3 * a[:, 1] ** 2 + 0.5 * x[:, 2]
    )


def _tailed(x: Floats, a: Floats) -> Floats:
    return np.asarray(x[:, 0] + 0.5 * np.sign(x[:, 1]) * np.abs(x[:, 1]) ** 1.5 + 2 * a[:, 0] * x[:, 2])


def _chosen(x: Floats, a: Floats) -> Floats:
    return np.asarray(2 * a[:, 1] * x[:, 0] - a[:, 2] + 1.5 * a[:, 0] * np.maximum(x[:, 1], 0))


def _bumps(x: Floats, a: Floats) -> Floats:
    return np.asarray(2 * np.sin(1.5 * x[:, 0]) + 3 * np.exp(-((x[:, 1] - 1) ** 2)) * a[:, 0])


# Those that the model was made with, and those that nobody had looked at when it was settled.
DEVELOPMENT: dict[str, Callable[[Rng], Log]] = {
    "office": office(tariff=False),
    "office with a tariff": office(tariff=True),
    "clock, one period": clock(1),
    "copies": copies,
    "thresholds": paid_for(_thresholds),
    "product of three": paid_for(_three),
    "noise": clock(1, noise=1.0),
    "early ends": early_ends,
    "60 episodes": paid_for(_two, episodes=60),
    "ordered turns": traces,
}
UNSEEN: dict[str, Callable[[Rng], Log]] = {
    "clock, three periods": clock(3, anywhere=True),
    "clock, one period from anywhere": clock(1, anywhere=True),
    "clock, 60 episodes": clock(1, episodes=60),
    "product of two": paid_for(_two),
    "heavy tails": paid_for(_tailed, tails=2.5),
    "discrete actions": paid_for(_chosen, actions=3),
    "unequal lengths": paid_for(_three, uneven=True),
    "bumps, 150 episodes": paid_for(_bumps, episodes=150, steps=40),
    "noise, 400 episodes": paid_for(_thresholds, episodes=400, noise=0.5),
    "heavy tails and noise, 150 episodes": paid_for(_tailed, episodes=150, tails=2.5, noise=0.3),
    "clock, earning or not": clock(1, earning=0.3),
}


def draw(name: str, number: int) -> Log:
    """A problem of a kind; each number is another."""
    kinds = {**DEVELOPMENT, **UNSEEN}
    return kinds[name](np.random.default_rng([number, list(kinds).index(name)]))
