"""The lots that a dataset should have in a range, by its partitions definition (rule 10.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from databuild_dagster.model.errors import Refused
from databuild_dagster.model.lots import Cadence
from databuild_dagster.model.refs import Ref

#: Lots of one report.
MAX_LOTS = 1_000_000


class TooManyLots(Refused):
    """A report on {asset} from {start} to {end} would have about {n:,} lots, more than {most:,}."""

    hint = "Ask for a shorter range."


@dataclass(frozen=True)
class Expected:
    """The lots of a dataset that a range should have, each with its ref."""

    asset: str
    cadence: Cadence
    #: The start of the first lot and the end of the last one; the same moment without lots.
    start: float
    end: float
    #: Lot ids, refs and first moments in the order of time, without the lots that the definition leaves out. A lot that has
    #: no id has its partition key for it.
    ids: Sequence[str]
    refs: Sequence[Ref]
    starts: Sequence[float]
    #: Lots of the range before the cadence's first, or not over yet.
    n_outside: int = 0
