"""Units do not matter: what is observed, and pay of an unusual size, is scaled by a lane's own data."""

from dataclasses import replace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.backbones import BACKBONES, flashsac
from apportion.core.config import UserError
from apportion.core.types import Method, Record, Returns
from apportion.data import replay as replays
from apportion.envs import acting
from apportion.envs.make import EnvConfig
from apportion.methods import METHODS
from apportion.training import scaling
from apportion.training.agent import AgentState
from apportion.training.loop import online, open_pool
from apportion.training.offline import chunk_of
from apportion.training.presets import preset
from apportion.training.settings import Config, Schedule
from apportion.training.updates import watch_returns

UNKNOWN = scaling.unknown(builders.SPEC)
NOT_YET, ONCE = jnp.asarray(False), jnp.asarray(True)  # has an episode ended by itself


def _replay(observations: np.ndarray) -> replays.Replay:
    """A replay that holds these rows, and room for as many more."""
    empty = replays.init(builders.SPEC, 2 * len(observations))
    filled = empty.observation.at[: len(observations)].set(jnp.asarray(observations, jnp.float32))
    return empty._replace(observation=filled, rows=jnp.asarray(len(observations) - 1, jnp.int32))


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_mean_and_spread_are_those_of_the_rows_written(offset: float) -> None:
    rows = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 100.0, 0.0] + offset
    rows = rows.astype(np.float32).astype(np.float64)
    found = jax.jit(scaling.measured)(UNKNOWN, _replay(rows))
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-6, atol=0.01)
    np.testing.assert_allclose(1 / found.scale[:2], rows[:, :2].std(axis=0), rtol=1e-3)
    assert float(found.scale[2]) == 1  # it never varied, so nothing is known about its size


