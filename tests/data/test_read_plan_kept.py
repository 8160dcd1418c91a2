"""Manifests of a bucket that a process keeps, and when it fetches one again (rules 10.2, 10.8)."""

from collections import OrderedDict
from uuid import uuid4

import pytest

from databuild_dagster.data.read_plan import manifests_in
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse import manifest as manifests
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import ManifestState, write_manifest
from databuild_dagster.warehouse.removing import take_away
from tests.support.written import manifest_of


@pytest.fixture
def warehouse(bucket):
    return Warehouse(f"s3://{bucket}/warehouse")


@pytest.fixture
def written(warehouse):
    manifest = manifest_of(state=ManifestState.EMPTY)
    write_manifest(warehouse, manifest)
    return manifest


def seen(manifest, manifest_state):
    return [Canonical(manifest.ref, uuid=manifest.instance_uuid, manifest_state=manifest_state)]


def test_a_manifest_that_this_process_wrote_is_not_fetched(s3, warehouse, written):
    s3.requests.clear()

    found = manifests_in(warehouse, written.dataset, seen(written, "empty"))

    assert (found, s3.requests) == ([written], [])


def test_a_manifest_of_an_instance_that_the_log_calls_removed_is_fetched(warehouse, written):
    take_away(warehouse, written.dataset, written.instance_uuid)

    (found,) = manifests_in(warehouse, written.dataset, seen(written, REMOVED))

    assert found.state is ManifestState.REMOVED


def test_a_process_keeps_a_bounded_number_of_manifests(s3, warehouse, monkeypatch):
    monkeypatch.setattr(manifests, "MAX_KEPT_FILES", 2)
    monkeypatch.setattr(manifests, "_kept", OrderedDict())
    monkeypatch.setattr(manifests, "_n_kept_files", 0)
    some = [manifest_of(state=ManifestState.EMPTY, instance_uuid=str(uuid4())) for _ in range(4)]
    for manifest in some:
        write_manifest(warehouse, manifest)
    s3.requests.clear()

    found = [manifests_in(warehouse, one.dataset, seen(one, "empty")) for one in some]

    assert found == [[one] for one in some]
    assert len(s3.requests) == 4, "each was followed by two others before it was asked for"
