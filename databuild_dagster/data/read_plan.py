"""From a ref or a dataset, and a time, to the manifests its readers may read, or a refusal that says why not.

Now, the canonical instance counts; then, the one that was canonical then, in the state it had then (SPEC 3.2).
Knows the store and the warehouse; neither Dagster nor Spark. Whether a ref that has no instance could have one,
the caller tells.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from databuild_dagster.engine.wording import when
from databuild_dagster.model.datasets import ArcSpec, DatasetKind, DatasetSpec
from databuild_dagster.model.errors import NotFound, Refused, UnknownPartition, near_names
from databuild_dagster.model.refs import PartitionRef, Ref, asset_of, partition_key_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Manifest,
    ManifestState,
    UriType,
    file_paths,
    missing_files,
    read_manifest,
    read_manifests,
    with_whole_uris,
)

#: A seq, or a time: an aware datetime, or its ISO 8601 text.
AsOf = datetime | str | int

#: Events are shown to the microsecond, rounded: what is copied from there must mean that event, and not the one before.
HALF_A_MICROSECOND = 0.5e-6

#: Why there is no such partition, None if there may be one; from the dataset and the partition key.
WhyNot = Callable[[DatasetSpec, str | None], str | None]


def neighbour(queries: Queries, asset: str) -> Manifest | None:
    """The live instance of an asset that was made last, if it has columns: zero rows still have columns (SPEC 10.3).

    Read where it was written, which need not be where today's are; None too where its data was removed.
    """
    newest = queries.newest_live(asset)
    if newest is None or newest.uuid is None or newest.manifest_uri is None:
        return None
    try:
        manifest = read_manifest(Warehouse.of_manifest(newest.manifest_uri, asset), asset, newest.uuid)
    except ManifestMissing:
        return None
    return manifest if manifest.schema.columns else None


def manifests_in(warehouse: Warehouse, asset: str, canonical: Sequence[Canonical]) -> list[Manifest]:
    """What instances hold, for whoever reads from `warehouse`: of what lies in another one, files by their whole path.

    Another code location may have another warehouse. Raises `ManifestMissing`.
    """
    by_place: dict[Warehouse, list[str]] = {}
    for each in canonical:
        if each.uuid is not None:
            place = Warehouse.of_manifest(each.manifest_uri, asset) if each.manifest_uri is not None else warehouse
            by_place.setdefault(place, []).append(each.uuid)
    found: dict[str, Manifest] = {}
    for place, uuids in by_place.items():
        try:
            manifests = read_manifests(place, asset, uuids)
        except ManifestMissing:
            if place == warehouse:
                raise
            # A home that was moved: the store still names the old place.
            place, manifests = warehouse, read_manifests(warehouse, asset, uuids)
        for manifest in manifests:
            found[manifest.instance_uuid] = manifest if place == warehouse else with_whole_uris(place, manifest)
    return [found[each.uuid] for each in canonical if each.uuid is not None]


class NotLive(Refused):
    """{ref} {verb} {state}, so there is nothing to read."""

    hint = "{what_to_do}"


class NothingLive(Refused):
    """No partition of {asset} {verb} live{when}, so there is nothing to read."""

    hint = "`databuild partitions {asset}` shows how they stand."


class TaintedRef(Refused):
    """{ref} {verb} {state}, so what it holds is said to be wrong."""

    hint = "`databuild build {ref}` builds it anew; allow_tainted=True, or --allow-tainted, reads it all the same."


class NotOurs(Refused):
    """{ref} is live, but its data is not in our warehouse: a plain Dagster asset keeps its own."""

    hint = "Read it where its IO manager stored it."


class DataRemoved(NotFound):
    """{ref} was built as instance {uuid}, but its data is gone: {why}."""

    hint = "Taint it and build it again: `databuild taint {ref} --reason gone`, then `databuild build {ref}`."


class FilesGone(DataRemoved):
    """{ref} has arrived as instance {uuid}, but not all of its files are there: {why}."""

    hint = (
        "Put the file back, or send it again: `databuild lot look {asset}` records what has landed, and "
        "`databuild lot arrive --replace {asset} {key} URI…` what lies anywhere."
    )


class DataTakenAway(DataRemoved):
    """{ref} was built as instance {uuid}, and its data was removed since, by `databuild gc`."""

    hint = (
        "`databuild history {ref}` shows which instances are left; `databuild build {ref}` builds it if it is not live."
    )


class InvalidAsOf(Refused):
    """as_of is {value!r}, and {why}."""

    hint = "Give an aware datetime, ISO 8601 text such as 2026-11-21T14:00:00Z, or a seq of `databuild log events`."


class BeforeAnything(Refused):
    """Nothing had been recorded as of {as_of}: {began}."""

    hint = "Give a later time, or leave as_of out to read what is there now."


@dataclass(frozen=True, slots=True)
class Readable:
    """One instance that may be read."""

    ref: Ref
    warehouse: Warehouse
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Moment:
    """When to look: `seq` is the last event that counts; None is now."""

    seq: int | None = None
    #: As people read it.
    told: str = "now"
    #: The time then, in seconds since 1970 UTC.
    at: float | None = None

    @property
    def verb(self) -> str:
        return "is" if self.seq is None else "was"

    @property
    def when(self) -> str:
        return "" if self.seq is None else f" as of {self.told}"


def moment_of(queries: Queries, as_of: AsOf | None, now: datetime) -> Moment:
    """The moment that is meant. Raises `InvalidAsOf`, `BeforeAnything`."""
    if as_of is None:
        return Moment()
    head = queries.head()
    if isinstance(as_of, int) and not isinstance(as_of, bool):
        if as_of > head.seq:
            raise InvalidAsOf(value=as_of, why=f"the log ends at seq {head.seq}")
        moment = Moment(as_of, f"seq {as_of}", queries.time_of(as_of))
    else:
        at = _aware(as_of)
        # The log may be ahead of a clock that was set back.
        if at.timestamp() > max(now.timestamp(), head.at):
            raise InvalidAsOf(value=as_of, why="it lies in the future, which nobody has seen")
        seconds = at.timestamp()
        moment = Moment(queries.seq_at(seconds + HALF_A_MICROSECOND), when(seconds), seconds)
    assert moment.seq is not None
    if moment.seq < 1:
        began = queries.time_of(1)
        told = "the log is empty" if began is None else f"the log begins with seq 1 at {when(began)}"
        raise BeforeAnything(as_of=moment.told, began=told)
    return moment


def readable_ref(queries: Queries, ref: Ref, moment: Moment, why_not: WhyNot, *, allow_tainted: bool) -> Readable:
    """The instance that readers of a ref see.

    Raises `UnknownAsset`, `UnknownPartition`, `NotLive`, `TaintedRef`, `NotOurs`, `DataRemoved`.
    """
    asset = asset_of(ref)
    spec = queries.dataset(asset)
    canonical = queries.canonical([ref])[ref] if moment.seq is None else queries.canonical_at([ref], moment.seq)[ref]
    if canonical.state is None:
        spec = queries.known_dataset(asset)
        # What has an instance by now has a key that is right.
        if queries.states([ref])[ref] is None and (why := why_not(spec, partition_key_of(ref))):
            raise UnknownPartition(ref=ref, why=why, asset=asset)
    _check_state(queries, canonical, moment, allow_tainted=allow_tainted)
    _check_kept(queries, [canonical], moment)
    return _readable(asset, [canonical], spec)[0]


def live_of_dataset(queries: Queries, asset: str, moment: Moment) -> list[Readable]:
    """Every live partition of a dataset, ordered by ref; only those without a key where it has no partitions.

    Raises `InvalidRef`, `UnknownAsset`, `NothingLive`, `NotOurs`, `DataRemoved`.
    """
    asset = PartitionRef(asset).asset
    found = (
        queries.canonical_of_dataset(asset)
        if moment.seq is None
        else queries.canonical_of_dataset_at(asset, moment.seq)
    )
    spec = queries.dataset(asset)
    if not found:
        spec = queries.known_dataset(asset)
    live = [each for each in found if each.state is InstanceState.LIVE]
    if spec is not None:
        # A dataset that was given partitions since then still has the live ref it had before.
        live = [each for each in live if (partition_key_of(each.ref) is None) is (spec.partitions is None)]
    if not live:
        raise NothingLive(asset=asset, verb=moment.verb, when=moment.when)
    _check_kept(queries, live, moment)
    return _readable(asset, live, spec)


def unknown_sources(registered: Iterable[DatasetSpec], datasets: Iterable[DatasetSpec]) -> list[str]:
    """A sentence for each source of the datasets' arcs that no location has registered.

    It may be a typo, or an asset of a location that is still to come; so the arc itself is not refused.
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

