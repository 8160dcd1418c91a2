"""The log moves between databases as a file: all of it, as it was, or nothing (rule 3.12)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from databuild_dagster.engine.migrating import migrate
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref
from databuild_dagster.store import log, schema, transfer
from databuild_dagster.store.check import check
from databuild_dagster.store.errors import ExportDamaged, ExportRefused, StoreNotEmpty
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store, open_store
from databuild_dagster.store.transfer import export_log, import_log
from tests.store.tables import rows_of
from tests.support import golden
from tests.support.catalog import HERE, dataset
from tests.support.postgres import postgres_server
from tests.support.world import COMPLETE, World

#: Each test opens the databases that it moves between.
DATABASES = ("sqlite",)


@pytest.fixture
def eventful(make_world, tmp_path: Path) -> World:
    """A store in a home, with a manifest inside of it, one elsewhere, and events of many types."""
    world = make_world(*(dataset(name) for name in "abc"), url=f"sqlite:///{tmp_path}/home/build.db")
    world.want("a", "b", priority=3)
    world.miss("a", "b")
    world.live("b", "a")
    world.arrive("c", f"{tmp_path}/home/drop/1")
    world.taint("a")
    world.pause("b")
    return world


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def new_store(home: Path):
    """An empty store of the home, whose file has another name than that of the original."""
    store = open_store(f"sqlite:///{home}/other.db")
    yield store
    store.close()


def n_events(store: Store) -> int:
    ((found,),) = store.ask(f"SELECT count(*) FROM {schema.events.name}")
    return int(found)


def test_sqlite_to_postgresql_and_back_is_the_same_log_and_the_same_tables(eventful, new_store, tmp_path) -> None:
    """Rule 3.12, and 3.10: PostgreSQL has the whole paths of manifests, and a home those inside it relative to itself."""
    server = postgres_server()
    postgres = open_store(url := server.fresh_url())
    first, second, third = (str(tmp_path / name) for name in ("first", "second", "third"))

    export_log(eventful.store, first)
    n = import_log(postgres, first)
    export_log(postgres, second)
    import_log(new_store, second)
    export_log(new_store, third)

    assert n == n_events(eventful.store)
    assert Path(first).read_bytes() == Path(second).read_bytes() == Path(third).read_bytes()
    assert rows_of(new_store) == rows_of(eventful.store)
    assert f"{tmp_path}/home/drop/1" in Path(first).read_text()
    assert check(postgres, deep=True) == check(new_store, deep=True) == []
    postgres.close()
    server.take_back(url)


@pytest.fixture
def returned(make_world, home: Path) -> World:
    """A store in a home: `b` has come back, and `c` was promoted, each with a manifest inside of the home."""
    specs = [replace(dataset("b", "a"), deterministic=True, code=CodeSpec(digest="1:4f2a"))]
    specs = [dataset("a"), *(replace(spec, code_version="1") for spec in specs), dataset("c")]
    world: World = make_world(*specs, url=f"sqlite:///{home}/build.db")
    world.live("a")
    for version in "12":
        specs[1] = replace(specs[1], code_version=version)
        world.handle(c.RegisterDatasets(location=HERE, datasets=tuple(specs)))
        world.handle(c.CreateWants(wants=(("b",),), fresh=True))
        manifest = replace(COMPLETE, uri=f"{home}/warehouse/b/{version}/manifest.json")
        made = OutputFact(Ref("b"), inputs={Ref("a"): world.uuid("a")}, code_version=version, manifest=manifest)
        world.handle(c.SucceedJobRuns(runs=(RunSuccess(world.job_run("b"), (made,)),)))
    world.handle(c.RegisterDatasets(location=HERE, datasets=(specs[0], replace(specs[1], code_version="1"), specs[2])))
    world.handle(c.CreateWants(wants=(("b",),), fresh=True))
    world.handle(c.ReturnInstances(refs=(c.Returnable(Ref("b"), (Ref("a"),), 0),)))
    born = replace(world.birth("c"), manifest=replace(COMPLETE, uri=f"{home}/environments/c/manifest.json"))
    world.handle(world.promotion(born))
    return world


def test_data_of_returned_and_promoted_instances_is_found_after_an_import(returned, new_store, file, tmp_path) -> None:
    """Rules 3.10, 4.9 and 16.10"""
    found = [f"{tmp_path}/home/warehouse/b/1/manifest.json", f"{tmp_path}/home/environments/c/manifest.json"]
    (tmp_path / "elsewhere").mkdir()
    elsewhere = open_store(f"sqlite:///{tmp_path}/elsewhere/build.db")

    export_log(returned.store, str(file))
    import_log(new_store, str(file))
    import_log(elsewhere, str(file))

    for store in (returned.store, new_store, elsewhere):
        canonical = Queries(store).canonical.of(["b", "c"])
        assert [canonical[ref].manifest_uri for ref in ("b", "c")] == found
    assert rows_of(new_store) == rows_of(returned.store)
    assert f'"uri":"{tmp_path}' not in str(returned.store.ask(f"SELECT payload FROM {schema.events.name}"))
    elsewhere.close()


@pytest.mark.parametrize("version", golden.versions())
def test_a_log_of_every_type_of_event_is_exported_and_imported_whole(tmp_path, file, new_store, version) -> None:
    """Rules 3.7 and 3.12: events of an older version keep their shape."""
    golden.restore(golden.read(version), tmp_path / "home" / "golden.db")
    older = Store(f"sqlite:///{tmp_path}/home/golden.db", check_projections=False)

    export_log(older, str(file))
    import_log(new_store, str(file))

    migrate(older, now=0.0, force=True)
    stored = f"SELECT seq, at, type, version, command_id, actor FROM {schema.events.name} ORDER BY seq"
    assert new_store.ask(stored) == older.ask(stored)
    assert rows_of(new_store) == rows_of(older)
    assert check(new_store) == []


def test_commands_go_on_after_an_import(eventful, file, new_store, home) -> None:
    export_log(eventful.store, str(file))
    import_log(new_store, str(file))
    went_on = World(url=f"sqlite:///{home}/other.db", first_id=10_000)

    went_on.want("c")

    assert n_events(went_on.store) > n_events(eventful.store)
    assert went_on.check() == []


def test_an_imported_log_is_another_store_and_owns_no_warehouse_yet(eventful, file, new_store) -> None:
    """Rule 3.11: until `log take-over` the markers of warehouses name the original."""
    export_log(eventful.store, str(file))

    import_log(new_store, str(file))

    assert new_store.identity().id != eventful.store.identity().id


def test_a_store_with_events_takes_no_import(eventful, file, make_world, home) -> None:
    export_log(eventful.store, str(file))
    other = make_world(dataset("a"), url=f"sqlite:///{home}/other.db")
    before = n_events(other.store)

    with pytest.raises(StoreNotEmpty, match="an import needs an empty one"):
        import_log(other.store, str(file))

    assert n_events(other.store) == before


def with_another_actor(lines: list[bytes]) -> list[bytes]:
    row = json.loads(lines[2])
    row[5] = "mallory"
    return [*lines[:2], json.dumps(row, separators=(",", ":")).encode() + b"\n", *lines[3:]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[:-1], "without its last line"),
        (lambda lines: lines[:3] + lines[4:], "line 4 has event 4 in place of 3"),
        (lambda lines: [*lines[:2], lines[2].replace(b'"', b"'"), *lines[3:]], "line 3 is no event"),
        (with_another_actor, "its last line does not fit the lines before it"),
        (lambda lines: [*lines, lines[1]], "its last line does not fit the lines before it"),
        (lambda lines: [b'{"databuild_log":99}\n', *lines[1:]], "a newer databuild_dagster wrote it"),
        (lambda lines: [b"\x89PNG\n"], "its first line is not that of `databuild log export`"),
        (lambda lines: [], "its first line is not that of `databuild log export`"),
    ],
)
def test_a_file_that_was_cut_or_changed_changes_nothing(
    eventful, file, new_store, change: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    export_log(eventful.store, str(file))
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))

    with pytest.raises(ExportDamaged) as refused:
        import_log(new_store, str(file))

    assert why in str(refused.value)
    assert n_events(new_store) == 0
    assert check(new_store) == []


def test_events_that_cannot_follow_one_another_change_nothing(file, new_store) -> None:
    """The digest of such a file may fit: its events are folded before anything is kept."""
    rewrite(file, [[1, 0.0, "NeverHeardOf", 1, "c", "a", '{"type":"NeverHeardOf"}']])

    with pytest.raises(IllegalMove, match="NeverHeardOf"):
        import_log(new_store, str(file))

    assert n_events(new_store) == 0


def rewrite(file: Path, events: list[list[object]]) -> None:
    """A file of these events, with the last line that fits them."""
    lines = [json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events]
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    end = json.dumps({"events": len(lines), "sha256": digest}).encode() + b"\n"
    file.write_bytes(b"".join([b'{"databuild_log":5}\n', *lines, end]))


def test_an_export_is_a_new_file_and_never_half_of_one(eventful, file, tmp_path) -> None:
    file.write_text("mine")

    with pytest.raises(ExportRefused, match="it exists already"):
        export_log(eventful.store, str(file))
    with pytest.raises(ExportRefused, match="No such file or directory"):
        export_log(eventful.store, str(tmp_path / "nowhere" / "log.jsonl"))
    with pytest.raises(ExportRefused, match="Not a directory"):
        export_log(eventful.store, str(file / "log.jsonl"))
    with pytest.raises(ExportRefused, match="File name too long"):
        export_log(eventful.store, str(tmp_path / ("x" * 250)))

    assert file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "log.jsonl"]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "pipe", "."])
def test_what_is_no_regular_file_is_refused_and_not_read(new_store: Store, tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ExportDamaged, match="a pipe, a device or a folder"):
        import_log(new_store, str(tmp_path / path))

    with new_store.reading() as connection:
        assert log.head(connection) == log.BEFORE_ALL


@pytest.mark.parametrize("begin", [b"", b'{"databuild_log":1}\n'])
def test_a_file_of_one_endless_line_is_refused_before_its_end(
    new_store: Store, file: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    """The rest of the file is a hole, so that it costs no disk."""
    monkeypatch.setattr(transfer, "MAX_LINE", 2**20)
    file.write_bytes(begin)
    os.truncate(file, 2**40)

    with pytest.raises(ExportDamaged, match="first line" if not begin else "a line of more than 1,048,576 bytes"):
        import_log(new_store, str(file))
