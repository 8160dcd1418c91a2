"""The page of a search: assets, partitions, wants, job runs, instances, taints and Dagster runs by a name, a key or an id."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from databuild_dagster.calls.calendar import marks_of
from databuild_dagster.calls.calendar_keys import keys_of
from databuild_dagster.model.refs import Ref, ref_or_none
from databuild_dagster.store.queries.ids import IdKind, may_be_id
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.web.assets_page import natural
from databuild_dagster.web.parameters import text
from databuild_dagster.web.routes import ApiRoute, Ask, Page, parameters_of
from databuild_dagster.web.state import State

#: Of each kind.
MAX_FOUND: Final = 20
_ASSET, _PARTITION, _RUN = "asset", "partition", "Dagster run or launch"


class Found(msgspec.Struct, frozen=True):
    """An asset, a partition, or an id of a want, job run, instance, taint or Dagster run."""

    kind: str
    name: str
    #: The partition on whose page it is; null for an asset, a want or a Dagster run.
    ref: Ref | None = None
    #: Of a partition.
    mark: str | None = None


class FoundPage(msgspec.Struct, frozen=True):
    """What a text names: at most 20 of each kind."""

    found: list[Found]


def search(state: State, q: str | None) -> FoundPage:
    """What a text names: a part of an asset's name, a partition key or a part of one, or an id, its beginning or its end."""
    wanted = (q or "").strip()
    if not wanted:
        return FoundPage([])
    queries = state.engine.queries
    by_id = list(_by_id(queries, wanted)) if may_be_id(wanted) else []
    assets = sorted(
        (spec.asset for spec in queries.datasets.all().values() if wanted.casefold() in spec.asset.casefold()),
        key=lambda asset: (
            len(asset) > len(wanted),
            not asset.casefold().startswith(wanted.casefold()),
            natural(asset),
        ),
    )
    refs = _refs(state, wanted)
    marks = marks_of(queries, refs) if refs else {}
    partitions = [Found(_PARTITION, ref, ref, marks[ref]) for ref in refs]
    return FoundPage([*by_id, *partitions, *(Found(_ASSET, asset) for asset in assets[:MAX_FOUND])])


def _refs(state: State, wanted: str) -> list[Ref]:
    """The partitions of `ASSET@KEY`, where the key may be a part of one; of a key alone the partitions that ever were wanted or built."""
    queries, specs = state.engine.queries, state.engine.queries.datasets.all().values()
    asset, at, key = wanted.partition("@")
    if not at:
        named = [ref for ref in (ref_or_none(spec.asset, wanted) for spec in specs) if ref is not None]
        return [marked.ref for marked in queries.canonical.marked(named)][:MAX_FOUND]
    spec = next((spec for spec in specs if spec.asset == asset), None)
    if spec is None:
        return []
    keys = [found for found in keys_of(spec, state.instance, state.engine.clock()) if found is not None]
    exact = [key] if key in keys else []
    like = (found for found in keys if key.casefold() in found.casefold())
    refs = (ref_or_none(asset, found) for found in dict.fromkeys([*exact, *islice(like, MAX_FOUND)]))
    return [ref for ref in refs if ref is not None]


def _by_id(queries: Queries, wanted: str) -> Iterator[Found]:
    for kind in IdKind:
        ids = queries.ids.like(kind, wanted, MAX_FOUND)
        match kind:
            case IdKind.WANT | IdKind.TAINT:
                yield from (Found(kind.name.lower(), id) for id in ids)
            case IdKind.REQUEST:
                # Requests of wants are found as wants.
                of_wants = set(queries.ids.like(IdKind.WANT, wanted, MAX_FOUND))
                yield from (Found(_RUN, id) for id in ids if id not in of_wants)
            case IdKind.JOB_RUN:
                runs = queries.job_runs.named(ids)
                yield from (Found(kind.value, id, run.refs[0]) for id, run in runs.items())
            case IdKind.INSTANCE:
                yield from (Found(kind.value, one.uuid, one.ref) for one in queries.instances.named(ids))


ROUTES: Final = (
    ApiRoute(
        "/search",
        "Assets, partitions, wants, runs, instances and taints by a name, a key or an id.",
        search,
        FoundPage,
        (text("q", "A part of a name, ASSET@KEY, a partition key, or an id, its beginning or its end."),),
    ),
)


def _show(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    return {"values": values, "found": ask("search", **values)["found"]}


PAGE: Final = Page("/search", "search.html", _show, parameters_of(ROUTES, "/search"))
