"""`databuild receipt REF`: what a live instance was made of, complete enough to build it again and compare (rule 4.6)."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from databuild_dagster.cli.options import Selection, one_by_one, selection, tabular
from databuild_dagster.cli.output import CUT, emit, shows_wide, table
from databuild_dagster.cli.partitions import canonical_of
from databuild_dagster.cli.state import the_queries
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import MadeWith
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.shapes.fields import picked, when
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import read_manifest

#: Enough of a fingerprint to tell two apart by eye.
SHOWN_OF_CODE: Final = len("code-sha256:") + 12


class NoReceipt(Refused):
    """{ref} has no instance{which} that was ever live, so there is nothing to account for."""

    hint = "`databuild history {ref}` lists what it has."


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
    uuid = uuid or canonical_of(queries, ref).uuid
    lineage = queries.lineage(uuid) if uuid is not None else []
    if not lineage or all(entry.uuid != uuid or entry.ref != ref or entry.live_at is None for entry in lineage):
        raise NoReceipt(ref=ref, which="" if uuid is None else f" {uuid}")
    made_with = queries.made_with(entry.uuid for entry in lineage)
    entries = [_entry(queries, entry, made_with.get(entry.uuid)) for entry in lineage]
    if as_json:
        emit({"ref": ref, "uuid": uuid, "instances": entries})
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
        for entry in reversed(entries)
    ]
    table(columns, rows, empty="", wide_only=("config", "job run", "live since"))


def _fingerprint(code: str | None) -> str | None:
    return code if code is None or shows_wide() else f"{code[:SHOWN_OF_CODE]}{CUT}"


def _entry(queries: Queries, instance: Instance, made_with: MadeWith | None) -> dict[str, Any]:
    """An instance that no launch built, or an older version did, has no record of code and environment: null."""
    job_run = queries.job_run(instance.job_run)
    manifest = None
    if instance.manifest_uri is not None:
        asset = asset_of(instance.ref)
        manifest = read_manifest(Warehouse.of_manifest(instance.manifest_uri, asset), asset, instance.uuid)
    return {
        **picked(instance, "uuid", "ref", "state", "code_version", "job_run"),
        **{name: getattr(made_with, name, None) for name in ("code", "config", "tags", "versions")},
        "job": job_run.job if job_run else None,
        "dagster_run_id": job_run.dagster_run_id if job_run else None,
        "live_since": when(instance.live_at),
        "inputs": list(instance.inputs),
        "origin": None if manifest else "outside",
        "rows": manifest.rows if manifest else None,
        "schema": [[column.name, column.type] for column in manifest.schema.columns] if manifest else None,
        "files": [picked(file, "uri", "bytes", "rows", "checksum") for file in manifest.files] if manifest else [],
        "manifest": instance.manifest_uri,
    }
