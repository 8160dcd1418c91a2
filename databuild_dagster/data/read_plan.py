"""From a ref or a dataset, and a time, to the manifests that its readers may read, or a refusal with the reason.

The canonical instance counts: for a past time, the instance that was canonical then, in its state at that time (rule 3.2).
Needs the store and the warehouse, neither Dagster nor Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime

from databuild_dagster.data.base_of_environment import wrong_in_base
from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.engine.wording import when
from databuild_dagster.model.datasets import ArcSpec, DatasetKind, DatasetSpec
from databuild_dagster.model.errors import DatabuildError, NotFound, Refused, UnknownPartition, near_names
from databuild_dagster.model.refs import PartitionRef, Ref, asset_of, partition_key_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import filled, typed
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.instances import DataFacts, Instance
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store
from databuild_dagster.warehouse.errors import DAMAGE, EscapingFile, ManifestDamaged, ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Manifest,
    ManifestState,
    UriType,
    file_paths,
    kept_manifests,
    missing_files,
    read_manifest,
    read_manifests,
    with_whole_uris,
)

#: A seq, or a time: an aware datetime, or its ISO 8601 text.
AsOf = datetime | str | int

#: Events are shown to the microsecond, rounded: a copied time must mean that event, and not the event before.
HALF_A_MICROSECOND = 0.5e-6

#: From the dataset and the partition key to the reason why there is no such partition; None if it may exist.
WhyNot = Callable[[DatasetSpec, str | None], str | None]
#: From a dataset and keys to the keys that its definition does not have any more (`Catalog.left_out`).
Gone = Callable[[DatasetSpec, Sequence[str | None]], frozenset[str | None]]


def neighbour(queries: Queries, asset: str) -> Manifest | None:
    """The manifest of the newest live instance of an asset, in the warehouse where it was written (rule 10.3).

    None if it has no columns, or its data was removed or is damaged.
    """
    newest = queries.canonical.newest_live(asset)
    if newest is None or newest.uuid is None or newest.manifest_uri is None:
        return None
    try:
        manifest = read_manifest(Warehouse.of_manifest(newest.manifest_uri, asset), asset, newest.uuid)
    except (ManifestMissing, ManifestDamaged, EscapingFile):
        # Its own readers report it; the build of another partition goes on.
        return None
    return manifest if manifest.schema.columns else None


def manifests_in(warehouse: Warehouse, asset: str, canonical: Sequence[Canonical]) -> list[Manifest]:
    """The manifests of instances for readers of `warehouse`: files outside of it by their whole path.

    Each code location may have its own warehouse. Raises `ManifestMissing`, and `ManifestDiffers` where a manifest does not
    list what the log recorded.
    """
    by_place: dict[tuple[Warehouse, bool], list[str]] = {}
    for pinned in canonical:
        if pinned.uuid is not None:
            uri = pinned.manifest_uri
            place = Warehouse.of_manifest(uri, asset) if uri is not None else warehouse
            by_place.setdefault((place, pinned.manifest_state == REMOVED), []).append(pinned.uuid)
    recorded = {pinned.uuid: pinned for pinned in canonical}
    found: dict[str, Manifest] = {}
    for (place, is_removed), uuids in by_place.items():
        try:
            manifests = read_manifests(place, asset, uuids) if is_removed else kept_manifests(place, asset, uuids)
        except ManifestMissing:
            if place == warehouse:
                raise
            # The home was moved: the store still has its old path.
            place, manifests = warehouse, read_manifests(warehouse, asset, uuids)
        for manifest in manifests:
            check_recorded(place, manifest, recorded[manifest.instance_uuid])
            found[manifest.instance_uuid] = manifest if place == warehouse else with_whole_uris(place, manifest)
    return [found[pinned.uuid] for pinned in canonical if pinned.uuid is not None]


class NotLive(Refused):
    """{ref} {verb} {state}, so there is nothing to read."""

    hint = "{what_to_do}"


class NothingLive(Refused):
    """No partition of {asset} {verb} live{when}, so there is nothing to read."""

    hint = "`databuild partitions {asset}` shows their states."


class TaintedRef(Refused):
    """{ref} {verb} {state}, so its data is marked as wrong."""

    hint = "`databuild build {ref}` builds it again; allow_tainted=True, or --allow-tainted, reads it all the same."


class NotOurs(Refused):
    """{ref} is live, but its data is in no warehouse: a plain Dagster asset keeps its own."""

    hint = "Read it where its IO manager stored it."


class DataRemoved(NotFound):
    """{ref} was built as instance {uuid}, but its data is gone: {why}."""

    hint = "{repair}"


class FilesGone(DataRemoved):
    """{ref} has arrived as instance {uuid}, but not all of its files are there: {why}."""


class DataTakenAway(DataRemoved):
    """{ref} was built as instance {uuid}, and its data was removed since, by `databuild gc` or `databuild erase`."""

    hint = (
        "`databuild history {ref}` shows which instances are left; `databuild build {ref}` builds it if it is not live."
    )


class DataErased(DataTakenAway):
    """{ref} was built as instance {uuid}, and its data was erased since, at {when}: {reason}."""

    hint = "`databuild read {ref}` shows the rows that were kept, if it is live."


class InvalidAsOf(Refused):
    """as_of is {value!r}, and {why}."""

    hint = "Write a time with its offset, such as 2026-11-21T14:00:00Z, or a seq of `databuild log events`."


class BeforeAnything(Refused):
    """Nothing had been recorded as of {as_of}: {began}."""

    hint = "Give a later time, or leave as_of out to read the present data."


@dataclass(frozen=True, slots=True)
class Readable:
    """An instance that may be read."""

    ref: Ref
    warehouse: Warehouse
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of the log: `seq` is the last event that counts; None is now."""

    seq: int | None = None
    #: Its name in messages.
    shown: str = "now"
    #: Its time, in seconds since 1970 UTC.
    at: float | None = None

    @property
    def verb(self) -> str:
        return "is" if self.seq is None else "was"

    @property
    def when(self) -> str:
        return "" if self.seq is None else f" as of {self.shown}"


