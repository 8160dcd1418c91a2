"""The instances of an environment that its base has, with their taints and rows (rules 16.2, 16.8)."""

from __future__ import annotations

from databuild_dagster.model.commands import FollowBase, ReplaceFiles
from databuild_dagster.model.events import ManifestRemoved
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.instances import BorrowedInstance, InstanceRows, TaintLink
from tests.support.catalog import dataset
from tests.support.world import COMPLETE


def test_borrowed_instances_are_those_of_the_base(make_world):
    world = make_world(dataset("a"), dataset("b"), dataset("c"))
    world.live("c")
    world.borrow("a")
    world.borrow("b")
    a, b = world.uuid("a"), world.uuid("b")
    world.handle(FollowBase(facts=(ManifestRemoved(uuids=(a,), reason="erased"),)))
    world.taint("b")
    world.live("b")

    assert world.queries.instances.borrowed() == [
        BorrowedInstance(a, "a", InstanceState.TAINTED, is_canonical=True, is_removed=True),
        BorrowedInstance(b, "b", InstanceState.TAINTED, is_canonical=False, is_removed=False),
    ]


def test_a_taint_link_stays_when_the_taint_is_canceled(make_world):
    world = make_world(dataset("a"), dataset("b"))
    world.live("a", "b")
    a, b = world.uuid("a"), world.uuid("b")
    first = world.taint("a", "b", reason="wrong")
    world.untaint(first)
    second = world.taint("b", reason="late")

    assert world.queries.instances.taint_links([a, b]) == [
        TaintLink(a, first, "wrong", downstream=False, of_code=False, is_in_force=False),
        TaintLink(b, first, "wrong", downstream=False, of_code=False, is_in_force=False),
        TaintLink(b, second, "late", downstream=False, of_code=False, is_in_force=True),
    ]


def test_rows_name_the_first_instance_that_has_them(make_world):
    world = make_world(dataset("a"))
    world.live("a")
    first = world.uuid("a")
    world.handle(ReplaceFiles(ref="a", uuid=first, job_run_id=world.ids(), manifest=COMPLETE))

    found = world.queries.instances.rows_of([first, world.uuid("a"), "of another log"])

    assert found == dict.fromkeys([first, world.uuid("a")], InstanceRows(first, COMPLETE.rows, None, None))
