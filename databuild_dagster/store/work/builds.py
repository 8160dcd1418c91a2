"""The rows of a unit of work but for wants and the meta storage.

Datasets, arcs, refs, instances, job runs and launches; waiting instances; taints, lineage and the canonical pointer; delegations and
pauses (rules 6.13, 8).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter

import msgspec

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.errors import Contradiction, IllegalMove
from databuild_dagster.model.refs import Ref, asset_of
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
    TaintRow,
)
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, PREFIX, end_of_event
from databuild_dagster.store.work.row_sets import Lookup, Rows, Shape, Tables, missing_row

DATASETS = Shape(DatasetRow, "asset")
ARCS = Shape(ArcRow, "asset")
ASIDES = Shape(AsideRow, "subject")
REFS = Shape(RefRow, "ref", InstanceState)
INSTANCES = Shape(InstanceRow, "uuid", InstanceState)
JOB_RUNS = Shape(JobRunRow, "job_run_id", JobRunState)
LAUNCHES = Shape(LaunchRow, "launch_id")
_IDS_TAKEN = Lookup(
    f"SELECT launch_id FROM {PREFIX}launches WHERE launch_id = ? "
    f"UNION ALL SELECT job_run_id FROM {PREFIX}job_runs WHERE",
    "job_run_id",
)
_OUTPUTS = Lookup(
    f"SELECT {INSTANCES.columns}, {REFS.columns} FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id WHERE",
    "i.id",
)
_WAITERS = Lookup(f"SELECT ref_id, instance_id FROM {PREFIX}missing WHERE active = 1 AND", "ref_id")
_MISSING_OF = Lookup(f"SELECT instance_id, ref_id FROM {PREFIX}missing WHERE", "instance_id")
_ADD_MISSING = f"INSERT INTO {PREFIX}missing (instance_id, ref_id, active) VALUES (?, ?, 1)"
_END_WAITING = f"UPDATE {PREFIX}missing SET active = ? WHERE instance_id = ?"
_list_decoder = msgspec.json.Decoder(list[str])

_ADD_FIRING = f"INSERT INTO {PREFIX}arc_firings (arc_id, instance_id, seq) VALUES (?, ?, ?)"
LINKS = (_ADD_MISSING, _END_WAITING, _ADD_FIRING)


class DatasetWork(Tables):
    """Datasets and arcs."""

    _datasets = Rows(DATASETS)
    _arcs = Rows(ARCS)
    _set_aside = Rows(ASIDES)

    def datasets(self, assets: Iterable[str]) -> dict[str, DatasetRow]:
        return self._datasets.keys(assets)

    def datasets_of_location(self, location: str) -> list[DatasetRow]:
        self._datasets.flush()
        return self._datasets.fetch("location = ? ORDER BY id", location)

    def asset_names(self) -> list[str]:
        return [name for (name,) in self.connection.execute(f"SELECT asset FROM {PREFIX}datasets WHERE removed = 0")]

    def arcs(self, assets: Iterable[str]) -> dict[str, ArcRow]:
        return self._arcs.keys(assets)

    def arcs_in_force(self) -> list[ArcRow]:
        self._arcs.flush()
        return self._arcs.fetch("removed = 0 ORDER BY id")

    def asides(self, subjects: Iterable[str]) -> dict[str, AsideRow]:
        return self._set_aside.keys(subjects)

    def add_firings(self, firings: Iterable[tuple[int, int, int]]) -> None:
        self._link(_ADD_FIRING, firings)


class BuildWork(DatasetWork):
    """Refs, instances, job runs and launches, and instances that wait for refs."""

    _refs = Rows(REFS)
    _instances = Rows(INSTANCES)
    _job_runs = Rows(JOB_RUNS)
    _launches = Rows(LAUNCHES)
    #: The instances of the job runs that were loaded.
    _outputs: dict[int, list[InstanceRow]]

    def refs(self, texts: Iterable[Ref]) -> dict[Ref, RefRow]:
        return self._refs.keys(texts)

    def ensure_refs(self, texts: Iterable[Ref]) -> dict[Ref, RefRow]:
        wanted = list(dict.fromkeys(texts))
        rows = self._refs.keys(wanted)
        if len(rows) == len(wanted):
            return rows
        fresh = [text for text in wanted if text not in rows]
        datasets = self._datasets.keys(asset_of(text) for text in fresh)
        for text in fresh:
            dataset = datasets.get(asset_of(text))
            if dataset is None:
                raise IllegalMove(entity=text, on="first mention", why="its dataset is not registered")
            row = RefRow(id=self.next_id(), ref=text, dataset_id=dataset.id)
            self._refs.add(row)
            rows[text] = row
        return rows

    def refs_by_id(self, ids: Iterable[int]) -> dict[int, RefRow]:
        return self._refs.ids(ids)

    def ref_by_id(self, ref_id: int) -> RefRow:
        return self._refs.by_id.get(ref_id) or self._refs.ids([ref_id])[ref_id]

    def instances_by_id(self, ids: Iterable[int]) -> dict[int, InstanceRow]:
        return self._instances.ids(ids)

    def instances_by_uuid(self, uuids: Iterable[str]) -> dict[str, InstanceRow]:
        return self._instances.keys(uuids)

    def instances_of_job_runs(self, job_run_ids: Iterable[int]) -> list[InstanceRow]:
        """Their ids follow that of their job run, so no index is needed. Kept, because decide and evolve both ask."""
        ids = list(job_run_ids)
        if unknown := [i for i in ids if i not in self._outputs]:
            self._meet_outputs(unknown)
        return [instance for i in ids for instance in self._outputs[i]]

    def _meet_outputs(self, job_run_ids: list[int]) -> None:
        """With their refs, which callers read next."""
        known = self._instances.by_id
        numbers = {
            job_run.id + 1 + place: job_run.id
            for job_run in self.job_runs_by_id(job_run_ids).values()
            for place in range(len(_list_decoder.decode(job_run.refs)))
        }
        if unknown := [number for number in numbers if number not in known]:
            width = len(INSTANCES.names)
            for values in _OUTPUTS.ask(self.connection, unknown):
                self._instances.take(values[:width])
                self._refs.take(values[width:])
        self._outputs.update((job_run_id, []) for job_run_id in job_run_ids)
        for number, job_run_id in numbers.items():
            instance = known.get(number)
            if instance is not None and instance.job_run_id == job_run_id:
                self._outputs[job_run_id].append(instance)
            elif self._job_runs.by_id[job_run_id].state is not JobRunState.SKIPPED:
                raise missing_row(self.connection, INSTANCES.cls.TABLE, number)

    def job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        return self._job_runs.keys(job_run_ids)

    def job_runs_by_id(self, ids: Iterable[int]) -> dict[int, JobRunRow]:
        return self._job_runs.ids(ids)

    def job_runs_of_launches(self, launch_ids: Iterable[int]) -> list[JobRunRow]:
        """Found by the range of ids of the event that made their launch."""
        rows = self._job_runs
        rows.flush()
        return [
            row
            for launch_id in launch_ids
            for row in rows.fetch("id > ? AND id < ? ORDER BY id", launch_id, end_of_event(launch_id))
            if row.launch_id == launch_id
        ]

    def launches(self, launch_ids: Iterable[str]) -> dict[str, LaunchRow]:
        return self._launches.keys(launch_ids)

    def ids_taken(self, launch_id: str | None, job_run_ids: Iterable[str]) -> set[str]:
        self._launches.flush()
        self._job_runs.flush()
        return {name for (name,) in _IDS_TAKEN.ask(self.connection, list(job_run_ids), launch_id)}

    def waiters(self, ref_ids: Iterable[int]) -> list[tuple[int, int]]:
        """Refs keep the number of their waiters; mostly it is 0, and no query is needed. Raises `Contradiction`."""
        waited_for = {ref.id: ref for ref in self._refs.ids(ref_ids).values() if ref.n_waiters}
        pairs = self._pairs(_WAITERS, waited_for)
        found = Counter(ref_id for ref_id, _ in pairs)
        for ref_id, ref in waited_for.items():
            if found[ref_id] != ref.n_waiters:
                why = f"{ref.n_waiters} instances wait for it, and the index has {found[ref_id]}"
                raise Contradiction(seq=self.seq, entity=ref.ref, state=str(ref.state), on="its waiting index", why=why)
        return pairs

    def missing_of(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        """Raises `Contradiction`."""
        waiting = self._instances.ids(instance_ids)
        pairs = self._pairs(_MISSING_OF, waiting)
        found = Counter(instance_id for instance_id, _ in pairs)
        for row_id, row in waiting.items():
            if found[row_id] < row.n_unmet:
                why = f"it waits for {row.n_unmet} refs, and the index has {found[row_id]}"
                entity = self._refs.ids([row.ref_id])[row.ref_id].ref
                raise Contradiction(seq=self.seq, entity=entity, state=str(row.state), on="its waiting index", why=why)
        return pairs

    def add_missing(self, instance_id: int, ref_ids: Iterable[int]) -> None:
        missing = self._refs.ids(ref_ids)
        for ref in missing.values():
            ref.n_waiters += 1
        self._link(_ADD_MISSING, [(instance_id, ref_id) for ref_id in missing])

    def end_waiting(self, instance_id: int) -> None:
        for ref in self._refs.ids(ref_id for _, ref_id in self.missing_of([instance_id])).values():
            ref.n_waiters -= 1
        self._link(_END_WAITING, [(0, instance_id)])


TAINTS = Shape(TaintRow, "taint_id")
_INSTANCES_OF_TAINT = Lookup(
    f"SELECT taint_id, instance_id FROM {PREFIX}taint_instances WHERE canceled_at IS NULL AND", "taint_id"
)
_TAINTS_OF_INSTANCE = Lookup(
    f"SELECT instance_id, taint_id FROM {PREFIX}taint_instances WHERE canceled_at IS NULL AND", "instance_id"
)
_BUILT_FROM = Lookup(f"SELECT input_id, instance_id FROM {PREFIX}instance_inputs WHERE", "input_id")
_INPUTS_OF = Lookup(f"SELECT instance_id, input_id FROM {PREFIX}instance_inputs WHERE", "instance_id")
#: An instance is canonical from its creation on (rule 4.2), and its id begins with the seq of that.
POINTINGS = f"""
WITH RECURSIVE chain(ref_id, id) AS (
    SELECT r.id, r.last_id FROM {PREFIX}refs r
    WHERE r.last_id IS NOT NULL AND r.id IN (SELECT value FROM json_each(?))
    UNION ALL
    SELECT chain.ref_id, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
    WHERE p.previous_id IS NOT NULL
)
SELECT ref_id, id >> {BITS}, id FROM chain
UNION ALL
SELECT ref_id, seq, instance_id FROM {PREFIX}reverts WHERE ref_id IN (SELECT value FROM json_each(?))"""
#: An instance names the first with its rows, after any number of compactions and of builds with equal rows.
_SAME_AS = f"""
WITH roots(id) AS (
    SELECT coalesce(same_as_id, id) FROM {PREFIX}instances WHERE id IN (SELECT value FROM json_each(?))
)
SELECT id FROM roots UNION SELECT i.id FROM roots JOIN {PREFIX}instances i ON i.same_as_id = roots.id"""
_MOVED_BY = (
    f"SELECT entity_id, max(seq) FROM {PREFIX}history WHERE kind = 'instances' "
    "AND entity_id IN (SELECT value FROM json_each(?)) GROUP BY entity_id"
)
#: An open job run holds the lease of each of its refs, and refs that are being built have an index.
OLDEST_OPEN = (
    f"SELECT min(i.job_run_id) FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id "
    f"WHERE r.due = 0 AND r.state = '{InstanceState.BUILDING}'"
)
_ADD_TAINT = f"INSERT INTO {PREFIX}taint_instances (taint_id, instance_id) VALUES (?, ?)"
_CANCEL_TAINT = f"UPDATE {PREFIX}taint_instances SET canceled_at = ? WHERE taint_id = ? AND instance_id = ?"
_JUDGED = f"""
SELECT DISTINCT l.instance_id FROM {PREFIX}taint_instances l JOIN {PREFIX}taints t ON t.id = l.taint_id
WHERE t.of_code = 0 AND l.instance_id IN (SELECT value FROM json_each(?))"""
_ADD_REVERT = f"INSERT INTO {PREFIX}reverts (ref_id, seq, instance_id, returned) VALUES (?, ?, ?, ?)"
_RETURNED = f"""
SELECT v.instance_id, max(v.seq) FROM {PREFIX}instances i
JOIN {PREFIX}reverts v ON v.ref_id = i.ref_id AND v.instance_id = i.id AND v.returned = 1
WHERE i.id IN (SELECT value FROM json_each(?)) GROUP BY v.instance_id"""
_ADD_INPUT = f"INSERT INTO {PREFIX}instance_inputs (instance_id, ref_id, input_id) VALUES (?, ?, ?)"

TAINT_LINKS = (_ADD_TAINT, _CANCEL_TAINT, _ADD_REVERT, _ADD_INPUT)


class TaintWork(Tables):
    """Taints, lineage, and where the canonical pointer was."""

    _taints = Rows(TAINTS)

    def taints(self, taint_ids: Iterable[str]) -> dict[str, TaintRow]:
        return self._taints.keys(taint_ids)

    def taints_by_id(self, ids: Iterable[int]) -> dict[int, TaintRow]:
        return self._taints.ids(ids)

    def instances_of_taint(self, taint_id: int) -> list[int]:
        return [instance_id for _, instance_id in self._pairs(_INSTANCES_OF_TAINT, [taint_id])]

    def taints_of_instances(self, instance_ids: Iterable[int]) -> list[tuple[int, int]]:
        return self._pairs(_TAINTS_OF_INSTANCE, instance_ids)

    def add_taint_links(self, taint_id: int, instance_ids: Iterable[int]) -> None:
        self._link(_ADD_TAINT, ((taint_id, instance_id) for instance_id in instance_ids))

    def cancel_taint_links(self, pairs: Iterable[tuple[int, int]], at: float) -> None:
        """Takes (instance, taint) pairs."""
        self._link(_CANCEL_TAINT, [(at, taint_id, instance_id) for instance_id, taint_id in pairs])

    def instances_built_from(self, instance_ids: Iterable[int]) -> list[int]:
        return sorted({instance_id for _, instance_id in self._linked(_BUILT_FROM, instance_ids)})

    def instances_same_as(self, instance_ids: Iterable[int]) -> list[int]:
        self.flush()
        return sorted(found for (found,) in self.connection.execute(_SAME_AS, (Keys(instance_ids),)))

    def inputs_of(self, instance_ids: Iterable[int]) -> list[int]:
        return sorted({input_id for _, input_id in self._linked(_INPUTS_OF, instance_ids)})

    def add_inputs(self, instance_id: int, inputs: Iterable[tuple[int, int]]) -> None:
        self._link(_ADD_INPUT, ((instance_id, ref_id, input_id) for ref_id, input_id in inputs))

    def judged(self, instance_ids: Iterable[int]) -> set[int]:
        self.flush()
        return {found for (found,) in self.connection.execute(_JUDGED, (Keys(instance_ids),))}

    def add_revert(self, ref_id: int, seq: int, instance_id: int, *, returned: bool) -> None:
        self._link(_ADD_REVERT, [(ref_id, seq, instance_id, int(returned))])

    def returned(self, instance_ids: Iterable[int]) -> dict[int, int]:
        self.flush()
        return dict(self.connection.execute(_RETURNED, (Keys(instance_ids),)))

    def pointings(self, ref_ids: Iterable[int]) -> list[tuple[int, int, int]]:
        self.flush()
        refs = Keys(ref_ids)
        return sorted(self.connection.execute(POINTINGS, (refs, refs)), key=itemgetter(0, 1))

    def moved_by(self, instance_ids: Iterable[int]) -> dict[int, int]:
        self.flush()
        return dict(self.connection.execute(_MOVED_BY, (Keys(instance_ids),)))

    def building_since(self) -> int | None:
        self.flush()
        ((oldest,),) = self.connection.execute(OLDEST_OPEN)
        return None if oldest is None else int(oldest) >> BITS


_DELEGATION_COLUMNS = ", ".join(DelegationRow._fields)
_PUT_DELEGATION = (
    f"INSERT INTO {PREFIX}delegations ({_DELEGATION_COLUMNS}) VALUES ({', '.join('?' * len(DelegationRow._fields))}) "
    "ON CONFLICT (requester, ref_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in DelegationRow._fields[2:])
)
_END_DELEGATION = (
    f"UPDATE {PREFIX}delegations SET outcome = ?, served_id = ?, ended_at = ?, reason = ? "
    "WHERE requester = ? AND ref_id = ?"
)
_TAKE_DELEGATION = f"UPDATE {PREFIX}delegations SET kind = '{Answer.BUILD.value}' WHERE requester = ? AND ref_id = ?"
_DELEGATIONS = (
    f"SELECT requester, ref_id, outcome FROM {PREFIX}delegations "
    "WHERE requester IN (SELECT value FROM json_each(?)) AND ref_id IN (SELECT value FROM json_each(?))"
)
_WAITING_FOR = Lookup(
    f"SELECT ref_id, requester FROM {PREFIX}delegations WHERE outcome = '{DelegationOutcome.WAITING.value}' AND",
    "ref_id",
)
_WAITING_OF = f"SELECT ref_id FROM {PREFIX}delegations WHERE requester = ? AND outcome = ?"

_PAUSE_COLUMNS = ", ".join(PauseRow._fields)
_OPEN = f"SELECT {_PAUSE_COLUMNS} FROM {PREFIX}pauses WHERE ended_seq IS NULL AND"
#: Mostly there is none, and this takes a fifth of the time of a query with a list of names.
ANY_PAUSE = f"SELECT 1 FROM {PREFIX}pauses WHERE ended_seq IS NULL LIMIT 1"
_OF_NAMES, _OF_DATASETS = Lookup(_OPEN, "ref"), Lookup(_OPEN, "dataset_id")
#: As the index of refs that are being built has it.
_BEING_BUILT = (
    f"due = 0 AND state = '{InstanceState.BUILDING}' AND dataset_id IN (SELECT value FROM json_each(?)) ORDER BY id"
)
_ADD_PAUSE = f"INSERT INTO {PREFIX}pauses ({_PAUSE_COLUMNS}) VALUES ({', '.join('?' * len(PauseRow._fields))})"
# Many events may be written at once, and additions first.
_END_PAUSE = f"UPDATE {PREFIX}pauses SET ended_seq = ?, ended_at = ? WHERE ref = ? AND seq < ? AND ended_seq IS NULL"

DELEGATION_LINKS = (_PUT_DELEGATION, _TAKE_DELEGATION, _END_DELEGATION, _ADD_PAUSE, _END_PAUSE)


class DelegationWork(BuildWork):
    """Delegations and pauses."""

    #: Outcomes of the delegations of (requester, ref) that were loaded; None for no delegation.
    _outcomes: dict[tuple[str, int], str | None]

    def meet_delegations(self, asked: Mapping[str, Iterable[int]]) -> None:
        known = self._outcomes
        pairs = [pair for who, ids in asked.items() for ref_id in ids if (pair := (who, ref_id)) not in known]
        if not pairs:
            return
        known.update(dict.fromkeys(pairs))
        requesters, refs = Keys({who for who, _ in pairs}), Keys({ref_id for _, ref_id in pairs})
        for who, ref_id, outcome in self.connection.execute(_DELEGATIONS, (requesters, refs)):
            known[who, ref_id] = outcome

    def delegations(self, requester: str, ref_ids: Iterable[int]) -> dict[int, str]:
        wanted = list(ref_ids)
        self.meet_delegations({requester: wanted})
        known = self._outcomes
        return {ref_id: outcome for ref_id in wanted if (outcome := known[requester, ref_id]) is not None}

    def waiting_delegations(self, ref_ids: Iterable[int]) -> list[tuple[int, str]]:
        """Refs keep the number of their delegations; mostly it is 0, and no query is needed."""
        return sorted(self._linked(_WAITING_FOR, [ref.id for ref in self._refs.ids(ref_ids).values() if ref.n_joined]))

    def waiting_delegations_of(self, requester: str) -> list[int]:
        self._flush_links()
        found = self.connection.execute(_WAITING_OF, (requester, DelegationOutcome.WAITING.value))
        return sorted(ref_id for (ref_id,) in found)

    def put_delegations(self, rows: Iterable[DelegationRow]) -> None:
        """The end of an earlier delegation is written first, because the new delegation replaces it."""
        if _END_DELEGATION in self._links:
            self._flush_links()
        put = list(rows)
        self._outcomes.update({(row.requester, row.ref_id): row.outcome for row in put})
        self._link(_PUT_DELEGATION, put)

    def take_delegations(self, pairs: Iterable[tuple[str, int]]) -> None:
        self._link(_TAKE_DELEGATION, pairs)

    def end_delegations(self, ends: Iterable[tuple[str, int | None, float, str, str, int]]) -> None:
        ended = list(ends)
        self._outcomes.update({(who, ref_id): outcome for outcome, _, _, _, who, ref_id in ended})
        self._link(_END_DELEGATION, ended)

    def pauses(self, names: Iterable[Ref]) -> dict[Ref, PauseRow]:
        if self._links:
            self._flush_links()
        if self.connection.execute(ANY_PAUSE).fetchone() is None:
            return {}
        found = map(PauseRow._make, self._linked(_OF_NAMES, names))
        return {pause.ref: pause for pause in found}

    def pauses_of_datasets(self, dataset_ids: Iterable[int]) -> list[PauseRow]:
        return sorted(map(PauseRow._make, self._linked(_OF_DATASETS, dataset_ids)))

    def refs_being_built(self, dataset_ids: Iterable[int]) -> list[RefRow]:
        self.flush()
        return self._refs.fetch(_BEING_BUILT, Keys(dataset_ids))

    def add_pauses(self, rows: Iterable[PauseRow]) -> None:
        self._link(_ADD_PAUSE, rows)

    def end_pauses(self, names: Iterable[Ref], at: float) -> None:
        self._link(_END_PAUSE, [(self.seq, at, name, self.seq) for name in names])
