"""Copies for other tools after a correction from the command line (rule 10.2)."""

from __future__ import annotations

from tests.support.project import Project

REF = "orders@2024-01-29"


def states(project: Project) -> list[str]:
    """The states under which other tools find the lot."""
    found = (project.home / "warehouse" / "datasets").glob("name=orders/*/lot=*/state=*/manifest.json")
    return [path.parent.name for path in found]


def test_a_correction_replaces_the_copies_at_once_where_no_orchestrator_ticks(project: Project) -> None:
    project.build(REF)
    first = project.ask("show", REF)["canonical"]["uuid"]
    assert states(project) == ["state=complete"]

    taint = project.ask("taint", REF, "--reason", "twice the rows")
    assert states(project) == []

    project.ask("untaint", taint["taint_id"])
    assert states(project) == ["state=complete"]

    project.build(REF, "--rebuild")
    project.ask("revert", REF, "--to", first)
    (manifest,) = (project.home / "warehouse" / "datasets").rglob("state=complete/manifest.json")
    assert first in manifest.read_text()