@contextmanager
def store_at(store: Store, then: Moment) -> Iterator[Store]:
    """The store itself for now, else a temporary store whose log ends at that moment (rule 3.2)."""
    if then.seq is None:
        yield store
        return
    # A fold makes tables, by SQLAlchemy, whose import would slow every other question.
    from databuild_dagster.store.rebuild import as_it_was

    with as_it_was(store, then.seq) as earlier:
        yield earlier


def moment_of(queries: Queries, as_of: AsOf | None, now: datetime) -> Moment:
    """The moment of an `as_of`; a seq within a command means the command's last seq. Raises `InvalidAsOf`, `BeforeAnything`."""
    if as_of is None:
        return Moment()
    head = queries.events.head()
    if isinstance(as_of, int) and not isinstance(as_of, bool):
        if as_of > head.seq:
            raise InvalidAsOf(value=as_of, why=f"the log ends at seq {head.seq}")
        seq = queries.events.end_of_command(as_of) if as_of > 0 else as_of
        moment = Moment(seq, f"seq {seq}", queries.events.time_of(seq))
    else:
        at = _aware(as_of)
        # The log may be ahead of a clock that was set back.
        if at.timestamp() > max(now.timestamp(), head.at):
            raise InvalidAsOf(value=as_of, why="it is in the future")
        seconds = at.timestamp()
        moment = Moment(queries.events.seq_at(seconds + HALF_A_MICROSECOND), when(seconds), seconds)
    assert moment.seq is not None
    if moment.seq < 1:
        began = queries.events.time_of(1)
        beginning = "the log is empty" if began is None else f"the log begins with seq 1 at {when(began)}"
        raise BeforeAnything(as_of=moment.shown, began=beginning)
    return moment


def readable_ref(queries: Queries, ref: Ref, moment: Moment, why_not: WhyNot, *, allow_tainted: bool) -> Readable:
    """As `readable_refs`, of one ref."""
    return readable_refs(queries, [ref], moment, why_not, allow_tainted=allow_tainted)[ref]


