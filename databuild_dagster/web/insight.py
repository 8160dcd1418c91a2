"""The part of the API that looks closer: the graph at any event, and the refs of a want in pages."""

from __future__ import annotations

from typing import Final, TypedDict

from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.fields import when
from databuild_dagster.shapes.graph import GraphShape, graph_around
from databuild_dagster.shapes.marks import marks_of
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.web.parameters import number, text
from databuild_dagster.web.routes import AS_OF, INSTANCE, ApiRoute, HeadShape
from databuild_dagster.web.state import State, moment_at


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


INSIGHT_ROUTES: Final = (
    ApiRoute(
        "/graph",
        "The graph of instances around one.",
        graph,
        GraphThenShape,
        (INSTANCE, number("levels", "The steps on both sides.", 2, 1, 5), AS_OF),
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