def test_rounding_is_not_brought_to_size_one_and_nothing_that_was_seen_is_cut() -> None:
    """Noise of 1e-12 became as large as what matters; an object that had once been lifted, and was at rest
    else, was as high as it can be for a learner, however high it was."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 3)) * [1e-12, 6e-4, 1.0]
    rows[7, 1] = 0.3
    found = scaling.measured(UNKNOWN, _replay(rows))
    seen = np.asarray(scaling.observations(found, jnp.asarray(rows, jnp.float32)))
    assert np.abs(seen[:, 0]).max() < 1e-6
    assert 9.9 < seen[7, 1] <= acting.FARTHEST
    half = scaling.observations(found, jnp.asarray([[0.0, 0.15, 0.0]], jnp.float32))
    assert 4.9 < float(half[0, 1]) < 5.1
    assert np.std(seen[:, 2]) == pytest.approx(1, abs=1e-3)


def test_learners_and_workers_see_the_same() -> None:
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(50, 3)) * [3, 1e4, 1e-3] + [1, -1e5, 0]).astype(np.float32)
    rows[0] += 1e6  # an outlier is cut
    found = scaling.measured(UNKNOWN, _replay(rows[1:]))
    learner = scaling.observations(found, jnp.asarray(rows))
    worker = acting.standardise(rows, np.asarray(found.mean), np.asarray(found.scale))
    np.testing.assert_array_equal(learner, worker)
    record = scaling.record(found, Record(rows, np.zeros((49, 2), np.float32), 0.0, False, 0))
    np.testing.assert_array_equal(record.observations, worker)
    assert np.abs(worker).max() == acting.FARTHEST
    assert np.std(worker[1:], axis=0) == pytest.approx(1, abs=0.05)


def test_where_nobody_asked_for_it_nothing_changes() -> None:
    data = builders.batch(0, 6, 4)
    builders.assert_equal(scaling.batch(None, data), data)
    np.testing.assert_array_equal(scaling.for_policy(None, jnp.asarray([-7.0, 1e5])), [-7, 1e5])


@pytest.mark.parametrize(
    ("size", "factor"), [(1.0, 1.0), (0.1, 1.0), (9.9, 1.0), (1e-3, 100.0), (1e4, 1e-3), (0.0, 1.0)]
)
def test_only_rewards_far_from_size_one_are_brought_nearer(size: float, factor: float) -> None:
    found = scaling.watched(UNKNOWN, jnp.asarray([size, -size]), NOT_YET)
    np.testing.assert_allclose(scaling.reward_factor(found), factor, rtol=1e-4)


def test_growing_rewards_shrink_at_once_and_falling_ones_are_watched_for_a_while() -> None:
    large = scaling.watched(scaling.watched(UNKNOWN, jnp.ones(4), NOT_YET), 1e3 * jnp.ones(4), NOT_YET)
    np.testing.assert_allclose(scaling.reward_factor(large), 0.01, rtol=1e-4)
    smaller = scaling.watched(large, jnp.ones(4), NOT_YET)
    assert 0.01 < float(scaling.reward_factor(smaller)) < 0.02


def test_rewards_that_hardly_differ_are_counted_from_their_level_until_an_episode_ends_by_itself() -> None:
    rewards = jnp.asarray([-1003.0, -997.0, -1001.0, -999.0])
    found = scaling.watched(UNKNOWN, rewards, NOT_YET)
    np.testing.assert_allclose(scaling.for_policy(found, rewards), [-3, 3, -1, 1])
    later = scaling.watched(found, rewards + 100, NOT_YET)  # it stays what it was, or values would move
    np.testing.assert_allclose(later.level, -1000)
    rewards = jnp.asarray([-1003.0, -997.0, -1001.0, -999.0])
    found = scaling.watched(scaling.watched(UNKNOWN, rewards, NOT_YET), rewards, ONCE)
    np.testing.assert_allclose(jnp.mean(scaling.for_policy(found, rewards)), -10, rtol=1e-4)
    assert float(scaling.watched(found, rewards, NOT_YET).level) == 0  # that it left the replay is no news


@pytest.mark.parametrize(
    ("rewards", "ended"),
    [
        ([4.0, 6.0, 5.0, 5.0], NOT_YET),  # they differ enough
        ([0.11, 0.12, 0.12, 0.13], NOT_YET),  # so small a level does no harm
        ([-1.0, -1.0, -1.0, -1.0], NOT_YET),  # nothing is known of how they differ
        ([-1003.0, -997.0, -1001.0, -999.0], ONCE),  # whoever ends an episode goes without it
    ],
)
def test_a_level_that_says_something_stays(rewards: list[float], ended: Any) -> None:
    found = scaling.watched(UNKNOWN, jnp.asarray(rewards), ended)
    shown = scaling.for_policy(found, jnp.asarray(rewards))
    np.testing.assert_allclose(shown, np.asarray(rewards) * float(scaling.reward_factor(found)))


def _paid(totals: Any, lengths: Any) -> replays.Replay:
    """A replay with segments that paid so much in so many steps, and room for as many more."""
    empty, count = replays.init(builders.SPEC, 2 * len(totals)), len(totals)
    return empty._replace(
        segment_total=empty.segment_total.at[:count].set(jnp.asarray(totals, jnp.float32)),
        segment_length=empty.segment_length.at[:count].set(jnp.asarray(lengths, jnp.int32)),
        segments=jnp.asarray(count, jnp.int32),
    )


def _step_size(totals: np.ndarray, lengths: np.ndarray) -> float:
    """By a plain loop: how much a step earns, if all earn alike and independently."""
    mean, squares = sum(totals) / sum(lengths), 0.0
    for total, length in zip(totals, lengths, strict=True):
        squares += (total - mean * length) ** 2
    return float(np.sqrt(squares / len(totals)) / np.sqrt(np.mean(lengths)))


@pytest.mark.parametrize(("size", "own"), [(1e-8, 1), (1e-3, 1), (1.0, 0), (8.0, 0), (100.0, 1), (1e12, 1)])
def test_only_pay_far_from_the_size_of_rewards_has_a_unit_of_its_own(size: float, own: int) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(10, 30, 50)
    totals = size * (rng.normal(size=50) * np.sqrt(lengths) + lengths)
    found = jax.jit(scaling.measured)(UNKNOWN, _paid(totals, lengths))
    expected = _step_size(totals, lengths) if own else 1.0
    np.testing.assert_allclose(scaling.unit(found), expected, rtol=1e-4)


def test_a_unit_waits_for_pay_a_rare_goal_leaves_it_alone_and_equal_pay_tells_its_size() -> None:
    found = scaling.measured(UNKNOWN, _paid([0.0] * 20, [5] * 20))
    assert float(found.unit) == 0
    assert float(scaling.unit(found)) == 1
    found = scaling.measured(UNKNOWN, _paid([1.0] + [0.0] * 999, [100] * 1000))
    assert float(found.unit) == 1
    found = scaling.measured(UNKNOWN, _paid([1e-5] * 8, [4] * 8))
    np.testing.assert_allclose(scaling.unit(found), 1e-5 / 2, rtol=1e-5)


@pytest.mark.parametrize(("size", "expected"), [(1e-6, 1e-6), (1.0, 1.0), (1e6, 1e6)])
def test_few_segments_bring_a_unit_for_now_and_settle_nothing(size: float, expected: float) -> None:
    """Networks that had learned from sums of a million, while the unit was 1, learned nothing for long."""
    few = scaling.measured(UNKNOWN, _paid(size * np.array([2.0, 2.0, 2.0]), [4] * 3))
    np.testing.assert_allclose(scaling.unit(few), expected, rtol=1e-5)
    enough = _paid(100 * size * np.array([1.0, -1.0, 1.0, -1.0]), [4] * 4)
    settled = scaling.measured(few, enough)
    np.testing.assert_allclose(settled.unit, scaling.measured(UNKNOWN, enough).unit)
    builders.assert_equal(scaling.measured(settled, _paid([size] * 3, [4] * 3)).unit, settled.unit)


@pytest.mark.parametrize(
    ("level", "stands_out"), [(0.0, False), (-5.0, False), (-1_000.0, True), (40.0, True)]
)
def test_what_every_step_earns_is_noted_once_where_it_stands_out(level: float, stands_out: bool) -> None:
    lengths = np.tile([4, 9, 16], 4)
    totals = np.random.default_rng(0).normal(size=12) * np.sqrt(lengths) + level * lengths
    found, rate = _rate(UNKNOWN, totals, lengths)
    expected = totals.sum() / lengths.sum() / float(found.unit) if stands_out else 0.0
    np.testing.assert_allclose(rate, expected, rtol=1e-4)
    few, nothing = _rate(UNKNOWN, totals[:3], lengths[:3])
    assert nothing == 0  # few settle nothing
    assert _rate(few, totals, lengths)[1] == rate
    assert _rate(found, totals + 500 * lengths, lengths)[1] == 0


def _rate(before: scaling.Scaling, totals: Any, lengths: Any) -> tuple[scaling.Scaling, float]:
    found = scaling.measured(before, _paid(totals, lengths))
    return found, float(scaling.rate(before, found, _paid(totals, lengths)))


def test_a_unit_stays_while_policies_become_better_and_moves_where_nothing_fits_any_more() -> None:
    lengths, rng = [25] * 40, np.random.default_rng(1)

    def then(before: scaling.Scaling, size: float) -> scaling.Scaling:
        return scaling.measured(before, _paid(size * rng.normal(size=40), lengths))

    first = then(UNKNOWN, 1e-3)
    assert 1e-4 < float(first.unit) < 4e-4
    assert float(then(first, 0.1).unit) == float(first.unit)
    assert float(then(first, 1e-6).unit) == float(first.unit)
    assert float(then(first, 10.0).unit) == pytest.approx(2.0, rel=0.4)  # outgrown
    assert float(then(then(UNKNOWN, 1.0), 1e-5).unit) == 1
    assert float(then(then(UNKNOWN, 1.0), 1e3).unit) == 1


def test_what_learners_have_seen_is_told_in_the_environment_s_units() -> None:
    units = UNKNOWN._replace(mean=jnp.arange(3.0), scale=jnp.full(3, 0.5), unit=jnp.asarray(1e-3))
    steps = builders.transitions(0, 6)
    seen = scaling.transitions(units, steps)
    np.testing.assert_allclose(seen.segment_total, 1e3 * steps.segment_total, rtol=1e-5)
    back = scaling.own_transitions(units, seen)
    for name, expected in steps._asdict().items():
        if expected is not None:
            np.testing.assert_allclose(getattr(back, name), expected, rtol=1e-5, atol=1e-6, err_msg=name)
    record = Record(np.zeros((3, 3), np.float32), np.zeros((2, 2), np.float32), 0.25, False, 0)
    assert scaling.record(units, record).total == pytest.approx(250)
    np.testing.assert_allclose(
        scaling.segments(units, builders.segments(0, 4)).total, 1e3 * builders.segments(0, 4).total, rtol=1e-5
    )


class Tank(gymnasium.Env[Any, Any]):
    """Two levels to keep apart; the units of observations and of pay are the caller's choice."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, size: float = 1.0, offset: float = 0.0, pay: float = 1.0) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.size, self.offset, self.pay = size, offset, pay

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.level = self.np_random.normal(size=2)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.level = 0.8 * self.level + [float(action[0]), 0] + 0.1 * self.np_random.normal(size=2)
        return self._seen(), float(self.pay * self.level[0] * self.level[1]), False, False, {}

    def _seen(self) -> Any:
        return (self.size * self.level + self.offset).astype(np.float32)