def readable_refs(
    queries: Queries, refs: Sequence[Ref], moment: Moment, why_not: WhyNot, *, allow_tainted: bool
) -> dict[Ref, Readable]:
    """The instances that readers of refs see, by ref.

    Raises `UnknownAsset`, `UnknownPartition`, `NotLive`, `TaintedRef`, `NotOurs`, `DataRemoved`, `DamagedData`.
    """
    found = queries.canonical.of(refs) if moment.seq is None else queries.canonical.at(refs, moment.seq)
    seen = [str(one.uuid) for one in found.values() if one.uuid is not None]
    # The base of an environment is asked once.
    wrong = wrong_in_base(queries, seen) if moment.seq is None and seen else {}
    readable: dict[Ref, Readable] = {}
    for ref in refs:
        asset, canonical = asset_of(ref), found[ref]
        spec = queries.datasets.get(asset)
        if canonical.state is None:
            spec = queries.datasets.known(asset)
            # A ref with an instance today has a valid key.
            if queries.canonical.states([ref])[ref] is None and (why := why_not(spec, partition_key_of(ref))):
                raise UnknownPartition(ref=ref, why=why, asset=asset)
        check_state(queries, canonical, moment, allow_tainted=allow_tainted)
        if canonical.uuid in wrong:
            if (reason := wrong[canonical.uuid]) is None:
                raise DataTakenAway(ref=ref, uuid=canonical.uuid)
            if not allow_tainted:
                raise TaintedRef(ref=ref, verb="is", state=f"tainted in the base ({reason})")
        _check_kept(queries, [canonical], moment)
        readable[ref] = _readable(asset, [canonical], spec)[0]
    return readable


def live_of_dataset(queries: Queries, asset: str, moment: Moment, gone: Gone) -> list[Readable]:
    """Every live partition of a dataset whose key its definition has, ordered by ref (rule 2.6).

    Raises `InvalidRef`, `UnknownAsset`, `NothingLive`, `NotOurs`, `DataRemoved`, `DamagedData`.
    """
    asset = PartitionRef(asset).asset
    found = (
        queries.canonical.of_dataset(asset)
        if moment.seq is None
        else queries.canonical.of_dataset_at(asset, moment.seq)
    )
    spec = queries.datasets.get(asset)
    if not found:
        spec = queries.datasets.known(asset)
    live = [canonical for canonical in found if canonical.state is InstanceState.LIVE]
    if spec is not None:
        left_out = gone(spec, [partition_key_of(canonical.ref) for canonical in live])
        live = [canonical for canonical in live if partition_key_of(canonical.ref) not in left_out]
    if moment.seq is None and (wrong := wrong_in_base(queries, [str(canonical.uuid) for canonical in live])):
        live = [canonical for canonical in live if canonical.uuid not in wrong]
    if not live:
        raise NothingLive(asset=asset, verb=moment.verb, when=moment.when)
    _check_kept(queries, live, moment)
    return _readable(asset, live, spec)


def unknown_sources(registered: Iterable[DatasetSpec], datasets: Iterable[DatasetSpec]) -> list[str]:
    """A sentence for each source of the datasets' arcs that no location has registered.

    The arc is not refused: the source may be a typo, or an asset of a location that is not loaded yet.
    """
    known = {spec.asset for spec in registered}
    return [
        f"{spec.asset} subscribes to {source.asset}, which no code location has registered, so nothing of that name "
        f"wakes it{f'; did you mean {near}?' if (near := near_names(source.asset, known - {spec.asset})) else '.'}"
        for spec in datasets
        if isinstance(spec.arc, ArcSpec)
        for source in spec.arc.sources
        if source.asset not in known
    ]


# States

_S = InstanceState

#: The way to a readable ref, by its state now.
_WHAT_TO_DO = {
    None: "`databuild build {ref}` builds it.",
    _S.BUILDING: "`databuild show {ref}` shows when it is live.",
    _S.UPSTREAM_BUILDING: "`databuild show {ref}` shows which inputs it waits for.",
    _S.UP_FOR_RETRY: "`databuild build {ref}` builds it.",
    _S.FAILED: "Fix the cause, then `databuild retry {ref}` opens it for another build.",
    _S.UPSTREAM_FAILED: "`databuild show {ref}` shows which input failed; the ref is built once that is fixed.",
    _S.TAINTED: "`databuild build {ref}` builds it again.",
}
_WHAT_TO_DO_THEN = "`databuild history {ref}` lists its instances; leave as_of out to read the present data."


