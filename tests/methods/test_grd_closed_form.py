"""GRD in closed form: edges and most of the reward by regression, and a judge that keeps them honest."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import builders
from apportion.core.types import Edges, Record
from apportion.graph import additive, find_endings
from apportion.graph.certificate import Doubt, marked
from apportion.graph.looking import Searched
from apportion.methods import grd
from apportion.methods.grd import closed_form, judge, parts
from apportion.methods.grd.closed_form import FREE, RESTRICTED, Rewards, State
from apportion.nn.networks import MLP

CONFIG = grd.Config(hidden=(8, 8), segments=2)
SEGMENTS = builders.segments(1, 9)._replace(terminated=jnp.arange(9) % 2 == 0)
METHOD = grd.make(CONFIG)
GRAPH: Any = METHOD.graph


def _records(count: int) -> list[Record]:
    """Totals that depend on the first state only; the states are independent of everything."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        observations = rng.normal(size=(6, 3)).astype(np.float32)
        actions = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
        found.append(Record(observations, actions, float(observations[:-1, 0].sum()), False, number))
    return found


@pytest.fixture(scope="module")
def state() -> State:
    return builders.initial(METHOD)


def _look(state: State, records: list[Record], segments: int | None = None) -> State:
    assert METHOD.revision is not None
    looked = METHOD.revision.look(state, records, len(records) if segments is None else segments)
    return METHOD.revision.accept(state, looked)


# --- Searches for edges


def test_edges_are_all_on_until_the_data_can_tell(state: State) -> None:
    for unsure in (state, _look(state, _records(50))):
        assert all(np.all(block == 1) for block in unsure.edges)
        assert all(np.all(block == 0.5) for block in GRAPH.edges(unsure))  # on, but not known to be there
    found = _look(state, _records(300))
    assert found.edges.state_to_reward.tolist() == [1, 0, 0]
    assert GRAPH.edges(found).state_to_reward.tolist() == [1, 0, 0]
    assert GRAPH.edges(found).action_to_reward.tolist() == [0, 0]


def test_the_policy_also_sees_what_ends_episodes_and_remembers_it_when_they_have_left_the_replay(
    state: State,
) -> None:
    records = [record._replace(terminated=bool(record.observations[-1, 1] > 0.5)) for record in _records(300)]
    found = _look(state, records)
    assert found.looked.ends.tolist() == [0, 1, 0]
    assert found.edges.state_to_reward.tolist() == [1, 0, 0]
    assert METHOD.policy_mask(_trusting(found)).tolist() == [1, 1, 0]
    later = _look(found, _records(300), 600)  # in which no episode ends by itself
    assert later.looked.ends.tolist() == [0, 1, 0]


def test_the_state_says_what_speaks_against_its_edges(state: State) -> None:
    assert marked(GRAPH.doubts(state).tolist()) == [Doubt.NOT_SEARCHED]
    assert marked(GRAPH.doubts(_look(state, _records(300))).tolist()) == []
    noise = np.random.default_rng(1).normal(size=300)
    noisy = [record._replace(total=float(total)) for record, total in zip(_records(300), noise, strict=True)]
    doubts = marked(GRAPH.doubts(_look(state, noisy)).tolist())
    assert doubts
    assert all(doubt.of_reward for doubt in doubts)


def test_noise_takes_no_edge_away(state: State) -> None:
    noise = [record._replace(total=float(i % 7)) for i, record in enumerate(_records(300))]
    found = _look(state, noise)
    assert np.all(found.edges.state_to_reward == 1)
    assert np.all(found.edges.action_to_reward == 1)


@pytest.mark.parametrize(
    ("doubts", "to_reward"),
    [((), [1, 1, 0]), ((Doubt.FEW_TRANSITIONS,), [1, 1, 0]), ((Doubt.LITTLE_EXPLAINED,), [1, 0, 0])],
)
def test_an_edge_goes_only_when_its_absence_is_known(doubts: tuple[Doubt, ...], to_reward: list[int]) -> None:
    known = np.array([1, 0.5, 0], np.float32)
    found = Searched([known] * 4, doubts, find_endings([np.zeros((2, 3))], np.zeros(1, np.bool_)))
    for was in (0.0, 1.0):
        after = found.edges_after([np.full(3, was, np.float32)] * 4)
        assert all(each.dtype == np.float32 for each in after)
        assert [each.tolist() for each in after[:2]] == [to_reward if was == 0 else [1, 1, 0]] * 2
        assert [each.tolist() for each in after[2:]] == [[1, was, 0]] * 2


