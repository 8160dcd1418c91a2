"""The materializations and observations of instances: metadata for people, versions for Dagster's own staleness.

The data version of an instance is the uuid of the first instance with its rows (rule 4.8). For each input the tags have
the version that was read, and the newest event that Dagster had for it. So a rebuilt input with other rows makes an
instance stale, and a repeated event for the same input does not.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    NULL_EVENT_POINTER,
    extract_data_version_from_entry,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
    get_tags_from_multi_partition_key,
)
from databuild_dagster.bindings.adapter.event_batches import report_materializations
from databuild_dagster.bindings.adapter.keys import asset_key, asset_text
from databuild_dagster.bindings.claims.results import Built, BuiltOutput
from databuild_dagster.bindings.declare.settings import shown_of
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.registration import dagster_partition
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import pages_root
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.warehouse.files import sample_rows
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import TableSchema as WrittenSchema

#: The metadata with the link to the page of an instance.
PAGE: Final = "databuild/page"

_log = logger(__name__)

#: Refs of a step that have columns and a sample: Dagster takes 2 ms longer to write 20 columns. Beyond that, of the refs
#: reported together only the last has them, which the asset's own page shows.
MAX_DETAILED = 50
#: Characters of a value in a sample.
MAX_CELL = 80
#: How long the newest events of the inputs are cached.
POINTERS_SECONDS = 1.0


class Describer:
    """Metadata and tags for everything that a step builds."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        engine: Engine,
        warehouse: Warehouse,
        datasets: Mapping[str, DatasetSpec],
        *,
        sample_rows: int,
    ) -> None:
        self._context = context
        self._instance = context.instance
        self._graph = context.job_def.asset_layer.asset_graph
        self._engine = engine
        self._warehouse = warehouse
        # A table without a warehouse of its own is in the home's.
        home = warehouse_of(context.instance)
        self._of_settings = {asset: shown_of(dataset, home) for asset, dataset in datasets.items()}
        self._sample_rows = sample_rows
        self._details_left = MAX_DETAILED
        self._schemas: dict[WrittenSchema, dg.TableSchema] = {}
        self._pointers: dict[dg.AssetKey, int | None] = {}
        self._pointers_until = 0.0
        self._plain_versions: dict[dg.AssetKey, str | None] = {}

    # For people

    def metadata(self, built: Sequence[Built]) -> dict[Ref, dict[str, Any]]:
        """The metadata of each built ref, by ref."""
        outputs = [output for success in built for output in success.outputs]
        origins = self._engine.queries.wants.origins(output.manifest.instance_uuid for output in outputs)
        last = {output.manifest.dataset: output.fact.ref for output in outputs}
        found = {}
        for success in built:
            for output in success.outputs:
                manifest = output.manifest
                origin = origins[manifest.instance_uuid]
                metadata: dict[str, Any] = {
                    **page_metadata(self._engine, output.fact.ref, manifest.instance_uuid),
                    "databuild/instance": manifest.instance_uuid,
                    "databuild/job_run": success.run.id,
                    "dagster/row_count": manifest.rows,
                    "databuild/bytes": manifest.bytes,
                    "databuild/files": len(manifest.files),
                    "databuild/manifest": dg.MetadataValue.path(output.uri),
                    "databuild/wants": origin.wants,
                    **self._of_settings.get(manifest.dataset, {}),
                }
                if origin.seconds is not None:
                    # Since the start of its launch: the job runs of a launch begin together.
                    metadata["databuild/seconds"] = round(origin.seconds, 3)
                if self._details_left > 0 or last[manifest.dataset] == output.fact.ref:
                    self._details_left -= 1
                    metadata |= self._details(output)
                found[output.fact.ref] = {**metadata, **output.metadata}
        return found

    def _details(self, output: BuiltOutput) -> dict[str, Any]:
        details: dict[str, Any] = {"dagster/column_schema": self._schema(output.manifest.schema)}
        if (sample := self._sample(output)) is not None:
            details["databuild/sample"] = dg.MetadataValue.md(sample)
        return details

    def _schema(self, written: WrittenSchema) -> dg.TableSchema:
        if written not in self._schemas:
            self._schemas[written] = dg.TableSchema(
                columns=[
                    dg.TableColumn(
                        column.name, column.type, constraints=dg.TableColumnConstraints(nullable=column.nullable)
                    )
                    for column in written.columns
                ]
            )
        return self._schemas[written]

    def _sample(self, output: BuiltOutput) -> str | None:
        if not self._sample_rows or not output.manifest.rows:
            return None
        try:
            rows = sample_rows(self._warehouse, output.manifest, self._sample_rows)
        except (OSError, ValueError, DatabuildError) as error:
            # The partition is live without a sample.
            self._context.log.debug(f"{output.fact.ref} has no sample: {error}")
            return None
        return None if rows is None else markdown_table(rows)

    # For Dagster

    def tags(
        self, ref: Ref, uuid: str, inputs: Mapping[Ref, str], partition: str | None, first: Mapping[str, str]
    ) -> dict[str, str]:
        """The versions of an instance and of its inputs, given as input ref to uuid. `first` is as of `first_with_rows`."""
        spec = self._context.assets_def.specs_by_key[asset_key(asset_of(ref))]
        # Dagster, too, uses the run where an asset has no code version.
        tags = {
            **version_tags(first.get(uuid, uuid), partition),
            CODE_VERSION_TAG: spec.code_version or self._context.run.run_id,
        }
        used: dict[str, list[str]] = {}
        for input_ref, input_uuid in inputs.items():
            used.setdefault(asset_of(input_ref), []).append(first.get(input_uuid, input_uuid))
        deps = [dep.asset_key for dep in spec.deps]
        pointers = self._pointers_of(deps)
        for dep in deps:
            tags[get_input_data_version_tag(dep)] = self._input_version(dep, used.get(asset_text(dep), []))
            pointer = pointers.get(dep)
            tags[get_input_event_pointer_tag(dep)] = NULL_EVENT_POINTER if pointer is None else str(pointer)
        return tags

    def _input_version(self, dep: dg.AssetKey, uuids: list[str]) -> str:
        if dep not in self._plain_versions:
            self._plain_versions[dep] = self._plain_version(dep)
        if (version := self._plain_versions[dep]) is not None:
            return version
        # Dagster compares it only for unpartitioned inputs, which have one.
        return uuids[0] if len(uuids) == 1 else sha256("".join(sorted(uuids)).encode()).hexdigest()

    def _plain_version(self, dep: dg.AssetKey) -> str | None:
        """Dagster's own version of an unpartitioned plain asset; None for ours and for partitioned assets."""
        if self._graph.has(dep) and self._graph.get(dep).is_partitioned:
            return None
        dataset = self._engine.queries.datasets.get(asset_text(dep))
        if dataset is not None and not dataset.kind.is_foreign:
            return None
        record = self._instance.get_latest_data_version_record(dep)
        version = None if record is None else extract_data_version_from_entry(record.event_log_entry)
        return None if version is None else version.value

    def _pointers_of(self, deps: Iterable[dg.AssetKey]) -> Mapping[dg.AssetKey, int | None]:
        """Read as late as possible: an input may be reported to Dagster only after the step began."""
        missing = [dep for dep in deps if dep not in self._pointers]
        now = time.monotonic()
        if missing or now > self._pointers_until:
            keys = list(dict.fromkeys([*self._pointers, *missing]))
            if keys:
                self._pointers = {
                    **dict.fromkeys(keys),
                    **self._instance.event_log_storage.get_latest_materialization_storage_ids(keys),
                }
            self._pointers_until = now + POINTERS_SECONDS
        return self._pointers


