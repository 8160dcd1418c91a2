"""A manifest that lists something else than the log recorded is damage of the input (rule 6.16)."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from databuild_dagster.data.contents import Comparison, damage_behind
from databuild_dagster.data.read_plan import DamagedData, Moment, live_of_dataset, manifests_in, readable_ref
from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.errors import ManifestDiffers
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, ManifestState, manifest_text, read_manifest
from tests.support.catalog import dataset
from tests.support.fixtures import database, make_world, pytest_generate_tests
from tests.support.homes import Home
from tests.support.written import manifest_of

__all__ = ["database", "make_world", "pytest_generate_tests"]

#: A comparison is about manifests; the databases are proved in the store.
DATABASES = ("sqlite",)

FILE = FileEntry("part-0.parquet", 44, 3, "sha256:0")
ONE = manifest_of(files=(FILE,))
NOW = Moment()


def recorded(state: str | None = "complete", files: int | None = 1, rows: int | None = 3, n_bytes: int | None = 44):
    return Canonical(ONE.ref, uuid=ONE.instance_uuid, manifest_state=state, files=files, rows=rows, bytes=n_bytes)


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ((), "lists 0 files of 0 rows and 0 bytes"),
        ((FILE, FileEntry("part-1.parquet", 0, 0, "sha256:0")), "lists 2 files of 3 rows and 44 bytes"),
        ((FileEntry("part-0.parquet", 44, 2, "sha256:0"),), "lists 1 file of 2 rows and 44 bytes"),
        ((FileEntry("part-0.parquet", 4, 3, "sha256:0"),), "lists 1 file of 3 rows and 4 bytes"),
    ],
    ids=["fewer files", "more files", "fewer rows", "fewer bytes"],
)
def test_files_rows_and_bytes_are_those_of_the_log(listed, says):
    manifest = manifest_of(files=listed)

    with pytest.raises(ManifestDiffers, match=f"{says}, and the event log recorded 1 file of 3 rows and 44 bytes"):
        check_recorded(Warehouse("/w"), manifest, recorded())

    check_recorded(Warehouse("/w"), ONE, recorded())


@pytest.mark.parametrize(
    "facts", [recorded(files=0, rows=0, n_bytes=0), recorded(None, None, None, None)], ids=["zero", "none"]
)
def test_facts_without_figures_are_not_compared(facts):
    check_recorded(Warehouse("/w"), ONE, facts)


def test_an_empty_instance_has_the_figures_of_no_file():
    check_recorded(Warehouse("/w"), manifest_of(state=ManifestState.EMPTY), recorded("empty", 0, 0, 0))

    with pytest.raises(ManifestDiffers):
        check_recorded(Warehouse("/w"), ONE, recorded("empty", 0, 0, 0))


@pytest.fixture
def home(make_world, tmp_path):
    return Home(make_world(dataset("a"), dataset("b", "a")), Warehouse(str(tmp_path / "warehouse")))


@pytest.fixture
def emptied(home):
    """The uuid of a live instance whose manifest lists no file any longer."""
    uuid = home.live("a")
    manifest = read_manifest(home.warehouse, "a", uuid)
    path = home.warehouse.manifest_path("a", uuid)
    home.warehouse.storage.replace(path, manifest_text(msgspec.structs.replace(manifest, files=())).encode())
    return uuid


def test_every_reader_of_a_manifest_with_fewer_files_is_refused(home, emptied):
    queries = home.world.queries

    def readable():
        return readable_ref(queries, "a", NOW, lambda spec, key: None, allow_tainted=False)

    everything = partial(live_of_dataset, queries, "a", NOW, home.world.catalog.left_out)
    for reads in (readable, everything):
        with pytest.raises(DamagedData, match=f"a is damaged in instance {emptied}") as refusal:
            reads()
        assert "`databuild build --rebuild a` builds it again." in str(refusal.value)
    with pytest.raises(ManifestDiffers, match=emptied):
        manifests_in(home.warehouse, "a", list(queries.canonical.of(["a"]).values()))


def test_the_check_of_all_files_names_it_with_the_command_that_repairs_it(home, emptied):
    (fault,) = Comparison(home.world.queries).faults()

    assert (fault.ref, fault.uuid, fault.is_damage) == ("a", emptied, True)
    assert "is not the one that was recorded: it lists 0 files" in fault.sentence
    assert fault.sentence.endswith("`databuild build --rebuild a` builds it again.")


def test_a_job_run_that_reads_it_fails_by_the_fault_of_its_input(home, emptied):
    with pytest.raises(ManifestDiffers) as error:
        manifests_in(home.warehouse, "a", list(home.world.queries.canonical.of(["a"]).values()))

    assert damage_behind(home.world.queries, {"a": emptied}, str(error.value)).refs == ("a",)
