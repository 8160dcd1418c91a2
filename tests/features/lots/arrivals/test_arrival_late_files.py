"""What a lot's next instance lists, from what is there and what was listed before (rule 10.6)."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from databuild_dagster.features.lots.arrivals.arrival import grow
from databuild_dagster.features.lots.arrivals.recording import Outside
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.files import describe_each
from databuild_dagster.warehouse.manifest import Manifest, ManifestState, UriType

REF = "files@2024-01-01"


def landed(path: Path, *values: int) -> Outside:
    pq.write_table(pa.table({"n": list(values)}), path)
    (file,) = describe_each([(str(path), path.stat().st_size)])
    return Outside(REF, (file.entry,), file.schema, "somewhere")


def live(outside: Outside) -> tuple[Canonical, list[Manifest]]:
    manifest = Manifest(
        dataset="files",
        ref=REF,
        instance_uuid="5e0002a1-0f3d-bd95-db63-b1ac4bedec0f",
        job_run="j",
        attempt=1,
        state=ManifestState.COMPLETE,
        uri_type=UriType.IDENTIFIER,
        files=outside.files,
        created_at=datetime.now(UTC),
        schema=outside.schema,
    )
    return Canonical(REF, state=InstanceState.LIVE, uuid=manifest.instance_uuid), [manifest]


def test_a_late_file_comes_beside_those_that_were_listed(tmp_path: Path) -> None:
    first, late = landed(tmp_path / "1.parquet", 1), landed(tmp_path / "2.parquet", 2)

    grown = grow(late, *live(first))

    assert grown is not None
    assert grown.files == (*first.files, *late.files)


def test_a_listed_file_that_was_written_again_gives_way(tmp_path: Path) -> None:
    """Its rows are others now, and what it listed of them would be wrong"""
    first, late = landed(tmp_path / "1.parquet", 1), landed(tmp_path / "2.parquet", 2)
    landed(tmp_path / "1.parquet", *range(1000))

    grown = grow(late, *live(first))

    assert grown is not None
    assert grown.files == late.files
