"""The same log with more columns: row for row, and nothing else touched."""

import csv
import io
import shutil
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from apportion.core.config import UserError, check
from apportion.data import d3rlpy, json_lines, minari_sets, tables
from apportion.data.csv_files import csv_records, read_dialect
from apportion.data.logged import load_npz
from apportion.data.rows import Rows

_NEWLINE = "\r\n"
REWARD, PAID, CREDIT = "reward", "paid_reward", "credit"
CHANGE = "probability_change"

Floats = NDArray[np.float64]
Credit = dict[str, Floats]  # [N] of each dimension, and the baseline


def check_target(data: str, out: str) -> None:
    """Before the work begins: the same format, and another place."""
    one, other = Path(data), Path(out)
    check(
        one.suffix == other.suffix,
        f"--out {out}: its name must end in {one.suffix or 'nothing'!r}, as {data}",
    )
    check(one.resolve() != other.resolve(), f"--out {out} is the data itself: name another file")


def write_copy(data: str, target: Path, rows: Rows, reward: Floats, credit: Credit, bounds: Credit) -> None:
    """A copy of a file with the reward of each step, who earned it, and between which bounds."""
    path = Path(data)
    if path.suffix in tables.CSV:
        return _write_csv(path, target, _columns(reward, credit, bounds))
    if path.suffix in tables.PARQUET:
        return _write_parquet(path, target, _columns(reward, credit, bounds))
    if path.suffix in json_lines.JSON_LINES:
        return json_lines.write_json_lines(
            path, target, rows, _columns(reward, credit, bounds), {REWARD: PAID}
        )
    if path.suffix in d3rlpy.HDF5:
        return _write_hdf5(path, target, rows, reward, credit, bounds)
    return _write_npz(path, target, rows, reward, credit, bounds)


def _columns(reward: Floats, credit: Credit, bounds: Credit) -> Credit:
    return {REWARD: reward, **{f"{CREDIT}_{name}": values for name, values in credit.items()}, **bounds}


def _renamed(source: str, names: list[str], new: Credit) -> list[str]:
    """Names of the columns that were there: a reward is kept as what was paid."""
    before = [PAID if name == REWARD else name for name in names]
    taken = [name for place, name in enumerate(before) if name in before[:place] or name in new]
    check(not taken, f"{source} has a column {taken[0] if taken else ''!r} already: rename it first")
    return before


def _write_csv(path: Path, target: Path, new: Credit) -> None:
    """Each line as it stands, and more at its end."""
    dialect = read_dialect(path)
    records = csv_records(path, dialect)
    header, names = next(records)
    end = "\r\n" if header.endswith("\r\n") else "\n"
    before = _renamed(str(path), names, new)
    cells = zip(*(values.tolist() for values in new.values()), strict=True)
    with target.open("w", newline="", encoding="utf-8") as file:
        first = header.rstrip(_NEWLINE) if before == names else _cells(before, dialect.mark)
        file.write(f"{first}{dialect.mark}{_cells(list(new), dialect.mark)}{end}")
        for (text, _), values in zip(records, cells, strict=True):
            more = dialect.mark.join(map(dialect.number, values))
            file.write(f"{text.rstrip(_NEWLINE)}{dialect.mark}{more}{end}")


def _cells(values: list[str], mark: str) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="", delimiter=mark).writerow(values)
    return line.getvalue()


def _write_parquet(path: Path, target: Path, new: Credit) -> None:
    polars = tables.polars()
    table = polars.scan_parquet(path, glob=False)
    names = table.collect_schema().names()
    before = _renamed(str(path), names, new)
    table = table.rename({old: name for old, name in zip(names, before, strict=True) if old != name})
    polars.concat([table, polars.LazyFrame(new)], how="horizontal").sink_parquet(target)


def _write_npz(path: Path, target: Path, rows: Rows, reward: Floats, credit: Credit, bounds: Credit) -> None:
    arrays = load_npz(path, others=True)
    if d3rlpy.is_flat(arrays):
        paid = np.asarray(arrays["rewards"])
        arrays |= {"rewards": _like(reward, paid), f"{PAID}s": paid, **bounds}
        arrays |= _stacked(credit)
    else:
        longest = arrays["actions"].shape[1]
        arrays |= {name: _padded(rows, each, longest) for name, each in {REWARD: reward, **bounds}.items()}
        arrays |= {
            name: _padded(rows, array, longest) for name, array in _stacked(credit).items() if array.ndim > 1
        }
        arrays |= {name: array for name, array in _stacked(credit).items() if array.ndim == 1}
    with target.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _like(reward: Floats, paid: NDArray[Any]) -> NDArray[Any]:
    """In the shape of what was paid, and in its precision, unless that knows whole numbers only."""
    kind = paid.dtype if np.issubdtype(paid.dtype, np.floating) else np.float32
    return reward.reshape(paid.shape).astype(kind)


