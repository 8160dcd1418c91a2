"""The urls and the pages of arcs and of gaps."""

from pathlib import Path
from typing import Any, Final

from databuild_dagster.features.lots.arc_shapes import ArcDetail, Arcs, ArcsPage
from databuild_dagster.features.lots.gap_ranges import AskedRange, GapsPage, gaps_in_range
from databuild_dagster.web.parameters import flag, number, text
from databuild_dagster.web.routes import ApiRoute, Ask, Page, or_error, parameters_of
from databuild_dagster.web.state import State

MAX_ARCS: Final = 25
MAX_LOTS: Final = 200
TEMPLATES: Final = Path(__file__).parent / "templates"


def arcs(state: State, search: str | None, limit: int, offset: int) -> ArcsPage:
    """The arcs in chains."""
    return _arcs(state).chains(search, limit, offset)


def arc(state: State, name: str, limit: int, offset: int) -> ArcDetail:
    """An arc with its lots."""
    return _arcs(state).arc(name, limit, offset)


def _arcs(state: State) -> Arcs:
    counts: dict[str, dict[str, int]] = {}
    for asset, instance_state, n in state.kept("ref_counts", state.engine.queries.datasets.ref_counts):
        counts.setdefault(asset, {})[instance_state] = n
    return Arcs(state.engine, state.instance, counts)


def gaps(state: State, dataset: str, start: str | None, end: str | None, chain: bool, limit: int) -> GapsPage:
    """The absent lots of a range."""
    return gaps_in_range(state.engine, state.instance, AskedRange(dataset, start, end, chain), limit)


ROUTES: Final = (
    ApiRoute(
        "/arcs",
        "The arcs in chains, sources first.",
        arcs,
        ArcsPage,
        (
            text("search", "A part of the name of an arc or of a source."),
            number("limit", "The number of arcs at most.", MAX_ARCS, 1, MAX_ARCS),
            number("offset", "The number of arcs before the first.", 0, 0, 1_000_000),
        ),
    ),
    ApiRoute(
        "/arc",
        "An arc with its newest lots, and the data that arrived after they were built.",
        arc,
        ArcDetail,
        (
            text("name", "The asset that subscribes to others.", required=True),
            number("limit", "The number of lots at most.", 100, 1, MAX_LOTS),
            number("offset", "The number of newer lots before the first.", 0, 0, 10_000_000),
        ),
    ),
    ApiRoute(
        "/gaps",
        "The absent lots of a range, each with its cause and the first cause.",
        gaps,
        GapsPage,
        (
            text("dataset", "The name of an asset whose partitions are in time.", required=True),
            text("start", "Start of the range: a lot id, a partition key or a time. By default the newest lots."),
            text("end", "End of the range, exclusive: a lot id, a partition key or a time."),
            flag("chain", "Also report on every dataset upstream, and follow lots that no want asks for."),
            number("limit", "The number of absent lots at most.", 100, 1, 500),
        ),
    ),
)


def _arcs_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    return {"values": values, "found": ask("arcs", **values)}


def _arc_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found = ask("arc", **values)
    return {"values": values, "found": found, "arc": found["arc"]}


def _gaps_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found, error = or_error(lambda: ask("gaps", chain=True, **values))
    return {"values": values, "gaps": found, "error": error}


PAGES: Final = (
    Page(
        "/arcs",
        "arcs.html",
        _arcs_page,
        parameters_of(ROUTES, "/arcs"),
        entry="Subscriptions",
        entry_after="/plan",
        folder=TEMPLATES,
    ),
    Page("/arc", "arc.html", _arc_page, parameters_of(ROUTES, "/arc"), below="/arcs", folder=TEMPLATES),
    Page(
        "/gaps",
        "gaps.html",
        _gaps_page,
        parameters_of(ROUTES, "/gaps", without=("chain", "limit")),
        below="/arcs",
        folder=TEMPLATES,
    ),
)
