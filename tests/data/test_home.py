"""The same home gives the same store, whether Dagster is asked or only its files."""

from pathlib import Path

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.instance import engine_for, open_instance, store_url
from databuild_dagster.data.home import BadHome, existing_home, named_home, store_url_of_home
from databuild_dagster.store.backends.sqlite import SqliteDatabase
from databuild_dagster.store.errors import StoreInMemory
from databuild_dagster.store.store import database_of


def home_with(tmp_path: Path, settings: str) -> tuple[Path, dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text(settings)
    return tmp_path, dg.DagsterInstance.from_config(str(tmp_path))


def test_files_and_instance_agree_on_the_store(tmp_path: Path) -> None:
    home, instance = home_with(tmp_path, "telemetry: {enabled: false}\n")

    assert store_url_of_home(home) == store_url(instance) == f"sqlite:///{tmp_path}/databuild.db"


def test_the_store_of_a_home_is_inside_it_also_where_its_path_looks_escaped(tmp_path: Path) -> None:
    opened = database_of(store_url_of_home(tmp_path / "50%" / "a%20b") or "")

    assert isinstance(opened, SqliteDatabase)
    assert opened.path == f"{tmp_path}/50%/a%20b/databuild.db"


def test_a_home_that_dagster_would_take_for_another_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a%20b"
    home.mkdir()

    for named in (home, ""):
        monkeypatch.setenv("DAGSTER_HOME", str(named))
        monkeypatch.chdir(home)
        with pytest.raises(BadHome, match=r"has an escape such as %20.* keep its files in .*/a b"):
            existing_home()
    with pytest.raises(BadHome, match="use a path without a percent sign"):
        existing_home(home)


def test_a_home_whose_path_this_process_cannot_read_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As Python has a name in Latin-1, and where the locale is C one in UTF-8."""
    home = tmp_path / "caf\udce9"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))

    with pytest.raises(BadHome, match=r"caf.* no UTF-8 to this process; set LC_ALL=C.UTF-8, or rename"):
        named_home()


def test_a_configured_storage_is_left_to_dagster_to_tell(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    home, instance = home_with(tmp_path, f"storage: {{sqlite: {{base_dir: {elsewhere}}}}}\n")

    assert store_url_of_home(home) is None
    assert store_url(instance) == f"sqlite:///{elsewhere}/databuild.db"


def test_settings_that_are_no_yaml_are_a_bad_home(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("since: 2024-02-30\n")

    with pytest.raises(BadHome, match=r"dagster.yaml cannot be read as YAML: .*; correct it"):
        store_url_of_home(tmp_path)


@pytest.mark.parametrize(
    "settings", ["storage: {nothing: {}}", "run_coordinator: 3", "instance_class: {module: x, class: y}"]
)
def test_settings_that_dagster_refuses_are_a_bad_home(tmp_path: Path, settings: str) -> None:
    (tmp_path / "dagster.yaml").write_text(settings)

    with pytest.raises(BadHome, match=r"dagster.yaml cannot be used by Dagster: .*; correct it"):
        open_instance(tmp_path)


def test_the_variable_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, instance = home_with(tmp_path, "")
    monkeypatch.setenv("DATABUILD_DB_URL", "sqlite:////elsewhere/databuild.db")

    assert store_url_of_home(home) == store_url(instance) == "sqlite:////elsewhere/databuild.db"


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite://", "sqlite://?x=1"]
)
def test_a_store_that_would_vanish_with_its_process_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    home, instance = home_with(tmp_path, "")
    monkeypatch.setenv("DATABUILD_DB_URL", url)

    with pytest.raises(StoreInMemory, match="lost with the process"):
        store_url_of_home(home)
    with pytest.raises(StoreInMemory, match="leave it unset"):
        store_url(instance)


def test_an_ephemeral_instance_has_a_store_of_its_own() -> None:
    one, other = dg.DagsterInstance.ephemeral(), dg.DagsterInstance.ephemeral()

    assert store_url(one) == "sqlite://"
    assert engine_for(one) is engine_for(one)
    assert engine_for(one) is not engine_for(other)


def test_every_public_name_is_there() -> None:
    import databuild_dagster

    assert all(getattr(databuild_dagster, name) is not None for name in databuild_dagster.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = databuild_dagster.nothing
