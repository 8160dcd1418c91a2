"""Files and folders that no manifest lists, and no reader sees (rule 10.8).

The warehouse is listed first and the log is read afterwards, so that a file that gets an owner meanwhile is left out. A
manifest is written before its event, and a build may be slow to clean up: orphans are reported once they are an hour old.
The manifest of an arrival is reported at once when its lot has a different instance, because its event would be refused
(`arrival_ids`).
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from databuild_dagster.calls.contributions import Check, Checked
from databuild_dagster.data.arrival_ids import decided_about
from databuild_dagster.data.ownership import warehouses_of
from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.queries.instances import DataFacts, FolderOwner
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse import errors
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.file_index import INDEX_NAME
from databuild_dagster.warehouse.layout import (
    MANIFEST_NAME,
    Folder,
    Found,
    Warehouse,
    find_staged,
    find_stored,
    job_run_of,
)
from databuild_dagster.warehouse.manifest import (
    Manifest,
    ManifestState,
    UriType,
    listed_in_attempts,
    manifest_in,
    read_manifest,
)
from databuild_dagster.warehouse.removing import is_mark
from databuild_dagster.warehouse.storage import protocol_of

#: The event of a younger file may still come.
YOUNG_SECONDS = 3600.0


class Unlisted(NamedTuple):
    """A folder with all its files, or a file, that no reader sees."""

    path: str
    is_folder: bool
    #: Of the instance that it would belong to; None if there is none.
    ref: Ref | None
    uuid: str | None
    files: int
    bytes: int
    why: str
    #: Of the folder of an attempt: the files to remove, because manifests may list other files in it.
    loose: tuple[str, ...] = ()

    @property
    def is_orphan(self) -> bool:
        """No instance owns it here; a different Dagster instance that writes there may own it."""
        return self.ref is None


def unlisted_storage(queries: Queries, warehouse: Warehouse, now: float, stored: Found | None = None) -> list[Unlisted]:
    """The orphans of a warehouse, of its attempts, and of this machine's staging folders.

    Lists every name in the warehouse, unless `stored` is given. Raises `DiskTrouble`, `StorageTrouble`.
    """
    staged = find_staged(warehouse)
    stored = stored or find_stored(warehouse, [dataset.asset for dataset in queries.datasets.all().values()])
    kept = queries.instances.kept(folder.uuid for folder in stored.folders)
    recorded = queries.instances.data_facts(kept)
    assets = {warehouse.dataset_dir(dataset.asset): dataset.asset for dataset in queries.datasets.all().values()}
    found = []
    for folder in stored.folders:
        if folder.uuid not in kept and (arrival := _arrival_in(warehouse, folder, assets)) is not None:
            of_arrival = _of_arrival(queries, folder, arrival, now)
            if of_arrival is not None:
                found += of_arrival
                continue
        found += _of_folder(warehouse, folder, kept.get(folder.uuid), recorded.get(folder.uuid), now)
    found += [
        Unlisted(file.path, False, None, None, 1, file.bytes, "it is in no instance's folder")
        for file in stored.strays
        if now - file.modified > YOUNG_SECONDS
    ]
    found += unlisted_in_attempts(queries, warehouse, stored, files_listed(warehouse, stored), now)
    return found + _of_staging(queries, warehouse, staged, now)


def files_listed(warehouse: Warehouse, stored: Found) -> dict[str, frozenset[str] | None]:
    """By folder of an instance, the files of attempts that its manifest lists; None if it cannot be read.

    Only the manifests of datasets with attempts are read. Raises `DiskTrouble`, `StorageTrouble`.
    """
    with_attempts = {_place_of(attempt) for attempt in stored.attempts}
    folders = [folder.path for folder in stored.folders if _place_of(folder) in with_attempts]

    def listed(folder: str) -> frozenset[str] | None:
        try:
            manifest = manifest_in(warehouse, folder)
        except (errors.ManifestDamaged, errors.EscapingFile, errors.NewerManifest):
            return None
        return frozenset(listed_in_attempts(warehouse, manifest) if manifest is not None else ())

    return dict(zip(folders, warehouse.storage.for_each(listed, folders), strict=True))


def unlisted_in_attempts(
    queries: Queries,
    warehouse: Warehouse,
    stored: Found,
    listed: Mapping[str, frozenset[str] | None],
    now: float,
    is_over: Callable[[JobRunView], bool] = lambda run: False,
    others: Collection[str] = (),
) -> list[Unlisted]:
    """The files of attempts that no manifest lists, by attempt; `others` are listed from elsewhere.

    An attempt is left alone while a job run of its launch runs. Its files are found at once if `is_over` says that no process
    works on the launch, else once they are an hour old and the launch has ended for an hour. The attempts of a dataset stay
    while any of its manifests cannot be read.
    """
    unreadable = {folder.rpartition("/")[0] for folder, files in listed.items() if files is None}
    used = {path for files in listed.values() if files for path in files}.union(others)
    found = []
    for attempt in stored.attempts:
        loose = [file for file in attempt.files if file.path not in used]
        if len(loose) < len(attempt.files):
            # The marks of a finished write go with the last file that it wrote.
            loose = [file for file in loose if not is_mark(file.path)]
        if loose and _place_of(attempt) not in unreadable:
            found.append((attempt, loose))
    names = {attempt.path: job_run_of(attempt.path) for attempt, _ in found}
    runs = queries.job_runs.named(name for name in names.values() if name is not None)
    unlisted = []
    for attempt, loose in found:
        run = runs.get(names[attempt.path] or "")
        old = [file for file in loose if now - file.modified > YOUNG_SECONDS]
        if run is None:
            # Another write of it may be younger than its first file.
            if len(old) == len(loose):
                why = "no recorded job run wrote this attempt, and no manifest lists it"
                unlisted.append(_loose(attempt, loose, None, why))
            continue
        of_launch = queries.job_runs.of_launch(run.launch_id)
        if is_over(run):
            old = loose
        elif not all(one.ended_at is not None and now - one.ended_at > YOUNG_SECONDS for one in of_launch):
            continue
        if old and not _has_lost_its_manifest(queries, warehouse, attempt, of_launch, listed):
            ref = next((ref for ref in run.refs if _data_of(warehouse, ref) == _place_of(attempt)), run.refs[0])
            why = f"an attempt of job run {run.id}, which has ended, wrote it, and no manifest lists it"
            unlisted.append(_loose(attempt, old, ref, why))
    return unlisted


def _has_lost_its_manifest(
    queries: Queries,
    warehouse: Warehouse,
    attempt: Folder,
    runs: Sequence[JobRunView],
    listed: Mapping[str, frozenset[str] | None],
) -> bool:
    """Whether a live instance of the attempt's launch has no manifest: the attempt may have its rows."""
    uuids = {
        derive_partition_uuid(run.id, ref)
        for run in runs
        for ref in run.refs
        if _data_of(warehouse, ref) == _place_of(attempt)
    }
    live = [uuid for uuid, kept in queries.instances.kept(uuids).items() if kept.is_live]
    return any(f"{_place_of(attempt)}/instance={uuid}" not in listed for uuid in live)