def test_of_two_that_stand_for_each_other_one_stays_on_however_searches_differ() -> None:
    endings = find_endings([np.zeros((2, 2))], np.zeros(1, np.bool_))
    on = [np.ones(2, np.float32)]
    for known in ([0.5, 0], [0, 0.5], [0.5, 0]):
        on = Searched([np.array(known, np.float32)], (), endings).edges_after(on)
        assert on[0].any()


def test_the_additive_reward_is_fitted_at_every_look_and_the_edges_when_segments_have_doubled(
    state: State,
) -> None:
    early = _look(state, _records(40))
    assert int(early.looked.searched) == 0
    assert np.any(early.rewards.bases.weights[RESTRICTED] != 0)
    assert np.all(early.edges.state_to_reward == 1)
    first = _look(early, _records(300))
    assert int(first.looked.searched) == 300
    assert not np.any(first.rewards.bases.weights[RESTRICTED, 1:])  # what has no edge has no say
    assert int(_look(first, _records(300), 599).looked.searched) == 300
    assert int(_look(first, _records(300), 600).looked.searched) == 600


# --- The two rewards


def _mlp(network: MLP, place: int, x: np.ndarray) -> np.ndarray:
    layers = list(zip(network.weights, network.biases, strict=True))
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ weight[place] + bias[place], 0)
    return np.asarray(x @ layers[-1][0][place] + layers[-1][1][place])


def _plain_errors(state: State, place: int) -> tuple[list[float], list[int]]:
    """(Σ r̂ - total) / T of the builders' segments by one of the two rewards, step by step."""
    segments = builders.numpy(SEGMENTS)
    on = np.asarray(parts.reward_mask(state.edges))
    mask = np.concatenate([on, np.zeros(3), [1.0]]) if place == RESTRICTED else np.ones(9)
    base = jax.tree.map(lambda leaf: leaf[place], state.rewards.bases)
    errors = []
    for m, length in enumerate(segments.length):
        total = 0.0
        for t in range(length):
            before, after = segments.observations[m, t], segments.observations[m, t + 1]
            x = np.concatenate([before, segments.actions[m, t]])
            end = float(segments.terminated[m] and t == length - 1)
            seen = np.concatenate([x, after - before, [end]]) * mask
            rest = _mlp(builders.numpy(state.rewards.networks), place, seen)[0]
            total += float(additive.predict(base, jnp.append(x, end)[None])[0] + base.error * rest)
        errors.append((total - float(segments.total[m])) / length)
    return errors, segments.length.tolist()


def _with_bases(state: State) -> State:
    """Bases that say something, and an edge that is off."""
    bases = state.rewards.bases._replace(
        offset=jnp.asarray([2.0, -1.0]),
        error=jnp.asarray([0.5, 3.0]),
        weights=state.rewards.bases.weights.at[RESTRICTED, 0].set(0.7),
    )
    edges = state.edges._replace(state_to_reward=jnp.asarray([1.0, 0.0, 1.0]))
    return state._replace(rewards=state.rewards._replace(bases=bases), edges=edges)


def test_losses_and_held_out_errors_equal_numpy(state: State) -> None:
    """Segments teach by their length, and one in eight teaches nothing: the error of its total judges."""
    state = _with_bases(state)
    data = builders.batch(0, 4, 9)._replace(segments=SEGMENTS)
    after, metrics = jax.jit(METHOD.update)(state, data, jax.random.key(1))
    for place, loss, held_out in (
        (RESTRICTED, "reward_loss", "held_out_error"),
        (FREE, "free_reward_loss", "free_held_out_error"),
    ):
        errors, lengths = map(np.asarray, _plain_errors(state, place))
        kept = judge.is_held_out(np.arange(9))
        learned = np.average(np.square(errors)[~kept], weights=lengths[~kept])
        np.testing.assert_allclose(metrics[loss], learned, rtol=1e-4)
        judged = np.average(np.square(errors)[kept], weights=np.square(lengths)[kept])
        np.testing.assert_allclose(metrics[held_out], np.sqrt(judged), rtol=1e-4)
    assert set(metrics) == {
        *("reward_loss", "free_reward_loss", "held_out_error", "free_held_out_error"),
        "restricted_share",
        *(f"{block}_on" for block in Edges._fields),
    }
    assert after.judge.known > 0


