"""`databuild log backup`: a sound copy of the build state while it is in use (rules 3)."""

from databuild_dagster.store.check import check
from databuild_dagster.store.store import open_store
from tests.cli.conftest import Project


def test_a_backup_is_a_sound_copy_and_never_replaces_a_file(known_project: Project) -> None:
    file = str(known_project.folder / "copy.db")

    answer = known_project.ask("log", "backup", file)
    again = known_project.call("log", "backup", file)

    assert answer == {"file": file, "events": known_project.n_events()}
    assert check(open_store(f"sqlite:///{file}"), deep=True) == []
    assert again.code == 2
    assert again.err == f"Error: The build state cannot be copied to {file}: File exists. " + (
        "Name a new file in a folder that you can write to.\n"
    )
