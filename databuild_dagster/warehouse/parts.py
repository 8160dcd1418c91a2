"""The parts of a lot in the warehouse, each with a manifest beside its files (rule 10.4).

    <instance>/part-….parquet              files of all parts, unless they are in attempts; no two writers use one name
    <instance>/manifest.part-0003.json     what part 3 wrote: complete, or empty
    <instance>/manifest.json               lists the files of all parts, and names their manifests as `children`

A failed attempt keeps its good parts under a partial manifest. The next attempt links or copies their files to its own
folder, except for files of `../attempt=…`, which both list, and writes its own manifests for them. The failed attempt's
folder is removed whole, after the engine has recorded how the next attempt ended; so each folder is complete by itself
wherever a process dies. No `removed` manifest replaces it, because the event log never recorded that instance."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from databuild_dagster.model.datasets import UNKNOWN_CODE
from databuild_dagster.model.refs import Ref
from databuild_dagster.warehouse.errors import UNREADABLE_MANIFEST, ManifestDamaged, ManifestMissing, StorageTrouble
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import (
    Manifest,
    ManifestState,
    TableSchema,
    UriType,
    is_in_attempt,
    manifest_text,
    missing_files,
    read_manifest,
    write_once,
)

_NO_COLUMNS = TableSchema(())


class PartManifest(Manifest, frozen=True, kw_only=True):
    """The files that a part of a lot wrote."""

    #: From 0, in the order of the split.
    number: int
    n_parts: int
    #: Its name for people: `3 of 8`, or `origin=JFK`.
    part: str
    #: The piece of the input that it was made from; equal texts, equal pieces.
    split: str
    #: The version of the asset's function.
    code_version: str | None = None


# Made at import, as those of manifests.
_part_of = msgspec.json.Decoder(PartManifest).decode


def lot_state(parts: Iterable[ManifestState | None]) -> ManifestState:
    """The state of a lot from the states of its parts; None is a part that did not end."""
    states = set(parts)
    if not states <= {ManifestState.COMPLETE, ManifestState.EMPTY}:
        return ManifestState.PARTIAL
    return ManifestState.COMPLETE if ManifestState.COMPLETE in states else ManifestState.EMPTY


def lot_schema(parts: Iterable[Manifest]) -> TableSchema:
    """The columns of all parts, taken from a part with rows, because an empty part takes its columns from elsewhere."""
    schemas = [part.schema for part in sorted(parts, key=lambda part: not part.files)]
    return next((schema for schema in schemas if schema.columns), schemas[0] if schemas else _NO_COLUMNS)


def lot_as_a_whole(parts: Sequence[PartManifest]) -> Manifest:
    """A manifest with the files of all `parts`, to read them together. At least one part is needed."""
    files = tuple(file for part in parts for file in part.files)
    return msgspec.structs.replace(parts[0], files=files, schema=lot_schema(parts))


def _may_differ(one: str, other: str) -> bool:
    """Frames in memory give a column the type of its values: none without any, and decimals as wide as the largest."""
    return "void" in f"{one} {other}" or (one.startswith("decimal(") and other.startswith("decimal("))


def why_columns_differ(part: PartManifest, before: PartManifest) -> str | None:
    """The first difference between the columns of two parts; None if they agree."""
    if not part.files or not before.files:
        return None
    found = {column.name: column.type for column in part.schema.columns}
    known = {column.name: column.type for column in before.schema.columns}
    for name in [*known, *found]:
        if name not in found:
            return f"it has no column {name!r}, which part {before.part} has"
        if name not in known:
            return f"it has a column {name!r}, which part {before.part} has not"
        if found[name] != known[name] and not _may_differ(found[name], known[name]):
            return f"its column {name!r} is {found[name]}, and that of part {before.part} is {known[name]}"
    return None


def child_name(number: int) -> str:
    """The file name of a part's manifest, as its lot's manifest lists it."""
    return f"manifest.part-{number:04}.json"


def write_part(warehouse: Warehouse, manifest: PartManifest) -> None:
    """Write a part's manifest, which must not exist yet. Raises `ManifestConflict`, `DiskTrouble`, `StorageTrouble`."""
    assert manifest.state in (ManifestState.COMPLETE, ManifestState.EMPTY), manifest.state
    path = _path(warehouse, manifest.dataset, manifest.instance_uuid, child_name(manifest.number))
    write_once(warehouse, path, manifest_text(manifest).encode())


