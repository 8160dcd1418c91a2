"""Arcs: the lots that a new live instance of a source makes wanted (rule 10.5).

| its lot                                                | without `follow_late` | with it, if the source came later |
|--------------------------------------------------------|-----------------------|-----------------------------------|
| missing, being built, waiting, up for retry, tainted   | wanted                | wanted                            |
| failed before the source got new data                  | tainted and wanted    | tainted and wanted                |
| failed with no new data since, or canceled by a person | wanted, which fails   | wanted, which fails               |
| failed upstream                                        | wanted, which fails; wanted again when rule 6.6 opens it | the same |
| live                                                   | stale: not wanted     | tainted and wanted                |

A lot that was being built while a source got a new instance may have read the instance before. So an arc that follows late
data checks its own lot again when that becomes live: the taint opens the want again that the new instance made (rule 5.3).

A firing is a fact also for a lot that needs nothing: each source instance wakes an arc once. A source with equal rows is the news
only of a lot without rows of it, or with other rows (rule 4.8).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import ArcSpec, DatasetSpec
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.decide.delegations import answer, delegated, opened
from databuild_dagster.model.decide.retries import first_causes
from databuild_dagster.model.errors import MissingRow
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of, ref_or_none
from databuild_dagster.model.rows import NEVER, ArcRow, InstanceRow, RefRow
from databuild_dagster.model.states import ARC, InstanceState, JobRunState
from databuild_dagster.model.view import Openness

#: Lots that a source instance wakes at most, the last lots of the partitions definition: for a source without
#: partitions, or an input that is all of them.
MAX_LOTS = 10_000


class _Arc(NamedTuple):
    """An arc in force, and what it declares."""

    row: ArcRow
    dataset: DatasetSpec
    spec: ArcSpec


class _Woken(NamedTuple):
    """An arc, the instance that wakes it, and the lots of the arc that have it among their inputs."""

    arc: _Arc
    published: c.Published
    lots: tuple[Ref, ...]


def fire_arcs(command: c.FireArcs, deciding: Deciding) -> list[e.Fact]:
    """No fact when a second orchestrator has followed every arc as far as `command.up_to_seq`."""
    arcs = [arc for arc in _in_force(deciding) if arc.row.seq < command.up_to_seq and _is_followed(arc.row, command)]
    if not arcs:
        return []
    woken = list(_woken(command.published, arcs, deciding))
    # Loaded together, because the loop reads them one by one.
    rows = deciding.view.refs(lot for firing in woken for lot in firing.lots)
    _check_sources(woken, deciding)
    deciding.view.instances_by_id(row.canonical_id for row in rows.values() if row.canonical_id is not None)
    firings: list[e.ArcFiring] = []
    facts: list[e.Fact] = []
    #: Lots that this command taints, each once.
    tainted: set[Ref] = set()
    freed = _freed(woken, rows, deciding)
    wanted = _wanted_already(rows, deciding)
    for wake in woken:
        if asset_of(wake.published.ref) == wake.arc.row.asset:
            facts += _checked_again(wake, rows, tainted, deciding)
            continue
        late = [lot for lot in wake.lots if lot not in tainted and _is_late(wake, rows.get(lot), deciding)]
        lots = tuple(lot for lot in wake.lots if lot in tainted or lot in late or not _is_live(rows.get(lot)))
        if _has_equal_rows(wake, deciding):
            # A failed lot that saw these rows has nothing to learn from them; the want of a lot without rows may have ended (rule 4.8).
            failed = {lot for lot in lots if lot in rows and rows[lot].state is InstanceState.FAILED}
            lots = tuple(lot for lot in lots if lot in late or lot not in failed)
            if not lots:
                continue
        firings.append(e.ArcFiring(arc=wake.arc.row.asset, source=wake.published.uuid, lots=lots))
        if new := [lot for lot in lots if lot in late or lot not in wanted]:
            known = {lot: rows[lot] for lot in new if lot in rows and lot not in tainted and lot not in freed}
            facts += _wanted(wake, new, late, known, deciding)
        tainted.update(late)
        wanted.update(new)
    fired = e.ArcFired(up_to_seq=command.up_to_seq, arcs=tuple(arc.row.asset for arc in arcs), firings=tuple(firings))
    # Taints first: one lot may be the cause why another failed.
    return [fired, *sorted(facts, key=lambda fact: not isinstance(fact, e.TaintCreated))]


def _check_sources(woken: list[_Woken], deciding: Deciding) -> None:
    """Raise `MissingRow` for a source instance that the log has and the tables have not (rule 3.5)."""
    found = deciding.view.instances_by_uuid(wake.published.uuid for wake in woken)
    for published in (wake.published for wake in woken):
        if published.uuid not in found:
            on, why = f"instance {published.uuid}", "the log says that it became live"
            raise MissingRow(seq=published.seq, entity=published.ref, on=on, why=why)


def _freed(woken: list[_Woken], rows: dict[Ref, RefRow], deciding: Deciding) -> set[Ref]:
    """The lots that failed upstream because of lots that this command taints alone: they get no refusal."""
    failed = [
        (wake, rows[lot])
        for wake in woken
        for lot in wake.lots
        if lot in rows and rows[lot].state is InstanceState.FAILED
    ]
    opened = {lot.ref for wake, lot in failed if _is_late(wake, lot, deciding)}
    if not opened:
        return set()
    waiting = [row for row in rows.values() if row.state is InstanceState.UPSTREAM_FAILED]
    return {row.ref for row in waiting if all(cause.ref in opened for cause in first_causes([row], deciding.view))}


def _in_force(deciding: Deciding) -> Iterator[_Arc]:
    for row in deciding.view.arcs_in_force():
        dataset = deciding.dataset_of(row.asset)
        if dataset is not None and isinstance(dataset.arc, ArcSpec):
            yield _Arc(row, dataset, dataset.arc)


def _is_followed(arc: ArcRow, command: c.FireArcs) -> bool:
    return command.followed is None or command.followed.get(arc.asset) == arc.since


def _woken(published: Iterable[c.Published], arcs: list[_Arc], deciding: Deciding) -> Iterator[_Woken]:
    published = tuple(published)
    # What was built and has come back since is news once.
    last = {publication.uuid: publication.seq for publication in published}
    for publication in published:
        if publication.seq < last[publication.uuid]:
            continue
        asset, key = asset_of(publication.ref), partition_key_of(publication.ref)
        for arc in arcs:
            if publication.seq <= arc.row.seq:
                continue
            if asset == arc.row.asset and arc.spec.follow_late:
                yield _Woken(arc, publication, (publication.ref,))
            for source in arc.spec.sources:
                if source.asset == asset:
                    keys = publication.woken.get(arc.row.asset)
                    if keys is None:
                        keys = deciding.catalog.woken(arc.dataset, source, key)
                    # A key that no ref can name, such as one with a line break, is no lot.
                    lots = (ref_or_none(arc.row.asset, own) for own in keys[-MAX_LOTS:])
                    yield _Woken(arc, publication, tuple(lot for lot in lots if lot is not None))


def _wanted_already(rows: dict[Ref, RefRow], deciding: Deciding) -> set[Ref]:
    """The lots that an arc's want still waits for, with so much of its TTL left that a lot's last source can be built in it."""
    refs = {row.id: row.ref for row in rows.values()}
    wants = deciding.view.wants_holding(refs, Openness.OPEN)
    until = deciding.now + c.DEFAULT_TTL_SECONDS / 2
    return {refs[ref_id] for ref_id, want in wants if want.source == ARC and want.expires_at >= until}


def _is_live(lot: RefRow | None) -> bool:
    return lot is not None and lot.state is InstanceState.LIVE


def _is_late(woken: _Woken, lot: RefRow | None, deciding: Deciding) -> bool:
    """Whether a failed lot, or a live lot of an arc that follows late data, was made without this instance of the source."""
    if lot is None or lot.canonical_id is None:
        return False
    if not (woken.arc.spec.follow_late if _is_live(lot) else _may_open(lot.canonical_id, deciding)):
        return False
    view = deciding.view
    source = view.instances_by_uuid([woken.published.uuid])[woken.published.uuid]
    present = view.ref_by_id(source.ref_id)
    if (
        present.canonical_id is None
        or present.state is not InstanceState.LIVE
        or not _same_rows(present.canonical_id, source.id, deciding)
    ):
        # Readers see another instance: it wakes the arc as well, or a revert chose one that has.
        return False
    of_source = [row.id for row in _read_by(lot.canonical_id, deciding) if row.ref_id == source.ref_id]
    if of_source:
        is_news = source.id > max(of_source) or _has_come_back(source, woken.published.seq, deciding)
        return is_news and not any(_same_rows(source.id, read, deciding) for read in of_source)
    made = view.instances_by_id([lot.canonical_id])[lot.canonical_id]
    if source.same_as_id is not None and not _has_come_back(source, woken.published.seq, deciding):
        # The lot may have seen equal rows before.
        first = view.instances_by_id([source.same_as_id])[source.same_as_id]
        return (first.live_at or 0.0) > made.created_at
    return woken.published.seq > made.created_seq


def _has_come_back(source: InstanceRow, seq: int, deciding: Deciding) -> bool:
    """Whether the event published an earlier instance again, in place of a build (rule 4.9)."""
    return deciding.view.returned([source.id]).get(source.id) == seq


def _has_equal_rows(woken: _Woken, deciding: Deciding) -> bool:
    """Whether the source was built with the rows that it had."""
    return deciding.view.instances_by_uuid([woken.published.uuid])[woken.published.uuid].same_as_id is not None


def _may_open(lot_id: int, deciding: Deciding) -> bool:
    """New data opens a lot that failed by itself; a person's cancel stays. A compaction publishes nothing."""
    lot = deciding.view.instances_by_id([lot_id])[lot_id]
    job_run = deciding.view.job_runs_by_id([lot.job_run_id])[lot.job_run_id]
    return lot.state is InstanceState.FAILED and job_run.state is not JobRunState.CANCELED


