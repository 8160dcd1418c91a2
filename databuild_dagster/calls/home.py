"""The Dagster home that commands and functions work in: that of DAGSTER_HOME, or the project's own, which is made."""

from __future__ import annotations

from pathlib import Path

from databuild_dagster.data.home import HOME_VARIABLE, BadHome, named_home, project_home

#: Of a home without a project's dagster.yaml. Dagster's first page is not its invitation to a newsletter (`nux`). Idle sensors
#: write 60 MB of skipped ticks a day, which Dagster keeps for a week.
SETTINGS = """\
telemetry:
  enabled: false
nux:
  enabled: false

retention:
  sensor:
    purge_after_days: {skipped: 1}
"""


def the_home() -> tuple[Path, bool]:
    """The home, and whether it was made now. Raises `BadHome`."""
    if (named := named_home()) is not None:
        return named, False
    home = project_home()
    try:
        return home, _make(home)
    except OSError as error:
        raise BadHome(
            f"{home} cannot be made: {error.strerror}; set {HOME_VARIABLE} to a directory you can write to."
        ) from error


def _make(home: Path) -> bool:
    """True if it is new. Kept out of git by itself, and configured by the project's dagster.yaml, today's and tomorrow's."""
    is_new = not home.exists()
    home.mkdir(exist_ok=True)
    ignore = home / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    settings = home / "dagster.yaml"
    if not settings.exists() and not settings.is_symlink():
        of_project = home.parent / "dagster.yaml"
        if of_project.exists():
            settings.symlink_to(Path("..") / "dagster.yaml")
        else:
            settings.write_text(SETTINGS)
    return is_new
