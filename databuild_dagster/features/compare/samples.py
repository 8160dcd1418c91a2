"""A few rows of what readers of a ref see, if the author of its asset allows it (rules 15, 5.7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.features.compare.sample_files import Sample, sample_of_file
from databuild_dagster.model.errors import DatabuildError, Refused
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.shapes.cells import cell_text
from databuild_dagster.shapes.contents import NO_FILES, allows_sample
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import DiskTrouble, ListedFileLost, NotParquet
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, file_paths, read_manifest

#: States of an instance with data that can be looked at: a person who looks for a mistake needs tainted rows most.
_WITH_ROWS = (InstanceState.LIVE, InstanceState.TAINTED)


class SampleNotAllowed(Refused):
    """The pages show no rows of {asset}, because its author has not allowed it."""

    hint = "Write sample=True on the asset and load its code location again."


class NoRowsHere(Refused):
    """{ref} has no rows to show: {why}."""

    hint = "`databuild show {ref}` shows what readers see."


class RowsUnreadable(DatabuildError):
    """The rows of {ref} cannot be read here ({kind})."""

    hint = "`databuild read --limit 20 {ref}` says why."


class SampleColumn(msgspec.Struct, frozen=True):
    """A column of a sample, with the type that its writer gave it."""

    name: str
    type: str


class ShownSample(msgspec.Struct, frozen=True):
    """The first rows of the first file with rows; a cell is text, null for no value. `left_out` are columns that take too long."""

    ref: Ref
    uuid: str
    state: InstanceState
    n_rows: int
    n_files: int
    file: str | None
    columns: list[SampleColumn]
    left_out: Sequence[str]
    rows: list[list[str | None]]


def sample_of(queries: Queries, ref: Ref) -> ShownSample:
    """The first rows of the canonical instance. Raises `SampleNotAllowed`, `NoRowsHere`, `RowsUnreadable`."""
    asset = asset_of(ref)
    if not allows_sample(queries, asset):
        raise SampleNotAllowed(asset=asset)
    canonical = queries.canonical([ref])[ref]
    if why := _why_not(canonical):
        raise NoRowsHere(ref=ref, why=why)
    assert canonical.uuid is not None, "it is live or tainted"
    assert canonical.state is not None, "it is live or tainted"
    assert canonical.manifest_uri is not None, "its data is in a warehouse"
    warehouse = Warehouse.of_manifest(canonical.manifest_uri, asset)
    try:
        manifest = read_manifest(warehouse, asset, canonical.uuid)
        check_recorded(warehouse, manifest, canonical)
        file, sample = _first_rows(warehouse, manifest)
    except (*NO_FILES, NotParquet, ListedFileLost, DiskTrouble, FileNotFoundError) as error:
        # The message has the path.
        raise RowsUnreadable(ref=ref, kind=type(error).__name__) from error
    types = {column.name: column.type for column in manifest.schema.columns}
    return ShownSample(
        ref,
        canonical.uuid,
        canonical.state,
        manifest.rows,
        len(manifest.files),
        None if file is None else PurePosixPath(file.uri).name,
        [SampleColumn(name, types.get(name, "")) for name in sample.columns],
        sample.left_out,
        [[cell_text(value) for value in row] for row in sample.rows],
    )


def _why_not(canonical: Canonical) -> str | None:
    if canonical.state is None:
        return "nothing has built it"
    if canonical.state not in _WITH_ROWS or canonical.live_at is None:
        return f"it is {canonical.state.value}, and has no data"
    if canonical.manifest_state == REMOVED:
        return "its data was removed"
    if canonical.manifest_uri is None:
        return "a plain Dagster asset or another program keeps its data in a place that is not databuild's"
    return None


def _first_rows(warehouse: Warehouse, manifest: Manifest) -> tuple[FileEntry | None, Sample]:
    if manifest.format != "parquet":
        raise NotParquet(path=manifest.ref, why=f"its format is {manifest.format}")
    listed = zip(manifest.files, file_paths(warehouse, manifest), strict=True)
    for file, path in listed:
        if file.rows:
            return file, sample_of_file(path, file.bytes)
    return None, Sample(tuple(column.name for column in manifest.schema.columns), [], ())
