"""The part of the API that looks closer: the graph at any event, and the refs of a want in pages."""

from __future__ import annotations

from threading import BoundedSemaphore
from typing import Final, TypedDict

from databuild_dagster.engine.why.want_report import check_partition
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.differences import DiffShape, diff_of
from databuild_dagster.shapes.fields import when
from databuild_dagster.shapes.graph import GraphShape, graph_around
from databuild_dagster.shapes.marks import marks_of
from databuild_dagster.shapes.receipts import MAX_ENTRIES, ShownReceipt, shown_receipt
from databuild_dagster.shapes.samples import SampleShape, sample_of
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.web.parameters import number, ref, text
from databuild_dagster.web.routes import AS_OF, INSTANCE, ApiRoute, HeadShape
from databuild_dagster.web.state import State, moment_at

#: Samples that are read at once, of the few threads that answer; a bucket may take seconds.
MAX_SAMPLES: Final = 2
_sampling = BoundedSemaphore(MAX_SAMPLES)


class TooManySamples(DatabuildError):
    """{most} samples of rows are being read, and the web server begins no further one."""

    hint = "Try again in some seconds."


class GraphThenShape(GraphShape):
    """The graph, and the event and the time that it is about; null for now."""

    as_of: HeadShape | None


def graph(state: State, instance: str, levels: int, as_of: int | None) -> GraphThenShape:
    """The graph of instances around one, now or when `as_of` was the last event."""
    queries = state.engine.queries
    uuid = queries.full_id(IdKind.INSTANCE, instance)
    then = moment_at(state, as_of)
    found = graph_around(queries, uuid, levels, then.seq)
    return {**found, "as_of": None if then.seq is None else {"seq": then.seq, "at": when(then.at)}}


class WantedRef(TypedDict):
    """A ref that a want names, with its mark now."""

    ref: Ref
    want: str
    mark: str


class WantRefsShape(TypedDict):
    """A page of the refs of a want or request, of `n`."""

    n: int
    offset: int
    refs: list[WantedRef]


def want_refs(state: State, name: str, offset: int, limit: int) -> WantRefsShape:
    """The refs of a want or request, in the order of the wants."""
    queries = state.engine.queries
    n, found = queries.refs_of_wants(queries.full_id(IdKind.WANT, name), limit, offset)
    marks = marks_of(queries, dict.fromkeys(one.ref for one in found))
    refs: list[WantedRef] = [{"ref": one.ref, "want": one.want_id, "mark": marks[one.ref]} for one in found]
    return {"n": n, "offset": offset, "refs": refs}


def diff(state: State, a: str, b: str) -> DiffShape:
    """What differs between two instances."""
    queries = state.engine.queries
    return diff_of(queries, *(queries.full_id(IdKind.INSTANCE, text) for text in (a, b)))


def receipt(state: State, instance: str, limit: int) -> ShownReceipt:
    """What an instance was made of."""
    queries = state.engine.queries
    return shown_receipt(queries, queries.full_id(IdKind.INSTANCE, instance), limit)


def sample(state: State, ref: Ref) -> SampleShape:
    """A few rows of what readers of a ref see, if the author of its asset allows it. Raises `TooManySamples`."""
    engine = state.engine
    check_partition(engine.queries, engine.catalog, ref)
    if not _sampling.acquire(blocking=False):
        raise TooManySamples(most=MAX_SAMPLES)
    try:
        return sample_of(engine.queries, ref)
    finally:
        _sampling.release()


INSIGHT_ROUTES: Final = (
    ApiRoute(
        "/graph",
        "The graph of instances around one.",
        graph,
        GraphThenShape,
        (INSTANCE, number("levels", "The steps on both sides.", 2, 1, 5), AS_OF),
    ),
    ApiRoute(
        "/diff",
        "What differs between two instances: inputs, code, configuration, rows, columns.",
        diff,
        DiffShape,
        (
            text("a", "The uuid of the earlier instance, or its end.", required=True),
            text("b", "The uuid of the later instance, or its end.", required=True),
        ),
    ),
    ApiRoute(
        "/receipt",
        "What an instance was made of: the instances behind it with their code and environment, the nearest first.",
        receipt,
        ShownReceipt,
        (INSTANCE, number("limit", "The number of instances at most.", MAX_ENTRIES, 1, MAX_ENTRIES)),
    ),
    ApiRoute(
        "/sample",
        "A few rows of what readers of a ref see, if the author of its asset allows it.",
        sample,
        SampleShape,
        (ref("ref", "The partition.", required=True),),
    ),
    ApiRoute(
        "/want_refs",
        "The refs of a want or request, in pages.",
        want_refs,
        WantRefsShape,
        (
            text("name", "The id of a want or request, or its end.", required=True),
            number("offset", "The number of refs before the first.", 0, 0, 10_000_000),
            number("limit", "The number of refs at most.", 50, 1, 500),
        ),
    ),
)