def _version_of(engine: Engine, uuid: str) -> str:
    """The data version of an instance: the first instance with its rows."""
    return engine.queries.instances.first_with_rows([uuid]).get(uuid, uuid)


def version_tags(version: str, partition: str | None) -> dict[str, str]:
    """The tags of a data version for Dagster, and the dimensions of the partition key."""
    dimensions = get_tags_from_multi_partition_key(partition) if isinstance(partition, dg.MultiPartitionKey) else {}
    return {DATA_VERSION_TAG: version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true", **dimensions}


class Served(NamedTuple):
    """The live instance that answers for a ref, its job run, and its Dagster run, if there was one."""

    uuid: str
    job_run: str
    dagster_run_id: str | None = None


def event_of(engine: Engine, ref: Ref, partition: str | None, served: Served) -> dict[str, Any]:
    """The arguments of an event for a live instance: its data version, and a link to the Dagster run that built it.

    An observation does not count as a build; readers such as a backfill accept only a repeated materialization.
    """
    metadata: dict[str, Any] = {
        **page_metadata(engine, ref, served.uuid),
        "databuild/instance": served.uuid,
        "databuild/delegated": True,
        "databuild/job_run": served.job_run,
    }
    if served.dagster_run_id is not None:
        metadata["databuild/served_by"] = dg.MetadataValue.dagster_run(served.dagster_run_id)
    return {
        "asset_key": asset_key(asset_of(ref)),
        "partition": partition,
        "metadata": metadata,
        "tags": version_tags(_version_of(engine, served.uuid), partition),
    }


class LiveRef(NamedTuple):
    """A ref that became live without a step of Dagster, and why."""

    ref: Ref
    uuid: str
    rows: int | None
    why: str | None


def report_live(instance: dg.DagsterInstance, datasets: Iterable[DatasetSpec], live: Sequence[LiveRef]) -> None:
    """Materialize live refs of `datasets` in Dagster, without a run and in batches."""
    report_materializations(instance, live_events(engine_for(instance), datasets, live))


def live_events(
    engine: Engine, datasets: Iterable[DatasetSpec], live: Sequence[LiveRef], **tags: str
) -> list[dg.AssetMaterialization]:
    """The materializations of live refs of `datasets` without a run, each with these tags, too."""
    specs = {dataset.asset: dataset for dataset in datasets}
    first = engine.queries.instances.first_with_rows(one.uuid for one in live) if live else {}
    events = []
    for ref, uuid, rows, why in live:
        partition = dagster_partition(specs[asset_of(ref)].partitions, partition_key_of(ref))
        metadata = {**page_metadata(engine, ref, uuid), "databuild/instance": uuid, "dagster/row_count": rows}
        events.append(
            dg.AssetMaterialization(
                asset_key=asset_key(asset_of(ref)),
                partition=partition,
                description=why,
                metadata=metadata,
                tags={**version_tags(first.get(uuid, uuid), partition), **tags},
            )
        )
    return events


def unseen(instance: dg.DagsterInstance, events: Iterable[dg.AssetMaterialization]) -> list[dg.AssetMaterialization]:
    """The events without those whose data version is that of the newest materialization in Dagster."""
    by_asset: dict[dg.AssetKey, list[dg.AssetMaterialization]] = {}
    for event in events:
        by_asset.setdefault(event.asset_key, []).append(event)
    newest = {key: _newest_versions(instance, key, of_asset) for key, of_asset in by_asset.items()}
    return [
        event
        for key, of_asset in by_asset.items()
        for event in of_asset
        if newest[key].get(event.partition) != (event.tags or {})[DATA_VERSION_TAG]
    ]


def _newest_versions(
    instance: dg.DagsterInstance, key: dg.AssetKey, events: Sequence[dg.AssetMaterialization]
) -> dict[str | None, str | None]:
    partitions = [event.partition for event in events if event.partition is not None]
    if partitions:
        kind = dg.DagsterEventType.ASSET_MATERIALIZATION
        tags = instance.event_log_storage.get_latest_tags_by_partition(key, kind, [DATA_VERSION_TAG], partitions)
        return {partition: of_one.get(DATA_VERSION_TAG) for partition, of_one in tags.items()}
    last = instance.get_latest_materialization_event(key)
    shown = None if last is None else last.asset_materialization
    return {None: None if shown is None else (shown.tags or {}).get(DATA_VERSION_TAG)}


def shown_keys(instance: dg.DagsterInstance, asset: str, keys: Iterable[str | None]) -> set[str | None]:
    """The partition keys of `keys` that Dagster shows as materialized; None is the key of an unpartitioned asset."""
    asked, key = set(keys), asset_key(asset)
    if asked != {None}:
        return asked & instance.get_materialized_partitions(key)
    return asked if instance.get_latest_materialization_event(key) is not None else set()


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table, each value on a single line."""
    columns = list(rows[0]) if rows else []
    lines = [columns, ["---"] * len(columns), *([row[column] for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: Any) -> str:
    text = f"{len(value)} bytes" if isinstance(value, bytes) else " ".join(str(value).split())
    text = text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
    # An image in a cell would be fetched from its host when a person opens the page.
    return re.sub(r"([\\|!\[\]<>`*_])", r"\\\1", text)


def page_metadata(engine: Engine, ref: Ref, uuid: str | None = None) -> dict[str, dg.UrlMetadataValue]:
    """The link to a partition or its instance, as metadata of an event in Dagster; empty while no web server has pages.

    A web server announces its pages in the store (decision 0051).
    """
    try:
        root = pages_root(engine)
    except DatabuildError as error:
        # A partition must not fail because of a link.
        log_failure(_log, "Dagster gets no links to the pages of databuild", error)
        return {}
    return {} if root is None else {PAGE: dg.MetadataValue.url(page_of(root, ref, uuid))}


def page_of(root: str, ref: Ref, uuid: str | None) -> str:
    """The page of a partition, with the chosen instance, on the web server whose pages are at the path `root`."""
    query = {"ref": ref} if uuid is None else {"ref": ref, "instance": uuid}
    return f"{root}/partition?{urlencode(query, quote_via=quote)}"
