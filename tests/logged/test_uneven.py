"""One very long episode among short ones: it costs what it holds, and changes nothing of what is learned."""

from pathlib import Path
from typing import Any

import logged_data as data
import numpy as np
import pytest

import apportion
from apportion.core.types import Sampling
from apportion.training import uneven

SHORT = np.array([3, 5, 8, 4] * 100)
ONE_LONG = np.append(SHORT, 8000)
SAMPLING = Sampling(32)


@pytest.mark.parametrize(
    ("lengths", "sampling", "padded"),
    [
        (SHORT, SAMPLING, (8,)),
        (ONE_LONG, SAMPLING, (8, 8000)),
        (np.append(SHORT, [14, 15]), SAMPLING, (15,)),
        (ONE_LONG, Sampling(32, "length"), (8000,)),  # nearly all steps are those of one
        (ONE_LONG, Sampling(0), (8000,)),
        (np.append(SHORT, [8000] * 100), SAMPLING, (8000,)),  # each update has some
    ],
)
def test_updates_are_padded_less_where_that_saves_much(
    lengths: Any, sampling: Sampling, padded: tuple[int, ...]
) -> None:
    assert uneven.paddings(lengths, sampling, 1, int(lengths.max())) == padded


def test_groups_hold_every_episode_once_and_what_is_held_out_alone_needs_no_padding() -> None:
    """Neither what is a little longer, nor what is much."""
    assert uneven.paddings(SHORT, SAMPLING, 1, 9) == (9,)
    assert uneven.paddings(SHORT, SAMPLING, 1, 8000) == (8,)
    assert [group.steps for group in uneven.groups(SHORT, 9)] == [9]
    assert [group.steps for group in uneven.groups(SHORT, 8000)] == [8]
    found = uneven.groups(np.insert(SHORT, 2, 8000), 8000)
    assert [group.steps for group in found] == [8, 8000]
    assert found[1].numbers.tolist() == [2]
    np.testing.assert_array_equal(np.sort(np.concatenate([each.numbers for each in found])), range(401))


def uneven_log(path: Path) -> Path:
    """The first episode has 300 steps, as many as all others together."""
    rng = np.random.default_rng(1)
    seen, done = rng.normal(size=(301, 3)), rng.uniform(0, 10, (300, 1))
    return data.write_csv(path, data.table([(seen, done, seen[:-1, 0]), *data.episodes(60)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "seed"), [("grd", 0), ("grd", 3), ("rd", 0), ("rrd", 0), ("transformer", 0), ("diaster", 0)]
)
def test_padding_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, seed: int
) -> None:
    """Whether the long one is held out (seed 3) or not. But for rounding: these are five updates only."""
    file, found = uneven_log(tmp_path / "log.csv"), []
    settings = {"updates": 5, "check_every": 5, "method.segments": 4}
    for worth in (0.5, 0.0):
        monkeypatch.setattr(uneven, "WORTH", worth)
        run = apportion.fit(
            file, method, out=tmp_path / f"{worth}", seed=seed, seeds=2, settings=settings, quiet=True
        )
        apportion.relabel(run, file, tmp_path / "new.csv")
        found.append(data.column(tmp_path / "new.csv"))
        (tmp_path / "new.csv").unlink()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-3 * np.std(found[1]))
