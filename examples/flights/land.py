"""The sender of the lots demo: drops New York's flights and weather as files, an hour each, and not all of them.

    python -m examples.flights.land FOLDER --days 3     drops the days' files, and says what is wrong with them
    python -m examples.flights.land FOLDER --late       drops what it left out and comes late

The rows are those of `nycflights`, the first days those of the blizzard of February 2013. What goes wrong is the table
`MISHAPS`, so it is the same every time. A file is written under another name and renamed when it is whole, as every
sender should do it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from examples.flights import nycflights

FIRST_DAY = datetime(2013, 2, 8, tzinfo=UTC)
MAX_DAYS = 3


class Goes(Enum):
    """What becomes of a file that should have come."""

    NEVER = "it never comes"
    LATE = "it comes late"
    HALF = "half of its rows come late, in a second file"
    TWICE = "it is sent twice, the second time under another name"


class Mishap(NamedTuple):
    day: int
    hour: int
    what: str
    goes: Goes


#: Flights are sent for every hour, without rows where no flight leaves. Weather is sent when there is some.
MISHAPS = (
    Mishap(0, 13, "flights", Goes.TWICE),
    Mishap(0, 17, "flights", Goes.NEVER),
    Mishap(1, 6, "weather", Goes.NEVER),
    Mishap(1, 15, "flights", Goes.HALF),
    Mishap(2, 12, "flights", Goes.LATE),
    Mishap(2, 21, "flights", Goes.LATE),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Drop hourly files of flights and weather, with some mishaps.")
    parser.add_argument("folder", type=Path, help="where the files land; it is made if it is not there")
    parser.add_argument("--days", type=int, default=MAX_DAYS, choices=range(1, MAX_DAYS + 1), help="how many days")
    parser.add_argument("--late", action="store_true", help="drop what comes late, and nothing else")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for line in late(given.folder, given.days) if given.late else on_time(given.folder, given.days):
        print(line)


def on_time(folder: Path, days: int) -> Iterator[str]:
    """Everything but what comes late or never; says what that is."""
    mishaps = {(mishap.what, _hour(mishap)): mishap for mishap in _of(days)}
    n_files = n_quiet = 0
    for at in (FIRST_DAY + timedelta(hours=n) for n in range(24 * days)):
        for what in ("flights", "weather"):
            rows, name = _rows(what, at), _name(what, at)
            n_quiet += rows.num_rows == 0
            match mishaps.get((what, at)):
                case None:
                    n_files += _drop(rows, folder / f"{name}.parquet")
                case Mishap(goes=Goes.HALF):
                    n_files += _drop(rows.slice(0, rows.num_rows // 2), folder / f"{name}.parquet")
                case Mishap(goes=Goes.TWICE):
                    n_files += _drop(rows, folder / f"{name}.parquet")
                    n_files += _drop(rows, folder / f"{name}_again.parquet")
    yield f"{n_files} files of {days * 24} hours; {n_quiet} of flights have no rows, because no flight leaves at night."
    for mishap in _of(days):
        yield f"  {_name(mishap.what, _hour(mishap))}.parquet: {mishap.goes.value}"


def late(folder: Path, days: int) -> Iterator[str]:
    """What comes late, now."""
    for mishap in _of(days):
        rows, name = _rows(mishap.what, _hour(mishap)), _name(mishap.what, _hour(mishap))
        match mishap.goes:
            case Goes.LATE:
                _drop(rows, folder / f"{name}.parquet")
                yield f"  {name}.parquet: all of its rows"
            case Goes.HALF:
                _drop(rows.slice(rows.num_rows // 2), folder / f"{name}_more.parquet")
                yield f"  {name}_more.parquet: the other half of its rows"


def _of(days: int) -> list[Mishap]:
    return [mishap for mishap in MISHAPS if mishap.day < days]


def _hour(mishap: Mishap) -> datetime:
    return FIRST_DAY + timedelta(days=mishap.day, hours=mishap.hour)


def _name(what: str, at: datetime) -> str:
    return f"{what}_{at:%Y%m%dT%H%M}"


def _rows(what: str, at: datetime) -> pa.Table:
    table = nycflights.all_flights() if what == "flights" else nycflights.all_weather()
    return table.filter(pc.field("time_hour") == pa.scalar(at, table["time_hour"].type)).combine_chunks()


def _drop(rows: pa.Table, path: Path) -> int:
    """A name with a dot in front is no file yet."""
    growing = path.with_name(f".{path.name}")
    parquet.write_table(rows, growing)
    growing.rename(path)
    return 1


if __name__ == "__main__":
    main()
