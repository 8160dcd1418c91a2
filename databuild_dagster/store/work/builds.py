"""Datasets, arcs, refs, instances, job runs and launches of a unit of work, and its waiting instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from databuild_dagster.model.errors import Contradiction, IllegalMove
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.rows import ArcRow, AsideRow, DatasetRow, InstanceRow, JobRunRow, LaunchRow, RefRow
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.format import PREFIX, end_of_event
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
    """`model.view.Registered`."""

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
    """`model.view.Built` and `model.view.Missed`."""

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
