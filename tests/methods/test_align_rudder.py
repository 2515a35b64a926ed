"""Align-RUDDER: alignments are right, profiles score what is shared, and events are paid in their order."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apportion.core.config import UserError
from apportion.core.spec import Spec
from apportion.core.types import Record, Segments
from apportion.envs.make import EnvConfig
from apportion.methods import align_rudder
from apportion.methods.align_rudder import centres_of, look, prefix_scores
from apportion.training import offline
from apportion.training.learner import RewardLearner
from apportion.training.settings import NO_POLICY, Config

PLAIN = align_rudder.substitution(np.full(5, 0.2))


def _word(text: str) -> np.ndarray:
    return np.array([ord(letter) - ord("a") for letter in text])


def _text(row: np.ndarray) -> str:
    return "".join("-" if symbol < 0 else chr(symbol + ord("a")) for symbol in row)


# --- Alignment


@pytest.mark.parametrize(
    ("first", "second", "score"),
    [("abc", "abc", 3.0), ("abc", "ac", 1.5), ("abc", "abdc", 2.5), ("a", "b", -1.0), ("ab", "ba", 0.0)],
)
def test_pairs_score_by_the_best_way_through_both(first: str, second: str, score: float) -> None:
    """Matches of 1, mismatches of -1, gaps of -1/2."""
    found, met = align_rudder.best_path(PLAIN[np.ix_(_word(first), _word(second))])
    assert found == pytest.approx(score)
    assert met == sorted(met)


def test_what_is_shared_stands_in_one_column() -> None:
    aligned = align_rudder.align([_word(w) for w in ("abc", "abdc", "ac", "eabc")], PLAIN)
    rows = [_text(row) for row in aligned]
    assert [row.replace("-", "") for row in rows] == ["abc", "abdc", "ac", "eabc"]
    columns = [{row[i] for row in rows} - {"-"} for i in range(len(rows[0]))]
    assert columns == [{"e"}, {"a"}, {"b"}, {"d"}, {"c"}]


def test_a_profile_is_the_log_of_how_much_likelier_a_symbol_is() -> None:
    background = np.array([0.5, 0.25, 0.25])
    aligned = np.array([[0, 1, -1], [0, 1, -1], [0, -1, 2]])
    found = align_rudder.profile(aligned, background)
    assert found.shape == (2, 3)  # one sequence of three is not enough for a column
    np.testing.assert_allclose(found[0], np.log((np.array([3, 0, 0]) + background) / 4 / background))
    np.testing.assert_allclose(found[1], np.log((np.array([0, 2, 0]) + background) / 3 / background))


# --- Scores


def test_only_events_in_order_are_scored_and_distractors_cost_nothing() -> None:
    profile = jnp.asarray([[2.0, -1.0, -1.0], [-1.0, 3.0, -1.0]])  # first a, then b

    def score(text: str) -> list[float]:
        symbols = jnp.asarray(_word(text))[None, :]
        return prefix_scores(profile, symbols, jnp.ones_like(symbols, bool))[0].tolist()

    assert score("acb") == [2, 2, 5]
    assert score("abab") == [2, 5, 5, 5]
    assert score("ba") == [3, 3]  # b alone is worth more than a alone; together they need their order
    assert score("ccc") == [0, 0, 0]


# --- The method

TASK = Spec("a, then b", ("x", "y"), ("go",), max_episode_steps=6, max_segment_steps=6)
PLACES = np.array([[0, 0], [3, 0], [0, 3], [-3, 0], [0, -3]], np.float32)  # nowhere, a, b, and two others


def _records(count: int) -> list[Record]:
    """Walks through the places: whoever is at a, and later at b, is paid 1."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        walk = rng.integers(0, 5, 7)
        at_a = np.flatnonzero(walk[1:] == 1)
        paid = at_a.size > 0 and np.any(walk[1 + at_a[0] :] == 2)
        observations = PLACES[walk] + 0.1 * rng.standard_normal((7, 2)).astype(np.float32)
        found.append(Record(observations, np.zeros((6, 1), np.float32), float(paid), False, number))
    return found