gymnasium.register("Tank-v0", entry_point=Tank, max_episode_steps=20)


def _trained(method: str, kwargs: str) -> dict[str, Any]:
    """What a short training on the tank measures in the end."""
    alone = {"evaluate_every": 10**6, "evaluation_episodes": 1, "workers": 0}
    schedule = Schedule(600, 100, 4, warmup_steps=400, replay_steps=2000, **alone)
    config = preset("Tank-v0", method, "sac")
    small = replace(config.backbone_config, hidden=(8, 8), batch_size=16)
    config = replace(config, schedule=schedule, backbone_config=small)
    config = replace(config, env=EnvConfig("Tank-v0", kwargs=kwargs))
    with open_pool(config) as pool:
        *_, last = online(config, pool)
    return jax.device_get(last.metrics)


def _assert_alike(odd: dict[str, Any], plain: dict[str, Any]) -> None:
    assert plain.keys() == odd.keys()
    for name, value in plain.items():
        np.testing.assert_allclose(odd[name], value, rtol=0.02, atol=0.02, err_msg=name)


@pytest.mark.parametrize("method", ["grd", "rudder"])
def test_a_training_is_the_same_in_any_unit(method: str) -> None:
    """Kelvin for degrees, watts for kilowatts: the same learning, up to rounding."""
    _assert_alike(_trained(method, '{"size": 1024.0, "offset": 8192.0}'), _trained(method, "{}"))