#: What opens the way to reading it, by its state now.
_WHAT_TO_DO = {
    None: "`databuild build {ref}` builds it.",
    _S.BUILDING: "`databuild show {ref}` tells when it is live.",
    _S.UPSTREAM_BUILDING: "`databuild show {ref}` tells what it waits for.",
    _S.UP_FOR_RETRY: "`databuild build {ref}` builds it.",
    _S.FAILED: "Mend the cause, then `databuild taint {ref} --reason mended` opens it for another build.",
    _S.UPSTREAM_FAILED: "`databuild show {ref}` tells what failed; what waits for it follows once that is mended.",
    _S.TAINTED: "`databuild build {ref}` builds it anew.",
}
_WHAT_TO_DO_THEN = "`databuild history {ref}` lists its instances; leave as_of out to read what is there now."


def _check_state(queries: Queries, canonical: Canonical, moment: Moment, *, allow_tainted: bool) -> None:
    if canonical.state is InstanceState.LIVE:
        return
    facts = {
        "ref": canonical.ref,
        "verb": moment.verb,
        "state": _told_state(queries, canonical, moment),
    }
    # Also what failed can be tainted; then there never was anything to read.
    if canonical.state is InstanceState.TAINTED and canonical.live_at is not None:
        if allow_tainted:
            return
        raise TaintedRef(**facts)
    what_to_do = _WHAT_TO_DO[canonical.state] if moment.seq is None else _WHAT_TO_DO_THEN
    raise NotLive(**facts, what_to_do=what_to_do.format(ref=canonical.ref))


