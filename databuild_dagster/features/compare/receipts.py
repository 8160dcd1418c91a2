"""The receipt of an instance: every instance it was built from, with code and environment (rules 15, 4.6).

It is complete enough to build the instance again and compare. The command line prints it whole, with the places of files. The
pages show the nearest instances, and name files below the folder of their instance.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from databuild_dagster.calls.contents import NO_FILES, REMOVED_NOTE, unreadable_note
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import MadeWith
from databuild_dagster.model.records import Time, extended
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.instances import EqualInput, Instance
from databuild_dagster.store.queries.job_runs import JobRunView
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import FileEntry, Manifest, kept_manifests, read_manifest
from databuild_dagster.warehouse.threads import in_threads

#: Instances of a receipt on the pages, inputs of each that are named, and files.
MAX_ENTRIES: Final = 500
MAX_INPUTS: Final = 100
MAX_FILES: Final = 20
#: Edges of a step back.
MAX_EDGES: Final = 5_000


class NoReceipt(Refused):
    """{ref} has no instance{which} that was ever live, so there is nothing to account for."""

    hint = "`databuild history {ref}` lists what it has."


class ReceiptEntry(msgspec.Struct, frozen=True):
    """An instance behind a receipt. Without a launch of ours, or for a launch of an older version, code and environment are null."""

    uuid: str
    ref: Ref
    state: InstanceState
    code_version: str | None
    job_run: str
    code: str | None
    #: Why the code is unknown.
    unknown: Sequence[str] | None
    config: dict[str, Any] | None
    tags: dict[str, str] | None
    versions: dict[str, str] | None
    job: str | None
    dagster_run_id: str | None
    live_since: Time | None
    inputs: Sequence[str]
    #: The first instance with its rows, if it is another (rule 4.8).
    rows_of: str | None
    #: Inputs that were built again with equal rows since.
    equal_inputs: Sequence[EqualInput]
    origin: str | None
    rows: int | None
    schema: list[list[str]] | None
    files: Sequence[FileEntry]
    manifest: str | None


class Receipt(msgspec.Struct, frozen=True):
    """The instances behind an instance, the oldest first, itself the last."""

    ref: Ref
    uuid: str
    instances: list[ReceiptEntry]


class ShownEntry(ReceiptEntry, frozen=True):
    """An entry with the first of its inputs and files; `note` says why files are not known."""

    n_inputs: int
    n_files: int
    note: str | None


class ShownReceipt(msgspec.Struct, frozen=True):
    """The nearest instances behind an instance, itself first. If `is_cut`, there are more."""

    ref: Ref
    uuid: str
    is_cut: bool
    instances: list[ShownEntry]


def receipt_of(queries: Queries, ref: Ref, uuid: str | None) -> Receipt:
    """The whole receipt of an instance of a ref. Raises `NoReceipt`, `ManifestMissing`, `ManifestDamaged`."""
    lineage = queries.instances.lineage(uuid) if uuid is not None else []
    found = next((instance for instance in lineage if instance.uuid == uuid), None)
    if uuid is None or found is None or found.ref != ref or found.live_at is None:
        raise NoReceipt(ref=ref, which="" if uuid is None else f" {uuid}")
    records = _records(queries, lineage)
    return Receipt(ref, uuid, [_entry(instance, records, _manifest_of(instance)) for instance in lineage])


def shown_receipt(queries: Queries, uuid: str, most: int = MAX_ENTRIES) -> ShownReceipt:
    """The receipt of an instance, of at most so many instances and without the places of files. Raises `NoReceipt`."""
    near = _near(queries, uuid, most)
    instances = sorted(queries.instances.named(near.inputs), key=lambda instance: near.steps[instance.uuid])
    if not instances or instances[0].live_at is None:
        ref = instances[0].ref if instances else uuid
        raise NoReceipt(ref=ref, which=f" {uuid}" if instances else "")
    records = _records(queries, instances)
    manifests = _shown_manifests(instances)
    n_inputs = queries.instances.n_inputs_of(near.inputs)
    entries = [
        _shown_entry(
            instance._replace(inputs=tuple(near.inputs[instance.uuid][:MAX_INPUTS])),
            records,
            manifests[instance.uuid],
            n_inputs.get(instance.uuid, 0),
        )
        for instance in instances
    ]
    return ShownReceipt(instances[0].ref, uuid, near.is_cut, entries)


class _Records(NamedTuple):
    """What the log knows of the builds of instances."""

    job_runs: Mapping[str, JobRunView]
    #: By uuid.
    made_with: Mapping[str, MadeWith]
    rows_of: Mapping[str, str]
    equal_inputs: Mapping[str, Sequence[EqualInput]]


def _records(queries: Queries, instances: Sequence[Instance]) -> _Records:
    job_runs = queries.job_runs.named(instance.job_run for instance in instances)
    uuids = [instance.uuid for instance in instances]
    equal_inputs: dict[str, list[EqualInput]] = {}
    for found in queries.instances.equal_inputs(uuids):
        equal_inputs.setdefault(found.uuid, []).append(found)
    rows_of = queries.instances.first_with_rows(uuids, with_erased=False)
    return _Records(job_runs, queries.instances.made_with(uuids), rows_of, equal_inputs)


def _entry(instance: Instance, records: _Records, manifest: Manifest | None) -> ReceiptEntry:
    job_run, made_with = records.job_runs.get(instance.job_run), records.made_with.get(instance.uuid)
    return extended(
        ReceiptEntry,
        instance,
        **{name: getattr(made_with, name, None) for name in ("code", "unknown", "config", "tags", "versions")},
        job=job_run.job if job_run else None,
        dagster_run_id=job_run.dagster_run_id if job_run else None,
        live_since=instance.live_at,
        rows_of=records.rows_of.get(instance.uuid),
        equal_inputs=records.equal_inputs.get(instance.uuid, ()),
        origin=None if instance.manifest_uri else "outside",
        rows=manifest.rows if manifest else None,
        schema=[[column.name, column.type] for column in manifest.schema.columns] if manifest else None,
        files=manifest.files if manifest else (),
        manifest=instance.manifest_uri,
    )


def _manifest_of(instance: Instance) -> Manifest | None:
    if instance.manifest_uri is None:
        return None
    asset = asset_of(instance.ref)
    return read_manifest(Warehouse.of_manifest(instance.manifest_uri, asset), asset, instance.uuid)


class _Near(NamedTuple):
    """Instances, each with its inputs as far as they were read, and with the number of steps to it."""

    inputs: dict[str, list[str]]
    steps: dict[str, int]
    is_cut: bool


def _near(queries: Queries, uuid: str, most: int) -> _Near:
    """An instance and what it was built from, level by level."""
    inputs: dict[str, list[str]] = {uuid: []}
    steps = {uuid: 0}
    is_cut = False
    level = [uuid]
    while level:
        edges = sorted(queries.instances.inputs_of(level, MAX_EDGES + 1))
        is_cut = is_cut or len(edges) > MAX_EDGES
        level = []
        for used, user in edges[:MAX_EDGES]:
            inputs[user].append(used)
            if used in inputs:
                continue
            if len(inputs) >= most:
                is_cut = True
                continue
            inputs[used] = []
            steps[used] = steps[user] + 1
            level.append(used)
    return _Near(inputs, steps, is_cut)


class _Read(NamedTuple):
    manifest: Manifest | None
    note: str | None


def _shown_manifests(instances: Iterable[Instance]) -> dict[str, _Read]:
    """Several at a time, because a bucket takes its time for each."""
    found = list(instances)
    return dict(zip((instance.uuid for instance in found), in_threads(_read, found), strict=True))


def _read(instance: Instance) -> _Read:
    if instance.manifest_uri is None:
        return _Read(None, None)
    if instance.manifest_state == REMOVED:
        return _Read(None, REMOVED_NOTE)
    asset = asset_of(instance.ref)
    try:
        (manifest,) = kept_manifests(Warehouse.of_manifest(instance.manifest_uri, asset), asset, [instance.uuid])
    except NO_FILES as error:
        return _Read(None, unreadable_note(error))
    return _Read(manifest, None)


def _shown_entry(instance: Instance, records: _Records, read: _Read, n_inputs: int) -> ShownEntry:
    entry = _entry(instance, records, read.manifest)
    files = [replace(file, uri=PurePosixPath(file.uri).name) for file in entry.files[:MAX_FILES]]
    n_files = len(entry.files)
    return extended(
        ShownEntry,
        entry,
        equal_inputs=entry.equal_inputs[:MAX_INPUTS],
        files=files,
        manifest=None,
        n_inputs=n_inputs,
        n_files=n_files,
        note=read.note,
    )