def kept_parts(warehouse: Warehouse, asset: str, uuid: str) -> list[PartManifest]:
    """The parts that a failed attempt has kept for the next attempt.

    Empty where every part was good: the lot as a whole failed, in a check for example, and would fail again.
    """
    try:
        lot = read_manifest(warehouse, asset, uuid)
        if lot.state is not ManifestState.PARTIAL:
            return []
        parts = warehouse.storage.for_each(lambda child: _read_part(warehouse, lot, child), lot.children)
    except UNREADABLE_MANIFEST:
        # The parts are built again.
        return []
    return [part for part in parts if len(parts) < part.n_parts]


def is_the_same(kept: PartManifest, *, split: str, code_version: str | None, inputs: Mapping[Ref, str]) -> bool:
    """Whether a part would be built from the same rows by the same code. `inputs` are the declared inputs."""
    return (
        kept.split == split
        and kept.code_version == code_version != UNKNOWN_CODE
        and all(kept.inputs.get(ref) == uuid for ref, uuid in inputs.items())
    )


def share_parts(
    warehouse: Warehouse, kept: Mapping[int, PartManifest], *, uuid: str, job_run: str
) -> list[PartManifest]:
    """Link or copy the files of kept parts to a new instance; returns the manifests to write there by `write_part`.

    Files of an attempt stay where they are. `kept` is by the part's number in the new instance. A part with a missing
    file is left out, to be built again. Raises `DiskTrouble`, `StorageTrouble`.
    """
    if not kept:
        return []
    first = next(iter(kept.values()))
    source = warehouse.instance_dir(first.dataset, first.instance_uuid)
    together = lot_as_a_whole(list(kept.values()))
    lost = set(missing_files(warehouse, together))
    whole = {number: part for number, part in kept.items() if lost.isdisjoint(file.uri for file in part.files)}
    try:
        names = [file.uri for part in whole.values() for file in part.files if not is_in_attempt(file.uri)]
        warehouse.storage.share(source, warehouse.instance_dir(first.dataset, uuid), names)
    except FileNotFoundError as error:
        # Some files are in the new folder, which must be removed: no manifest lists them.
        raise StorageTrouble(path=source, done="kept", why="another process removed it at the same time") from error
    return [
        msgspec.structs.replace(
            part,
            instance_uuid=uuid,
            job_run=job_run,
            number=number,
            created_at=datetime.now(UTC),
            comment=f"kept from {part.instance_uuid}",
        )
        for number, part in whole.items()
    ]


def children_of(parts: Sequence[PartManifest]) -> tuple[str, ...]:
    """The names of the parts' manifests in the lot's manifest."""
    return tuple(child_name(part.number) for part in parts)


def _read_part(warehouse: Warehouse, lot: Manifest, child: str) -> PartManifest:
    path = _path(warehouse, lot.dataset, lot.instance_uuid, child)
    try:
        part = _part_of(warehouse.storage.read_bytes(path))
    except FileNotFoundError:
        raise ManifestMissing(
            asset=lot.dataset, uuid=lot.instance_uuid, path=path, kind="manifest", name=path
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestDamaged(path=path, why=str(error)) from error
    owner = (part.dataset, part.ref, part.instance_uuid)
    if owner != (lot.dataset, lot.ref, lot.instance_uuid) or part.uri_type is not UriType.PATH:
        raise ManifestDamaged(path=path, why=f"it is no part of instance {lot.instance_uuid} of {lot.ref}")
    listed = {file.uri for file in lot.files}
    if stray := [file.uri for file in part.files if file.uri not in listed]:
        raise ManifestDamaged(path=path, why=f"it lists {stray[0]!r}, which the manifest of its lot does not")
    return part


def _path(warehouse: Warehouse, asset: str, uuid: str, child: str) -> str:
    if child != os.path.basename(child) or not child.startswith("manifest.part-"):
        raise ManifestDamaged(path=warehouse.manifest_path(asset, uuid), why=f"{child!r} is no manifest of a part")
    return os.path.join(warehouse.instance_dir(asset, uuid), child)