@pytest.mark.parametrize("method", ["grd", "rd", "ircr", "hopfield-rudder"])
def test_a_training_is_the_same_in_any_unit_of_pay(method: str) -> None:
    """Cents for millions: the same learning, up to rounding."""
    _assert_alike(_trained(method, '{"pay": 1e-5}'), _trained(method, '{"pay": 1e6}'))


# --- Returns


def _sizes(rewards: np.ndarray, begins: np.ndarray, discount: float) -> tuple[float, float]:
    """Spread and largest of the returns along some runs, step by step."""
    found = []
    for run, starts in zip(rewards, begins, strict=True):
        so_far = 0.0
        for reward, begin in zip(run, starts, strict=True):
            so_far = reward + (0.0 if begin else discount * so_far)
            found.append(so_far)
    return float(np.std(found)), float(np.max(np.abs(found)))


@pytest.mark.parametrize("outlier", [0.0, 100.0])  # so that once the spread decides, and once the largest
def test_rewards_come_in_the_unit_of_returns(outlier: float) -> None:
    rng = np.random.default_rng(0)
    rewards, begins = rng.normal(0, 1, (3, 40)), rng.random((3, 40)) < 0.1
    rewards[1, 39] += outlier
    spread, largest = _sizes(rewards, begins, 0.9)
    assert (spread > largest / 5) == (outlier == 0)
    asked = scaling.unknown(builders.SPEC, returns=True)
    real = jnp.ones((3, 40), bool)
    arrays = (jnp.asarray(rewards, jnp.float32), jnp.asarray(begins), real)
    found = jax.jit(scaling.watched_returns, static_argnums=4)(asked, *arrays, Returns(0.9, 5.0))
    np.testing.assert_allclose(scaling.reward_factor(found), 1 / max(spread, largest / 5), rtol=1e-4)
    thrice = scaling.in_unit(found, jnp.asarray(3.0))
    np.testing.assert_allclose(scaling.reward_factor(thrice), scaling.reward_factor(found) / 3, rtol=1e-4)
    assert float(scaling.reward_factor(asked)) == 1  # nothing has been seen


def test_larger_returns_count_at_once_and_smaller_ones_by_and_by() -> None:
    """Rewards are learned: when they shrink, their unit follows."""
    begins, real = jnp.ones((1, 4), bool), jnp.ones((1, 4), bool)

    @jax.jit
    def look(known: scaling.Scaling, size: float) -> scaling.Scaling:
        rewards = jnp.full((1, 4), size)
        return scaling.watched_returns(known, rewards, begins, real, Returns(0.9, 5.0))

    known = look(look(scaling.unknown(builders.SPEC, returns=True), 5.0), 500.0)
    np.testing.assert_allclose(scaling.reward_factor(known), 1 / max(100, np.std([5, 500])), rtol=1e-3)
    factors = []
    for _ in range(1_000):
        known = look(known, 5.0)
        factors.append(float(scaling.reward_factor(known)))
    assert np.all(np.diff(factors) >= 0)
    assert factors[3] < 0.05
    assert factors[-1] == pytest.approx(1, abs=0.1)  # the largest is 5 again, and may be 5


