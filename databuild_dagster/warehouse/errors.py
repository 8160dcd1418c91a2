"""Errors of the warehouse's files."""

from databuild_dagster.model.errors import Conflict, DatabuildError, NotFound, Refused

_REPAIR = "`databuild log check --deep --contents` names its ref, and the command that repairs it."


class DiskTrouble(DatabuildError):
    """{path} could not be {done}: {why}."""

    hint = "Check the disk and the rights of that folder, then build again: nothing half-written is ever read."


class ReadOnlyWarehouse(DiskTrouble):
    """{path} could not be {done}, because this process may not write there ({why})."""

    hint = "Give this user the right to write there, or set another warehouse."


class DiskFull(DiskTrouble):
    """{path} could not be {done}, because the disk is full."""

    hint = "Free some space, such as by `databuild gc`, then build again: nothing half-written is ever read."


class DiskNearlyFull(DiskFull):
    """{path} is on a disk with {free} MiB free, and a build begins with {needed} MiB at least."""


class StorageTrouble(DatabuildError):
    """{path} could not be {done}: {why}."""

    hint = "Check the object store and this machine's network, then build again: nothing half-written is ever read."


class BucketMissing(StorageTrouble):
    """{path} could not be {done}, because there is no {holder} {bucket}."""

    hint = "Create it, set another warehouse, or set {address} if it is in another store."


class AccessDenied(StorageTrouble):
    """{path} could not be {done}, because the store refuses it to this user: {why}."""

    hint = "Set credentials in the environment ({credentials}) that may read, write and list there."


class CredentialsExpired(AccessDenied):
    """{path} could not be {done}, because the credentials of this process for the object store have expired."""

    hint = "Renew them in the environment of each process that builds or reads; those of Spark are others."


class StoreFull(StorageTrouble):
    """{path} could not be {done}, because the object store is full."""

    hint = "Free some space there, such as by `databuild gc`, or raise the quota, then build again."


class StorageUnreachable(StorageTrouble):
    """{path} could not be {done}, because the object store did not answer as it should: {why}."""

    hint = "Check the network and {address}; a build tries again by itself."


class StorageLibraryMissing(Refused):
    """A warehouse on {protocol}:// needs a library that is not installed here: {why}."""

    hint = "pip install '{package}'"


class NotCreateOnly(Refused):
    """The object store of {path} ignores `If-None-Match: *` and overwrites existing objects, so it can hold no warehouse."""

    hint = "Use a store that honors `If-None-Match: *` on writing, as Amazon's S3 does."


class InvalidWarehouse(Refused):
    """{root!r} is no place for a warehouse: {why}."""

    hint = "Give a folder, or a url such as s3://bucket/prefix; credentials come from the environment."


class InvalidCacheSize(Refused):
    """{variable} is {value!r}, which is no size."""

    hint = "Give a number of GiB, such as 20 or 0.5."


class ListedFileLost(DatabuildError):
    """{path} is listed in a manifest, but {why}."""

    hint = _REPAIR


class FolderChanged(DatabuildError):
    """Files came or went in {folder} while Spark read it as an input."""

    hint = "It is read again, and from that folder only the files that manifests list."


class InvalidInstanceUuid(Refused):
    """{uuid!r} is no instance uuid."""

    hint = "Instance uuids are 36 lower-case characters; `databuild history REF` lists them."


class ManifestMissing(NotFound):
    """Instance {uuid} of {asset} has no manifest at {path}."""

    hint = "Its data was removed, or it was built in another warehouse than the one that is set."


class ManifestDamaged(DatabuildError):
    """The manifest {path} cannot be read: {why}."""

    hint = _REPAIR


class ManifestDiffers(ManifestDamaged):
    """The manifest {path} is not the one that was recorded: {why}."""


class NewerManifest(DatabuildError):
    """The manifest {path} has schema version {found}, newer than {known}, the newest this version reads."""

    hint = "Upgrade the package here: pip install --upgrade databuild_dagster."


class EscapingFile(DatabuildError):
    """The manifest {path} lists {uri!r}, which is not in the folder of its instance."""

    hint = _REPAIR


class ManifestConflict(Conflict):
    """The manifest {path} exists already, with other contents."""

    hint = "Another attempt wrote this instance first; instances are never overwritten, so build the ref again."


class UnknownFormat(DatabuildError):
    """A manifest lists files of the format {name!r}, which this version cannot read."""

    hint = "Upgrade the package here: pip install --upgrade databuild_dagster."


class UnreadableFile(DatabuildError):
    """{path} cannot be read: {why}."""

    hint = _REPAIR


class NotParquet(UnreadableFile):
    """{path} is no readable Parquet file: {why}."""


#: Errors of a manifest from which no instance can be read.
UNREADABLE_MANIFEST = (EscapingFile, ManifestDamaged, ManifestMissing, NewerManifest)
#: Errors of a manifest or a file itself, not of the way to it or of this version.
DAMAGE = (EscapingFile, ListedFileLost, ManifestDamaged, ManifestMissing, UnreadableFile)
