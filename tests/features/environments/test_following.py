"""What happens in the base to borrowed instances happens in the environment too, and never the other way (rule 16.8)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from databuild_dagster.engine import returning
from databuild_dagster.features.environments.base import base_of
from databuild_dagster.features.environments.errors import BaseAway
from databuild_dagster.features.environments.following import ACTOR, follow
from databuild_dagster.model.commands import (
    BorrowInstances,
    CreateWants,
    FollowBase,
    RegisterDatasets,
    RemoveManifests,
    RevertCanonical,
    TaintPartitions,
)
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import (
    Birth,
    CanonicalReverted,
    Erasure,
    ManifestRemoved,
    TaintCanceled,
    TaintCreated,
)
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.rebuild import rebuild
from tests.features.environments.conftest import Shop, borrow, changed, coded
from tests.features.environments.test_promoting import built, deploy, run
from tests.support.catalog import HERE
from tests.support.crashes import AT_STATEMENTS, MOST_STATEMENTS, fewest, killed_at
from tests.support.orchestrator import Orchestrator
from tests.support.world import COMPLETE, World

LIVE, TAINTED = InstanceState.LIVE, InstanceState.TAINTED
ERASURE = Erasure("0" * 64, "ticket 7")


@pytest.fixture
def branch(shop: Shop) -> World:
    """An environment that has borrowed the report and all that it was built from."""
    world = shop.branch()
    borrow(world, "report@x")
    return world


def register(world: World, spec: DatasetSpec) -> None:
    world.handle(RegisterDatasets(location=HERE, datasets=changed(spec)))


def taint(world: World, ref: str, *, downstream: bool = False) -> str:
    taint_id = world.handle(TaintPartitions(refs=(Ref(ref),), reason="wrong rates", downstream=downstream)).taint_id
    assert taint_id is not None
    return taint_id


def test_a_taint_of_the_base_is_one_of_the_environment(shop: Shop, branch: World) -> None:
    taint_id = taint(shop.base, "clean@x")

    borrow(branch)

    assert branch.states("clean@x", "report@x") == [TAINTED, LIVE]
    (mark,) = branch.queries.instances.taints_of(branch.uuid("clean@x"))
    assert (mark.taint_id, mark.reason, mark.actor) == (taint_id, "wrong rates", ACTOR)


def test_a_downstream_taint_reaches_what_was_built_here(shop: Shop) -> None:
    branch = shop.branch(coded("report", "clean", "other", code="2"))
    borrow(branch, "report@x")
    branch.succeed("report@x", inputs=["clean@x", "other@x"])
    taint(shop.base, "raw@x", downstream=True)

    borrow(branch)

    assert branch.states("raw@x", "clean@x", "other@x", "report@x") == [TAINTED] * 4


def test_an_untaint_in_the_base_ends_the_taint(shop: Shop, branch: World) -> None:
    taint_id = taint(shop.base, "raw@x", downstream=True)
    borrow(branch)

    shop.base.untaint(taint_id)
    borrow(branch)

    assert branch.states("raw@x", "clean@x", "other@x", "report@x") == [LIVE] * 4


def test_a_revert_in_the_base_takes_the_taint_of_one_instance(shop: Shop, branch: World) -> None:
    before = shop.base.uuid("raw@x")
    taint(shop.base, "raw@x", downstream=True)
    borrow(branch)
    shop.base.arrive("raw@x", "dagster event 2")

    shop.base.handle(RevertCanonical(ref=Ref("raw@x"), uuid=before))
    borrow(branch)

    assert branch.states("raw@x", "clean@x") == [LIVE, TAINTED]


def test_a_taint_that_was_removed_here_stays_removed(shop: Shop, branch: World) -> None:
    taint_id = taint(shop.base, "clean@x")
    borrow(branch)
    branch.untaint(taint_id)
    taint(shop.base, "other@x")
    # A new process looks at all taints of the base again.
    branch.engine.memory.forget()

    borrow(branch)

    assert branch.states("clean@x", "other@x") == [LIVE, TAINTED]


def test_a_taint_here_stays_here(shop: Shop, branch: World) -> None:
    branch.taint("clean@x")
    seq = shop.base.seq

    borrow(branch)

    assert (shop.base.seq, shop.base.state("clean@x")) == (seq, LIVE)


def test_a_removal_in_the_base_taints_what_readers_see(shop: Shop, branch: World) -> None:
    uuid = branch.uuid("raw@x")
    shop.base.arrive("raw@x", "dagster event 2")
    shop.base.handle(RemoveManifests(uuids=(uuid,), reason="erased", erasure=ERASURE))

    borrow(branch)

    assert branch.states("raw@x", "clean@x") == [TAINTED, LIVE]
    (mark,) = branch.queries.instances.taints_of(uuid)
    assert (mark.reason, mark.actor) == ("its data was removed: ticket 7", ACTOR)
    assert branch.queries.instances.removed([uuid]) == {uuid}
    found = branch.queries.instances.erasure_of(uuid)
    assert found is not None
    assert found[1] == ERASURE


def test_a_taint_of_removed_data_stays_when_it_is_untainted_in_the_base(shop: Shop, branch: World) -> None:
    uuid = branch.uuid("raw@x")
    taint_id = taint(shop.base, "raw@x", downstream=True)
    shop.base.arrive("raw@x", "dagster event 2")
    shop.base.handle(RemoveManifests(uuids=(uuid,), reason="erased", erasure=ERASURE))
    borrow(branch)

    shop.base.untaint(taint_id)
    borrow(branch)

    assert branch.states("raw@x", "clean@x") == [TAINTED, LIVE]


@pytest.mark.parametrize("is_reverted", [False, True])
def test_a_taint_that_ends_before_its_data_is_removed_stays_here(shop: Shop, branch: World, is_reverted: bool) -> None:
    uuid = branch.uuid("raw@x")
    taint_id = taint(shop.base, "raw@x", downstream=True)
    borrow(branch)
    if is_reverted:
        shop.base.arrive("raw@x", "dagster event 2")
        shop.base.handle(RevertCanonical(ref=Ref("raw@x"), uuid=uuid))
    else:
        shop.base.untaint(taint_id)
    shop.base.arrive("raw@x", "dagster event 3")
    shop.base.handle(RemoveManifests(uuids=(uuid,), reason="erased", erasure=ERASURE))

    borrow(branch)

    assert branch.state("raw@x") is TAINTED


def test_a_taint_reaches_an_instance_that_was_borrowed_while_the_base_was_tainted(shop: Shop) -> None:
    branch = shop.branch()
    borrow(branch, "other@x")
    birth = births_of(branch, shop, "clean@x")
    taint_id = taint(shop.base, "raw@x", downstream=True)
    borrow(branch)

    branch.handle(BorrowInstances(births=(birth,)))
    borrow(branch)

    assert branch.states("other@x", "clean@x") == [TAINTED, TAINTED]
    shop.base.untaint(taint_id)
    borrow(branch)
    assert branch.states("raw@x", "other@x", "clean@x") == [LIVE] * 3


def births_of(branch: World, shop: Shop, ref: str) -> Birth:
    """The instance of a ref as a process would borrow it that has looked at the base now."""
    one = shop.base.canonical(ref)
    assert one.job_run is not None
    return Birth(job_run_id=one.job_run, job=ref, ref=Ref(ref), manifest=COMPLETE)


def test_two_processes_that_follow_at_once_record_each_fact_once(shop: Shop, branch: World) -> None:
    uuid = branch.uuid("raw@x")
    taint_id = taint(shop.base, "clean@x")
    shop.base.arrive("raw@x", "dagster event 2")
    shop.base.handle(RemoveManifests(uuids=(uuid,), reason="erased", erasure=ERASURE))
    facts = (
        TaintCreated(taint_id=taint_id, refs=(), reason="wrong rates", uuids=(branch.uuid("clean@x"),)),
        ManifestRemoved(uuids=(uuid,), reason="erased", erasure=ERASURE),
        CanonicalReverted(ref=Ref("other@x"), uuid=branch.uuid("other@x")),
    )
    borrow(branch)
    seq = branch.seq

    branch.handle(FollowBase(facts=facts))
    assert branch.seq == seq

    shop.base.untaint(taint_id)
    borrow(branch)
    seq = branch.seq
    branch.handle(FollowBase(facts=(TaintCanceled(taint_id=taint_id),)))
    assert branch.seq == seq


def test_a_look_without_news_asks_each_log_once(shop: Shop, branch: World) -> None:
    borrow(branch)
    asked = list[str]()
    base = base_of(branch.engine)
    assert base is not None
    for store in (branch.store, base.queries.events._store):
        connection: Any = store._connection()
        connection.set_trace_callback(asked.append)

    follow(branch.engine, base)

    assert len([sql for sql in asked if "SELECT" in sql]) == 2


def test_a_tick_follows_and_builds_again_what_is_wanted(shop: Shop) -> None:
    branch = shop.branch()
    here = Orchestrator(branch, providers=[lambda engine, refs, **specs: borrow(branch, *refs)])
    branch.want("report@x")
    here.tick()
    assert branch.state("report@x") is LIVE

    taint(shop.base, "report@x")
    here.tick()

    assert [order.job for order in here.launcher.orders] == ["report"]


def test_an_environment_whose_base_is_away_plans_nothing(shop: Shop, branch: World) -> None:
    here = Orchestrator(branch, providers=[lambda engine, refs, **specs: borrow(branch, *refs)])
    shop.home.rename(shop.home.with_name("elsewhere"))

    with pytest.raises(BaseAway):
        here.tick()

    shop.home.with_name("elsewhere").rename(shop.home)


def test_a_later_look_reads_what_new_events_name(shop: Shop, branch: World) -> None:
    borrow(branch)
    shop.build("y")
    taint_id = taint(shop.base, "raw@y")
    borrow(branch)
    shop.base.untaint(taint_id)
    base = base_of(branch.engine)
    assert base is not None
    asked = list[str]()
    base.queries.events._store._connection().set_trace_callback(asked.append)
    uuid = branch.uuid("report@x")

    follow(branch.engine, base)

    assert not [sql for sql in asked if uuid in sql]
    taint(shop.base, "report@x")
    follow(branch.engine, base)
    assert [sql for sql in asked if uuid in sql]
    assert branch.state("report@x") is TAINTED


def test_what_fresh_set_aside_in_the_base_and_took_back_is_live_here_too(shop: Shop) -> None:
    code = replace(coded("clean", "raw", code="1"), code_version="1", deterministic=True)
    register(shop.base, code)
    branch = shop.branch(code)
    borrow(branch, "clean@x")
    register(shop.base, replace(code, code_version="2"))
    shop.base.handle(CreateWants(wants=((Ref("clean@x"),),), fresh=True))
    borrow(branch)
    assert branch.state("clean@x") is TAINTED
    (link,) = branch.queries.instances.taint_links([branch.uuid("clean@x")])
    assert link.of_code, "a taint by other code is one by other code here"
    register(shop.base, code)

    returning.provide(shop.base.engine, [Ref("clean@x")])
    borrow(branch)

    assert shop.base.state("clean@x") is LIVE
    assert branch.state("clean@x") is LIVE


def test_a_taint_of_what_the_base_took_reaches_its_environment(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    run(shop)
    taint_id = taint(shop.base, "clean@x", downstream=True)

    borrow(branch)

    assert branch.states("clean@x", "other@x", "report@x") == [TAINTED, LIVE, TAINTED]
    assert [one.taint_id for one in branch.queries.instances.taints_of(branch.uuid("clean@x"))] == [taint_id]

    shop.base.untaint(taint_id)
    borrow(branch)

    assert branch.states("clean@x", "other@x", "report@x") == [LIVE] * 3


def test_an_environment_that_is_over_still_follows_its_base(shop: Shop) -> None:
    branch = shop.branch(days=1)
    borrow(branch, "report@x")
    branch.clock.turn(2 * 86_400)
    taint(shop.base, "clean@x")

    borrow(branch)

    assert branch.state("clean@x") is TAINTED


def test_a_rebuild_makes_the_same_tables_again(shop: Shop, branch: World) -> None:
    uuid = branch.uuid("raw@x")
    taint(shop.base, "clean@x", downstream=True)
    shop.base.arrive("raw@x", "dagster event 2")
    shop.base.handle(RemoveManifests(uuids=(uuid,), reason="erased", erasure=ERASURE))
    borrow(branch)
    before = branch.states("raw@x", "clean@x", "other@x", "report@x")

    rebuild(branch.store)

    assert branch.states("raw@x", "clean@x", "other@x", "report@x") == before == [TAINTED, TAINTED, LIVE, TAINTED]
    assert branch.check() == []


@pytest.mark.long("it kills a process at each statement")
@pytest.mark.parametrize("counter", AT_STATEMENTS)
def test_a_look_that_was_killed_anywhere_is_repeated(shop: Shop, branch: World, counter: Any) -> None:
    uuid = branch.uuid("raw@x")
    taint(shop.base, "clean@x", downstream=True)
    shop.base.arrive("raw@x", "dagster event 2")
    shop.base.handle(RemoveManifests(uuids=(uuid,), reason="erased", erasure=ERASURE))
    seq = branch.seq

    for statement in range(1, MOST_STATEMENTS):
        is_killed = killed_at(branch, statement, borrow, counter)
        if not is_killed:
            break
        assert branch.seq == seq

    assert statement > fewest(counter)
    branch.engine.memory.forget()
    borrow(branch)
    assert branch.states("raw@x", "clean@x", "other@x", "report@x") == [TAINTED, TAINTED, LIVE, TAINTED]
