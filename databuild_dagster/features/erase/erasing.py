"""Rows that match a condition leave a dataset for good (rule 10.11).

A survey reads every kept file of the dataset and changes nothing. Erasing writes each live instance with matching rows again
without the rows, by a single event that moves the pointer; publishes and expires the dataset's table; and removes the data of every
instance with such rows, as `cleaning` does. The last survey is the proof. The same request continues after a kill at any line,
because each survey begins from the log and the files.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from databuild_dagster.data.keepers import Keeper
from databuild_dagster.data.ownership import Ownership
from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.features.clean.cleaning import Cleaner, CleaningPlan, PlannedRemoval
from databuild_dagster.features.erase.erased_tables import ErasedTables
from databuild_dagster.features.erase.erasing_leftovers import (
    Leftovers,
    NamedPlace,
    clear_killed,
    clear_samples,
    command_of,
    sampled,
    staging_name,
)
from databuild_dagster.features.erase.rewriting import (
    Condition,
    RowCounts,
    condition_over,
    parsed_condition,
    write_without,
)
from databuild_dagster.model.commands import ReplaceFiles
from databuild_dagster.model.errors import DatabuildError, Refused
from databuild_dagster.model.events import Erasure, LotArrived
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.removals import REMOVED, Reason, why_not_erased
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.removals import Removable, Removals, StoredInstance
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import DiskTrouble, ListedFileLost
from databuild_dagster.warehouse.filters import BadFilter, Filter
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Manifest,
    ManifestState,
    UriType,
    file_paths,
    manifest_fact,
    read_manifest,
    write_manifest,
)
from databuild_dagster.warehouse.removing import discard

#: Builds may bring matching rows back while they are erased: each such build costs a further pass.
MAX_PASSES: Final = 5
#: Why data may be there of which no survey reads a file.
UNFINISHED: Final = "the removal of its data was begun and has not ended"
UNPUBLISHED: Final = (
    "its table has no snapshot yet, so a first publication that runs now may list its files; build a partition of the "
    "dataset, or remove publish= from its definition, and erase again"
)
SHOWN_TAINTED: Final = "its table keeps tainted partitions; build the partition, or cancel the taint, and erase again"


class Overtaken(Refused):
    """Another process that erases rows of {ref} has removed what this one wrote."""

    hint = "Run the command again when the other one has ended."


class MatchingInstance(NamedTuple):
    """A kept instance with rows that match."""

    uuid: str
    ref: Ref
    warehouse: Warehouse
    manifest: Manifest
    counted: RowCounts
    #: Its matching rows by the uri of their file.
    by_file: dict[str, int]
    #: Readers see it, so that it is written again; the data of any other is removed.
    is_read: bool
    #: It is tainted, and has no successor.
    is_tainted: bool = False


class MatchingFile(msgspec.Struct, frozen=True):
    """A file with matching rows that belongs to a different program."""

    path: str
    ref: Ref
    matched: int


@dataclass
class Survey:
    """The rows of a dataset that match, and the places where more of them may be."""

    condition: Condition
    matches: list[MatchingInstance] = field(default_factory=list)
    #: Files that cannot be read, and refs that are being built.
    unknown: list[NamedPlace] = field(default_factory=list)
    outside: list[MatchingFile] = field(default_factory=list)
    #: Removals that were begun, so that no survey reads their files.
    unfinished: list[StoredInstance] = field(default_factory=list)
    leftovers: Leftovers = field(default_factory=Leftovers)
    #: Other refs that were built from matching rows.
    downstream: list[Ref] = field(default_factory=list)
    #: Read by this survey.
    instances: int = 0
    files: int = 0
    rows: int = 0

    @property
    def matched(self) -> int:
        return sum(match.counted.matched for match in self.matches)

    @property
    def not_done(self) -> list[NamedPlace]:
        """The places where matching rows may stay after any erasure."""
        return [*self.unknown, *self.leftovers.named]

    @property
    def not_done_yet(self) -> list[NamedPlace]:
        """The places where such rows are or may be, and that are no match."""
        return [*self.not_done, *(NamedPlace(one.ref, UNFINISHED) for one in self.unfinished)]


class RewrittenInstance(msgspec.Struct, frozen=True):
    """An instance that was replaced by an instance without the matching rows."""

    ref: Ref
    uuid: str
    by: str
    rows_before: int
    rows_after: int


@dataclass
class Receipt:
    """The erased rows, and the proof that no kept file has any."""

    asset: str
    erasure: Erasure
    by: str
    rewritten: list[RewrittenInstance] = field(default_factory=list)
    removed: list[MatchingInstance] = field(default_factory=list)
    #: Files and folders of attempts that never became live.
    leftovers: list[NamedPlace] = field(default_factory=list)
    downstream: list[Ref] = field(default_factory=list)
    not_done: list[NamedPlace] = field(default_factory=list)
    outside: list[MatchingFile] = field(default_factory=list)
    #: The survey after the last change.
    proof: Survey | None = None

    @property
    def is_complete(self) -> bool:
        return self.proof is not None and not (self.proof.matched or self.not_done or self.outside)


class Eraser:
    """Surveys and erases rows of datasets, over the store and the warehouses of the instances."""

    def __init__(
        self, engine: Engine, warehouse: str, table: ErasedTables | None = None, keepers: Sequence[Keeper] = ()
    ) -> None:
        """`table` is a keeper, too, and not among `keepers`."""
        self._engine, self._default, self._table = engine, warehouse, table
        asked = [keeper for keeper in keepers if not keeper.yields_to_erasure]
        self._keepers = asked if table is None else (table, *asked)
        self._removals = Removals(engine.store)
        self._meta = MetaQueries(engine.store)

    def survey(self, asset: str, where: str) -> Survey:
        """Read every kept file of a dataset, of each the columns that the condition names. Raises `UnknownAsset`, `BadFilter`."""
        return self._survey(asset, parsed_condition(where))

    def erase(self, asset: str, where: str, reason: str) -> Receipt:
        """Erase the rows that match; what cannot be done now is named in the receipt, and holds up nothing else.

        Raises `UnknownAsset`, `BadFilter`, before anything is changed.
        """
        wanted = parsed_condition(where)
        erasure = Erasure(sha256(where.encode()).hexdigest(), reason)
        receipt = Receipt(asset, erasure, this_user())
        survey = self._survey(asset, wanted)
        # On a full disk, the log of the removals needs room first.
        self._engine.store.database.make_room()
        clear_killed(self._engine, asset, self._places(asset))
        clear_samples(self._engine, self._meta, asset, survey.condition)
        why_not: dict[str, str] = {}
        for n_pass in range(1, MAX_PASSES + 1):
            before = {(match.uuid, match.is_read) for match in survey.matches}
            why_not = self._pass(survey, receipt, is_first=n_pass == 1)
            survey = self._survey(asset, wanted)
            if not survey.matches or before == {(match.uuid, match.is_read) for match in survey.matches}:
                break
        receipt.proof = survey
        receipt.outside = survey.outside
        receipt.not_done = [
            *(
                NamedPlace(match.ref, why_not.get(match.uuid, "it came while rows were erased"))
                for match in survey.matches
            ),
            *(NamedPlace(one.ref, why_not.get(one.uuid, UNFINISHED)) for one in survey.unfinished),
            *survey.not_done,
            *self._clear_table(asset),
        ]
        return receipt

    # Surveys

    def _survey(self, asset: str, wanted: Filter) -> Survey:
        self._engine.queries.datasets.known(asset)
        found, unreadable = self._manifests(asset)
        kept = [(warehouse, manifest) for _, warehouse, manifest in found]
        survey = Survey(condition_over(wanted, [pair for pair in kept if pair[1].state is not ManifestState.REMOVED]))
        survey.unknown += unreadable
        for removable, warehouse, manifest in found:
            self._look_at(survey, removable, warehouse, manifest)
        built = self._engine.queries.canonical.of_dataset(asset)
        why = "it is being built, and its build may have read rows that match"
        survey.unknown += [NamedPlace(one.ref, why) for one in built if one.state is InstanceState.BUILDING]
        survey.unfinished = [stored for stored in self._removals.unfinished() if asset_of(stored.ref) == asset]
        survey.leftovers = Leftovers.of(self._engine, self._cleaner, asset, self._places(asset), survey.condition)
        survey.unknown += sampled(self._engine.queries, self._meta, asset, survey.condition)
        survey.downstream = self._engine.queries.instances.refs_built_from(match.uuid for match in survey.matches)
        return survey

    def _manifests(self, asset: str) -> tuple[list[tuple[Removable, Warehouse, Manifest]], list[NamedPlace]]:
        """The kept instances, the newest of each ref first, and the places of instances whose manifest cannot be read."""
        found, unreadable = [], []
        with_data = self._removals.with_data(asset)
        recorded = self._engine.queries.instances.data_facts(removable.uuid for removable in with_data)
        for removable in reversed(with_data):
            assert removable.manifest_uri is not None, "the query asks for it"
            warehouse = Warehouse.of_manifest(removable.manifest_uri, asset)
            try:
                manifest = read_manifest(warehouse, asset, removable.uuid)
                check_recorded(warehouse, manifest, recorded[removable.uuid])
            except DatabuildError as error:
                unreadable.append(
                    NamedPlace(removable.ref, f"instance {removable.uuid} cannot be read: {error.message}")
                )
                continue
            if manifest.state is not ManifestState.REMOVED or manifest.uri_type is UriType.IDENTIFIER:
                found.append((removable, warehouse, manifest))
        return found, unreadable

    def _look_at(self, survey: Survey, removable: Removable, warehouse: Warehouse, manifest: Manifest) -> None:
        """Read the files of an instance; of a removed instance, only files of other programs exist."""
        is_gone = REMOVED in (manifest.state, removable.held.manifest_state)
        by_file: dict[str, int] = {}
        n_rows = 0
        for path, file in zip(file_paths(warehouse, manifest), manifest.files, strict=True):
            try:
                counted = survey.condition.count(path, removable.ref, manifest.format)
            except DatabuildError as error:
                if isinstance(error, BadFilter) and not is_gone:
                    raise
                if not (is_gone and isinstance(error, ListedFileLost)):
                    survey.unknown.append(NamedPlace(removable.ref, f"a file of it cannot be read: {error.message}"))
                continue
            survey.files += 1
            survey.rows += counted.rows
            n_rows += counted.rows
            if counted.matched:
                by_file[file.uri] = counted.matched
                if manifest.uri_type is UriType.IDENTIFIER:
                    survey.outside.append(MatchingFile(path, removable.ref, counted.matched))
        survey.instances += not is_gone
        if by_file and not is_gone:
            held = removable.held
            survey.matches.append(
                MatchingInstance(
                    removable.uuid,
                    removable.ref,
                    warehouse,
                    manifest,
                    RowCounts(n_rows, sum(by_file.values())),
                    by_file,
                    held.is_canonical and held.state is InstanceState.LIVE,
                    held.is_canonical and held.state is InstanceState.TAINTED,
                )
            )

    # Erasing

    def _pass(self, survey: Survey, receipt: Receipt, *, is_first: bool) -> dict[str, str]:
        """Carry out a survey as far as it can be; returns why instances are not done."""
        why_not: dict[str, str] = {}
        for match in survey.matches:
            if match.is_read:
                try:
                    receipt.rewritten.append(self._rewrite(survey.condition, match))
                except DatabuildError as error:
                    why_not[match.uuid] = error.message.rstrip(".")
        if is_first or survey.matches:
            receipt.downstream = sorted({*receipt.downstream, *survey.downstream})
        left = [match for match in survey.matches if match.uuid not in why_not]
        self._remove(left, survey.unfinished, receipt, why_not)
        receipt.leftovers += survey.leftovers.remove(self._cleaner)
        return why_not

    def _rewrite(self, condition: Condition, match: MatchingInstance) -> RewrittenInstance:
        """Write an instance again, and move the pointer to the new instance if readers still see the old instance.

        Raises what the warehouse raises, `Overtaken`, and refusals of the command.
        """
        warehouse, manifest, asset = match.warehouse, match.manifest, asset_of(match.ref)
        Ownership(self._engine.store).claim(warehouse)
        job_run = self._engine.new_id()
        uuid = derive_partition_uuid(job_run, match.ref)
        with _staging(warehouse, staging_name(match.uuid, job_run)) as staging:
            try:
                bare = write_without(condition, warehouse, manifest, match.by_file, staging, uuid)
                written = msgspec.structs.replace(
                    bare,
                    job_run=job_run,
                    created_at=datetime.now(UTC),
                    state=ManifestState.COMPLETE if bare.files else ManifestState.EMPTY,
                    comment=f"{match.counted.matched} rows of instance {match.uuid} were erased.",
                )
                fact = manifest_fact(written, write_manifest(warehouse, written))
                command = ReplaceFiles(ref=match.ref, uuid=match.uuid, job_run_id=job_run, manifest=fact, erased=True)
                outcome = self._engine.handle(command, actor=this_user(), command_id=command_of(job_run))
            except DatabuildError:
                discard(warehouse, asset, uuid)
                raise
            if not isinstance(outcome.events[0].fact, LotArrived):
                raise Overtaken(ref=match.ref)
        return RewrittenInstance(match.ref, match.uuid, uuid, match.counted.rows, written.rows)

    def _remove(
        self,
        matches: Sequence[MatchingInstance],
        unfinished: list[StoredInstance],
        receipt: Receipt,
        why_not: dict[str, str],
    ) -> None:
        """Remove the data of instances that no reader needs, after the table has forgotten it."""
        now = self._removals.of_uuids(match.uuid for match in matches)
        ownership = Ownership(self._engine.store)
        for match in matches:
            why = why_not_erased(now[match.uuid].held)
            if why is None and (not_ours := ownership.why_not(match.warehouse)) is not None:
                why = f"this build state does not own {match.warehouse.root}: {not_ours}"
            if why is not None:
                why_not[match.uuid] = why
        left = [match for match in matches if match.uuid not in why_not]
        if left or unfinished:
            left = self._without_listed_by_table(receipt.asset, left, why_not)
        plan = CleaningPlan(
            going=[
                PlannedRemoval(
                    one.uuid, one.ref, Reason.ERASED, len(one.manifest.files), one.manifest.bytes, one.warehouse
                )
                for one in left
            ],
            unfinished=unfinished,
            erasure=receipt.erasure,
        )
        self._cleaner.keep_what_others_list(plan)
        done = self._cleaner.carry_out(plan)
        why_not |= {kept.uuid: kept.why for kept in [*plan.kept, *done.kept]}
        failed = dict(done.failed)
        refs = {match.uuid: match.ref for match in left} | {stored.uuid: stored.ref for stored in unfinished}
        why_not |= {uuid: failed[ref] for uuid, ref in refs.items() if ref in failed}
        gone = {going.uuid for going in done.going}
        receipt.removed += [match for match in left if match.uuid in gone]

    def _without_listed_by_table(
        self, asset: str, matches: list[MatchingInstance], why_not: dict[str, str]
    ) -> list[MatchingInstance]:
        """The instances of which no snapshot that stays lists a file with matching rows, once the table has followed the log."""
        if self._table is None:
            return matches
        try:
            self._table.follow(asset)
            self._table.expire(asset, 0.0)
            listed = self._table.files(asset, 0.0)
            tags = self._table.tags(asset) if listed else []
            is_unpublished = self._table.published_to(asset) == 0
        except DatabuildError as error:
            why_not |= dict.fromkeys((match.uuid for match in matches), f"its table cannot follow: {error.message}")
            return []
        spec = self._engine.queries.datasets.known(asset).table
        left = []
        for match in matches:
            paths = zip(file_paths(match.warehouse, match.manifest), match.manifest.files, strict=True)
            if is_unpublished:
                why_not[match.uuid] = UNPUBLISHED
            elif listed.isdisjoint(path for path, file in paths if file.uri in match.by_file):
                left.append(match)
            elif spec and spec.keep_tainted and match.is_tainted:
                why_not[match.uuid] = SHOWN_TAINTED
            else:
                named = f" (its tags: {', '.join(tags)})" if tags else ""
                why_not[match.uuid] = f"a snapshot of its table that a tag or a branch keeps lists its files{named}"
        return left

    def _clear_table(self, asset: str) -> list[NamedPlace]:
        if self._table is None:
            return []
        try:
            return [NamedPlace(path, "it has statistics of erased rows") for path in self._table.clear(asset)]
        except DatabuildError as error:
            return [NamedPlace(asset, f"the statistics of its table cannot be cleared: {error.message}")]

    @cached_property
    def _cleaner(self) -> Cleaner:
        return Cleaner(self._engine, self._default, self._keepers)

    def _places(self, asset: str) -> list[Warehouse]:
        """The warehouses with instances of a dataset, and the default warehouse."""
        uris = (one.manifest_uri for one in self._removals.with_data(asset) if one.manifest_uri is not None)
        roots = {Warehouse(self._default).root, *(Warehouse.of_manifest(uri, asset).root for uri in uris)}
        return [Warehouse(root) for root in sorted(roots)]


@contextmanager
def _staging(warehouse: Warehouse, name: str) -> Iterator[str]:
    """A staging folder, which is removed with the block: while it exists, a rewrite is unfinished.

    It stays if the process is stopped, as by Ctrl-C, so that the next erasure removes what was written.
    """
    folder = warehouse.new_staging_dir(name)
    disk.make_dirs(folder)
    try:
        yield folder
    except DatabuildError:
        _remove_staging(folder)
        raise
    _remove_staging(folder)


def _remove_staging(folder: str) -> None:
    with suppress(DiskTrouble):
        disk.remove_tree(folder)