def _checked_again(woken: _Woken, rows: dict[Ref, RefRow], tainted: set[Ref], deciding: Deciding) -> list[e.Fact]:
    """The arc's own lot became live: it is late if a source got a new instance while the lot was being built."""
    view, ref = deciding.view, woken.published.ref
    lot = rows.get(ref)
    if ref in tainted or lot is None or not _is_live(lot) or lot.canonical_id is None:
        return []
    made = view.instances_by_id([lot.canonical_id])[lot.canonical_id]
    if made.uuid != woken.published.uuid:
        return []
    sources = {source.asset for source in woken.arc.spec.sources}
    for read in _read_by(lot.canonical_id, deciding):
        source = view.ref_by_id(read.ref_id)
        newest = source.canonical_id
        if newest is None or _same_rows(newest, read.id, deciding):
            continue
        is_newer = newest > read.id or view.returned([newest]).get(newest, 0) > made.created_seq
        if is_newer and source.state is InstanceState.LIVE and asset_of(source.ref) in sources:
            tainted.add(ref)
            return [e.TaintCreated(taint_id=deciding.new_id(), refs=(ref,), reason=_late_data(source.ref))]
    return []


def _same_rows(one: int, other: int, deciding: Deciding) -> bool:
    """Whether both have the same rows: one is a compaction of the other, or was built with equal rows (rules 9.8, 4.8)."""
    rows = deciding.view.instances_by_id([one, other])
    return rows[one].same_root == rows[other].same_root


