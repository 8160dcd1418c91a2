"""Instances that an environment built for its base (rule 16.10)."""

from __future__ import annotations

from collections.abc import Iterator

from databuild_dagster.model import commands as c
from databuild_dagster.model import errors
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import TableFormat, TableSpec
from databuild_dagster.model.decide.borrowing import check_opening
from databuild_dagster.model.decide.context import Deciding, no_duplicates
from databuild_dagster.model.decide.job_runs import check_manifest
from databuild_dagster.model.decide.same_data import births_with_same_data
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import RefRow
from databuild_dagster.model.states import InstanceState


def promote_instances(command: c.PromoteInstances, deciding: Deciding) -> list[e.Fact]:
    """All or nothing. Raises `EnvironmentMoved`, `PromotionRefused`, `DuplicateRef`, and as `check_manifest`."""
    check_opening(command.environment, command.opening, command.revision, deciding)
    no_duplicates(birth.ref for birth in command.instances)
    found = _Promoting(command, deciding)
    causes = [(birth.ref, why) for birth in command.instances for why in found.why_not(birth)]
    if causes:
        raise errors.PromotionRefused(environment=command.environment, causes=causes)
    moving = [birth for birth in command.instances if not found.is_there(birth.ref)]
    if not moving:
        return []
    new = [birth for birth in moving if found.uuids[birth.ref] not in found.known]
    returned = [birth for birth in moving if found.uuids[birth.ref] in found.known]
    return [
        e.InstancesPromoted(
            environment=command.environment,
            births=births_with_same_data(new, found.rows, deciding),
            returns=tuple(e.Return(one.job_run_id, one.ref, one.manifest) for one in returned if one.manifest),
        )
    ]


def _in_words(ref: RefRow) -> str:
    return "missing" if ref.state is None else ref.state.in_words


class _Promoting:
    """The refs of a promotion as the base has them, loaded in bulk."""

    def __init__(self, command: c.PromoteInstances, deciding: Deciding) -> None:
        self._command, self._deciding = command, deciding
        view, births = deciding.view, command.instances
        refs = [birth.ref for birth in births]
        self.rows = view.refs(refs)
        #: By ref without a row, why nothing can build it. Before the rest, because an open question ends the decision.
        self._why_unknown = {ref: self._why_not_wantable(ref) for ref in refs if ref not in self.rows}
        deciding.catalog.require()
        self.uuids = {birth.ref: derive_partition_uuid(birth.job_run_id, birth.ref) for birth in births}
        #: The promoted instances that this log has.
        self.known = view.instances_by_uuid(self.uuids.values())
        promoted = set(self.uuids.values())
        read = {uuid for birth in births for uuid in birth.inputs.values() if uuid not in promoted}
        self._read = view.instances_by_uuid(read)
        view.refs_by_id(row.ref_id for row in self._read.values())
        ids = [row.canonical_id for row in self.rows.values() if row.canonical_id is not None]
        self._canonical = view.instances_by_id(ids)
        self._moved_by = view.moved_by(ids)
        #: By the id of the ref, the pin at which its instance was built, and the canonical instance then.
        self._pins = {row.id: command.built_at.get(ref, command.pin) for ref, row in self.rows.items()}
        self._at_pin: dict[int, int] = {}
        for ref_id, seq, instance_id in view.pointings(self._pins):
            if seq <= self._pins[ref_id]:
                self._at_pin[ref_id] = instance_id
        self._paused = deciding.paused(refs)

    def is_there(self, ref: Ref) -> bool:
        """Whether readers see the promoted instance already."""
        row = self.rows.get(ref)
        return row is not None and row.state is InstanceState.LIVE and self._uuid_of(row) == self.uuids[ref]

    def why_not(self, birth: e.Birth) -> Iterator[str]:
        """The causes for which an instance is not promoted."""
        check_manifest(birth.ref, birth.manifest)
        if self.is_there(birth.ref):
            return
        row = self.rows.get(birth.ref)
        if row is None:
            if (why := self._why_unknown[birth.ref]) is not None:
                yield why
                return
        elif row.leased:
            yield "it is being built in the base"
        elif (why := self._why_changed(row)) is not None:
            yield why
        if (pause := self._paused.get(birth.ref)) is not None:
            yield f"it is paused in the base by {pause.actor}: {pause.reason}"
        yield from self._why_bad(birth)
        yield from self._why_code(birth)
        for used, uuid in birth.inputs.items():
            if (why := self._why_input(used, uuid)) is not None:
                yield why

    def _why_not_wantable(self, ref: Ref) -> str | None:
        try:
            self._deciding.check_wantable(ref)
        except errors.Refused as refused:
            return refused.message.removesuffix(".")
        return None

    def _why_changed(self, row: RefRow) -> str | None:
        if self._uuid_of(row) == self.uuids[row.ref]:
            # A taint, or a removal of its data, is a cause of its own.
            return None
        if row.canonical_id != self._at_pin.get(row.id):
            pin = self._pins[row.id]
            since = "the pin" if pin == self._command.pin else f"event {pin}, the pin when it was built; build it again"
            return f"instance {self._uuid_of(row)} took its place in the base since {since}"
        if row.canonical_id is not None and self._moved_by[row.canonical_id] > self._command.pin:
            return f"its instance in the base is {_in_words(row)} since the pin"
        return None

    def _why_bad(self, birth: e.Birth) -> Iterator[str]:
        if birth.manifest is None:
            yield "the place of its data is not known"
        known = self.known.get(self.uuids[birth.ref])
        if known is None:
            return
        if known.manifest_state == REMOVED or not known.was_live:
            yield f"the base has removed the data of instance {known.uuid}"
        elif known.n_taints:
            yield f"the base has a taint on instance {known.uuid}"

    def _why_code(self, birth: e.Birth) -> Iterator[str]:
        spec = self._deciding.dataset_of(asset_of(birth.ref))
        if spec is None:
            yield "the base has no such asset"
            return
        if not self._command.ahead and not spec.is_of_this_code(birth.code_version, birth.code):
            yield "its code is not the code that the base has registered by a tick or a build"
        if (here := self._command.datasets.get(spec.asset)) is not None:
            if here.partitions != spec.partitions:
                yield "its partitions are declared differently in the base"
            if not self._command.ahead and here.inputs != spec.inputs:
                yield "its inputs are declared differently in the base"
        if isinstance(spec.table, TableSpec) and spec.table.format is TableFormat.DELTA:
            yield "its Delta table cannot list files of an environment"

    def _why_input(self, used: Ref, uuid: str) -> str | None:
        if (promoted := self.uuids.get(used)) is not None:
            return None if promoted == uuid else f"a different instance of its input {used} is promoted with it"
        if (read := self._read.get(uuid)) is None:
            return f"its input {used} is not promoted with it"
        row = self._deciding.view.ref_by_id(read.ref_id)
        if row.canonical_id != read.id:
            return f"its input {used} has a different instance in the base"
        # What is under a downstream taint is not live.
        return None if row.state is InstanceState.LIVE else f"its input {used} is {_in_words(row)} in the base"

    def _uuid_of(self, row: RefRow) -> str | None:
        return None if row.canonical_id is None else self._canonical[row.canonical_id].uuid
