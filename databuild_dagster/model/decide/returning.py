"""Earlier instances in place of a build: the same code on the same inputs made them, and nobody doubted them (rule 4.9).

Only a ref that was live until `--fresh` asked for a build gets an instance back. Each doubt ends it: a taint of an instance of
the same code and inputs, or of the instance that readers saw last, also if it was canceled since.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import CodeSpec, DatasetKind, DatasetSpec
from databuild_dagster.model.decide.context import Deciding, no_duplicates
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import BORROWED, OF_ENVIRONMENT, VERIFIES, InstanceRow, JobRunRow, RefRow
from databuild_dagster.model.states import InstanceState

#: The origin of rows that an erasure has left begins so (`ReplaceFiles`).
ERASED: Final = "erased:"
_OPEN: Final = (InstanceState.TAINTED, InstanceState.UP_FOR_RETRY)


def return_instances(command: c.ReturnInstances, deciding: Deciding) -> list[e.Fact]:
    """Raises `DuplicateRef`."""
    no_duplicates(one.ref for one in command.refs)
    returning = _Returning(command, deciding)
    found, verified = returning.found()
    facts: list[e.Fact] = [
        e.TaintCreated(
            taint_id=deciding.new_id(), refs=(), reason=VERIFIES + instance.uuid, uuids=(returning.last[ref].uuid,)
        )
        for ref, instance in verified.items()
    ]
    returns = tuple(_return(ref, instance, returning.builders) for ref, instance in found.items())
    return [*facts, e.InstancesReturned(returns=returns)] if returns else facts


def _return(ref: Ref, instance: InstanceRow, builders: Mapping[int, JobRunRow]) -> e.Return:
    assert instance.manifest_state is not None, "it has data"
    assert instance.manifest_uri is not None, "it has data"
    manifest = e.ManifestFact(
        state=instance.manifest_state,
        uri=instance.manifest_uri,
        files=instance.n_files or 0,
        rows=instance.n_rows or 0,
        bytes=instance.n_bytes or 0,
        content_hash=instance.content_hash,
    )
    return e.Return(job_run_id=builders[instance.job_run_id].job_run_id, ref=ref, manifest=manifest)


def place_in_sample(uuid: str) -> float:
    """The place of an instance in a sample, 0 to 1, which is the same for each command."""
    return int.from_bytes(hashlib.sha256(uuid.encode()).digest()[:6]) / 2**48


class SetAside(NamedTuple):
    """A ref that waits for a build because other code made what readers saw, and for no other reason."""

    #: The instance that readers saw until `--fresh`; no instance since then was live or tainted.
    last: InstanceRow
    #: All instances of the ref, oldest first.
    instances: list[InstanceRow]


def set_aside_by_code(rows: Iterable[RefRow], deciding: Deciding) -> dict[Ref, SetAside]:
    """The refs of deterministic assets among `rows` that `--fresh` alone has set aside."""
    rows = [row for row in rows if is_deterministic(deciding.dataset_of(asset_of(row.ref)))]
    waiting = {row.id: row for row in rows if row.state in _OPEN}
    if not waiting:
        return {}
    of_ref: dict[int, dict[int, None]] = defaultdict(dict)
    last_live: dict[int, int] = {}
    pointings = deciding.view.pointings(waiting)
    instances = deciding.view.instances_by_id({instance_id for _, _, instance_id in pointings})
    # In order of seq, so that the last one stays.
    for ref_id, _, instance_id in pointings:
        of_ref[ref_id].pop(instance_id, None)
        of_ref[ref_id][instance_id] = None
        if instances[instance_id].was_live:
            last_live[ref_id] = instance_id
    judged = deciding.view.judged(instances)
    found = {}
    for ref_id, last in last_live.items():
        ids = list(of_ref[ref_id])
        if judged.isdisjoint(ids[ids.index(last) :]):
            found[waiting[ref_id].ref] = SetAside(instances[last], [instances[id] for id in sorted(ids)])
    return found


class _Returning:
    """The refs of a command, and the instances that they get."""

    def __init__(self, command: c.ReturnInstances, deciding: Deciding) -> None:
        self._view = deciding.view
        self._command = command
        self._asked = {one.ref: one for one in command.refs}
        self._specs = {ref: deciding.dataset_of(asset_of(ref)) for ref in self._asked}
        paused = deciding.paused(self._asked)
        rows = [row for ref, row in deciding.view.refs(self._asked).items() if ref not in paused]
        set_aside = set_aside_by_code(rows, deciding)
        self._instances = {ref: found.instances for ref, found in set_aside.items()}
        self.last = {ref: found.last for ref, found in set_aside.items()}
        self.builders = deciding.view.job_runs_by_id(
            {instance.job_run_id for instances in self._instances.values() for instance in instances}
        )
        self._found: dict[Ref, InstanceRow] = {}

    def found(self) -> tuple[dict[Ref, InstanceRow], dict[Ref, InstanceRow]]:
        """The instance that each ref gets, inputs before what was built from them; and the instances of the sample."""
        verified: dict[Ref, InstanceRow] = {}
        newest: dict[Ref, InstanceRow] = {}
        left = self._twins()
        while left:
            # What comes back may be an input of another, and a ref of the sample does not come back.
            new = {ref: instance for ref, twins in left.items() if (instance := self._chosen(ref, twins)) is not None}
            if not new:
                break
            sample = {
                ref: instance for ref, instance in new.items() if place_in_sample(instance.uuid) < self._command.verify
            }
            verified |= sample
            newest = {ref: instance for ref, instance in new.items() if ref not in sample}
            self._found |= newest
            left = {ref: twins for ref, twins in left.items() if ref not in new}
        if self._command.at_least_one and newest and not verified:
            # Nothing that was found needs what was found last.
            ref = min(newest, key=lambda ref: place_in_sample(newest[ref].uuid))
            verified[ref] = self._found.pop(ref)
        return self._found, verified

    def _twins(self) -> dict[Ref, list[InstanceRow]]:
        """The instances of each ref that were live and that the present code built."""
        return {
            ref: twins
            for ref, instances in self._instances.items()
            if (twins := [row for row in instances if row.was_live and self._is_of_code(self._specs[ref], row)])
        }

    def _is_of_code(self, spec: DatasetSpec | None, instance: InstanceRow) -> bool:
        return spec is not None and spec.is_of_this_code(instance.code_version, self.builders[instance.job_run_id].code)

    def _chosen(self, ref: Ref, of_code: list[InstanceRow]) -> InstanceRow | None:
        """The newest instance of the present code and inputs whose data is there; None if there is none, or a doubt."""
        twins = [row for row in of_code if self._has_present_inputs(row, self._asked[ref].inputs)]
        alike = self._view.instances_same_as(row.id for row in twins) if twins else []
        if not twins or self._view.judged(alike):
            return None
        kept = [
            row
            for row in twins
            if row.created_seq >= self._asked[ref].since_seq
            and row.manifest_uri is not None
            and row.manifest_state not in (None, REMOVED)
            and row.origin is None
            and not self._is_of_other_log(row)
            and not self._has_lost_rows(row)
        ]
        return kept[-1] if kept else None

    def _has_present_inputs(self, instance: InstanceRow, declared: tuple[Ref, ...]) -> bool:
        """Whether a build would read the same rows: all that it read, and all that it declares."""
        read = self._view.instances_by_id(self._view.inputs_of([instance.id]))
        refs = self._view.refs_by_id({row.ref_id for row in read.values()})
        if not declared or not {refs[row.ref_id].ref for row in read.values()}.issuperset(declared):
            return False
        return all(self._is_readable(row, refs[row.ref_id]) for row in read.values())

    def _is_readable(self, read: InstanceRow, ref: RefRow) -> bool:
        """Whether readers see these rows of an input, or will with the instance that the input gets."""
        present = self._found.get(ref.ref)
        if present is None and ref.state is InstanceState.LIVE and ref.canonical_id is not None:
            present = self._view.instances_by_id([ref.canonical_id])[ref.canonical_id]
        if present is None or present.same_root != read.same_root:
            return False
        return present.id == read.id or not self._has_lost_rows(read)

    def _is_of_other_log(self, instance: InstanceRow) -> bool:
        """Whether a base made it, which may have erased it since, or an environment, which may have erased rows before."""
        job_run_id = self.builders[instance.job_run_id].job_run_id
        launch = self._view.launches([job_run_id]).get(job_run_id)
        return launch is not None and (launch.owner == BORROWED or launch.owner.startswith(OF_ENVIRONMENT))

    def _has_lost_rows(self, instance: InstanceRow) -> bool:
        """Whether rows were erased from the instance, or from one with its rows: they have one root still."""
        alike = self._view.instances_same_as([instance.id])
        if len(alike) == 1:
            return False
        made_by = {row.job_run_id for row in self._view.instances_by_id(alike).values()}
        launches = self._view.launches(row.job_run_id for row in self._view.job_runs_by_id(made_by).values())
        # An environment may have erased rows before its base took the rest.
        return any(launch.owner.startswith((ERASED, OF_ENVIRONMENT)) for launch in launches.values())


def is_deterministic(spec: DatasetSpec | None) -> bool:
    """Whether its rows follow from its code and its inputs: no digest covers the values of resources and of a configuration."""
    return (
        spec is not None
        and spec.deterministic is True
        and spec.kind is DatasetKind.OURS
        and isinstance(spec.code, CodeSpec)
        and not spec.code.settings
    )