def _place_of(folder: Folder) -> str:
    return folder.path.rpartition("/")[0]


def _data_of(warehouse: Warehouse, ref: Ref) -> str:
    return f"{warehouse.dataset_dir(asset_of(ref))}/data"


def _arrival_in(warehouse: Warehouse, folder: Folder, assets: dict[str, str]) -> Manifest | None:
    """The manifest of a folder that holds nothing else, and lists files elsewhere."""
    asset = assets.get(folder.path.rsplit("/", 2)[0])
    path = f"{folder.path}/{MANIFEST_NAME}"
    # A process killed right after the link has left the temporary file.
    others = [file.path for file in folder.files if not file.path.startswith(f"{folder.path}/.{MANIFEST_NAME}.")]
    if asset is None or others != [path]:
        return None
    try:
        manifest = read_manifest(warehouse, asset, folder.uuid)
    except (
        errors.ManifestMissing,
        errors.ManifestDamaged,
        errors.EscapingFile,
        errors.NewerManifest,
        errors.InvalidInstanceUuid,
    ):
        return None
    return manifest if manifest.uri_type is UriType.IDENTIFIER else None


def _of_arrival(queries: Queries, folder: Folder, manifest: Manifest, now: float) -> list[Unlisted] | None:
    """The orphans of an arrival that the log does not have; None if it belongs to a different log."""
    ref = manifest.ref
    is_ours, seen = decided_about(queries, manifest)
    if not is_ours:
        return None
    if queries.canonical.of([ref])[ref].uuid != seen:
        return [_whole(folder, ref, "an interrupted arrival wrote it, and its lot has another instance since")]
    if now - folder.modified > YOUNG_SECONDS:
        # Without a ref: in a store that was restored from an older copy it was live, and the next look finds it again.
        return [_whole(folder, None, "an interrupted arrival wrote it, and no process has continued it")]
    return []