def _read_by(instance_id: int, deciding: Deciding) -> list[InstanceRow]:
    view = deciding.view
    read = view.instances_by_id(view.inputs_of([instance_id]))
    view.refs_by_id(row.ref_id for row in read.values())
    return list(read.values())


def _late_data(source: str) -> str:
    return f"late data: {source} has a new instance"


def _wanted(
    woken: _Woken, lots: list[Ref], late: list[Ref], known: dict[Ref, RefRow], deciding: Deciding
) -> list[e.Fact]:
    """A single request, with a want for each lot; late lots are tainted first."""
    request_id = deciding.new_id()
    facts: list[e.Fact] = []
    groups = ((late, NEVER), ([lot for lot in lots if lot not in late], None))
    for group, rebuild_before in groups:
        answers = answer({lot: known[lot] for lot in group if lot in known}, deciding, rebuild_before=rebuild_before)
        facts += opened(answers, _late_data(woken.published.ref), deciding)
        facts += delegated(request_id, answers, deciding)
    facts.append(
        e.WantCreated(
            request_id=request_id,
            wants=tuple(e.WantFact(id=deciding.new_id(), refs=(lot,)) for lot in lots),
            source=ARC,
            source_id=woken.published.uuid,
            comment=f"{woken.published.ref} became live",
            ttl_seconds=c.DEFAULT_TTL_SECONDS,
            expires_at=deciding.now + c.DEFAULT_TTL_SECONDS,
        )
    )
    return facts
