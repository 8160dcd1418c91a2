"""`model.view.View` over dictionaries: the rules of the model run without a database.

Every table of the store is a dictionary here, with the same rows and the same row ids, so `tables` can be compared with a
database row by row (`tests/store/test_unit_of_work.py` does). There is no transaction: `ModelWorld` folds the log again
after a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec.structs import astuple

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.meta_storage import Entry
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.rows import (
    ArcRow,
    AsideRow,
    DatasetRow,
    DelegationRow,
    InstanceRow,
    JobRunRow,
    LaunchRow,
    PauseRow,
    RefRow,
    Row,
    TaintRow,
    WantRow,
)
from databuild_dagster.model.view import Openness

#: A row's id is the seq of its event, shifted by so many bits, and its number within the event.
ROW_BITS = 20

KEYS: dict[type[Row], str] = {
    DatasetRow: "asset",
    RefRow: "ref",
    InstanceRow: "uuid",
    JobRunRow: "job_run_id",
    LaunchRow: "launch_id",
    WantRow: "want_id",
    TaintRow: "taint_id",
    ArcRow: "asset",
    AsideRow: "subject",
}


class Rows:
    """The rows of one class, by id and by their public key."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.by_id: dict[int, Any] = {}
        self.by_key: dict[str, Any] = {}

    def add(self, row: Any) -> None:
        self.by_id[row.id] = row
        self.by_key[getattr(row, self.key)] = row

    def ids(self, ids: Iterable[int]) -> dict[int, Any]:
        return {i: self.by_id[i] for i in ids if i in self.by_id}

    def keys(self, keys: Iterable[str]) -> dict[str, Any]:
        return {key: self.by_key[key] for key in keys if key in self.by_key}

    def __iter__(self) -> Any:
        """In the order of their ids, which is the order of the log."""
        return iter(sorted(self.by_id.values(), key=lambda row: row.id))


