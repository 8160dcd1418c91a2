"""The moment that a person names as the end of a range of lots: a lot, a partition key, a day or a time (rule 10.7)."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

from databuild_dagster.bindings.registry.cadences import Lots
from databuild_dagster.bindings.registry.lot_partitions import NoLotKey
from databuild_dagster.model.errors import InvalidRequest


class InvalidTime(InvalidRequest):
    """{what} is {value!r}, which is not possible: {why}."""

    hint = (
        "Write a partition key, a day such as 2023-02-27, a time with its offset such as 2023-02-27T23:55Z, or a lot id if "
        "its lots have ids."
    )


def moment_of(name: str, text: str | None, lots: Lots) -> float | None:
    """The moment of an end of the range: a lot or a partition key, which begins there, a day of the partitions' zone, or a time.

    `name` is the option or parameter, for messages. Raises `InvalidTime`, `InvalidLot`, `NoLotKey`.
    """
    if text is None:
        return None
    try:
        return lots.start_of(text)
    except NoLotKey as error:
        no_key = error
    if text[:1].isdigit() and "P" in text.upper():
        return lots.start_of_lot(text)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        pass
    else:
        return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(lots.cadence.timezone)).timestamp()
    try:
        at = datetime.fromisoformat(text)
        why = "it does not say in which time zone" if at.utcoffset() is None else None
    except ValueError:
        why = "that is no day, no time and no lot"
    if why is not None:
        raise InvalidTime(what=name, value=text, why=f"{why}, and as a partition key {no_key.facts['why']}")
    return at.timestamp()