def test_held_out_segments_teach_nothing(state: State) -> None:
    data = builders.batch(0, 4, 9)
    assert data.segments is not None
    kept = judge.is_held_out(data.segments.number)
    assert 0 < kept.sum() < len(kept)
    other = data.segments._replace(total=jnp.where(kept, 1e3, data.segments.total))
    update = jax.jit(METHOD.update)
    found, expected = (
        update(state, data._replace(segments=s), jax.random.key(0))[0] for s in (other, data.segments)
    )
    builders.assert_equal(found.rewards, expected.rewards)
    assert found.judge.squares[FREE] > expected.judge.squares[FREE]


def test_nothing_is_fitted_to_held_out_segments(state: State) -> None:
    records = _records(100)
    kept = judge.is_held_out(np.array([record.number for record in records]))
    other = [record._replace(total=1e3) if out else record for record, out in zip(records, kept, strict=True)]
    builders.assert_equal(_look(state, other).rewards, _look(state, records).rewards)


def test_one_segment_in_eight_is_held_out_at_every_place_of_an_episode() -> None:
    numbers = np.arange(16_000)
    kept = judge.is_held_out(numbers)
    assert judge.is_held_out(jnp.asarray(numbers, jnp.int32)).tolist() == kept.tolist()
    for windows in (5, 8, 16):
        shares = [kept[numbers % windows == place].mean() for place in range(windows)]
        assert 0.09 < min(shares) <= max(shares) < 0.16


def test_without_an_edge_the_restricted_reward_tells_only_ends_from_other_steps(state: State) -> None:
    off = state._replace(edges=jax.tree.map(jnp.zeros_like, state.edges))
    steps = builders.transitions(0, 6)._replace(terminated=jnp.zeros(6, bool))
    rewards = METHOD.reward(_trusting(off), steps)
    np.testing.assert_allclose(rewards, np.full(6, float(rewards[0])), rtol=1e-6)
    assert np.ptp(METHOD.reward(off, steps)) > 1e-3
    ends = steps._replace(terminated=jnp.arange(6) == 0)
    assert np.ptp(METHOD.reward(_trusting(off), ends)) > 1e-6


