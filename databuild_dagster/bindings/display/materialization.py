"""What a materialization says of an instance: its metadata for people, its versions for Dagster's own staleness.

The data version of an instance is its uuid. Of its inputs it says which versions it was made of, and up to which event
Dagster had been told of them; so an input that is built anew makes it stale, and one that is only told of again does not.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    MetadataValue,
    MultiPartitionKey,
    TableColumn,
    TableColumnConstraints,
    TableSchema,
)

from databuild_dagster.bindings.adapter.asset_keys import asset_key, asset_text
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
from databuild_dagster.bindings.claims.results import Built, BuiltOutput
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import asset_of
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import TableSchema as WrittenSchema
from databuild_dagster.warehouse.samples import first_rows

#: Refs of one step that are described with columns and a sample: Dagster takes 2 ms longer to write 20 columns down, and
#: nobody looks at a thousand partitions. Beyond that only the last of those that are told together, which is the one that
#: the asset's own page shows.
MAX_DETAILED = 50
#: Characters of one value in a sample.
MAX_CELL = 80
#: How long an answer about how far Dagster has been told of the inputs is good.
POINTERS_SECONDS = 1.0


class Describer:
    """Describes what one step builds."""

    def __init__(
        self, context: AssetExecutionContext, engine: Engine, warehouse: Warehouse, *, sample_rows: int
    ) -> None:
        self._context = context
        self._instance = context.instance
        self._graph = context.job_def.asset_layer.asset_graph
        self._engine = engine
        self._warehouse = warehouse
        self._sample_rows = sample_rows
        self._details_left = MAX_DETAILED
        self._schemas: dict[WrittenSchema, TableSchema] = {}
        self._pointers: dict[AssetKey, int | None] = {}
        self._pointers_until = 0.0
        self._plain_versions: dict[AssetKey, str | None] = {}

    # For people

    def metadata(self, built: Sequence[Built]) -> dict[str, dict[str, Any]]:
        """What is to be known of each ref that was built, by ref."""
        runs = self._engine.queries.job_runs_named(each.run.id for each in built)
        wants = self._engine.queries.wants_served_by(output.instance.uuid for each in built for output in each.outputs)
        last = {output.instance.asset: output.fact.ref for each in built for output in each.outputs}
        found = {}
        for each in built:
            run = runs[each.run.id]
            for output in each.outputs:
                instance = output.instance
                metadata: dict[str, Any] = {
                    "databuild/instance": instance.uuid,
                    "databuild/job_run": each.run.id,
                    "dagster/row_count": instance.rows,
                    "databuild/bytes": instance.bytes,
                    "databuild/files": instance.files,
                    "databuild/manifest": MetadataValue.path(instance.uri),
                    "databuild/wants": list(wants.get(instance.uuid, ())),
                }
                if run.started_at is not None and run.ended_at is not None:
                    # From the beginning of its launch: job runs of a launch begin together.
                    metadata["databuild/seconds"] = round(run.ended_at - run.started_at, 3)
                if self._details_left > 0 or last[instance.asset] == output.fact.ref:
                    self._details_left -= 1
                    metadata |= self._details(output)
                found[output.fact.ref] = {**metadata, **output.metadata}
        return found

    def _details(self, output: BuiltOutput) -> dict[str, Any]:
        details: dict[str, Any] = {"dagster/column_schema": self._schema(output.instance.manifest.schema)}
        if (sample := self._sample(output)) is not None:
            details["databuild/sample"] = MetadataValue.md(sample)
        return details

    def _schema(self, written: WrittenSchema) -> TableSchema:
        if written not in self._schemas:
            self._schemas[written] = TableSchema(
                columns=[
                    TableColumn(each.name, each.type, constraints=TableColumnConstraints(nullable=each.nullable))
                    for each in written.columns
                ]
            )
        return self._schemas[written]

    def _sample(self, output: BuiltOutput) -> str | None:
        if not self._sample_rows or not output.instance.rows:
            return None
        try:
            rows = first_rows(self._warehouse, output.instance.manifest, self._sample_rows)
        except (OSError, ValueError, DatabuildError) as error:
            # Only shown: the partition is live without it.
            self._context.log.debug(f"{output.fact.ref} has no sample: {error}")
            return None
        return None if rows is None else markdown_table(rows)

    # For Dagster

    def tags(self, ref: str, uuid: str, inputs: Mapping[str, str], partition: str | None) -> dict[str, str]:
        """The versions of an instance and of what it was made of: input ref to uuid."""
        spec = self._context.assets_def.specs_by_key[asset_key(asset_of(ref))]
        # Dagster, too, takes its run for the version of code that has none.
        tags = {
            **version_tags(uuid, partition),
            CODE_VERSION_TAG: spec.code_version or self._context.run.run_id,
        }
        used: dict[str, list[str]] = {}
        for input_ref, input_uuid in inputs.items():
            used.setdefault(asset_of(input_ref), []).append(input_uuid)
        deps = [dep.asset_key for dep in spec.deps]
        pointers = self._pointers_of(deps)
        for dep in deps:
            tags[get_input_data_version_tag(dep)] = self._input_version(dep, used.get(asset_text(dep), []))
            pointer = pointers.get(dep)
            tags[get_input_event_pointer_tag(dep)] = NULL_EVENT_POINTER if pointer is None else str(pointer)
        return tags

    def _input_version(self, dep: AssetKey, uuids: list[str]) -> str:
        if dep not in self._plain_versions:
            self._plain_versions[dep] = self._plain_version(dep)
        if (version := self._plain_versions[dep]) is not None:
            return version
        # Dagster compares it for what has no partitions only, and of that there is one.
        return uuids[0] if len(uuids) == 1 else sha256("".join(sorted(uuids)).encode()).hexdigest()

    def _plain_version(self, dep: AssetKey) -> str | None:
        """The version that Dagster itself gave to what is not ours, None for ours and for what has partitions."""
        if self._graph.has(dep) and self._graph.get(dep).is_partitioned:
            return None
        dataset = self._engine.queries.dataset(asset_text(dep))
        if dataset is not None and not dataset.kind.is_foreign:
            return None
        record = self._instance.get_latest_data_version_record(dep)
        version = None if record is None else extract_data_version_from_entry(record.event_log_entry)
        return None if version is None else version.value

    def _pointers_of(self, deps: Iterable[AssetKey]) -> Mapping[AssetKey, int | None]:
        """Asked as late as possible: what was read may have been told to Dagster only after the step began."""
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


def version_tags(uuid: str, partition: str | None) -> dict[str, str]:
    """The tags by which Dagster knows an instance again, and the dimensions of its partition key."""
    dimensions = get_tags_from_multi_partition_key(partition) if isinstance(partition, MultiPartitionKey) else {}
    return {DATA_VERSION_TAG: uuid, DATA_VERSION_IS_USER_PROVIDED_TAG: "true", **dimensions}


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table of Markdown, each value in one line."""
    columns = list(rows[0]) if rows else []
    lines = [columns, ["---"] * len(columns), *([row[column] for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: Any) -> str:
    text = f"{len(value)} bytes" if isinstance(value, bytes) else " ".join(str(value).split())
    text = text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
    return text.replace("\\", "\\\\").replace("|", "\\|")
