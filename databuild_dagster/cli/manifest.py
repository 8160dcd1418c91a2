"""`databuild show --manifest`: what an instance holds, as its record says it, and what such a record may say (rule 10.2)."""

import json

import click

from databuild_dagster.cli.known_refs import canonical_of
from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import emit
from databuild_dagster.cli.state import the_queries, the_warehouse
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.refs import Ref, asset_of, parse_ref
from databuild_dagster.store.queries.ids import IdKind, may_be_id
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.errors import ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest, manifest_text, read_manifest, with_whole_uris


@click.command()
@common
def schema(as_json: bool) -> None:
    """Print the JSON schema of manifests.

    With --json on a single line.
    """
    from databuild_dagster.warehouse.manifest import shipped_schema

    _tell(shipped_schema(), as_json=as_json)


@click.command("show")
@click.argument("name", metavar="REF|UUID")
@click.option(
    "--whole", is_flag=True, help="Write every file as a whole path or url, as in the copies for other tools."
)
@common
def show(name: str, whole: bool, as_json: bool) -> None:
    """Print the manifest of REF, or of the instance UUID.

    Of REF: of the instance that readers see. With --json on a single line.
    """
    queries = the_queries()
    warehouse, found = _found(queries, *_instance(queries, name))
    _tell(manifest_text(with_whole_uris(warehouse, found) if whole else found), as_json=as_json)


def _tell(text: str, *, as_json: bool) -> None:
    """Print JSON: as it stands in its file, or as a single line for other programs."""
    emit(json.loads(text)) if as_json else click.echo(text, nl=False)


def _instance(queries: Queries, name: str) -> tuple[Ref, str, str | None]:
    """Its ref, its uuid, and where its manifest is known to be. Raises `NotFound`, `UnknownPartition`."""
    if may_be_id(name) and queries.datasets.get(name) is None:
        instance = queries.instances.get(queries.ids.full(IdKind.INSTANCE, name))
        assert instance is not None, "the lookup found it"
        return instance.ref, instance.uuid, instance.manifest_uri
    ref = parse_ref(name)
    canonical = canonical_of(queries, ref)
    if canonical.uuid is None:
        raise NotFound(kind="instance of", name=ref)
    return ref, canonical.uuid, canonical.manifest_uri


def _found(queries: Queries, ref: Ref, uuid: str, uri: str | None) -> tuple[Warehouse, Manifest]:
    """Of an instance that was never live the log does not say where it is. Raises what reading raises."""
    asset = asset_of(ref)
    if uri is not None:
        warehouse = Warehouse.of_manifest(uri, asset)
        return warehouse, read_manifest(warehouse, asset, uuid)
    from databuild_dagster.data.ownership import warehouses_of

    *others, last = warehouses_of(queries, the_warehouse())
    for warehouse in others:
        try:
            return warehouse, read_manifest(warehouse, asset, uuid)
        except ManifestMissing:
            continue
    return last, read_manifest(last, asset, uuid)
