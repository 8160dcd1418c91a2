"""`databuild log export --database` and `log take-over`: copies of the build state, and the one that owns the warehouses (rules 3)."""

from pathlib import Path

import pytest

from databuild_dagster import feature
from databuild_dagster.calls.contributions import Check, Checked, Repaired
from databuild_dagster.data.ownership import marker_of
from databuild_dagster.store.invariants import Violation
from databuild_dagster.store.store import open_store
from databuild_dagster.warehouse.layout import Warehouse
from tests.support.checking import check
from tests.support.project import Project


def test_a_backup_is_a_sound_copy_and_never_replaces_a_file(known_project: Project) -> None:
    file = str(known_project.folder / "copy.db")

    answer = known_project.ask("log", "export", "--database", file)
    again = known_project.call("log", "export", "--database", file, "--json")

    assert answer == {"file": file, "events": known_project.n_events()}
    assert check(open_store(f"sqlite:///{file}"), deep=True) == []
    assert (again.code, again.json["error"]["type"]) == (2, "BackupRefused")


def test_a_check_of_damaged_tables_names_the_command_that_computes_them_again(known_project: Project) -> None:
    """Rule 3.5"""
    with open_store(f"sqlite:///{known_project.home}/databuild.db").writing() as work:
        work.connection.execute("UPDATE databuild_datasets SET location = 'elsewhere'")

    found = known_project.call("log", "check")

    assert (found.code, "`databuild log rebuild` computes the tables again" in found.out) == (1, True), found
    assert (known_project.call("log", "rebuild").code, known_project.call("log", "check").code) == (0, 0)


def test_a_take_over_shows_the_place_first_and_gives_a_new_id_with_yes(known_project: Project, tmp_path: Path) -> None:
    """Rule 3.11"""
    store, root = open_store(f"sqlite:///{known_project.home}/databuild.db"), str(tmp_path / "bucket")
    before = store.identity()

    shown = known_project.ask("log", "take-over", root)
    unchanged = store.identity()
    done = known_project.ask("log", "take-over", root, "--yes")

    after = store.identity()
    assert shown["roots"] == done["roots"] == [{"root": root, "before": None, "why_not": None}]
    assert unchanged == before
    assert (done["done"], done["place"], done["recorded_place"]) == (True, before.here, before.place)
    assert after.id != before.id
    assert marker_of(Warehouse(root)) == (after.id, after.here)


def test_checks_of_features_are_made_with_deep_and_repaired_first(
    known_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def find(checked: Checked) -> list[Violation]:
        calls.append("find")
        return [Violation("rule 99", "shelf", f"it is missing in {checked.warehouse()}")]

    def repair(checked: Checked) -> Repaired:
        calls.append("repair")
        return Repaired("shelf", {"put": 1}, "1 shelf put up.")

    row = feature.Feature(
        package="shelf", summary="Shelves.", checks=feature.Column(given=(Check("shelves", find, repair),))
    )
    every = (*feature.features(), row)
    monkeypatch.setattr(feature, "features", lambda: every)

    shallow = known_project.call("log", "check")
    found = known_project.call("log", "check", "--deep", "--repair-keys", "--json")

    assert shallow.code == 0
    assert (found.code, found.json["shelf"]) == (1, {"put": 1})
    warehouse = known_project.home / "warehouse"
    assert found.json["violations"] == [
        {"invariant": "rule 99", "entity": "shelf", "detail": f"it is missing in {warehouse}"}
    ]
    assert calls == ["repair", "find"]