def test_another_base_leaves_what_the_networks_add_as_it_was(state: State) -> None:
    """And the free reward as a whole: its base is a constant, which its network can make up for."""
    state = _with_bases(state)
    new = state.rewards.bases._replace(offset=jnp.asarray([5.0, 4.0]), error=jnp.asarray([0.1, 0.7]))
    after = closed_form.rebased(state.rewards, new, learned=jnp.asarray(True))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 9)), jnp.float32)
    masks = jnp.ones((2, 9))

    def predict(rewards: Rewards) -> np.ndarray:
        return np.asarray(closed_form.predict(rewards, masks, x))

    before, now = predict(state.rewards), predict(after)
    np.testing.assert_allclose(now[FREE], before[FREE], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(now[RESTRICTED], before[RESTRICTED] + 3.0, rtol=1e-5, atol=1e-5)


def test_networks_that_have_learned_nothing_start_at_size_one_in_any_unit(state: State) -> None:
    small, large = (
        closed_form.rebased(state.rewards, state.rewards.bases._replace(error=error), jnp.asarray(False))
        for error in (jnp.full(2, 1e-6), jnp.full(2, 1e6))
    )
    builders.assert_equal(small.networks, state.rewards.networks)
    builders.assert_equal(large.networks, state.rewards.networks)


# --- The judge


def _watched(ratio: float, trusted: float, times: int = 60) -> judge.Judge:
    """After many held-out segments whose squared errors have this ratio, restricted to free."""
    found = judge.start()._replace(trusted=jnp.asarray(trusted))
    errors = jnp.sqrt(jnp.asarray([[ratio] * 4, [1.0] * 4]))
    for _ in range(times):
        found = judge.watch(found, errors, jnp.asarray([5.0, 0.0, 2.0, 0.0]))
    return found


@pytest.mark.parametrize(
    ("ratio", "before", "after"), [(0.5, 0, 1), (2.0, 1, 0), (0.8, 0, 0), (0.8, 1, 1), (1.0, 1, 0)]
)
def test_the_restricted_reward_is_trusted_while_it_is_clearly_better(
    ratio: float, before: float, after: float
) -> None:
    found = _watched(ratio, before)
    assert float(found.trusted) == after
    np.testing.assert_allclose(judge.root_errors(found), np.sqrt([ratio, 1.0]), rtol=1e-4)


def test_of_two_rewards_the_worse_one_hardly_counts_and_few_segments_decide_nothing() -> None:
    assert float(judge.share(_watched(0.5, 0.0))) == 1
    np.testing.assert_allclose(judge.share(_watched(3.0, 0.0)), 0.1, rtol=1e-4)
    np.testing.assert_allclose(judge.share(_watched(1.0, 0.0)), 0.5, rtol=1e-4)
    assert float(judge.share(judge.start())) == 0.5
    assert float(_watched(0.01, 0.0, times=2).trusted) == 0
    assert float(_watched(100.0, 1.0, times=2).trusted) == 1


def test_the_judge_s_running_means_equal_numpy() -> None:
    """Whichever segments come together: of no, one or two that are held out in each batch."""
    rng = np.random.default_rng(0)
    errors, importance = rng.normal(size=(50, 2, 3)), rng.integers(1, 200, (50, 3)) ** 2.0
    importance *= np.arange(3) < rng.integers(0, 3, (50, 1))
    found, squares, weight, known = judge.start(), np.zeros(2), 0.0, 0.0
    for batch, counts in zip(errors, importance, strict=True):
        found = judge.watch(found, jnp.asarray(batch, jnp.float32), jnp.asarray(counts, jnp.float32))
        number = np.count_nonzero(counts)
        if number:
            fade = 1 - number / judge.MEMORY
            squares = fade * squares + (1 - fade) * (batch**2 @ counts) / number
            weight = fade * weight + (1 - fade) * counts.sum() / number
            known = fade * known + (1 - fade)
    np.testing.assert_allclose(judge.root_errors(found), np.sqrt(squares / weight), rtol=1e-4)
    np.testing.assert_allclose(found.known, known, rtol=1e-4)


def _trusting(state: State) -> State:
    return state._replace(judge=state.judge._replace(trusted=jnp.ones(())))


def test_without_trust_the_policy_sees_everything(state: State) -> None:
    found = _look(state, _records(300))
    trusting = _trusting(found)
    assert METHOD.policy_mask(trusting).tolist() == [1, 0, 0]
    assert METHOD.policy_mask(found).tolist() == [1, 1, 1]
    assert GRAPH.reads(trusting).tolist() == [1, 0, 0, 0, 0]
    assert GRAPH.reads(found).tolist() == [1, 1, 1, 1, 1]
    steps = builders.transitions(0, 6)
    shifted = steps._replace(observation=steps.observation.at[:, 1:].add(5.0))
    np.testing.assert_array_equal(METHOD.reward(trusting, shifted), METHOD.reward(trusting, steps))
    assert np.all(METHOD.reward(found, shifted) != METHOD.reward(found, steps))


# --- How much it looks at


@pytest.mark.parametrize(
    ("longest", "segments", "every"),
    [(1000, 4, 10), (500, 8, 10), (100, 8, 2), (40, 8, 1), (20, 8, 1), (10_000, 4, 100)],
)
def test_short_segments_are_seen_more_often(longest: int, segments: int, every: int) -> None:
    sampling = grd.make(grd.Config()).sampling.suited(longest)
    assert (sampling.segments, sampling.every) == (segments, every)


def test_numbers_that_are_given_hold_for_any_length() -> None:
    sampling = grd.make(grd.Config(segments=7, update_every=3)).sampling.suited(20)
    assert (sampling.segments, sampling.every) == (7, 3)
