"""Promotion: the base takes what an environment has built, in one event (rules 16.10, 16.11).

Three steps, after each of which a process may be killed: the environment records that it gives the instances away, so that it removes
none of their files; the base records the promotion, with the id of that record as its command id; after a refusal the environment
takes them back. The next promotion settles a record whose end it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from databuild_dagster.bindings.registry.selections import select_refs
from databuild_dagster.data.environment import RECORDS
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.environments.base import base_while_open, inputs_in
from databuild_dagster.features.environments.borrowing import birth_of
from databuild_dagster.features.environments.environments import Environments
from databuild_dagster.features.environments.errors import NothingBuilt, NothingOfThese, NotPromoter, TooManyToPromote
from databuild_dagster.features.environments.probing import is_seen
from databuild_dagster.features.environments.records import (
    Opened,
    attempt_at,
    command_of,
    earlier_pins,
    give,
    given_in,
    given_uuids,
    opened_in,
    revision_of,
    take_back,
    use_up,
)
from databuild_dagster.model.commands import PromoteInstances
from databuild_dagster.model.decide.context import check_wantable
from databuild_dagster.model.errors import DatabuildError, EnvironmentMoved, PromotionRefused, Refused, UnknownAsset
from databuild_dagster.model.events import Birth, Event, InstancesPromoted
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.rows import BORROWED
from databuild_dagster.model.selections import ALL, may_be_selection
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import missing_files, read_manifest

#: Refs of a promotion.
MAX_PROMOTED: Final = 10_000


class Cause(msgspec.Struct, frozen=True):
    """A cause for which the base does not take an instance."""

    ref: Ref
    why: str


class Move(msgspec.Struct, frozen=True):
    """A ref that gets the instance of the environment."""

    ref: Ref
    uuid: str
    #: The canonical instance of the base before; None for a missing ref.
    before: str | None


class Promotion(msgspec.Struct, frozen=True):
    """What a promotion moved or, with causes, would move."""

    environment: str
    moved: tuple[Move, ...]
    #: The other refs, whose instance the base has already.
    there: tuple[Ref, ...]
    causes: tuple[Cause, ...] = ()
    #: Refs of ranges that are not built in the environment.
    not_built: int = 0
    #: The event of the base; None if it recorded none.
    seq: int | None = None


def promote(
    environments: Environments,
    name: str,
    names: Sequence[Ref] = (),
    *,
    actor: str,
    ahead: bool = False,
    dry_run: bool = False,
    command_id: str | None = None,
) -> Promotion:
    """Make instances that an environment built the canonical instances of its base: all, or those that assets, refs and ranges name.

    A killed call is repeated. With `dry_run` nothing is recorded, and the causes of a refusal are in the answer. With a `command_id`
    that was promoted before nothing more is recorded, and `there` has its refs. Raises `NotPromoter` for an `actor` who may not,
    `PromotionRefused`, `EnvironmentMoved`, `TooManyToPromote`, `NothingBuilt`, `EnvironmentOver`, `CommandIdUsed`, and as
    `check_wantable`, `select_refs`, `Environments.both` and `base_while_open`.
    """
    with environments.both(name) as (base, own):
        if command_id is not None and (before := base.queries.events.of_command(command_id)):
            return _promoted_before(name, before[0])
        seen = base_while_open(own, name)
        seen.check_is_open(own.now())
        opened = opened_in(base.store).get(name)
        if (why := _why_not_any(base, opened)) is not None or opened is None:
            raise PromotionRefused(environment=name, causes=(), why=why or "")
        try:
            refs, not_built = _selected(own, name, names)
        except NothingBuilt:
            # What was given and is tainted by now is named, too, once it is taken back.
            if dry_run or not settle(base, own, actor, command_id):
                raise
            refs, not_built = _selected(own, name, names)
        refused = _without_right(base, own, refs, actor)
        if refused and not dry_run:
            whose = [f"{asset}, which {promoters} may" for asset, promoters in refused.items()]
            raise NotPromoter(name=name, actor=actor, whose=few_of(whose))
        if not dry_run and settle(base, own, actor, command_id):
            refs, not_built = _selected(own, name, names)
        look = _Look(own, refs)
        command = PromoteInstances(
            environment=name,
            opening=RECORDS + name,
            revision=revision_of(base.store, name),
            # A killed `env refresh` has moved the pin of the base alone.
            pin=seen.pin,
            instances=tuple(look.births),
            built_at=look.built_at,
            datasets=look.datasets,
            ahead=ahead,
        )
        causes = look.causes
        if dry_run or causes:
            rights = [(asset, f"{actor} may not promote it; {promoters} may") for asset, promoters in refused.items()]
            causes = [*rights, *causes, *_causes_in(base, command)]
        if causes and not dry_run:
            raise PromotionRefused(environment=name, causes=causes, typed=(name, *names))
        now = base.queries.canonical.of([birth.ref for birth in look.births])
        there = tuple(ref for ref, one in now.items() if (one.uuid, one.state) == (look.uuids[ref], InstanceState.LIVE))
        moved = tuple(Move(ref, look.uuids[ref], one.uuid) for ref, one in now.items() if ref not in there)
        try:
            seq = _record(base, own, refs, look, command, actor, command_id) if moved and not dry_run else None
        except PromotionRefused as refusal:
            raise PromotionRefused(environment=name, causes=refusal.facts["causes"], typed=(name, *names)) from refusal
        return Promotion(name, moved, there, tuple(Cause(Ref(ref), why) for ref, why in causes), not_built, seq)


def _promoted_before(name: str, event: Event) -> Promotion:
    """The promotion of an event, of which the base has all. Raises `EnvironmentMoved` if a later promotion has used up its id."""
    if not isinstance(event.fact, InstancesPromoted):
        raise EnvironmentMoved(environment=name)
    promoted = event.fact
    refs = (*(birth.ref for birth in promoted.births), *(of_return.ref for of_return in promoted.returns))
    return Promotion(name, (), refs, seq=event.seq)


def _why_not_any(base: Engine, opened: Opened | None) -> str | None:
    """Why a base can take nothing of an environment."""
    if opened is None:
        return "it was opened with --unpinned, so the base has no record of it"
    if base.store.identity().id is None:
        # No marker could say that the data is its own.
        return "an older version made its build state, and `databuild log take-over` gives it an id"
    if not is_seen(base, opened):
        return (
            "its root is on a disk, and no orchestrator of the base has read it there yet; if it has that disk at the same path, "
            "its next tick does"
        )
    return None


def _without_right(base: Engine, own: Engine, refs: Iterable[Ref], actor: str) -> dict[str, str]:
    """The assets of refs that would move and that an actor may not promote, each with the promoters in words."""
    promoters = {spec.asset: spec.promoters for spec in base.queries.datasets.all().values()}
    others = {asset: of for asset, of in promoters.items() if isinstance(of, tuple) and actor not in of}
    asked = [ref for ref in refs if asset_of(ref) in others] if others else []
    if not asked:
        return {}
    here, there = own.queries.canonical.of(asked), base.queries.canonical.of(asked)
    moved = [ref for ref in asked if (there[ref].uuid, there[ref].state) != (here[ref].uuid, InstanceState.LIVE)]
    return {asset: few_of(others[asset]) or "nobody" for asset in dict.fromkeys(map(asset_of, moved))}


def _record(
    base: Engine,
    own: Engine,
    refs: Sequence[Ref],
    look: _Look,
    command: PromoteInstances,
    actor: str,
    command_id: str | None,
) -> int:
    """The seq of the event. Raises `PromotionRefused`, `EnvironmentMoved`, `CommandIdUsed`."""
    # Of two calls with one command id, the refused call takes back nothing that the base took by the other.
    given = own.new_id() if command_id is None else attempt_at(command_id, own.new_id())
    give(own, given, look.uuids.values(), actor)
    try:
        # A clean-up that was recorded before the gift removes the files; a later clean-up keeps them.
        if own.queries.canonical.of(refs) != look.found:
            raise EnvironmentMoved(environment=command.environment)
        outcome = base.handle(command, command_id=command_of(given), actor=actor)
        if not (outcome.events and isinstance(outcome.events[0].fact, InstancesPromoted)):
            # A different process has promoted them or used up the id.
            raise EnvironmentMoved(environment=command.environment)
        return outcome.events[0].seq
    except Refused:
        take_back(own, given, actor)
        raise


def settle(base: Engine, own: Engine, actor: str, repeated: str | None = None) -> bool:
    """Take back what the base has not taken, and never will. Returns whether there was any.

    An attempt at the command that is `repeated` stays: to settle it would use up its id.
    """
    is_any = False
    for given, uuids in given_in(own.store).items():
        known = {one.uuid for one in base.queries.instances.named(uuids)}
        if not uuids <= known and command_of(given) != repeated and not use_up(base, command_of(given), actor):
            take_back(own, given, actor)
            is_any = True
    return is_any


def _causes_in(base: Engine, command: PromoteInstances) -> list[tuple[str, str]]:
    """The causes for which the base refuses a promotion, of which nothing is recorded."""
    try:
        base.preview(command)
    except PromotionRefused as refused:
        return list(refused.facts["causes"])
    return []


def _selected(own: Engine, name: str, names: Sequence[Ref]) -> tuple[list[Ref], int]:
    """The refs that assets, refs and ranges name, inputs before what was built from them; and the number of refs of ranges that are not
    built here. Raises `NothingBuilt`, `TooManyToPromote`, and as `select_refs`.
    """
    built = own.queries.instances.refs_built()
    # The base has its own of what it took and what was tainted since.
    given = given_uuids(own.store)
    seen = own.queries.canonical.of(built) if given else {}
    built = [ref for ref in built if not given or seen[ref].state is InstanceState.LIVE or seen[ref].uuid not in given]
    registered = {spec.asset for spec in own.queries.datasets.all().values()} if names else set()
    if unknown := [asset_of(one) for one in names if asset_of(one) not in registered]:
        raise UnknownAsset(asset=unknown[0], names=registered)
    wholes = {asset_of(one) for one in names if partition_key_of(one) in (None, ALL)}
    named: dict[Ref, None] = {}
    of_ranges: set[Ref] = set()
    for one in names:
        if asset_of(one) in wholes:
            continue
        found = _refs_of_range(own, one) if may_be_selection(one) else (one,)
        if found == (one,):
            named[one] = None
        of_ranges.update(found)
    refs = [ref for ref in built if not names or ref in of_ranges or asset_of(ref) in wholes]
    not_built = len(of_ranges.difference(refs, named))
    # A named ref without a live instance has a cause of its own.
    refs += named
    if not refs:
        raise NothingBuilt(name=name) if not names else NothingOfThese(name=name, refs=few_of(names))
    if len(refs) > MAX_PROMOTED:
        raise TooManyToPromote(name=name, n=len(refs), most=MAX_PROMOTED)
    return list(dict.fromkeys(refs)), not_built


def _refs_of_range(own: Engine, name: Ref) -> tuple[Ref, ...]:
    with ExitStack() as opened:

        def instance() -> Any:
            from databuild_dagster.bindings.registry.instance import open_instance

            return opened.enter_context(open_instance(Path(str(own.store.path)).parent))

        return select_refs(own.queries, instance, [name])


class _Look:
    """The instances of refs as the environment has them now, and why some cannot be promoted."""

    def __init__(self, own: Engine, refs: Sequence[Ref]) -> None:
        """Raises as `check_wantable`, for a ref without an instance."""
        self.births: list[Birth] = []
        self.uuids: dict[Ref, str] = {}
        #: Refs with causes.
        self.causes: list[tuple[str, str]] = []
        self.datasets = {spec.asset: spec for spec in own.queries.datasets.all().values()}
        self.found = own.queries.canonical.of(refs)
        uuids = [one.uuid for one in self.found.values() if one.uuid is not None]
        inputs, rows = inputs_in(own.queries, uuids), own.queries.instances.rows_of(uuids)
        owners = own.queries.instances.owners_of(uuids)
        for ref, one in self.found.items():
            if one.state is None:
                check_wantable(ref, self.datasets.get, lambda: self.datasets, own.catalog.why_not)
            if one.state is not InstanceState.LIVE or one.uuid is None:
                state = "missing" if one.state is None else one.state.in_words
                self.causes.append((ref, f"it is {state} in the environment"))
            elif owners[one.uuid] == BORROWED:
                self.causes.append((ref, "the environment has borrowed it"))
            else:
                if (why := _why_unreadable(ref, one)) is not None:
                    self.causes.append((ref, why))
                self.uuids[ref] = one.uuid
                spec = self.datasets.get(asset_of(ref))
                self.births.append(birth_of(one, spec, inputs.get(one.uuid, {}), rows[one.uuid]))
        builds = _builds(own, {uuid: owners[uuid] for uuid in self.uuids.values()})
        born = own.queries.instances.seqs_of(builds.values())
        self.built_at = earlier_pins(own.store, {ref: born[builds[uuid]] for ref, uuid in self.uuids.items()})


def _builds(own: Engine, owners: dict[str, str]) -> dict[str, str]:
    """By instance, the instance whose build made its rows: other files of the same rows are later."""
    found = {uuid: uuid for uuid in owners}
    # The owner of such files is the origin of their arrival (rule 9.8).
    while before := {uuid: of for uuid, owner in owners.items() if (of := _replaced(owner)) is not None}:
        found = {uuid: before.get(build, build) for uuid, build in found.items()}
        owners = own.queries.instances.owners_of(before.values())
    return found


def _replaced(owner: str) -> str | None:
    how, _, uuid = owner.partition(":")
    return uuid if how in ("compacted", "erased") else None


def _why_unreadable(ref: Ref, one: Canonical) -> str | None:
    """Why the files of an instance are not promoted; None if all are there."""
    if one.manifest_uri is None:
        return "its files are not known, because a plain asset wrote them"
    asset = asset_of(ref)
    place = Warehouse.of_manifest(one.manifest_uri, asset)
    try:
        missing = missing_files(place, read_manifest(place, asset, str(one.uuid)))
    except DatabuildError as error:
        # Its message has the path of a file, which no page shows.
        return f"its files cannot be read ({type(error).__name__})"
    return f"{missing[0]} of its files is lost or cut short" if missing else None
