"""`databuild show --full REF`: what a live instance was made of, complete enough to build it again and compare (rule 4.6)."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import click

from databuild_dagster.cli.known_refs import canonical_of
from databuild_dagster.cli.options import Selection, one_by_one, selection, tabular
from databuild_dagster.cli.output import emit, shows_wide, table
from databuild_dagster.cli.state import the_engine, the_warehouse
from databuild_dagster.engine.wording import json_of
from databuild_dagster.features.compare.receipts import receipt_of
from databuild_dagster.features.tables.port import RECEIPT_SECONDS
from databuild_dagster.features.tables.receipts import InTable, in_tables, tag_snapshot
from databuild_dagster.model.datasets import TableFormat
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.records import CUT
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

#: Enough of a digest to tell two apart by eye, after the name of its rules.
SHOWN_OF_CODE: Final = 12
_A_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@click.command()
@selection
@click.option("--instance", "uuid", metavar="UUID", help="Use this instance of REF instead of the canonical one.")
@click.option("--tag", metavar="NAME", help="Keep the snapshot of its table under this name (Iceberg).")
@tabular
def receipt(selection: Selection, uuid: str | None, tag: str | None, as_json: bool) -> None:
    """Show what the instances of REFS were made of.

    The receipt lists every instance behind the instance, directly or not, with code and environment, down to files from outside.
    If a dataset is published as a table, the receipt also names the table's newest snapshot that holds the instance.
    """
    engine = the_engine()
    queries = engine.queries
    uuid = queries.ids.full(IdKind.INSTANCE, uuid) if uuid else None
    refs = selection.refs(queries)
    if tag is not None:
        _check_tag(tag, refs)
    for ref in one_by_one(refs, as_json=as_json, titled=True):
        _receipt(engine.store, ref, uuid, tag, as_json=as_json)


def _check_tag(tag: str, refs: Collection[Ref]) -> None:
    if not _A_TAG.fullmatch(tag):
        why = "a tag has letters, digits, '.', '_' and '-', and begins with a letter or digit"
        raise InvalidRequest(what="--tag", value=tag, why=why)
    if len(refs) != 1:
        raise InvalidRequest(what="--tag", value=tag, why="a tag names one snapshot; name one REF")


def _receipt(store: Store, ref: Ref, uuid: str | None, tag: str | None, *, as_json: bool) -> None:
    queries = Queries(store)
    found = json_of(receipt_of(queries, ref, uuid or canonical_of(queries, ref).uuid))
    if tag is not None:
        dataset = queries.datasets.known(asset_of(ref))
        tag_snapshot(store, dataset, the_warehouse(), found["uuid"], ref, tag, seconds=RECEIPT_SECONDS)
    refs = {entry["uuid"]: entry["ref"] for entry in found["instances"]}
    tables = _tables(store, refs)
    if as_json:
        entries = [entry | {"table": _table_as_json(tables.get(entry["uuid"]))} for entry in found["instances"]]
        emit(found | {"instances": entries})
        return
    columns = ("instance", "ref", "code version", "config", "job run", "live since", "rows", "files", "built from")
    rows = [
        (
            entry["uuid"],
            entry["ref"],
            entry["code_version"] or _shown_code(entry["code"]),
            json.dumps(entry["config"]) if entry["config"] else None,
            entry["job_run"],
            entry["live_since"],
            entry["rows"],
            len(entry["files"]),
            len(entry["inputs"]) or entry["origin"],
        )
        for entry in reversed(found["instances"])
    ]
    table(columns, rows, empty="", wide_only=("config", "job run", "live since"))
    for entry in reversed(found["instances"]):
        if entry["unknown"]:
            click.echo(f"The code of {entry['ref']} is unknown, because {few_of(entry['unknown'])}.")
    for entry in reversed(found["instances"]):
        if entry["rows_of"]:
            click.echo(f"{entry['uuid']} of {entry['ref']} has the rows of {entry['rows_of']}.")
        if entry["equal_inputs"]:
            inputs = few_of(list(dict.fromkeys(one["ref"] for one in entry["equal_inputs"])))
            click.echo(f"No build of {entry['ref']} follows {inputs}, which got equal rows again.")
    for entry_uuid, entry_ref in reversed(refs.items()):
        if (in_table := tables.get(entry_uuid)) is not None:
            click.echo(_table_sentence(entry_ref, in_table))


def _tables(store: Store, refs: Mapping[str, Ref]) -> dict[str, InTable]:
    datasets = Queries(store).datasets.all()
    if not any(spec.table for spec in datasets.values()):
        # The warehouse of some homes is known to Dagster alone, whose import takes seconds.
        return {}
    return in_tables(store, the_warehouse(), refs, seconds=RECEIPT_SECONDS)


def _table_sentence(ref: Ref, found: InTable) -> str:
    if found.snapshot is None:
        return f"{ref} is in no snapshot of the table {found.table}: {(found.why or '').rstrip('.')}."
    name = "version" if found.format == TableFormat.DELTA else "snapshot"
    tags = f", tagged {', '.join(found.tags)}" if found.tags else ""
    return f"{ref} is in {name} {found.snapshot} of the table {found.table}, which holds up to seq {found.seq}{tags}."


def _table_as_json(found: InTable | None) -> dict[str, Any] | None:
    """Null for a dataset that is published as no table; `snapshot` is null, with the reason, where none is known to hold it."""
    if found is None:
        return None
    own = {"name": found.table, "format": found.format, "snapshot": found.snapshot}
    return own | {"seq": found.seq, "tags": found.tags, "why": found.why}


def _shown_code(code: str | None) -> str | None:
    rules, colon, digest = (code or "").partition(":")
    return code if not colon or shows_wide() else f"{rules}:{digest[:SHOWN_OF_CODE]}{CUT}"
