"""`databuild admin publish DATASET`: bring the table of a dataset up to the log by hand (rule 10.10)."""

import click

from databuild_dagster.cli.options import table_timeout, tabular
from databuild_dagster.cli.output import answer, count
from databuild_dagster.cli.state import the_engine, the_warehouse
from databuild_dagster.features.tables.errors import NotPublished
from databuild_dagster.features.tables.opening import place_of
from databuild_dagster.features.tables.port import within
from databuild_dagster.features.tables.publisher import Published
from databuild_dagster.features.tables.publisher import publish as publish_dataset
from databuild_dagster.model.errors import InvalidRequest


@click.command()
@click.argument("dataset", metavar="DATASET")
@click.option("--repair", is_flag=True, help="Compare all partitions; replace what another writer did.")
@click.option("--take-over", is_flag=True, help="Also a table of another build state, such as after a restore.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and commit nothing.")
@table_timeout
@tabular
def publish(dataset: str, repair: bool, take_over: bool, dry_run: bool, timeout: float | None, as_json: bool) -> None:
    """Bring the table of DATASET up to date by hand.

    Ticks publish without this command. The first publication lists every live partition. A later publication continues after the table's
    last snapshot. Nothing is copied, and no Spark starts.
    """
    if "@" in dataset:
        raise InvalidRequest(
            what="DATASET", value=dataset, why="a table has all partitions of a dataset; leave the key out"
        )
    engine = the_engine()
    spec = engine.queries.datasets.known(dataset)
    if not spec.table:
        raise NotPublished(asset=dataset)
    warehouse = the_warehouse()
    done = within(
        timeout,
        place_of(spec, warehouse),
        lambda: publish_dataset(engine, spec, warehouse, repair=repair, take_over=take_over, dry_run=dry_run),
    )
    answer(_as_json(done, dry_run=dry_run), _sentence(done, dry_run=dry_run), as_json=as_json)


def _as_json(done: Published, *, dry_run: bool) -> dict[str, object]:
    added, removed = (0, 0) if done.snapshot is None else (done.snapshot.files_added, done.snapshot.files_removed)
    return {
        "dataset": done.asset,
        "table": done.table,
        "seq": done.seq,
        "done": not dry_run,
        "snapshot": None if done.snapshot is None else done.snapshot.id,
        "files_added": added,
        "files_removed": removed,
    }


def _sentence(done: Published, *, dry_run: bool) -> str:
    if done.snapshot is None:
        return f"{done.table} is up to date: it holds up to seq {done.seq}."
    files = f"{count(done.snapshot.files_added, 'file')} added, {done.snapshot.files_removed} removed"
    if dry_run:
        return f"{done.table} would hold up to seq {done.seq}: {files}. Nothing was committed."
    return f"{done.table} holds up to seq {done.seq}: {files}, in snapshot {done.snapshot.id}."
