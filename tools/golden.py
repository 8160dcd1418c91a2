"""Records the golden log of a version: its events and the tables it computes, which every later version must agree with.

python -m tools.golden                                  runs the story with today's code, under the version of version.py
python -m tools.golden --from build.db --version 1.2    records a database that another version's code has written
python -m tools.golden --home HOME --version 1.2        records a home that another version's code has made, with its warehouse

A recording is never changed. tests/golden/README.md says when to make one.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import click

from databuild_dagster.model.events import EVENT_TYPES
from databuild_dagster.version import __version__
from tests.support import golden, story
from tests.support.world import World


def present_version() -> str:
    return __version__


def tell(database: Path) -> None:
    """Run the story with today's code. It must contain every event type and end without a violation."""
    world = World(story.DATASETS, url=f"sqlite:///{database}")
    story.tell(world)
    lacking = {str(cls.__struct_config__.tag) for cls in EVENT_TYPES}.difference(world.log())
    found = world.check()
    world.store.close()
    if lacking or found:
        raise click.ClickException(f"The story lacks {sorted(lacking)}, or ends with violations: {found}.")


@click.command(help=__doc__)
@click.option("--from", "database", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--home", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--version", help="The version whose code wrote it; today's if it is left out.")
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), default=golden.HERE, show_default=True)
def main(database: Path | None, home: Path | None, version: str | None, into: Path) -> None:
    name = version or present_version()
    if home is not None:
        database, into = home / "databuild.db", into / golden.HOMES
    if (into / name).exists():
        raise click.ClickException(
            f"The golden log of {name} exists and stays as it is: raise the version in version.py first."
        )
    with tempfile.TemporaryDirectory() as folder:
        if database is None:
            database = Path(folder) / "build.db"
            tell(database)
        recorded = golden.record(database, name, into)
        if home is not None:
            shutil.copytree(home / "warehouse", recorded / "warehouse")
        print(f"Recorded {recorded}.")


if __name__ == "__main__":
    sys.exit(main())