def _padded(rows: Rows, values: Floats, longest: int) -> Floats:
    """[E, T, ...] with zeros where an episode has ended."""
    padded = np.zeros((len(rows.lengths), longest, *values.shape[1:]))
    padded[np.arange(longest) < rows.lengths[:, None]] = values
    return padded


def _stacked(credit: Credit) -> dict[str, NDArray[Any]]:
    """[N, D] under one name, and what its columns are called."""
    if not credit:
        return {}
    return {CREDIT: np.column_stack(list(credit.values())), f"{CREDIT}_names": np.array(list(credit))}


def _write_hdf5(path: Path, target: Path, rows: Rows, reward: Floats, credit: Credit, bounds: Credit) -> None:
    shutil.copyfile(path, target)
    stacked = _stacked(credit)
    with d3rlpy.h5py().File(target, "r+") as file:
        flat = d3rlpy.is_flat(file)
        parts = [""] if flat else [f"_{number}" for number in range(len(rows.lengths))]
        rewards = [reward] if flat else rows.split(reward)
        shares = (
            [None] * len(parts) if not credit else [stacked[CREDIT]] if flat else rows.split(stacked[CREDIT])
        )
        for part, given, share in zip(parts, rewards, shares, strict=True):
            paid = file[f"rewards{part}"][()]
            file[f"{PAID}s{part}"] = paid
            del file[f"rewards{part}"]  # which may hold whole numbers only
            file[f"rewards{part}"] = _like(given, paid)
            if share is not None:
                file[f"{CREDIT}{part}"] = share
        for name, values in bounds.items():
            for part, own in zip(parts, [values] if flat else rows.split(values), strict=True):
                file[f"{name.replace('/', '-')}{part}"] = own
        if credit:
            file[f"{CREDIT}_names"] = list(credit)


def relabelled_id(name: str, method: str) -> str:
    """A new name beside a Minari data set's own: NAME-METHOD-v0."""
    base, _, version = name.rpartition("-v")
    return f"{base if version.isdigit() else name}-{method}-v0"


def write_minari(name: str, new: str, rows: Rows, reward: Floats, credit: Credit, bounds: Credit) -> None:
    """A new data set with the same episodes, the learned rewards in the place of those paid, which are kept
    among the infos."""
    package, found = minari_sets.minari(), minari_sets.open_set(name)
    check(
        new not in package.list_local_datasets(),
        f"there is a Minari data set {new!r} already: name another --out",
    )
    from minari.data_collector import EpisodeBuffer

    stacked = _stacked(credit).get(CREDIT)
    shares = [None] * len(rows.lengths) if stacked is None else rows.split(stacked)
    ends = {key: rows.split(values) for key, values in bounds.items()}
    buffers = []
    pairs = zip(found.iterate_episodes(), rows.split(reward), shares, strict=True)
    for number, (episode, given, share) in enumerate(pairs):
        infos: dict[str, Any] = {PAID: _one_more(np.asarray(episode.rewards, np.float64))}
        infos |= {key: _one_more(each[number]) for key, each in ends.items()}
        if share is not None:
            infos |= {f"{CREDIT}_{key}": _one_more(share[:, place]) for place, key in enumerate(credit)}
        buffers.append(
            EpisodeBuffer(
                id=episode.id,
                observations=episode.observations,
                actions=episode.actions,
                rewards=given.tolist(),
                terminations=episode.terminations.tolist(),
                truncations=episode.truncations.tolist(),
                infos=infos,
            )
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it complains of authors and addresses that are not given
            package.create_dataset_from_buffers(
                new,
                buffers,
                env=_known(found.env_spec),
                observation_space=found.observation_space,
                action_space=found.action_space,
                algorithm_name="apportion relabel",
                description=f"{name} with learned rewards of single steps",
            )
    except ValueError as error:
        raise UserError(f"--out {new}: {' '.join(str(error).split())}") from error


def _known(spec: Any) -> Any:
    """The environment that a data set is of, where it can be made here."""
    return spec if spec is not None and spec.id in gymnasium.registry else None


def _one_more(values: Floats) -> Floats:
    """Infos have one entry more than steps, the first of a reset: nothing was paid then."""
    return np.concatenate([np.zeros(1), values])