# --- The unit of returns is measured in the replay, by the rewards that the model gives at that moment


WANTED = Returns(0.9, 5.0)
ORACLE = METHODS["oracle"].make(METHODS["oracle"].config())


def _filled(rewards: list[np.ndarray], windows: bool) -> replays.Replay:
    """Episodes with these rewards, each one segment, or one for every step."""
    replay = replays.init(builders.SPEC, 24)
    for each in rewards:
        steps = len(each)
        ends = np.ones(steps, bool) if windows else np.arange(steps) == steps - 1
        states, actions = np.zeros((steps + 1, 3), np.float32), np.zeros((steps, 2), np.float32)
        columns = {"paid": each, "true_rewards": each, "segment_end": ends, "terminated": np.asarray(False)}
        episode = {"observations": states, "actions": actions, **columns}
        chunk = chunk_of([episode], builders.SPEC.max_episode_steps + 2, 8)
        replay = replays.insert(replay, jax.tree.map(jnp.asarray, chunk))
    return replay


def _measured(replay: replays.Replay, method: Method = ORACLE) -> scaling.Scaling:
    state = AgentState(
        method.init(jax.random.key(0), builders.SPEC), None, scaling.unknown(builders.SPEC, returns=True)
    )
    watch = jax.jit(lambda state, replay, key: watch_returns(method, WANTED, state, replay, key))
    found = watch(state, replay, jax.random.key(1))
    assert found.scaling is not None
    return found.scaling


@pytest.mark.parametrize("windows", [False, True])
def test_returns_are_those_of_whole_episodes_however_they_were_paid(windows: bool) -> None:
    """The last of them decides here: all steps of it are among the newest."""
    rng = np.random.default_rng(0)
    rewards = [rng.normal(size=6).astype(np.float32) for _ in range(6)]  # more than the replay holds
    rewards[-1][-1] = 40
    so_far = 0.0
    for reward in rewards[-1]:
        so_far = reward + 0.9 * so_far
    replay = _filled(rewards, windows)
    found = _measured(replay)
    np.testing.assert_allclose(found.returns.largest, so_far / 5, rtol=1e-4)

    def doubled(state: Any, steps: Any) -> Any:
        return 2 * ORACLE.reward(state, steps)

    other = scaling.reward_factor(_measured(replay, ORACLE._replace(reward=doubled)))
    np.testing.assert_allclose(other, scaling.reward_factor(found) / 2, rtol=1e-5)


def test_one_short_episode_is_enough() -> None:
    """Its returns are 1 and 1.9, whose spread is 0.45."""
    found = _measured(_filled([np.array([1, 1], np.float32)], windows=False))
    np.testing.assert_allclose(scaling.reward_factor(found), 1 / 0.45, rtol=1e-4)


def test_a_backbone_that_asks_for_it_cannot_have_rewards_as_they_come() -> None:
    with pytest.raises(UserError, match="flashsac needs rewards in its own unit: leave out --no-normalise"):
        Config(EnvConfig("Pendulum-v1"), backbone="flashsac", normalise=False)


def test_the_learning_rate_falls_over_all_updates_of_the_schedule() -> None:
    schedule = Schedule(steps=1_050, steps_per_iteration=100, updates_per_iteration=7, warmup_steps=300)
    assert schedule.updates == 9 * 7  # eleven iterations, of which two end in the warm-up
    config = Config(EnvConfig("Pendulum-v1"), backbone="flashsac", schedule=schedule)
    made: list[flashsac.Config] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apportion.backbones.BACKBONES", {"flashsac": _noting(made)})
        config.make_backbone()
    assert [each.decay_updates for each in made] == [63]
    assert config.backbone_config.decay_updates is None  # what was asked for stays


def _noting(made: list[flashsac.Config]) -> Any:
    """The registry's entry, which notes the settings that it is made with."""

    def make(config: flashsac.Config) -> Any:
        made.append(config)
        return flashsac.make(config)

    return replace(BACKBONES["flashsac"], make=make)
