"""Who had an instance built: the wants that were open for its ref when it came, back to those that people and doors recorded.

What a job run found missing is wanted by derivative wants (SPEC 6.4), which tell nothing of who needs it; the wants that had
that job run built do. Who joined later had nothing built: that is the ledger's to tell (SPEC 8.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from databuild_dagster.model.fold.standing import DERIVATIVE
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker

#: Levels of inputs between an instance and whoever asked, after which nobody looks further.
MOST_LEVELS = 100


def who_asked(queries: Queries, uuids: Iterable[str]) -> dict[str, tuple[Asker, ...]]:
    """By instance: its own wants first, then those behind them, each once."""
    asked = list(uuids)
    found: dict[str, tuple[Asker, ...]] = {}
    behind: dict[str, list[str]] = {}
    level = set(asked)
    for _ in range(MOST_LEVELS):
        found |= dict.fromkeys(level, ()) | queries.askers(level)
        new = {each.source_id for uuid in level for each in found[uuid] if _is_derived(each)} - behind.keys()
        job_runs = queries.job_runs_named(id_ for id_ in new if id_ is not None)
        behind |= {run.id: [derive_partition_uuid(run.id, ref) for ref in run.refs] for run in job_runs.values()}
        level = {uuid for run_id in job_runs for uuid in behind[run_id]} - found.keys()
        if not level:
            break
    return {uuid: _all_of(uuid, found, behind) for uuid in asked}


def _is_derived(asker: Asker) -> bool:
    return asker.source == DERIVATIVE and asker.source_id is not None


def _all_of(uuid: str, found: Mapping[str, tuple[Asker, ...]], behind: Mapping[str, list[str]]) -> tuple[Asker, ...]:
    askers: dict[str, Asker] = {}
    left, seen = [uuid], {uuid}
    for each in left:
        for asker in found.get(each, ()):
            askers.setdefault(asker.want_id, asker)
            new = [one for one in behind.get(asker.source_id or "", ()) if _is_derived(asker) and one not in seen]
            left += new
            seen.update(new)
    return tuple(askers.values())
