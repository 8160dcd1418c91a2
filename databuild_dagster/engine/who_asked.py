"""The wants that had an instance built: those open for its ref when it came, back to those that people recorded.

A derivative want (rule 6.4) names only the job run that missed an input, so the wants behind that job run are added. Runs
that joined later had nothing built: the ledger has them (rule 8.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker

#: Levels of inputs between an instance and a want that are followed.
MOST_LEVELS = 100


def who_asked(queries: Queries, uuids: Iterable[str]) -> dict[str, tuple[Asker, ...]]:
    """The wants of each instance: its own first, then those behind them, each once."""
    asked = list(uuids)
    found: dict[str, tuple[Asker, ...]] = {}
    behind: dict[str, Sequence[str]] = {}
    level = set(asked)
    for _ in range(MOST_LEVELS):
        found |= dict.fromkeys(level, ()) | queries.askers(level)
        new = {asker.source_id for uuid in level for asker in found[uuid] if _is_derived(asker)} - behind.keys()
        job_runs = queries.job_runs_named(id_ for id_ in new if id_ is not None)
        behind |= {run.id: run.instances for run in job_runs.values()}
        level = {uuid for run_id in job_runs for uuid in behind[run_id]} - found.keys()
        if not level:
            break
    return {uuid: _all_of(uuid, found, behind) for uuid in asked}


def _is_derived(asker: Asker) -> bool:
    return asker.source == DERIVATIVE and asker.source_id is not None


def _all_of(
    uuid: str, found: Mapping[str, tuple[Asker, ...]], behind: Mapping[str, Sequence[str]]
) -> tuple[Asker, ...]:
    askers: dict[str, Asker] = {}
    left, seen = [uuid], {uuid}
    for instance in left:
        for asker in found.get(instance, ()):
            askers.setdefault(asker.want, asker)
            if _is_derived(asker):
                new = [other for other in behind.get(asker.source_id or "", ()) if other not in seen]
                left += new
                seen.update(new)
    return tuple(askers.values())
