"""The questions of `store.Queries` and `store.Ledger` that tests of the model ask, answered from a `MemoryView`."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, get_type_hints

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.decide.context import spec_of
from databuild_dagster.model.errors import MissingRow
from databuild_dagster.model.events import Event
from databuild_dagster.model.pauses import PauseInForce, in_force, names_of
from databuild_dagster.model.records import Time, extended, time_of
from databuild_dagster.model.rows import (
    DatasetRow,
    InstanceRow,
    JobRunRow,
    LaunchRow,
    RefRow,
    TaintRow,
    WantRow,
)
from databuild_dagster.model.states import FAILING, OPEN_JOB_RUNS, InstanceState, WantState
from databuild_dagster.store.ledger import LedgerEntry
from databuild_dagster.store.log import Head
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.instances import Instance, Taint
from databuild_dagster.store.queries.job_runs import JobRunView, LaunchView
from databuild_dagster.store.queries.planning import MAX_PARTS, DueRef, DueRefs
from databuild_dagster.store.queries.queries import ArcView
from databuild_dagster.store.queries.wants import WantView

from .memory_view import ROW_BITS, MemoryView


class _Subject:
    """The queries of one subject, over the view of the moment: a refusal makes a new one."""

    def __init__(self, view: Callable[[], MemoryView], log: Sequence[Event]) -> None:
        self._view = view
        self._log = log

    def _rows(self, row_type: type[Any]) -> Any:
        return self._view().rows[row_type]

    def _job_run_of(self, instance: InstanceRow) -> JobRunRow:
        job_run: JobRunRow = self._rows(JobRunRow).by_id[instance.job_run_id]
        return job_run


class _Canonical(_Subject):
    def of(self, refs: Sequence[str]) -> dict[str, Canonical]:
        return {text: self._canonical(self._rows(RefRow).by_key.get(text), text) for text in refs}

    def _canonical(self, ref: RefRow | None, text: str) -> Canonical:
        if ref is None or ref.canonical_id is None:
            return Canonical(text)
        row = self._rows(InstanceRow).by_id[ref.canonical_id]
        return Canonical(
            ref=text,
            state=row.state,
            uuid=row.uuid,
            job_run=self._job_run_of(row).job_run_id,
            retry_at=row.retry_at,
            reason=row.reason,
            code_version=row.code_version,
            manifest_state=row.manifest_state,
            manifest_uri=row.manifest_uri,
            files=row.n_files,
            rows=row.n_rows,
            bytes=row.n_bytes,
            origin=row.origin,
            live_at=row.live_at,
            known_origin=ref.origin,
            code=self._job_run_of(row).code,
            has_earlier_rows=row.same_as_id is not None,
        )

    def states(self, refs: Iterable[str]) -> dict[str, InstanceState | None]:
        return {ref: seen.state for ref, seen in self.of(list(refs)).items()}

    def input_states(self, refs: Iterable[str]) -> tuple[dict[str, InstanceState | None], dict[str, MissingRow]]:
        return self.states(refs), {}


class _Instances(_Subject):
    def get(self, uuid: str) -> Instance | None:
        row = self._rows(InstanceRow).by_key.get(uuid)
        return None if row is None else self._instance(row)

    def history(self, ref: str) -> list[Instance]:
        row = self._rows(RefRow).by_key.get(ref)
        return [self._instance(item) for item in self._rows(InstanceRow) if row is not None and item.ref_id == row.id]

    def _instance(self, row: InstanceRow) -> Instance:
        ref = self._rows(RefRow).by_id[row.ref_id]
        by_id = self._rows(InstanceRow).by_id
        inputs = [(r, read) for (i, r), read in self._view().inputs.items() if i == row.id]
        return Instance(
            uuid=row.uuid,
            ref=ref.ref,
            state=row.state,
            seq=row.created_seq,
            at=row.created_at,
            job_run=self._job_run_of(row).job_run_id,
            reason=row.reason,
            code_version=row.code_version,
            manifest_state=row.manifest_state,
            manifest_uri=row.manifest_uri,
            inputs=tuple(by_id[read].uuid for _, read in sorted(inputs)),
            canonical=ref.canonical_id == row.id,
            live_at=row.live_at,
            actor=self._log[row.created_seq - 1].actor,
            previous_uuid=None if row.previous_id is None else by_id[row.previous_id].uuid,
            origin=row.origin,
        )

    def lineage(self, uuid: str) -> list[Instance]:
        view = self._view()
        found, met = set[int](), {self._rows(InstanceRow).by_key[uuid].id}
        while met - found:
            found |= met
            met = set(view.inputs_of(found))
        return [self._instance(row) for row in self._rows(InstanceRow) if row.id in found]

    def stale(self, uuids: Sequence[str]) -> set[str]:
        return {uuid for uuid in uuids if self._is_stale(self._rows(InstanceRow).by_key[uuid])}

    def _is_stale(self, row: InstanceRow) -> bool:
        instances, refs = self._rows(InstanceRow).by_id, self._rows(RefRow).by_id
        for read in (instances[i] for i in self._view().inputs_of([row.id])):
            seen = instances[refs[read.ref_id].canonical_id]
            if seen is read and read.state is InstanceState.TAINTED:
                return True
            if seen is not read and (seen.state is InstanceState.TAINTED or seen.same_root != read.same_root):
                return True
            is_as_good = seen.state is InstanceState.LIVE and seen.content_hash == read.content_hash is not None
            if seen is not read and read.state is InstanceState.TAINTED and not is_as_good:
                return True
        return False

    def taints_of(self, uuid: str) -> tuple[Taint, ...]:
        instance, taints = self._rows(InstanceRow).by_key[uuid], self._rows(TaintRow).by_id
        links = sorted((t, at) for (t, i), at in self._view().taint_links.items() if i == instance.id)
        found = [taints[t] for t, canceled_at in links if canceled_at is None]
        return tuple(Taint(row.taint_id, row.reason, row.actor, Time(row.created_at)) for row in found)


class _Planning(_Subject):
    def due_refs(self, dataset_ids: Iterable[int], now: float, most: int, *, skipped: int = 0) -> DueRefs:
        asked = set(dataset_ids)
        paused = self.paused([row.ref for row in self._rows(RefRow)], now)
        wholes = self.paused([row.asset for row in self._rows(DatasetRow)], now)
        asked -= {row.id for row in self._rows(DatasetRow) if row.asset in wholes}
        due_in_store = [row for row in self._rows(RefRow) if row.n_open_wants and row.schedulable]
        marked = [row for row in due_in_store if row.dataset_id in asked]
        part = math.ceil(most / max(1, min(MAX_PARTS, len({row.dataset_id for row in marked}))))
        if not skipped and len(due_in_store) <= most:
            part = most + 1
        marked.sort(key=lambda row: (-row.priority, row.deadline, row.wanted_since, row.ref))
        found, n_before = [], Counter()
        for row in marked:
            if row.due_at(now) and row.ref not in paused:
                n_before[row.dataset_id] += 1
                if skipped < n_before[row.dataset_id] <= skipped + part:
                    found.append(row)
        refs = [
            DueRef(row.ref, row.dataset_id, row.priority, row.deadline, row.wanted_since, row.learned_id, row.losses)
            for row in found
        ]
        return DueRefs(refs, part if refs else most)

    def paused(self, refs: Sequence[str], now: float) -> dict[str, PauseInForce]:
        return in_force(self._view().pauses(names_of(refs)), refs, now)

    def missing_of(self, uuid: str) -> tuple[str, ...]:
        instance = self._rows(InstanceRow).by_key[uuid]
        refs = [
            self._rows(RefRow).by_id[r]
            for (i, r), active in self._view().missing.items()
            if i == instance.id and active
        ]
        return tuple(sorted(ref.ref for ref in refs if ref.state is not InstanceState.LIVE))


class _Datasets(_Subject):
    def get(self, asset: str) -> DatasetSpec | None:
        row = self._rows(DatasetRow).by_key.get(asset)
        return None if row is None or row.removed else spec_of(row)

    def all(self, location: str | None = None) -> dict[int, DatasetSpec]:
        rows = [row for row in self._rows(DatasetRow) if not row.removed and location in (None, row.location)]
        return {row.id: spec_of(row) for row in rows}

    def arcs(self) -> list[ArcView]:
        return [ArcView(row.asset, row.seq, row.since) for row in self._view().arcs_in_force()]


class _JobRuns(_Subject):
    def get(self, job_run_id: str) -> JobRunView | None:
        row = self._rows(JobRunRow).by_key.get(job_run_id)
        return None if row is None else self._job_run(row)

    def newest(self, *, most: int = 100) -> list[JobRunView]:
        return [self._job_run(row) for row in reversed(list(self._rows(JobRunRow)))][:most]

    def of_launch(self, launch_id: str) -> list[JobRunView]:
        launch = self._rows(LaunchRow).by_key[launch_id]
        return [self._job_run(row) for row in self._rows(JobRunRow) if row.launch_id == launch.id]

    def _job_run(self, row: JobRunRow) -> JobRunView:
        launch = self._rows(LaunchRow).by_id[row.launch_id]
        return JobRunView(
            id=row.job_run_id,
            job=launch.job,
            partition_key=row.partition_key,
            refs=tuple(json.loads(row.refs)),
            state=row.state,
            dagster_run_id=launch.dagster_run_id,
            launch_id=launch.launch_id,
            buffered_at=row.buffered_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
            error=row.error,
        )


class _Launches(_Subject):
    def get(self, launch_id: str) -> LaunchView | None:
        row = self._rows(LaunchRow).by_key.get(launch_id)
        return None if row is None else self._launch(row)

    def open(self) -> list[LaunchView]:
        held = {row.launch_id for row in self._rows(JobRunRow) if row.state in OPEN_JOB_RUNS}
        return [self._launch(row) for row in self._rows(LaunchRow) if row.id in held]

    @staticmethod
    def _launch(row: LaunchRow) -> LaunchView:
        return LaunchView(
            launch_id=row.launch_id,
            job=row.job,
            location=row.location,
            owner=row.owner,
            holder=row.holder,
            dagster_run_id=row.dagster_run_id,
            buffered_at=row.buffered_at,
            started_at=row.started_at,
        )


class _Wants(_Subject):
    def named(self, name: str) -> list[WantView]:
        return [self._want(row) for row in self._rows(WantRow) if name in (row.want_id, row.request_id)]

    def of_ref(self, ref: str) -> list[WantView]:
        row = self._rows(RefRow).by_key.get(ref)
        wants = self._view().want_refs
        return [self._want(item) for item in self._rows(WantRow) if row is not None and row.id in wants[item.id]]

    def _want(self, row: WantRow) -> WantView:
        refs = self._rows(RefRow).by_id
        kinds = get_type_hints(WantView).items()
        return extended(
            WantView,
            row,
            **{name: time_of(getattr(row, name)) for name, kind in kinds if kind in (Time, Time | None)},
            id=row.want_id,
            refs=tuple(refs[i].ref for i in self._view().want_refs[row.id]),
            fail_fast=bool(row.fail_fast),
            actor=self._log[(row.id >> ROW_BITS) - 1].actor,
        )

    def overdue(self, now: float, most: int) -> tuple[list[str], list[str]]:
        wants = list(self._rows(WantRow))
        expiring = sorted((w.expires_at, w.id, w.want_id) for w in wants if w.ended_at is None and w.expires_at <= now)
        late = sorted((w.sla_at, w.id, w.want_id) for w in wants if w.sla_at is not None and w.sla_at <= now)
        return [name for *_, name in expiring[:most]], [name for *_, name in late[:most]]


class _Events(_Subject):
    def head(self) -> Head:
        return Head(self._log[-1].seq, self._log[-1].at) if self._log else Head(0, 0.0)

    def after(self, after_seq: int = 0, most: int = 1000) -> list[Event]:
        return list(self._log[after_seq : after_seq + most])

    def named(self, names: Iterable[str], after_seq: int, last_seq: int) -> list[Event]:
        asked = set(names)
        return [event for event in self._log[after_seq:last_seq] if type(event.fact).__name__ in asked]


class MemoryQueries(_Subject):
    """By subject, as `store.Queries`."""

    def __init__(self, view: Callable[[], MemoryView], log: Sequence[Event]) -> None:
        super().__init__(view, log)
        self.canonical = _Canonical(view, log)
        self.instances = _Instances(view, log)
        self.wants = _Wants(view, log)
        self.job_runs = _JobRuns(view, log)
        self.launches = _Launches(view, log)
        self.planning = _Planning(view, log)
        self.datasets = _Datasets(view, log)
        self.events = _Events(view, log)


class MemoryLedger:
    """`store.Ledger` in three loops: what a request joined or reused, what it claimed, and what its wants had built."""

    def __init__(self, queries: MemoryQueries) -> None:
        self._queries = queries
        self._rows = queries._rows

    def of_requester(self, requester: str) -> list[LedgerEntry]:
        return [entry for entry in self._entries() if entry.requester == requester]

    def of_ref(self, ref: str) -> list[LedgerEntry]:
        return [entry for entry in self._entries() if entry.ref == ref]

    def _entries(self) -> list[LedgerEntry]:
        entries = [*self._delegated(), *self._claimed(), *self._wanted()]
        entries.sort(key=lambda entry: (-entry.asked_at, entry.ref))
        latest: dict[tuple[str, str, Answer], LedgerEntry] = {}
        for entry in entries:
            latest.setdefault((entry.requester, entry.ref, entry.kind), entry)
        return list(latest.values())

    def _delegated(self) -> Iterator[LedgerEntry]:
        for row in self._queries._view().delegations_made.values():
            ref = self._rows(RefRow).by_id[row.ref_id]
            by_outcome = {"waiting": ref.canonical_id, "refused": row.instance_id}
            instance = self._rows(InstanceRow).by_id[by_outcome.get(row.outcome, row.served_id or row.instance_id)]
            outcome, ended_at, reason = row.outcome, row.ended_at, row.reason
            if (row.kind, row.outcome) == ("built", "waiting") and (want := self._ended_want(instance, row.requester)):
                outcome, ended_at, reason = "given up", want.ended_at, "its want ended"
            yield self._entry(instance, ref, row.requester, row.kind, outcome, row.asked_at, ended_at, reason)

    def _claimed(self) -> Iterator[LedgerEntry]:
        for own in self._rows(InstanceRow):
            launch = self._launch_of(own)
            ref = self._rows(RefRow).by_id[own.ref_id]
            row = self._queries._view().delegations_made.get((launch.dagster_run_id, ref.id))
            if launch.owner != launch.dagster_run_id or (row is not None and row.kind == Answer.BUILD):
                continue
            seen = self._rows(InstanceRow).by_id[ref.canonical_id] if own.state is InstanceState.UP_FOR_RETRY else own
            outcome, ended_at, reason = "waiting", None, seen.reason or ""
            if seen.was_live:
                outcome, ended_at = "live", seen.live_at
            elif seen.state in (*FAILING, InstanceState.TAINTED):
                outcome, ended_at = "failed", self._queries._job_run_of(seen).ended_at
            elif want := self._ended_want(seen, launch.dagster_run_id):
                outcome, ended_at, reason = "given up", want.ended_at, "its want ended"
            yield self._entry(seen, ref, launch.dagster_run_id, "built", outcome, launch.buffered_at, ended_at, reason)

    def _ended_want(self, instance: InstanceRow, dagster_run_id: str) -> WantRow | None:
        """The last want that a Dagster run left for a ref, if the ref backs off and that want was taken back."""
        held = self._queries._view().want_refs
        own = [
            want
            for want in self._rows(WantRow)
            if want.request_id == dagster_run_id and instance.ref_id in held[want.id]
        ]
        is_over = bool(own) and own[-1].state in (WantState.CANCELED, WantState.EXPIRED)
        return own[-1] if is_over and instance.state is InstanceState.UP_FOR_RETRY else None

    def _wanted(self) -> Iterator[LedgerEntry]:
        view = self._queries._view()
        for want in self._rows(WantRow):
            for ref_id in () if want.source in ("job run", "dagster run") else view.want_refs[want.id]:
                if (want.request_id, ref_id) not in view.delegations_made:
                    yield self._wanted_ref(want, self._rows(RefRow).by_id[ref_id])

    def _wanted_ref(self, want: WantRow, ref: RefRow) -> LedgerEntry:
        made = None if ref.canonical_id is None else self._rows(InstanceRow).by_id[ref.canonical_id]
        came_too_late = made is not None and want.ended_at is not None and made.created_at > want.ended_at
        instance = None if made is None or made.id <= want.id or came_too_late else made
        live_in_time = (
            instance is not None
            and instance.live_at is not None
            and want.ended_at is not None
            and instance.live_at <= want.ended_at
        )
        is_open = want.ended_at is None
        is_live = ref.state is InstanceState.LIVE
        if want.state is WantState.SUCCESSFUL or live_in_time or (is_open and is_live):
            outcome = "live"
        elif is_open:
            outcome = "waiting"
        elif want.state in (WantState.CANCELED, WantState.EXPIRED):
            outcome = "given up"
        elif (
            want.n_refs == 1
            or (instance is not None and not instance.was_live and instance.state in (*FAILING, InstanceState.TAINTED))
            or (instance is None and (ref.canonical_id or 0) > want.id)
        ):
            outcome = "failed"
        else:
            outcome = "given up"
        live_at = (
            instance.live_at if instance is not None and (live_in_time or (is_open and is_live)) else want.ended_at
        )
        reason = instance.reason or "" if instance is not None else ""
        return self._entry(instance, ref, want.request_id, "built", outcome, want.created_at, live_at, reason)

    def _launch_of(self, instance: InstanceRow) -> LaunchRow:
        launch: LaunchRow = self._rows(LaunchRow).by_id[self._queries._job_run_of(instance).launch_id]
        return launch

    def _entry(
        self,
        instance: InstanceRow | None,
        ref: RefRow,
        requester: str,
        kind: str,
        outcome: str,
        asked_at: float,
        ended_at: float | None,
        reason: str,
    ) -> LedgerEntry:
        return LedgerEntry(
            requester=requester,
            ref=ref.ref,
            kind=Answer(kind),
            job_run=None if instance is None else self._queries._job_run_of(instance).job_run_id,
            uuid=None if instance is None else instance.uuid,
            outcome=DelegationOutcome(outcome),
            asked_at=asked_at,
            ended_at=ended_at,
            reason=reason,
            dagster_run_id=None if instance is None else self._launch_of(instance).dagster_run_id,
        )