def check_state(queries: Queries, canonical: Canonical, moment: Moment, *, allow_tainted: bool) -> None:
    """Raises `NotLive`, `TaintedRef`."""
    if canonical.state is InstanceState.LIVE:
        return
    facts = {
        "ref": canonical.ref,
        "verb": moment.verb,
        "state": _shown_state(queries, canonical, moment),
    }
    # A failed instance can be tainted, too, and never had data.
    if canonical.state is InstanceState.TAINTED and canonical.live_at is not None:
        if allow_tainted:
            return
        raise TaintedRef(**facts)
    what_to_do = _WHAT_TO_DO[canonical.state] if moment.seq is None else _WHAT_TO_DO_THEN
    raise NotLive(**facts, what_to_do=filled(what_to_do, facts))


def _shown_state(queries: Queries, canonical: Canonical, moment: Moment) -> str:
    """`Failed as of …, since … (why)`."""
    if canonical.state is None or canonical.uuid is None:
        return f"missing{moment.when}"
    change = queries.instances.last_change(canonical.uuid, moment.seq)
    since = f" since {when(change.at)}" if change is not None else ""
    why = _why(queries, canonical.uuid, canonical) if moment.seq is None else ""
    return f"{canonical.state.in_words}{moment.when}{since}{f' ({why})' if why else ''}"


def _why(queries: Queries, uuid: str, canonical: Canonical) -> str:
    if canonical.state is InstanceState.TAINTED:
        return "; ".join(taint.reason for taint in queries.instances.taints_of(uuid))
    if canonical.state is InstanceState.UPSTREAM_BUILDING:
        return f"it waits for {', '.join(queries.planning.missing_of(uuid))}"
    return (canonical.reason or "").rstrip(".")


# Data


def _check_kept(queries: Queries, found: Sequence[Canonical], moment: Moment) -> None:
    """Refuse instances of a past time whose data was removed since. Raises `DataTakenAway`."""
    if moment.seq is None:
        return
    removed = queries.instances.removed(canonical.uuid for canonical in found if canonical.uuid is not None)
    for canonical in found:
        if canonical.uuid in removed:
            raise _taken_away(queries, canonical.ref, canonical.uuid)


def _taken_away(queries: Queries, ref: Ref, uuid: str) -> DataTakenAway:
    if (found := queries.instances.erasure_of(uuid)) is None:
        return DataTakenAway(ref=ref, uuid=uuid)
    at, erasure = found
    return DataErased(ref=ref, uuid=uuid, when=when(at), reason=erasure.reason.rstrip("."))


def data_gone(spec: DatasetSpec | None, ref: Ref, uuid: str, why: str) -> DataRemoved:
    """The error for an instance without all of its files, with the command that repairs the ref."""
    is_arrived = spec is not None and spec.kind is DatasetKind.BOUNDARY
    return (FilesGone if is_arrived else DataRemoved)(ref=ref, uuid=uuid, why=why, repair=repair_of(spec, ref))


def _readable(asset: str, found: Sequence[Canonical], spec: DatasetSpec | None) -> list[Readable]:
    """The instances with their manifests. Raises `NotOurs`, `DataRemoved`, `DamagedData`, and `FilesGone` for a boundary."""
    refs = {canonical.uuid: canonical.ref for canonical in found if canonical.uuid is not None}
    with damage_named(spec, refs):
        return _with_manifests(asset, found, refs, spec)


def _with_manifests(
    asset: str, found: Sequence[Canonical], ref_of: Mapping[str, Ref], spec: DatasetSpec | None
) -> list[Readable]:
    """Raises `NotOurs`, `DataRemoved`."""
    by_warehouse: dict[Warehouse, list[str]] = {}
    recorded = {canonical.uuid: canonical for canonical in found}
    for canonical in found:
        assert canonical.uuid is not None
        # The log records a removal first; the files may go at any moment after that.
        if canonical.manifest_state == REMOVED:
            raise DataTakenAway(ref=canonical.ref, uuid=canonical.uuid)
        if canonical.manifest_uri is None:
            raise NotOurs(ref=canonical.ref)
        by_warehouse.setdefault(Warehouse.of_manifest(canonical.manifest_uri, asset), []).append(canonical.uuid)
    readable = []
    for warehouse, uuids in by_warehouse.items():
        try:
            manifests = read_manifests(warehouse, asset, uuids)
        except ManifestMissing as error:
            uuid = error.facts["uuid"]
            raise data_gone(spec, ref_of[uuid], uuid, f"there is no {error.facts['path']}") from error
        for manifest in manifests:
            check_recorded(warehouse, manifest, recorded[manifest.instance_uuid])
            _check_files(warehouse, manifest, spec)
            readable.append(Readable(manifest.ref, warehouse, manifest))
    return sorted(readable, key=lambda found: found.ref)


