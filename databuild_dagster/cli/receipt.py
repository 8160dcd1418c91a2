"""`databuild receipt REF`: what a live instance was made of, complete enough to build it again and compare (rule 4.6)."""

from __future__ import annotations

import json
from typing import Final

import click

from databuild_dagster.cli.options import Selection, one_by_one, selection, tabular
from databuild_dagster.cli.output import CUT, emit, shows_wide, table
from databuild_dagster.cli.partitions import canonical_of
from databuild_dagster.cli.state import the_queries
from databuild_dagster.model.refs import Ref
from databuild_dagster.shapes.receipts import receipt_of
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.queries import Queries

#: Enough of a fingerprint to tell two apart by eye.
SHOWN_OF_CODE: Final = len("code-sha256:") + 12


@click.command()
@selection
@click.option("--instance", "uuid", metavar="UUID", help="Use this instance of REF instead of the canonical one.")
@tabular
def receipt(selection: Selection, uuid: str | None, as_json: bool) -> None:
    """Show what the instances of REFS were made of.

    That is every instance it was built from, directly or not, with code and environment, down to files from outside.
    """
    queries = the_queries()
    uuid = queries.full_id(IdKind.INSTANCE, uuid) if uuid else None
    for ref in one_by_one(selection.refs(queries), as_json=as_json, titled=True):
        _receipt(queries, ref, uuid, as_json=as_json)


def _receipt(queries: Queries, ref: Ref, uuid: str | None, *, as_json: bool) -> None:
    found = receipt_of(queries, ref, uuid or canonical_of(queries, ref).uuid)
    if as_json:
        emit(found)
        return
    columns = ("instance", "ref", "code version", "config", "job run", "live since", "rows", "files", "built from")
    rows = [
        (
            entry["uuid"],
            entry["ref"],
            entry["code_version"] or _fingerprint(entry["code"]),
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


def _fingerprint(code: str | None) -> str | None:
    return code if code is None or shows_wide() else f"{code[:SHOWN_OF_CODE]}{CUT}"
