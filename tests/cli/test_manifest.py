"""`databuild show --manifest`, and the keys that other tools look at, from the command line (rule 10.2)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Project

REF = "orders@2024-01-29"


def keys(project: Project) -> list[str]:
    root = project.home / "warehouse"
    return sorted(str(path.relative_to(root)) for path in (root / "datasets").rglob("*") if path.is_file())


def copy_of(project: Project) -> Path:
    return project.home / "warehouse/datasets/name=orders/version=0/lot=20240129P1D000/state=complete/manifest.json"


@pytest.fixture
def built(shared_project: Project) -> Iterator[Project]:
    """The shared project with one ref built, for tests that record nothing."""
    if shared_project.n_events() == 0:
        shared_project.build(REF)
    with shared_project.recording_nothing():
        yield shared_project


def test_the_schema_is_there_without_a_home_or_a_project(project: Project) -> None:
    schema: Any = project.ask("show", "--manifest-schema")

    assert schema["$defs"]["Manifest"]["properties"]["schema_version"]["const"] == 1


def test_a_manifest_is_shown_by_its_ref_and_by_its_instance(built: Project) -> None:
    answer = built.ask("show", REF)["canonical"]

    by_ref: Any = built.ask("show", "--manifest", REF)

    assert by_ref == built.ask("show", "--manifest", answer["uuid"])
    assert (by_ref["instance_uuid"], by_ref["lot_id"], by_ref["state"]) == (
        answer["uuid"],
        "20240129P1D000",
        "complete",
    )
    whole: Any = built.ask("show", "--manifest", REF, "--whole")
    assert [file["uri"] for file in whole["files"]] == answer["files"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("orders@2024-02-03", "There is no instance of 'orders@2024-02-03'."),
        ("5e0002a1-0f3d-bd95-db63-b1ac4bedec0f", "There is no instance '5e0002a1-0f3d-bd95-db63-b1ac4bedec0f'."),
    ],
)
def test_a_name_without_a_manifest_is_refused_in_one_sentence(built: Project, name: str, words: str) -> None:
    done = built.call("show", "--manifest", name)

    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.feature("lots")
def test_a_build_has_its_copy_and_a_damaged_one_is_found_and_repaired(project: Project) -> None:
    project.build(REF)
    assert json.loads(copy_of(project).read_bytes()) == project.ask("show", "--manifest", REF, "--whole")
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}
    copy_of(project).write_bytes(b"{}")
    stray = copy_of(project).with_name("stray")
    stray.write_bytes(b"x")

    done = project.call("log", "check", "--deep", "--json")
    assert done.code == 1
    assert sorted((violation["invariant"], violation["entity"]) for violation in done.json["violations"]) == [
        ("rule 10.2", str(copy_of(project))),
        ("rule 10.2", str(stray)),
    ]
    assert "--repair-keys" in done.json["violations"][0]["detail"]

    assert project.ask("log", "check", "--repair-keys") == {
        "ok": True,
        "violations": [],
        "keys": {"written": 1, "removed": 1, "refs": 1},
    }
    assert (
        project.call("log", "check", "--repair-keys").out
        == "0 keys written, 0 removed, for 1 ref.\nNothing is wrong.\n"
    )
    assert keys(project) == [str(copy_of(project).relative_to(project.home / "warehouse"))]
