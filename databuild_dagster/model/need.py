"""The table that decides whether a ref is built, and why: the tick executes it and every answer reads it (rules 5.4, 6.2, 11.1).

A column is a fact about a ref. A row leaves out the facts that do not matter to it. The import fails unless exactly one row
decides each combination of facts.
"""

from collections.abc import Iterable
from enum import Enum
from itertools import product
from typing import NamedTuple

from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.machine import Label
from databuild_dagster.model.states import InstanceState


class Data(Label):
    """The data of the ref: the state of its canonical instance, as far as the table needs it."""

    LIVE = "live"
    BUILDING = "building"
    WAITING = "waiting"
    FAILED = "failed"
    FAILED_UPSTREAM = "failed upstream"
    #: It is missing, tainted or up for retry: a job run may build it (rule 4.5).
    OPEN = "open"


class Maker(Label):
    """The maker of the ref's data."""

    JOB = "job"
    #: A plain source, made outside.
    SOURCE = "source"
    #: Files from outside become its lots.
    BOUNDARY = "boundary"
    #: A job, which nothing launches while the ref is paused (rule 6.13).
    PAUSED = "paused"
    #: No code location has registered its asset or its partition.
    NOTHING = "nothing"


class Wanted(Label):
    """The open wants of the ref."""

    NO = "no"
    #: The TTL of each open want has passed.
    EXPIRED = "expired"
    #: The ref is wanted, and its retry comes later.
    LATER = "later"
    NOW = "now"


class Inputs(Label):
    """The inputs of the ref."""

    LIVE = "live"
    #: A declared input is not live.
    MISSING = "missing"
    #: An input that only the last call named is being built, or is about to be (rule 6.3).
    LEARNED = "learned"


class Room(Label):
    """The room that the limits of a tick, and its surroundings, leave to the ref's launch."""

    FREE = "free"
    #: As many due refs as a level of planning looks at are more urgent.
    NOT_LOOKED_AT = "not looked at"
    #: As many launches of its job as may be are out, or are more urgent.
    JOB_FULL = "job full"
    #: As many launches of its location as may be are out, or are more urgent.
    LOCATION_FULL = "location full"
    #: As many launches as a tick starts are more urgent.
    TICK_FULL = "tick full"
    #: Spark or the warehouse is out of reach (rule 6.17).
    OUTAGE = "outage"


class Action(Label):
    """The action of the next tick on the ref."""

    #: It launches it.
    BUILD = "build"
    #: It records a dep miss, which wants the missing inputs.
    MISS = "miss"
    #: Nothing yet: it waits for an event that needs no person.
    WAIT = "wait"
    #: Nothing: it needs a person, or data from outside.
    BLOCKED = "blocked"
    #: Nothing is to be done.
    REST = "rest"


class Reason(Label):
    """The reason of each row."""

    LIVE = "it is live"
    BUILDING = "a job run builds it"
    WAITING = "it waits for its inputs"
    FAILED = "it failed"
    FAILED_UPSTREAM = "what it needs failed"
    UNBUILDABLE = "nothing can build it"
    SOURCE = "it is a source that has not appeared"
    NOT_ARRIVED = "its files have not arrived"
    PAUSED = "it is paused"
    UNWANTED = "no open want names it"
    EXPIRED = "the TTL of its wants has passed"
    BACKING_OFF = "its retry comes later"
    NOT_LOOKED_AT = "more urgent refs fill the number that a tick looks at"
    MISSES_INPUTS = "declared inputs are not live"
    LEARNED_INPUTS = "an input that its last call named is on its way"
    JOB_FULL = "its job has as many launches out as it may have"
    LOCATION_FULL = "its location has as many launches out as it may have"
    TICK_FULL = "more urgent launches fill the number that a tick starts"
    OUTAGE = "what its launch needs is out of reach"
    DUE = "nothing keeps it"


class LeadsTo(Label):
    """The refs that are the cause."""

    NONE = "none"
    #: Refs that its last job run found missing.
    FOUND_MISSING = "found missing"
    #: Its declared inputs that are not live.
    DECLARED = "declared"
    #: Inputs that only its last call named.
    LEARNED = "learned"


class Need(NamedTuple):
    """A row: its facts, None for any, and the result."""

    data: Data
    maker: Maker | None
    wanted: Wanted | None
    inputs: Inputs | None
    room: Room | None
    action: Action
    reason: Reason
    leads_to: LeadsTo = LeadsTo.NONE


_D, _M, _W, _I, _R = Data, Maker, Wanted, Inputs, Room
_A, _Y, _L = Action, Reason, LeadsTo

