"""Registered datasets, and data from outside (rules 4.2, 5.7)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import (
    AssetTaken,
    BeingBuilt,
    CanonicalMoved,
    DuplicateRef,
    InstanceExists,
    InvalidRef,
    InvalidRequest,
    LocationTaken,
    UnknownAsset,
)
from databuild_dagster.model.events import Arrival, ManifestFact
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.states import InstanceState, JobRunState
from tests.support.catalog import HERE, dataset


def register(world, *datasets, location=HERE):
    return world.handle(c.RegisterDatasets(location=location, datasets=datasets))


def test_what_a_location_no_longer_tells_of_is_removed_and_may_come_back(world):
    """Rule 5.7: its instances stay."""
    uuid = world.succeed("a")

    register(world, *world.specs[1:])
    assert world.queries.datasets.get("a") is None
    assert world.uuid("a") == uuid
    register(world, *world.specs)

    assert world.queries.datasets.get("a") == world.specs[0]


def test_an_asset_of_another_location_is_refused_whole_until_that_one_lets_go_of_it(world):
    """Rule 5.7, decision 0011"""
    theirs = dataset("a", location="there")
    before = world.seq

    with pytest.raises(AssetTaken, match=f"'there' declares a, which code location {HERE!r} has registered"):
        register(world, theirs, dataset("z", location="there"), location="there")
    assert world.seq == before
    register(world, *world.specs[1:])
    register(world, theirs, location="there")

    assert world.queries.datasets.get("a") == theirs
    with pytest.raises(AssetTaken, match="databuild status --forget there"):
        register(world, *world.specs)


def test_a_source_yields_to_the_location_that_can_build_it(world):
    """Rule 5.7, decision 0011: in either order of registration."""
    declared = dataset("z", kind=DatasetKind.SOURCE, location="there")
    register(world, declared, location="there")
    built = dataset("z")

    register(world, *world.specs, built)
    before = world.seq
    register(world, declared, location="there")

    assert world.queries.datasets.get("z") == built
    assert world.seq == before


def test_a_location_of_which_nothing_is_left_is_taken_for_another_of_the_same_name(world):
    """Decision 0011: a location registered without datasets has none."""
    before = world.seq

    with pytest.raises(LocationTaken, match=f"{HERE!r} has registered a, b, c, d, e and 3 more"):
        register(world, dataset("z"))
    assert world.seq == before
    register(world)

    assert world.queries.datasets.all(HERE) == {}


def test_the_only_asset_of_a_location_may_be_renamed(world):
    """Decision 0011"""
    register(world, dataset("y", location="there"), location="there")

    register(world, dataset("z", location="there"), location="there")

    assert [dataset.asset for dataset in world.queries.datasets.all("there").values()] == ["z"]


def test_a_dataset_whose_name_is_no_asset_key_is_refused(world):
    """Rule 2.1"""
    before = world.seq

    with pytest.raises(InvalidRef):
        register(world, dataset("mail@home"))

    assert world.seq == before


def test_a_lot_that_arrives_is_live_at_once_with_an_identity_like_any_other(world):
    """Rule 4.2"""
    job_run_id = world.ids()
    manifest = ManifestFact(state="complete", uri="file:///drop", files=2, rows=7)
    arrival = Arrival(job_run_id=job_run_id, ref="a", origin="file:///drop/1", manifest=manifest)

    world.handle(c.ArriveLots(arrivals=(arrival,)))

    canonical = world.canonical("a")
    assert (canonical.state, canonical.uuid) == (InstanceState.LIVE, derive_partition_uuid(job_run_id, "a"))
    assert (canonical.origin, canonical.files, canonical.rows) == ("file:///drop/1", 2, 7)
    assert world.queries.job_runs.get(job_run_id).state is JobRunState.SUCCEEDED


def test_the_same_arrival_is_recorded_once(world):
    """Rule 6.11"""
    world.arrive("a", "dagster event 1")
    before = world.seq

    world.arrive("a", "dagster event 1")

    assert world.seq == before


def test_late_data_is_a_new_instance_never_an_overwrite(world):
    """Rules 4.2, 10.6"""
    world.arrive("a", "dagster event 1")
    first = world.uuid("a")

    world.arrive("a", "dagster event 2")

    assert [instance.uuid for instance in world.queries.instances.history("a")] == [first, world.uuid("a")]
    assert world.uuid("a") != first


def test_an_arrival_for_a_ref_that_has_moved_on_is_refused(world):
    """Rule 3.3: what the caller decided by is no longer so."""
    uuid = world.succeed("a")
    arrivals = tuple(Arrival(job_run_id=world.ids(), ref=ref, origin="files") for ref in ("a", "b"))
    before = world.seq

    with pytest.raises(CanonicalMoved, match="a has a newer instance"):
        world.handle(c.ArriveLots(arrivals=arrivals, seen={"a": None, "b": None}))
    with pytest.raises(CanonicalMoved, match="b has a newer instance"):
        world.handle(c.ArriveLots(arrivals=arrivals, seen={"a": uuid, "b": uuid}))
    assert world.seq == before
    world.handle(c.ArriveLots(arrivals=arrivals, seen={"a": uuid, "b": None}))

    assert world.seq == before + 1


@pytest.mark.parametrize("how", ["building", "waiting"])
def test_a_ref_that_is_being_built_here_takes_no_arrival(world, how):
    """Rule 4.4"""
    job_run = world.job_run("a")
    if how == "waiting":
        world.miss("a", "b")
    before = world.seq

    with pytest.raises(BeingBuilt, match=job_run):
        world.arrive("a", "dagster event 1")

    assert world.seq == before


def test_an_arrival_that_cannot_be_is_refused(world):
    """Rules 2.2, 3.5, I7"""
    used, free, other = world.job_run("b"), world.ids(), world.ids()
    partial = ManifestFact(state="partial", uri="x")
    before = world.seq

    def of(job_run_id, ref, manifest=None):
        return Arrival(job_run_id=job_run_id, ref=ref, origin="x", manifest=manifest)

    for error, *arrivals in (
        (UnknownAsset, of(free, "nowhere")),
        (DuplicateRef, of(free, "a"), of(other, "a")),
        (InvalidRequest, of("job-run-1", "a")),
        (InstanceExists, of(used, "a")),
        (InstanceExists, of(free, "a"), of(free, "c")),
        (InvalidRequest, of(free, "a", partial)),
    ):
        with pytest.raises(error):
            world.handle(c.ArriveLots(arrivals=tuple(arrivals)))

    assert world.seq == before
