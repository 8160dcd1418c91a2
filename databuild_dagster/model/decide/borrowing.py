"""Instances of the base that an environment uses (rule 16.3)."""

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.decide.job_runs import check_manifest
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState


def borrow_instances(command: c.BorrowInstances, deciding: Deciding) -> list[e.Fact]:
    """A list may meet what another process has borrowed or begun to build meanwhile, which stays as it is.

    Raises `DuplicateRef`, `InvalidRequest` for an instance without data, and as `check_wantable`.
    """
    rows = deciding.existing_refs(birth.ref for birth in command.births)
    uuids = {birth.ref: derive_partition_uuid(birth.job_run_id, birth.ref) for birth in command.births}
    known = deciding.view.instances_by_uuid(uuids.values())
    births = []
    for birth in command.births:
        check_manifest(birth.ref, birth.manifest)
        if birth.manifest is None and birth.origin is None:
            raise InvalidRequest(
                what=f"the instance of {birth.ref}", value=birth.job_run_id, why="no place has its data"
            )
        row = rows[birth.ref]
        is_open = row is None or not (row.leased or row.state is InstanceState.LIVE)
        if is_open and uuids[birth.ref] not in known:
            births.append(birth)
    return [e.InstancesBorrowed(births=tuple(births))] if births else []