NEEDS = (
    Need(_D.LIVE, None, None, None, None, _A.REST, _Y.LIVE),
    Need(_D.BUILDING, None, None, None, None, _A.WAIT, _Y.BUILDING),
    # Its inputs may become live, and nothing is built then (rule 6.12).
    Need(_D.WAITING, _M.NOTHING, None, None, None, _A.BLOCKED, _Y.UNBUILDABLE),
    *(
        Need(_D.WAITING, maker, None, None, None, _A.WAIT, _Y.WAITING, _L.FOUND_MISSING)
        for maker in Maker
        if maker is not _M.NOTHING
    ),
    Need(_D.FAILED, None, None, None, None, _A.BLOCKED, _Y.FAILED),
    Need(_D.FAILED_UPSTREAM, None, None, None, None, _A.BLOCKED, _Y.FAILED_UPSTREAM, _L.FOUND_MISSING),
    Need(_D.OPEN, _M.NOTHING, None, None, None, _A.BLOCKED, _Y.UNBUILDABLE),
    Need(_D.OPEN, _M.SOURCE, None, None, None, _A.BLOCKED, _Y.SOURCE),
    Need(_D.OPEN, _M.BOUNDARY, None, None, None, _A.BLOCKED, _Y.NOT_ARRIVED),
    *(Need(_D.OPEN, maker, _W.NO, None, None, _A.REST, _Y.UNWANTED) for maker in (_M.JOB, _M.PAUSED)),
    *(Need(_D.OPEN, maker, _W.EXPIRED, None, None, _A.REST, _Y.EXPIRED) for maker in (_M.JOB, _M.PAUSED)),
    *(Need(_D.OPEN, _M.PAUSED, wanted, None, None, _A.BLOCKED, _Y.PAUSED) for wanted in (_W.LATER, _W.NOW)),
    Need(_D.OPEN, _M.JOB, _W.LATER, None, None, _A.WAIT, _Y.BACKING_OFF),
    # A tick does not ask for the inputs of refs that it does not look at.
    Need(_D.OPEN, _M.JOB, _W.NOW, None, _R.NOT_LOOKED_AT, _A.WAIT, _Y.NOT_LOOKED_AT),
    # A dep miss is no launch, so it needs no room.
    *(
        Need(_D.OPEN, _M.JOB, _W.NOW, _I.MISSING, room, _A.MISS, _Y.MISSES_INPUTS, _L.DECLARED)
        for room in Room
        if room is not _R.NOT_LOOKED_AT
    ),
    *(
        Need(_D.OPEN, _M.JOB, _W.NOW, _I.LEARNED, room, _A.WAIT, _Y.LEARNED_INPUTS, _L.LEARNED)
        for room in Room
        if room is not _R.NOT_LOOKED_AT
    ),
    Need(_D.OPEN, _M.JOB, _W.NOW, _I.LIVE, _R.JOB_FULL, _A.WAIT, _Y.JOB_FULL),
    Need(_D.OPEN, _M.JOB, _W.NOW, _I.LIVE, _R.LOCATION_FULL, _A.WAIT, _Y.LOCATION_FULL),
    Need(_D.OPEN, _M.JOB, _W.NOW, _I.LIVE, _R.TICK_FULL, _A.WAIT, _Y.TICK_FULL),
    Need(_D.OPEN, _M.JOB, _W.NOW, _I.LIVE, _R.OUTAGE, _A.WAIT, _Y.OUTAGE),
    Need(_D.OPEN, _M.JOB, _W.NOW, _I.LIVE, _R.FREE, _A.BUILD, _Y.DUE),
)

DATA_OF_STATE: dict[InstanceState | None, Data] = {
    None: _D.OPEN,
    InstanceState.TAINTED: _D.OPEN,
    InstanceState.UP_FOR_RETRY: _D.OPEN,
    InstanceState.BUILDING: _D.BUILDING,
    InstanceState.UPSTREAM_BUILDING: _D.WAITING,
    InstanceState.LIVE: _D.LIVE,
    InstanceState.FAILED: _D.FAILED,
    InstanceState.UPSTREAM_FAILED: _D.FAILED_UPSTREAM,
}
MAKER_OF_KIND: dict[DatasetKind | None, Maker] = {
    None: _M.NOTHING,
    DatasetKind.OURS: _M.JOB,
    DatasetKind.PLAIN: _M.JOB,
    DatasetKind.SOURCE: _M.SOURCE,
    DatasetKind.BOUNDARY: _M.BOUNDARY,
}


def maker_of(kind: DatasetKind | None, *, is_paused: bool) -> Maker:
    """The maker of a ref of a dataset of the given kind; `kind` is None for an unregistered dataset."""
    maker = MAKER_OF_KIND[kind]
    return Maker.PAUSED if is_paused and maker is Maker.JOB else maker


def decided(needs: Iterable[Need]) -> dict[tuple[Enum, ...], Need]:
    """The row of each combination of facts. Raises `ValueError` for a combination of no row or of two."""
    columns = tuple(tuple(column) for column in (Data, Maker, Wanted, Inputs, Room))
    table: dict[tuple[Enum, ...], Need] = {}
    for need in needs:
        for facts in product(
            *(column if cell is None else (cell,) for cell, column in zip(need, columns, strict=False))
        ):
            if facts in table:
                raise ValueError(f"two rows for {_named(facts)}: {table[facts].reason.value}, and {need.reason.value}")
            table[facts] = need
    if undecided := [facts for facts in product(*columns) if facts not in table]:
        raise ValueError(f"no row for {_named(undecided[0])}")
    return table


def _named(facts: Iterable[Enum]) -> str:
    return ", ".join(f"{type(fact).__name__.lower()} {fact.value}" for fact in facts)


_TABLE = decided(NEEDS)


def need_of(
    data: Data,
    maker: Maker = Maker.JOB,
    wanted: Wanted = Wanted.NOW,
    inputs: Inputs = Inputs.LIVE,
    room: Room = Room.FREE,
) -> Need:
    """The row that decides what the next tick does about a ref. By default its inputs are live and its launch has room."""
    return _TABLE[data, maker, wanted, inputs, room]


def wanted_as(n_open_wants: int, until: float, retry_at: float | None, now: float) -> Wanted:
    """The open wants of a ref at a time: `until` is the end of the last TTL (rule 5.4)."""
    if not n_open_wants:
        return Wanted.NO
    if until <= now:
        return Wanted.EXPIRED
    return Wanted.LATER if retry_at is not None and retry_at > now else Wanted.NOW
