"""What can go wrong with bytes on disk."""

from __future__ import annotations

from databuild_dagster.model.errors import Conflict, DatabuildError, NotFound, Refused


class DiskTrouble(DatabuildError):
    """{path} could not be {done}: {why}."""

    hint = "Look at the disk and the rights of that folder, then build again: nothing half-written is read."


class ReadOnlyWarehouse(DiskTrouble):
    """{path} could not be {done}, because this process may not write there ({why})."""

    hint = "Give this user the right to write there, or set another warehouse."


class DiskFull(DiskTrouble):
    """{path} could not be {done}, because the disk is full."""

    hint = "Free some space, then build again: nothing half-written is ever read."


class InvalidInstanceUuid(Refused):
    """{uuid!r} is no instance uuid."""

    hint = "Instance uuids are 36 lower-case characters; `databuild history REF` lists them."


class ManifestMissing(NotFound):
    """Instance {uuid} of {asset} has no manifest at {path}."""

    hint = "Its data was removed, or the warehouse is set to another place than the one it was built in."


class ManifestDamaged(DatabuildError):
    """The manifest {path} cannot be read: {why}."""

    hint = "Taint the ref, so that it is built again into a place of its own."


class NewerManifest(DatabuildError):
    """The manifest {path} has schema version {found}, newer than {known}, the newest this version reads."""

    hint = "Upgrade the package here: pip install --upgrade databuild_dagster."


class EscapingFile(DatabuildError):
    """The manifest {path} lists {uri!r}, which does not lie in the folder of its instance."""

    hint = "Somebody changed it by hand: taint the ref, so that it is built again."


class ManifestConflict(Conflict):
    """The manifest {path} exists already, with other contents."""

    hint = "Another attempt wrote this instance first; instances are never overwritten, so build the ref again."


class NotParquet(DatabuildError):
    """{path} is no readable Parquet file: {why}."""

    hint = "Taint the ref it belongs to, so that it is built again."