def check_data_of(
    queries: Queries, instance: Instance, spec: DatasetSpec | None, data: DataFacts | None = None
) -> None:
    """Check that the files of an instance exist; `data` is asked for unless given. Raises `NotOurs`, `DataRemoved`, `DamagedData`."""
    if instance.manifest_state == REMOVED:
        raise _taken_away(queries, instance.ref, instance.uuid)
    if instance.manifest_uri is None:
        raise NotOurs(ref=instance.ref)
    known = data or queries.instances.data_facts([instance.uuid])[instance.uuid]
    facts = Canonical(instance.ref, uuid=instance.uuid, manifest_uri=instance.manifest_uri, **known._asdict())
    _readable(asset_of(instance.ref), [facts], spec)


def _check_files(warehouse: Warehouse, manifest: Manifest, spec: DatasetSpec | None) -> None:
    """Raises `DataRemoved` before Spark opens an absent file. A url is skipped: fetching its objects checks them."""
    if manifest.state is ManifestState.REMOVED:
        raise DataTakenAway(ref=manifest.ref, uuid=manifest.instance_uuid)
    if any("://" in path for path in file_paths(warehouse, manifest)):
        return
    if lost := missing_files(warehouse, manifest):
        adopted = manifest.uri_type is UriType.IDENTIFIER
        folder = warehouse.instance_dir(asset_of(manifest.ref), manifest.instance_uuid)
        why = "was changed since it was listed" if adopted else f"cut short, in {folder}"
        raise data_gone(spec, manifest.ref, manifest.instance_uuid, f"{lost[0]} is lost, or {why}")


# Times


def _aware(as_of: object) -> datetime:
    """The text or time as an aware datetime. Raises `InvalidAsOf`, for a time without a zone, too."""
    at = as_of
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError as error:
            raise InvalidAsOf(value=as_of, why="that is no time") from error
    if not isinstance(at, datetime):
        what = "a day is no moment" if isinstance(at, date) else "that is neither a time nor a seq"
        raise InvalidAsOf(value=as_of, why=what)
    if at.utcoffset() is None:
        raise InvalidAsOf(value=as_of, why="it does not say in which time zone")
    return at


# Repairs


class DamagedData(DatabuildError):
    """{ref} is damaged in instance {uuid}: {why}."""

    hint = "{repair}"


@contextmanager
def damage_named(spec: DatasetSpec | None, refs: Mapping[str, Ref]) -> Iterator[None]:
    """Raises `DamagedData` for a damaged manifest or file of the instances in `refs`, which maps uuids to refs (rule 6.16)."""
    try:
        yield
    except DAMAGE as error:
        # Files of other programs have no uuid in their paths.
        found = [uuid for uuid in refs if uuid in str(error.facts.get("path"))] or list(refs)
        if len(found) != 1:
            raise
        ref, why = refs[found[0]], error.message.rstrip(".")
        raise DamagedData(ref=ref, uuid=found[0], why=why, repair=repair_of(spec, ref)) from error


def repair_of(spec: DatasetSpec | None, ref: Ref) -> str:
    """A sentence with the command that repairs a ref whose data is lost or damaged.

    `spec` is the ref's dataset, None if no code location registers it any longer.
    """
    if spec is None:
        return f"Nothing builds it any longer; `databuild taint --reason damaged {typed(ref)}` keeps readers away."
    if spec.kind is DatasetKind.BOUNDARY:
        asset, key = asset_of(ref), partition_key_of(ref) or ""
        return (
            f"Put the file back, or send it again: `databuild lot arrive --landed {typed(asset)}` records new files of the landing folder, "
            f"and `databuild lot arrive --replace {typed(asset, key)} URI…` files elsewhere."
        )
    return f"`databuild build --rebuild {typed(ref)}` builds it again."