def _of_folder(
    warehouse: Warehouse, folder: Folder, kept: FolderOwner | None, recorded: DataFacts | None, now: float
) -> list[Unlisted]:
    is_old = now - folder.modified > YOUNG_SECONDS
    if kept is None or warehouse.instance_dir(asset_of(kept.ref), folder.uuid) != folder.path:
        return [_whole(folder, None, "no such instance is recorded")] if is_old else []
    if not kept.has_ended:
        return []
    try:
        manifest = read_manifest(warehouse, asset_of(kept.ref), folder.uuid)
        if recorded is not None:
            check_recorded(warehouse, manifest, recorded)
    except errors.ManifestMissing:
        return [_whole(folder, kept.ref, "its job run has ended, and there is no manifest")] if is_old else []
    except errors.ManifestDiffers:
        # What it leaves out may be the rows of the instance. Of a live one it is reported as a damaged manifest.
        return []
    except (errors.ManifestDamaged, errors.EscapingFile) as error:
        # Of a live instance it is reported as a damaged manifest.
        return [] if kept.is_live else [_whole(folder, kept.ref, f"its manifest cannot be read: {error.message}")]
    except errors.NewerManifest:
        return []
    start = len(folder.path) + 1
    loose = [file.path for file in folder.files if not _lists(manifest, file.path[start:])]
    # A temporary file of the listing may have been renamed meanwhile.
    still_there = warehouse.storage.file_sizes(loose)
    why = "its manifest does not list it"
    return [Unlisted(path, False, kept.ref, folder.uuid, 1, size, why) for path, size in still_there.items()]


def _lists(manifest: Manifest, name: str) -> bool:
    """Whether the manifest lists a file of the instance's own folder, or needs it."""
    if name in (MANIFEST_NAME, INDEX_NAME) or name in manifest.children:
        return True
    uris: Iterable[str] = (file.uri for file in manifest.files)
    if manifest.state is ManifestState.REMOVED or manifest.uri_type is UriType.IDENTIFIER:
        return False
    if manifest.uri_type is UriType.PREFIX:
        return any(name.startswith(uri) for uri in uris)
    return name in uris


def _of_staging(queries: Queries, warehouse: Warehouse, staged: dict[str, Folder], now: float) -> list[Unlisted]:
    job_runs = queries.job_runs.named(staged)
    found = []
    for name, folder in staged.items():
        if now - folder.modified <= YOUNG_SECONDS:
            continue
        if (run := job_runs.get(name)) is not None:
            if run.ended_at is not None and now - run.ended_at > YOUNG_SECONDS:
                found.append(_staged(folder, run.refs, f"job run {name}, which began it, has ended"))
        elif protocol_of(warehouse.root) is None:
            found.append(_staged(folder, (), "no recorded job run began it"))
    return found


def _whole(folder: Folder, ref: Ref | None, why: str) -> Unlisted:
    return Unlisted(folder.path, True, ref, folder.uuid, len(folder.files), folder.bytes, why)


def _loose(attempt: Folder, files: Sequence[Listed], ref: Ref | None, why: str) -> Unlisted:
    paths = tuple(file.path for file in files)
    return Unlisted(attempt.path, True, ref, None, len(files), sum(file.bytes for file in files), why, paths)


def _staged(folder: Folder, refs: Sequence[Ref], why: str) -> Unlisted:
    return Unlisted(folder.path, True, refs[0] if refs else None, None, len(folder.files), folder.bytes, why)


def _unlisted(checked: Checked) -> list[Violation]:
    queries = Queries(checked.store)
    found = []
    for warehouse in warehouses_of(queries, checked.warehouse()):
        try:
            unlisted = unlisted_storage(queries, warehouse, time.time())
        except DatabuildError as error:
            why = f"the warehouse cannot be looked through: {error.message}"
            found.append(Violation("rule 10.8", warehouse.root, why))
            continue
        for storage in unlisted:
            whose = f" of {storage.ref}" if storage.ref else ""
            n_files = f"{storage.files} file{'' if storage.files == 1 else 's'}, " if storage.is_folder else ""
            what = f"{n_files}{storage.bytes:,} bytes"
            found.append(Violation("rule 10.8", storage.path, f"nothing reads this{whose} ({what}): {storage.why}"))
    return found


CHECKS = (Check("unlisted storage", _unlisted),)
