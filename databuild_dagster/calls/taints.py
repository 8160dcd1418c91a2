"""Taints, reverts and their dry run as JSON has them (rules 15, 7)."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from databuild_dagster.data.read_plan import check_data_of
from databuild_dagster.engine.engine import Engine, Outcome, Preview
from databuild_dagster.engine.registering import Definitions, moved_of, why_moved
from databuild_dagster.model.commands import RevertCanonical, TaintPartitions, UntaintPartitions
from databuild_dagster.model.errors import CannotRevert
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.store.queries.ids import IdKind


class Tainted(msgspec.Struct, frozen=True):
    """A taint that was recorded: the refs whose readers see it, and what it leaves as it is."""

    taint_id: str
    refs: Sequence[Ref]
    #: Live refs that were built from the tainted data.
    stale_behind: int
    #: Wants that have failed of the refs.
    ended_wants: int


class WouldTaint(msgspec.Struct, frozen=True):
    """The dry run of a taint."""

    would_taint: int
    by_dataset: dict[str, int]
    refs: list[Ref]
    wants_reopened: list[str]


class Untainted(msgspec.Struct, frozen=True):
    """A taint that was taken back."""

    taint_id: str


class Reverted(msgspec.Struct, frozen=True):
    """The instance that readers of a ref see again."""

    ref: Ref
    uuid: str


def taint_partitions(engine: Engine, command: TaintPartitions, handle: Callable[[], Outcome]) -> Tainted:
    """Record a taint by calling `handle`. Raises what the engine raises."""
    ended = engine.queries.wants.n_failed_because_of(command.refs)
    behind = 0 if command.downstream else engine.queries.instances.n_live_built_from(command.refs, command.uuids)
    outcome = handle()
    assert outcome.taint_id is not None
    return Tainted(outcome.taint_id, engine.queries.instances.tainted_by(outcome.taint_id), behind, ended)


def would_taint(preview: Preview) -> WouldTaint:
    """The dry run in the shape of `taint --dry-run`."""
    refs = list(preview.tainted)
    reopened = (change for change in preview.changes if change.kind == "wants" and change.before == "Successful")
    by_dataset = dict(sorted(Counter(asset_of(ref) for ref in refs).items()))
    return WouldTaint(len(refs), by_dataset, refs, [change.entity for change in reopened])


def untaint_command(engine: Engine, name: str, reason: str) -> UntaintPartitions:
    """The command that takes back a taint, named by its id or the end of it.

    Raises `NotFound`, and `CannotRevert` for the taint of partitions that still mean a different window of time (rule 2.6).
    """
    queries = engine.queries
    taint_id = queries.ids.full(IdKind.TAINT, name)
    canonical = list(queries.canonical.of(queries.instances.tainted_by(taint_id)).values())
    taints = queries.instances.taints_in_force([one.uuid for one in canonical if one.uuid is not None])
    reasons = {taint.reason for found in taints.values() for taint in found if taint.taint_id == taint_id}
    # The taint of a redefinition is of one asset.
    asset = asset_of(canonical[0].ref) if canonical else ""
    if why_moved(asset) in reasons and (spec := queries.datasets.get(asset)) is not None:
        for one in moved_of(engine, spec, canonical, Definitions(queries, asset)):
            raise CannotRevert(ref=one.ref, uuid=one.uuid, why="its key means another window of time now")
    return UntaintPartitions(taint_id=taint_id, reason=reason)


def revert_command(engine: Engine, ref: Ref, name: str, *, force: bool, reason: str) -> RevertCanonical:
    """The command that makes an instance canonical. `name` is its uuid or the end of its uuid.

    Raises `NotFound`, `CannotRevert`, and as `check_data_of` if its files are not there.
    """
    queries, spec = engine.queries, engine.queries.datasets.get(asset_of(ref))
    uuid = queries.ids.full(IdKind.INSTANCE, name)
    instance = queries.instances.get(uuid, most_inputs=0)
    assert instance is not None, "the lookup found it"
    if instance.ref != ref:
        raise CannotRevert(ref=ref, uuid=uuid, why="it has no such instance")
    if instance.live_at is not None:  # What was never live is refused for that.
        check_data_of(queries, instance, spec)
        before = Definitions(queries, asset_of(ref)).at(queries.instances.seqs_of([uuid])[uuid])
        if spec is not None and engine.catalog.is_moved(spec, partition_key_of(ref), before):
            raise CannotRevert(ref=ref, uuid=uuid, why="its key means another window of time now")
    return RevertCanonical(ref=ref, uuid=uuid, force=force, reason=reason)
