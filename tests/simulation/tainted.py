"""Which rows are tainted, read off the events in the plainest way: no such rows are live without a build or a person (rules 4.8, 7).

Independent of the fold on purpose, as the onlooker is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref, derive_partition_uuid
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical

from .processes import Broken


class Tainted:
    """Reads each event once, in order, and compares what readers see after each commit with it."""

    def __init__(self) -> None:
        #: Ref to the instance that a taint of the ref names.
        self._canonical: dict[Ref, str] = {}
        self._read_by: dict[str, set[str]] = {}
        #: Equal for instances whose rows are recorded as equal.
        self._rows: dict[str, str] = {}
        #: Taints that act, with the instances that carry each; and the taints among them that extend downstream.
        self._carrying: dict[str, set[str]] = defaultdict(set)
        self._extending: set[str] = set()
        self._looked: Mapping[Ref, Canonical] = {}
        #: A person has canceled a taint, or gone back to an instance, since the last look.
        self._has_person_spoken = False

    def see(self, events: Sequence[e.Event]) -> None:
        """Raises `Broken` for rows that equal those of before in spite of a taint."""
        for event in events:
            self._take_in(event.fact)
            self._has_person_spoken |= isinstance(event.fact, e.TaintCanceled | e.CanonicalReverted)

    def look(self, now: Mapping[Ref, Canonical]) -> None:
        """Raises `Broken` for tainted rows that readers see as live."""
        for ref, one in now.items():
            if one.uuid is None or one.state is not InstanceState.LIVE:
                continue
            before = self._looked.get(ref)
            if (
                before
                and not self._has_person_spoken
                and (before.uuid, before.state) == (one.uuid, InstanceState.TAINTED)
            ):
                raise Broken("taint", f"{ref} is live again without a build or a person")
            if any(one.uuid in carrying for carrying in self._carrying.values()):
                raise Broken("taint", f"{ref} is live, and its rows are tainted")
        self._looked, self._has_person_spoken = now, False

    def has_rows_of_before(self, uuid: str) -> bool:
        """Whether an instance was built with the rows of the last live instance of its ref (rule 4.8)."""
        return self._rows.get(uuid, uuid) != uuid

    def _take_in(self, fact: e.Fact) -> None:
        match fact:
            case e.JobRunBuffered(runs=runs):
                for run in runs:
                    self._canonical |= {ref: derive_partition_uuid(run.job_run_id, ref) for ref in run.refs}
            case e.LotArrived(arrivals=arrivals):
                for arrival in arrivals:
                    self._canonical[arrival.ref] = derive_partition_uuid(arrival.job_run_id, arrival.ref)
            case e.JobRunSucceeded(runs=successes):
                for success in successes:
                    for output in success.outputs:
                        self._built(derive_partition_uuid(success.job_run_id, output.ref), output)
            case e.TaintCreated(taint_id=taint_id, refs=refs, uuids=uuids, downstream=downstream):
                named = {*uuids, *(self._canonical[ref] for ref in refs)}
                self._carrying[taint_id] = self._downstream_of(named) if downstream else named
                if downstream:
                    self._extending.add(taint_id)
            case e.TaintCanceled(taint_id=taint_id):
                self._carrying.pop(taint_id, None)
                self._extending.discard(taint_id)
            case e.CanonicalReverted(ref=ref, uuid=uuid):
                self._canonical[ref] = uuid
                for carrying in self._carrying.values():
                    carrying.discard(uuid)

    def _built(self, uuid: str, output: e.OutputFact) -> None:
        read, same = set(output.inputs.values()), output.same_data_as
        if same is not None and self._taints_of({*read, same}):
            raise Broken("rule 4.8", f"{output.ref} has the rows of before, and a downstream taint covers them")
        self._read_by[uuid] = read
        self._rows[uuid] = uuid if same is None else self._rows[same]
        for taint in self._taints_of(read):
            self._carrying[taint].add(uuid)

    def _taints_of(self, uuids: set[str]) -> list[str]:
        return [taint for taint in self._extending if uuids & self._carrying[taint]]

    def _downstream_of(self, named: Iterable[str]) -> set[str]:
        """The instances with the rows of `named`, or built from such rows, directly or not."""
        found: set[str] = set()
        level = set(named)
        while level - found:
            found |= level
            rows = {self._rows.get(uuid, uuid) for uuid in found}
            level = {uuid for uuid, read in self._read_by.items() if self._rows[uuid] in rows or read & found}
        return found
