"""Whether a table waits for builds, because a snapshot now would only take out rows that requests build again (rule 10.10)."""

import re
from collections.abc import Collection
from typing import Final

from databuild_dagster.engine.follower import all_touched
from databuild_dagster.features.tables.live_files import PORTION, is_shown, with_equal_rows
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.decide.delegations import BY_DAGSTER_RUN, BY_REQUEST
from databuild_dagster.model.events import ManifestRemoved, TaintCreated, names_of
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import VERIFIES
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.queries import Queries

#: The seconds after a request for which its builds are awaited: less than those after which a table counts as late.
MAX_SECONDS: Final = 600.0
#: A reason of the engine has one word after its beginning; a person writes sentences.
_IS_REQUEST: Final = re.compile(rf"(?:{BY_REQUEST} |{BY_DAGSTER_RUN} |{VERIFIES})\S+")
#: States on the way from a request to its rows.
_ON_ITS_WAY: Final = frozenset(
    [InstanceState.TAINTED, InstanceState.BUILDING, InstanceState.UPSTREAM_BUILDING, InstanceState.UP_FOR_RETRY]
)


def awaits_builds(
    queries: Queries, dataset: DatasetSpec, touched: Collection[Ref], since: int, head: int, now: float
) -> bool:
    """Whether builds that compare their rows make again all that a snapshot would take out, and nothing else would change.

    The table holds up to `since`, and the refs are touched from then to `head`. Nothing is awaited after an erasure, or if any other taint
    may cover rows of the table: it touches the refs, names instances, or follows lineage.
    """
    if not dataset.same_data or not dataset.table or len(touched) > PORTION:
        return False
    again: set[Ref] = set()
    for event in queries.events.named(names_of(TaintCreated, ManifestRemoved), since, head):
        fact = event.fact
        if isinstance(fact, ManifestRemoved):
            if fact.erasure is not None and not all_touched(queries, [event]).isdisjoint(touched):
                return False
            continue
        assert isinstance(fact, TaintCreated), "it is asked for by name"
        is_request = _IS_REQUEST.fullmatch(fact.reason) is not None
        if not is_request and (fact.uuids or fact.downstream):
            return False
        refs = (all_touched(queries, [event]) if fact.uuids else set(fact.refs)).intersection(touched)
        if refs and (not is_request or now - event.at > MAX_SECONDS):
            return False
        again |= refs
    if not again:
        return False
    in_order = sorted(touched)
    before, after = queries.canonical.at(in_order, since), queries.canonical.at(in_order, head)
    equal = with_equal_rows(queries, {ref: (before[ref].uuid, after[ref].uuid) for ref in in_order})
    n_awaited = 0
    for ref in in_order:
        was_shown, is_now = is_shown(before[ref], dataset.table), is_shown(after[ref], dataset.table)
        if was_shown and not is_now and ref in again and after[ref].state in _ON_ITS_WAY:
            n_awaited += 1
        elif (was_shown or is_now) and not (was_shown and is_now and ref in equal):
            return False
    return n_awaited > 0
