"""CSV files as people write them: what stands between their columns, and in their numbers.

Where a comma is the decimal mark, columns stand apart by semicolons or tabs. The file
itself tells both.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from apportion.core.config import UserError, check
from apportion.data.rows import Earned, twice

_NEWLINE = "\r\n"
_FRACTIONS = {mark: re.compile(rf"[+-]?\d*{re.escape(mark)}\d+([eE][+-]?\d+)?") for mark in ".,"}


class Dialect(NamedTuple):
    """How a CSV file is written."""

    mark: str = ","  # between columns
    decimal: str = "."

    def number(self, value: float) -> str:
        """As the file would have it, with all its digits."""
        return repr(value).replace(".", self.decimal)

    def notes(self, path: Path) -> tuple[str, ...]:
        """A sentence where it is not what the name of the format says."""
        if self.mark == ",":
            return ()
        commas = (
            ", and commas are decimal marks: 1,234 is a little more than one" if self.decimal == "," else ""
        )
        return (f"{path} has {self.mark!r} between its columns{commas}",)


def read_dialect(path: Path) -> Dialect:
    """A mark other than a comma is taken where it makes more columns, as many in most of the first rows as in
    the header: a row that is damaged must not hide it. Which decimal mark there is, most numbers with a
    fraction say."""
    columns = {mark: _columns(path, mark) for mark in ",;\t|"}
    mark = max(columns, key=lambda each: columns[each])
    if mark == "," or columns[mark] < 2:
        return Dialect()
    seen = dict.fromkeys(_FRACTIONS, 0)
    for _, cells in csv_records(path, mark):
        for text, (decimal, fraction) in itertools.product(cells, _FRACTIONS.items()):
            seen[decimal] += decimal in text and fraction.fullmatch(text.strip()) is not None
        if sum(seen.values()) > 1000:  # enough numbers with a fraction to tell which mark is theirs
            break
    return Dialect(mark, "," if seen[","] > seen["."] else ".")


def csv_shape(path: Path) -> tuple[Dialect, list[str], int]:
    """How it is written, names of its columns, and how many rows there are."""
    try:
        dialect = read_dialect(path)
        records = csv_records(path, dialect.mark)
        names = next(records, ("", []))[1]
        check(bool(names), f"{path} is empty: write the names of its columns into its first row")
        again = twice(names)
        check(again is None, f"{path} has two columns {again!r}: rename one")
        count = 0
        for count, (_, cells) in enumerate(records, start=1):
            if len(cells) != len(names):
                found = f"{len(cells)} values in {len(names)} columns"
                raise UserError(f"{path}, row {count}: {found}: give one for each, if only an empty one")
        return dialect, names, count
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as CSV ({error}): write it as UTF-8 text") from error


def _columns(path: Path, mark: str, first: int = 20) -> int:
    """How many a mark makes in the header; none where most of the first rows have another number of them."""
    counts = [len(cells) for _, cells in itertools.islice(csv_records(path, mark), first)]
    alike = sum(count == counts[0] for count in counts)
    return counts[0] if 2 * alike > len(counts) else 0  # nor where there is no row at all


def csv_records(path: Path, mark: str) -> Iterator[tuple[str, list[str]]]:
    """Each record of a CSV file, as it stands there (also over several lines) and as cells."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines, held = itertools.tee(file)
        reader, before = csv.reader(lines, delimiter=mark), 0
        for cells in reader:
            text = "".join(itertools.islice(held, reader.line_num - before))
            before = reader.line_num
            yield text, cells


def write(data: str, target: Path, earned: Earned) -> None:
    """Each line as it stands, and more at its end."""
    path = Path(data)
    dialect = read_dialect(path)
    records = csv_records(path, dialect.mark)
    header, names = next(records)
    end = _NEWLINE if header.endswith(_NEWLINE) else "\n"
    new = earned.columns
    before = earned.renamed(names)
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