def _segments(walk: list[int], total: float) -> Segments:
    return Segments(
        observations=jnp.asarray(PLACES[walk])[None],
        actions=jnp.zeros((1, 6, 1)),
        true_rewards=jnp.zeros((1, 6)),
        length=jnp.asarray([6], jnp.int32),
        total=jnp.asarray([total]),
        mask=jnp.ones((1, 6), bool),
        terminated=jnp.zeros(1, bool),
        number=jnp.zeros(1, jnp.int32),
    )


CONFIG = align_rudder.Config(best=16, symbols=5, columns=8)
METHOD = align_rudder.make(CONFIG)


@pytest.fixture(scope="module")
def state() -> Any:
    return look(CONFIG, METHOD.init(jax.random.key(0), TASK), _records(200))


def test_kinds_of_states_are_the_places(state: Any) -> None:
    found = centres_of(PLACES.repeat(9, 0).astype(np.float64), PLACES.astype(np.float64), 5)
    assert {tuple(row) for row in np.round(found)} == {tuple(row) for row in PLACES}
    np.testing.assert_allclose(
        sorted(np.round(np.asarray(state.centres.observations), 0).tolist()),
        sorted(PLACES.tolist()),
        atol=0.5,
    )


def test_the_steps_that_demonstrations_share_earn_more_than_others(state: Any) -> None:
    assert METHOD.credit is not None
    earned = np.asarray(METHOD.credit(state, _segments([0, 3, 1, 4, 3, 2, 0], 1.0)))[0]
    assert earned.sum() == pytest.approx(1.0, abs=1e-5)
    assert set(np.argsort(earned)[-2:]) == {1, 4}  # where a and b were reached


def test_before_the_first_look_each_step_gets_the_mean() -> None:
    assert METHOD.credit is not None
    fresh = METHOD.init(jax.random.key(0), TASK)
    np.testing.assert_allclose(METHOD.credit(fresh, _segments([0, 1, 2, 3, 4, 0, 0], 3.0)), 0.5, atol=1e-6)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file of four demonstrations."""
    path = str(tmp_path / "shown.npz")
    shown = [record for record in _records(100) if record.total > 0][:4]
    np.savez(
        path,
        observations=np.stack([r.observations for r in shown]),
        actions=np.stack([r.actions for r in shown]),
        lengths=np.full(4, 6),
        totals=np.ones(4),
    )
    return path


def _poor() -> list[Record]:
    return [record for record in _records(100) if record.total == 0]


def test_demonstrations_come_from_a_file_where_one_is_given(path: str) -> None:
    method = align_rudder.make(align_rudder.Config(demonstrations=path, symbols=5))
    assert method.revision is not None
    assert [record.number for record in method.revision.shown] == [-1, -2, -3, -4]
    records = [*method.revision.shown, *_poor()]
    start = method.init(jax.random.key(0), TASK)
    assert method.revision.accept(start, method.revision.look(start, records, 100)).scale > 0
    other = method.init(jax.random.key(0), Spec("wider", ("x", "y", "z"), ("go",), 6, 6))
    with pytest.raises(UserError, match="has 2 observed numbers, the task 3"):
        method.revision.look(other, records, 100)


def test_a_fit_and_a_learner_beside_other_trainers_are_shown_the_file_too(path: str) -> None:
    """Where nobody else was paid anything, only demonstrations give a score its worth."""
    settings = align_rudder.Config(demonstrations=path, symbols=5)
    config = Config(EnvConfig("log.csv"), "align-rudder", settings, NO_POLICY)
    assert (offline.looked_at_all(config, offline.start(config, TASK), _poor()).method.scale > 0).all()
    learner = RewardLearner.of(
        TASK,
        "align-rudder",
        {"demonstrations": path, "symbols": 5},
        replay_steps=100,
        seed=0,
        normalise=False,
    )
    seen, done, *_ = _poor()[0]
    nothing = np.zeros(6, np.float32)
    columns = {"observations": seen, "actions": done, "paid": nothing, "true_rewards": nothing}
    learner.add({**columns, "segment_end": np.arange(6) == 5, "terminated": np.asarray(False)})
    assert (learner.agent.method.scale > 0).all()


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"no file nowhere\.npz"):
        align_rudder.make(align_rudder.Config(demonstrations="nowhere.npz"))