def _told_state(queries: Queries, canonical: Canonical, moment: Moment) -> str:
    """`Failed as of …, since … (why)`."""
    if canonical.state is None or canonical.uuid is None:
        return f"missing{moment.when}"
    change = queries.last_change(canonical.uuid, moment.seq)
    since = f" since {when(change.at)}" if change is not None else ""
    why = _why(queries, canonical.uuid, canonical) if moment.seq is None else ""
    return f"{canonical.state.value}{moment.when}{since}{f' ({why})' if why else ''}"


def _why(queries: Queries, uuid: str, canonical: Canonical) -> str:
    if canonical.state is InstanceState.TAINTED:
        return "; ".join(taint.reason for taint in queries.taints_of(uuid) if taint.canceled_at is None)
    if canonical.state is InstanceState.UPSTREAM_BUILDING:
        return f"it waits for {', '.join(queries.missing_of(uuid))}"
    return (canonical.reason or "").rstrip(".")


# Data


def _check_kept(queries: Queries, found: Sequence[Canonical], moment: Moment) -> None:
    """What was there then may have been removed since. Raises `DataTakenAway`."""
    if moment.seq is None:
        return
    removed = queries.removed(each.uuid for each in found if each.uuid is not None)
    for each in found:
        if each.uuid in removed:
            raise DataTakenAway(ref=each.ref, uuid=each.uuid)


def _readable(asset: str, found: Sequence[Canonical], spec: DatasetSpec | None = None) -> list[Readable]:
    """With their manifests. Raises `NotOurs`, `DataRemoved`; `FilesGone` where the dataset is known for a boundary."""
    try:
        return _with_manifests(asset, found)
    except DataTakenAway:
        raise
    except DataRemoved as gone:
        if spec is None or spec.kind is not DatasetKind.BOUNDARY:
            raise
        key = partition_key_of(gone.facts["ref"])
        raise FilesGone(**gone.facts, asset=asset, key=shlex.quote(key or "")) from gone


def _with_manifests(asset: str, found: Sequence[Canonical]) -> list[Readable]:
    """Raises `NotOurs`, `DataRemoved`."""
    ref_of = {each.uuid: each.ref for each in found}
    by_warehouse: dict[Warehouse, list[str]] = {}
    for each in found:
        assert each.uuid is not None
        # The log says so first; its files may go at any moment from then on.
        if each.manifest_state == REMOVED:
            raise DataTakenAway(ref=each.ref, uuid=each.uuid)
        if each.manifest_uri is None:
            raise NotOurs(ref=each.ref)
        by_warehouse.setdefault(Warehouse.of_manifest(each.manifest_uri, asset), []).append(each.uuid)
    readable = []
    for warehouse, uuids in by_warehouse.items():
        try:
            manifests = read_manifests(warehouse, asset, uuids)
        except ManifestMissing as error:
            uuid = error.facts["uuid"]
            raise DataRemoved(ref=ref_of[uuid], uuid=uuid, why=f"there is no {error.facts['path']}") from error
        for manifest in manifests:
            _check_files(warehouse, manifest)
            readable.append(Readable(manifest.ref, warehouse, manifest))
    return sorted(readable, key=lambda each: each.ref)


def check_data_of(instance: Instance) -> None:
    """Whether what an instance wrote is still there. Raises `NotOurs`, `DataRemoved`."""
    if instance.manifest_uri is None:
        raise NotOurs(ref=instance.ref)
    facts = Canonical(
        instance.ref,
        uuid=instance.uuid,
        manifest_state=instance.manifest_state,
        manifest_uri=instance.manifest_uri,
    )
    _readable(asset_of(instance.ref), [facts])


def _check_files(warehouse: Warehouse, manifest: Manifest) -> None:
    """Raises `DataRemoved`, before Spark is asked for a file that is not there.

    A url is left alone: its objects are fetched, and then it is known.
    """
    facts = {"ref": manifest.ref, "uuid": manifest.instance_uuid}
    if manifest.state is ManifestState.REMOVED:
        raise DataTakenAway(**facts)
    if any("://" in path for path in file_paths(warehouse, manifest)):
        return
    if lost := missing_files(warehouse, manifest):
        adopted = manifest.uri_type is UriType.IDENTIFIER
        folder = warehouse.instance_dir(asset_of(manifest.ref), manifest.instance_uuid)
        why = "was changed since it was listed" if adopted else f"cut short, in {folder}"
        raise DataRemoved(**facts, why=f"{lost[0]} is lost, or {why}")


# Times


def _aware(as_of: object) -> datetime:
    """Raises `InvalidAsOf`: nobody knows which moment a time without a zone is."""
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
