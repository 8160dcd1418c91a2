"""A manifest is compared with the figures that the event log has of it: files, rows and bytes (rule 6.16).

Both are in memory when a manifest has been read, so the comparison costs no request.
"""

from typing import Protocol

from databuild_dagster.model.wording import counted
from databuild_dagster.warehouse.errors import ManifestDiffers
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, ManifestState


class RecordedFigures(Protocol):
    """The facts of a manifest in the log: of `Canonical` or `DataFacts`."""

    @property
    def manifest_state(self) -> str | None: ...
    @property
    def files(self) -> int | None: ...
    @property
    def rows(self) -> int | None: ...
    @property
    def bytes(self) -> int | None: ...


def check_recorded(warehouse: Warehouse, manifest: Manifest, recorded: RecordedFigures) -> None:
    """Raises `ManifestDiffers`; facts without figures are not compared."""
    figures = (recorded.files, recorded.rows, recorded.bytes)
    # An event may leave its figures out, and then they are zero.
    if None in figures or (not any(figures) and recorded.manifest_state != ManifestState.EMPTY):
        return
    listed = (len(manifest.files), manifest.rows, manifest.bytes)
    if listed != figures:
        path = warehouse.manifest_path(manifest.dataset, manifest.instance_uuid)
        raise ManifestDiffers(
            path=path, why=f"it lists {_shown(*listed)}, and the event log recorded {_shown(*figures)}"
        )


def _shown(files: int | None, rows: int | None, n_bytes: int | None) -> str:
    return f"{counted(files or 0, 'file')} of {counted(rows or 0, 'row')} and {counted(n_bytes or 0, 'byte')}"