class MemoryView:
    """The state that a log folds into, and the view of it that the model asks for."""

    def __init__(self) -> None:
        self.seq = 0
        self.unsettled: set[int] = set()
        self.failed_upstream: list[WantRow] = []
        self._numbered, self._number = -1, -1
        self._place = (0, 0)
        self.rows = {row_type: Rows(key) for row_type, key in KEYS.items()}
        self.want_refs: dict[int, tuple[int, ...]] = {}
        #: By (ref, want).
        self.holds: dict[tuple[int, int], Openness] = {}
        #: (keeping, ended want).
        self.keepings: set[tuple[int, int]] = set()
        #: By (instance, ref): whether the instance still waits.
        self.missing: dict[tuple[int, int], bool] = {}
        #: By (instance, ref): the instance that was read.
        self.inputs: dict[tuple[int, int], int] = {}
        #: By (taint, instance): when it was taken back.
        self.taint_links: dict[tuple[int, int], float | None] = {}
        #: By (ref, seq).
        self.reverts: dict[tuple[int, int], int] = {}
        #: Those of them by which an instance came back in place of a build.
        self.returns: dict[tuple[int, int], int] = {}
        #: By (name, seq).
        self.paused: dict[tuple[str, int], PauseRow] = {}
        #: By (arc, instance): the event.
        self.firings: dict[tuple[int, int], int] = {}
        #: By (requester, ref).
        self.delegations_made: dict[tuple[str, int], DelegationRow] = {}
        #: (kind, entity, seq, place, from, to).
        self.history: list[tuple[str, int, int, int, str | None, str]] = []
        self.entries: dict[str, Entry] = {}
        #: (revision, key, value).
        self.changes: list[tuple[int, str, bytes | None]] = []
        self.compactions: dict[int, int] = {}

    # Datasets and arcs

    def datasets(self, assets: Iterable[str]) -> dict[str, DatasetRow]:
        return self.rows[DatasetRow].keys(assets)

    def datasets_of_location(self, location: str) -> list[DatasetRow]:
        return [row for row in self.rows[DatasetRow] if row.location == location]

    def asset_names(self) -> list[str]:
        return [row.asset for row in self.rows[DatasetRow] if not row.removed]

    def arcs(self, assets: Iterable[str]) -> dict[str, ArcRow]:
        return self.rows[ArcRow].keys(assets)

    def arcs_in_force(self) -> list[ArcRow]:
        return [row for row in self.rows[ArcRow] if not row.removed]

    def asides(self, subjects: Iterable[str]) -> dict[str, AsideRow]:
        return self.rows[AsideRow].keys(subjects)

    def add_firings(self, firings: Iterable[tuple[int, int, int]]) -> None:
        for arc_id, instance_id, seq in firings:
            assert (arc_id, instance_id) not in self.firings, "an arc fires once for an instance (rule 10.5)"
            self.firings[arc_id, instance_id] = seq

    # Refs

    def refs(self, texts: Iterable[str]) -> dict[str, RefRow]:
        return self.rows[RefRow].keys(texts)

    def ensure_refs(self, texts: Iterable[str]) -> dict[str, RefRow]:
        wanted = list(dict.fromkeys(texts))
        found = self.refs(wanted)
        for text in wanted:
            if text not in found:
                dataset = self.rows[DatasetRow].by_key[asset_of(text)]
                found[text] = RefRow(id=self.next_id(), ref=text, dataset_id=dataset.id)
                self.add(found[text])
        return found

    def refs_by_id(self, ids: Iterable[int]) -> dict[int, RefRow]:
        return self.rows[RefRow].ids(ids)

    def ref_by_id(self, ref_id: int) -> RefRow:
        return self.rows[RefRow].by_id[ref_id]

    # Instances, job runs, launches

    def instances_by_id(self, ids: Iterable[int]) -> dict[int, InstanceRow]:
        return self.rows[InstanceRow].ids(ids)

    def instances_by_uuid(self, uuids: Iterable[str]) -> dict[str, InstanceRow]:
        return self.rows[InstanceRow].keys(uuids)

    def instances_of_job_runs(self, job_run_ids: Iterable[int]) -> list[InstanceRow]:
        """Those that were born with their job run: one that replaced files has another's number."""
        of: dict[int, list[InstanceRow]] = {i: [] for i in job_run_ids}
        for row in self.rows[InstanceRow]:
            if row.job_run_id in of and row.id >> ROW_BITS == row.job_run_id >> ROW_BITS:
                of[row.job_run_id].append(row)
        return [row for rows in of.values() for row in rows]

    def job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        return self.rows[JobRunRow].keys(job_run_ids)

    def job_runs_by_id(self, ids: Iterable[int]) -> dict[int, JobRunRow]:
        return self.rows[JobRunRow].ids(ids)

    def job_runs_of_launches(self, launch_ids: Iterable[int]) -> list[JobRunRow]:
        return [row for launch_id in launch_ids for row in self.rows[JobRunRow] if row.launch_id == launch_id]

    def launches(self, launch_ids: Iterable[str]) -> dict[str, LaunchRow]:
        return self.rows[LaunchRow].keys(launch_ids)

    def ids_taken(self, launch_id: str | None, job_run_ids: Iterable[str]) -> set[str]:
        launches = set() if launch_id is None else {launch_id}
        return (launches & self.rows[LaunchRow].by_key.keys()) | (set(job_run_ids) & self.rows[JobRunRow].by_key.keys())

    # Wants

    def wants(self, want_ids: Iterable[str]) -> dict[str, WantRow]:
        return self.rows[WantRow].keys(want_ids)

    def wants_by_id(self, ids: Iterable[int]) -> dict[int, WantRow]:
        return self.rows[WantRow].ids(ids)

    def wants_of_requests(self, request_ids: Iterable[str]) -> list[WantRow]:
        asked = set(request_ids)
        return [row for row in self.rows[WantRow] if row.request_id in asked]

    def wants_holding(self, ref_ids: Iterable[int], openness: Openness) -> list[tuple[int, WantRow]]:
        asked, wants = set(ref_ids), self.rows[WantRow].by_id
        pairs = sorted(pair for pair, held in self.holds.items() if held is openness and pair[0] in asked)
        return [(ref_id, wants[want_id]) for ref_id, want_id in pairs]

    def wants_to_reopen(self, ref_ids: Iterable[int], at: float) -> list[tuple[int, WantRow]]:
        held = self.wants_holding(ref_ids, Openness.SUCCESSFUL)
        return [(ref_id, want) for ref_id, want in held if want.keeping is None and want.expires_at > at]

    def refs_of_wants(self, want_ids: Iterable[int]) -> list[tuple[int, int]]:
        return sorted((want_id, ref_id) for want_id in set(want_ids) for ref_id in self.want_refs[want_id])

    def link_want(self, want_id: int, ref_ids: Iterable[int]) -> None:
        self.want_refs[want_id] = tuple(sorted(set(ref_ids)))
        self.holds.update({(ref_id, want_id): Openness.OPEN for ref_id in self.want_refs[want_id]})

    def set_openness(self, want_id: int, openness: Openness) -> None:
        before = Openness.SUCCESSFUL if openness is Openness.OPEN else Openness.OPEN
        for ref_id in self.want_refs[want_id]:
            if self.holds[ref_id, want_id] is before:
                self.holds[ref_id, want_id] = openness

    def kept_for(self, keepings: Iterable[int]) -> list[tuple[int, int]]:
        asked = set(keepings)
        return sorted(pair for pair in self.keepings if pair[0] in asked)

    def keepings_for(self, want_ids: Iterable[int]) -> list[tuple[int, int]]:
        asked = set(want_ids)
        return sorted(pair for pair in self.keepings if pair[1] in asked)

    def wants_kept(self, keepings: Iterable[int]) -> list[WantRow]:
        asked = set(keepings)
        return [row for row in self.rows[WantRow] if row.keeping in asked]

    def keep_for(self, keeping: int, want_ids: Iterable[int]) -> None:
        self.keepings.update((keeping, want_id) for want_id in want_ids)

    # Waiting

    def waiters(self, ref_ids: Iterable[int]) -> list[tuple[int, int]]:
        asked = set(ref_ids)
        return sorted((ref_id, i) for (i, ref_id), active in self.missing.items() if active and ref_id in asked)

    def missing_of(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        asked = set(instance_ids)
        return sorted(pair for pair in self.missing if pair[0] in asked)

    def add_missing(self, instance_id: int, ref_ids: Iterable[int]) -> None:
        for ref_id in dict.fromkeys(ref_ids):
            self.missing[instance_id, ref_id] = True
            self.ref_by_id(ref_id).n_waiters += 1

    def end_waiting(self, instance_id: int) -> None:
        for pair in self.missing_of([instance_id]):
            self.missing[pair] = False
            self.ref_by_id(pair[1]).n_waiters -= 1

    # Taints and lineage

    def taints(self, taint_ids: Iterable[str]) -> dict[str, TaintRow]:
        return self.rows[TaintRow].keys(taint_ids)

    def taints_by_id(self, ids: Iterable[int]) -> dict[int, TaintRow]:
        return self.rows[TaintRow].ids(ids)

    def instances_of_taint(self, taint_id: int) -> list[int]:
        return sorted(i for (t, i), canceled_at in self.taint_links.items() if t == taint_id and canceled_at is None)

    def taints_of_instances(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        asked = set(instance_ids)
        return sorted((i, t) for (t, i), canceled_at in self.taint_links.items() if i in asked and canceled_at is None)

    def add_taint_links(self, taint_id: int, instance_ids: Iterable[int]) -> None:
        self.taint_links.update({(taint_id, instance_id): None for instance_id in instance_ids})

    def cancel_taint_links(self, pairs: Iterable[tuple[int, int]], at: float) -> None:
        self.taint_links.update({(taint_id, instance_id): at for instance_id, taint_id in pairs})

    def instances_built_from(self, instance_ids: Iterable[int]) -> list[int]:
        asked = set(instance_ids)
        return sorted({i for (i, _), read in self.inputs.items() if read in asked})

    def instances_same_as(self, instance_ids: Iterable[int]) -> list[int]:
        roots = {row.same_root for row in self.instances_by_id(instance_ids).values()}
        return [row.id for row in self.rows[InstanceRow] if row.id in roots or row.same_as_id in roots]

    def inputs_of(self, instance_ids: Iterable[int]) -> list[int]:
        asked = set(instance_ids)
        return sorted({read for (i, _), read in self.inputs.items() if i in asked})

    def add_inputs(self, instance_id: int, inputs: Iterable[tuple[int, int]]) -> None:
        self.inputs.update({(instance_id, ref_id): input_id for ref_id, input_id in inputs})

    def judged(self, instance_ids: Iterable[int]) -> set[int]:
        asked, taints = set(instance_ids), self.rows[TaintRow].by_id
        return {i for t, i in self.taint_links if i in asked and not taints[t].of_code}

    def add_revert(self, ref_id: int, seq: int, instance_id: int, *, returned: bool) -> None:
        self.reverts[ref_id, seq] = instance_id
        if returned:
            self.returns[ref_id, seq] = instance_id

    def returned(self, instance_ids: Iterable[int]) -> dict[int, int]:
        asked = set(instance_ids)
        return {i: seq for (_, seq), i in sorted(self.returns.items()) if i in asked}

    def pointings(self, ref_ids: Iterable[int]) -> list[tuple[int, int, int]]:
        asked = set(ref_ids)
        born = [(row.ref_id, row.id >> ROW_BITS, row.id) for row in self.rows[InstanceRow] if row.ref_id in asked]
        turned = [(ref_id, seq, i) for (ref_id, seq), i in self.reverts.items() if ref_id in asked]
        return sorted(born + turned)

    def moved_by(self, instance_ids: Iterable[int]) -> dict[int, int]:
        asked = set(instance_ids)
        return {i: seq for kind, i, seq, *_ in self.history if kind == "instances" and i in asked}

    def building_since(self) -> int | None:
        instances = self.rows[InstanceRow].by_id
        building = [instances[ref.canonical_id].job_run_id for ref in self.rows[RefRow] if ref.state == "Building"]
        return min(building) >> ROW_BITS if building else None

    # Pauses

    def pauses(self, names: Iterable[str]) -> dict[str, PauseRow]:
        asked = set(names)
        return {row.ref: row for row in self._open_pauses() if row.ref in asked}

    def pauses_of_datasets(self, dataset_ids: Iterable[int]) -> list[PauseRow]:
        asked = set(dataset_ids)
        return sorted(row for row in self._open_pauses() if row.dataset_id in asked)

    def _open_pauses(self) -> list[PauseRow]:
        return [row for row in self.paused.values() if row.ended_seq is None]

    def refs_being_built(self, dataset_ids: Iterable[int]) -> list[RefRow]:
        asked = set(dataset_ids)
        return [ref for ref in self.rows[RefRow] if ref.state == "Building" and ref.dataset_id in asked]

    def add_pauses(self, rows: Iterable[PauseRow]) -> None:
        self.paused.update({(row.ref, row.seq): row for row in rows})

    def end_pauses(self, names: Iterable[str], at: float) -> None:
        for row in self.pauses(names).values():
            self.paused[row.ref, row.seq] = row._replace(ended_seq=self.seq, ended_at=at)

    # Delegations

    def meet_delegations(self, asked: Mapping[str, Iterable[int]]) -> None:
        pass

    def delegations(self, requester: str, ref_ids: Iterable[int]) -> dict[int, str]:
        made = self.delegations_made
        return {ref_id: made[requester, ref_id].outcome for ref_id in ref_ids if (requester, ref_id) in made}

    def waiting_delegations(self, ref_ids: Iterable[int]) -> list[tuple[int, str]]:
        asked = set(ref_ids)
        return sorted((ref_id, who) for who, ref_id in self._waiting() if ref_id in asked)

    def waiting_delegations_of(self, requester: str) -> list[int]:
        return sorted(ref_id for who, ref_id in self._waiting() if who == requester)

    def _waiting(self) -> list[tuple[str, int]]:
        return [pair for pair, row in self.delegations_made.items() if row.outcome == DelegationOutcome.WAITING]

    def put_delegations(self, rows: Iterable[DelegationRow]) -> None:
        self.delegations_made.update({(row.requester, row.ref_id): row for row in rows})

    def take_delegations(self, pairs: Iterable[tuple[str, int]]) -> None:
        for pair in pairs:
            if pair in self.delegations_made:
                self.delegations_made[pair] = self.delegations_made[pair]._replace(kind=Answer.BUILD.value)

    def end_delegations(self, ends: Iterable[tuple[str, int | None, float, str, str, int]]) -> None:
        for outcome, served_id, ended_at, reason, *pair in ends:
            row = self.delegations_made[tuple(pair)]
            ended = row._replace(outcome=outcome, served_id=served_id, ended_at=ended_at, reason=reason)
            self.delegations_made[row.requester, row.ref_id] = ended

    # Meta storage

    def meta_entries(self, keys: Iterable[str]) -> dict[str, Entry]:
        return {key: self.entries[key] for key in keys if key in self.entries}

    def meta_under(self, prefix: str) -> list[Entry]:
        found = [entry for entry in self.entries.values() if entry.key.startswith(prefix) and entry.value is not None]
        return sorted(found, key=lambda entry: entry.key)

    def write_meta(self, writes: Mapping[str, bytes | None]) -> None:
        for key, value in writes.items():
            self.entries[key] = Entry(key, value, self.seq)
            self.changes.append((self.seq, key, value))

    def clear_meta(self, prefix: str, but: Iterable[str]) -> None:
        kept = set(but)
        self.write_meta({entry.key: None for entry in self.meta_under(prefix) if entry.key not in kept})

    def meta_compacted(self) -> int:
        return max(self.compactions.values(), default=0)

    def compact_meta(self, revision: int) -> None:
        self.compactions[self.seq] = revision
        self.changes = [change for change in self.changes if change[0] > revision]
        forgotten = [key for key, entry in self.entries.items() if entry.value is None and entry.revision <= revision]
        for key in forgotten:
            del self.entries[key]

    # Writing

    def next_id(self) -> int:
        if self._numbered != self.seq:
            self._numbered, self._number = self.seq, -1
        self._number += 1
        return (self.seq << ROW_BITS) | self._number

    def newest_names(self, row_type: type[Row], most: int) -> list[str]:
        return list(reversed(self.rows[row_type].by_key))[:most]

    def add(self, row: Row) -> None:
        self.rows[type(row)].add(row)

    def record_move(self, kind: str, entity_id: int, seq: int, from_state: StrEnum | None, to_state: StrEnum) -> None:
        last_seq, place = self._place
        self._place = (seq, place + 1 if last_seq == seq else 0)
        before = None if from_state is None else str(from_state)
        self.history.append((kind, entity_id, seq, self._place[1], before, str(to_state)))

    # Comparing

    def tables(self) -> dict[str, set[tuple[Any, ...]]]:
        """Every row of every table, as the store's tables have them."""
        for ref in self.rows[RefRow]:
            ref.due = 1 if ref.n_open_wants and ref.schedulable else 0
        return {
            **{row_type.TABLE: {astuple(row) for row in rows} for row_type, rows in self.rows.items()},
            "want_refs": {(want_id, ref_id) for want_id, refs in self.want_refs.items() for ref_id in refs},
            "holds": {(ref_id, int(held), want_id) for (ref_id, want_id), held in self.holds.items()},
            "kept_for": self.keepings,
            "missing": {(*pair, int(active)) for pair, active in self.missing.items()},
            "instance_inputs": {(*pair, input_id) for pair, input_id in self.inputs.items()},
            "taint_instances": {(*pair, canceled_at) for pair, canceled_at in self.taint_links.items()},
            "reverts": {(*pair, instance_id, int(pair in self.returns)) for pair, instance_id in self.reverts.items()},
            "pauses": set(self.paused.values()),
            "arc_firings": {(*pair, seq) for pair, seq in self.firings.items()},
            "delegations": {tuple(row) for row in self.delegations_made.values()},
            "history": set(self.history),
            "meta_entries": {(entry.key, entry.revision, entry.value) for entry in self.entries.values()},
            "meta_changes": set(self.changes),
            "meta_compactions": set(self.compactions.items()),
        }
