"""Taints, reverts and their dry run as JSON has them (rules 15, 7)."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from databuild_dagster.data.read_plan import check_data_of
from databuild_dagster.engine.engine import Engine, Outcome, Preview
from databuild_dagster.engine.registering import Definitions, moved_of, why_moved
from databuild_dagster.model.commands import (
    Reversal,
    RevertCanonical,
    RevertEvent,
    TaintPartitions,
    UntaintPartitions,
)
from databuild_dagster.model.errors import CannotRevert, DatabuildError, EventNotReverted, NotFound, NotReversible
from databuild_dagster.model.events import CanonicalReverted, Event, InstancesPromoted, InstancesReturned
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.states import InstanceState
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


class NotReverted(msgspec.Struct, frozen=True):
    """A cause for which a ref is not pointed back."""

    ref: Ref
    why: str


class RevertedEvent(msgspec.Struct, frozen=True):
    """What the revert of an event did or, with `causes` or as a dry run, would do."""

    seq: int
    reverted: Sequence[Reverted]
    #: The refs whose instance before was not live: the instance that the event gave them is tainted.
    tainted: Sequence[Ref]
    causes: Sequence[NotReverted] = ()


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
    uuid = engine.queries.ids.full(IdKind.INSTANCE, name)
    for error in _why_not_back(engine, [(ref, uuid)]).values():
        raise error
    return RevertCanonical(ref=ref, uuid=uuid, force=force, reason=reason)


def _why_not_back(engine: Engine, moves: Sequence[tuple[Ref, str]]) -> dict[Ref, DatabuildError]:
    """Why refs cannot have these instances again: `CannotRevert`, or an error of `check_data_of`."""
    queries, uuids = engine.queries, [uuid for _, uuid in moves]
    specs = {spec.asset: spec for spec in queries.datasets.all().values()}
    definitions = {asset: Definitions(queries, asset) for asset in {asset_of(ref) for ref, _ in moves}}
    instances = {one.uuid: one for one in queries.instances.named(uuids)}
    seqs, facts = queries.instances.seqs_of(uuids), queries.instances.data_facts(uuids)
    errors: dict[Ref, DatabuildError] = {}
    for ref, uuid in moves:
        instance, spec = instances[uuid], specs.get(asset_of(ref))
        if instance.ref != ref:
            errors[ref] = CannotRevert(ref=ref, uuid=uuid, why="it has no such instance")
        if instance.ref != ref or instance.live_at is None:  # What was never live is refused for that.
            continue
        try:
            check_data_of(queries, instance, spec, facts.get(uuid))
        except DatabuildError as error:
            errors[ref] = error
            continue
        before = definitions[asset_of(ref)].at(seqs[uuid])
        if spec is not None and engine.catalog.is_moved(spec, partition_key_of(ref), before):
            errors[ref] = CannotRevert(ref=ref, uuid=uuid, why="its key means another window of time now")
    return errors


def revert_event(
    engine: Engine, seq: int, *, force: bool, reason: str, actor: str, dry_run: bool = False
) -> RevertedEvent:
    """Take back a promotion, a return or a revert, with all of its refs. With `dry_run` nothing is recorded, and the causes of a refusal
    are in the answer. Raises `NotFound`, `NotReversible`, `EventNotReverted`, `NoReason`.
    """
    # A dry run is to show that there is something to taint, before anybody has a reason.
    why = reason or ("dry run" if dry_run else "")
    command = RevertEvent(seq=seq, reversals=_reversals(engine, seq), force=force, reason=why)
    back = [(move.ref, move.before) for move in command.reversals if move.before is not None]
    causes = [(ref, error.message.removesuffix(".")) for ref, error in _why_not_back(engine, back).items()]
    if dry_run or causes:
        try:
            engine.preview(command, actor=actor)
        except EventNotReverted as refused:
            known = {ref for ref, _ in causes}
            causes += [(ref, why) for ref, why in refused.facts["causes"] if ref not in known]
    if causes and not dry_run:
        raise EventNotReverted(seq=seq, causes=causes)
    if not dry_run:
        engine.handle(command, actor=actor)
    return RevertedEvent(
        seq,
        [Reverted(move.ref, move.before) for move in command.reversals if move.before is not None],
        [move.ref for move in command.reversals if move.before is None],
        [NotReverted(ref, why) for ref, why in causes],
    )


def _reversals(engine: Engine, seq: int) -> tuple[Reversal, ...]:
    """The refs of an event with the instances that were live before. Raises `NotFound`, `NotReversible`."""
    if not 0 < seq <= engine.queries.events.head().seq:
        raise NotFound(kind="event", name=str(seq))
    (event,) = engine.queries.events.after(seq - 1, 1)
    uuids = _pointed(event)
    before = engine.queries.canonical.at(list(uuids), seq - 1)
    return tuple(
        Reversal(ref, uuid, before[ref].uuid if before[ref].state is InstanceState.LIVE else None)
        for ref, uuid in uuids.items()
    )


def _pointed(event: Event) -> dict[Ref, str]:
    """The instances that an event made canonical, by ref. Raises `NotReversible`."""
    match event.fact:
        case CanonicalReverted(ref=ref, uuid=uuid):
            return {ref: uuid}
        case InstancesReturned(returns=returns):
            return {one.ref: derive_partition_uuid(one.job_run_id, one.ref) for one in returns}
        case InstancesPromoted(births=births, returns=returns):
            moved = [(one.job_run_id, one.ref) for one in births] + [(one.job_run_id, one.ref) for one in returns]
            return {ref: derive_partition_uuid(job_run_id, ref) for job_run_id, ref in moved}
        case fact:
            raise NotReversible(seq=event.seq, type=type(fact).__name__)
