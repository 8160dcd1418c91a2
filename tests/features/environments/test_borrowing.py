"""What an environment borrows, and why it builds the rest (rule 16.2)."""

from __future__ import annotations

import shutil

import pytest
from msgspec.structs import replace

from databuild_dagster.engine.ports import Provided
from databuild_dagster.features.environments.errors import BaseAway, BaseChanged, EnvironmentClosing, EnvironmentOver
from databuild_dagster.features.environments.keeping import Pins
from databuild_dagster.features.environments.records import close_in, opened_in, opening_of
from databuild_dagster.model.commands import BorrowInstances, ReplaceFiles
from databuild_dagster.model.events import InstancesBorrowed, ManifestFact
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.removals import Removals
from tests.features.environments.conftest import Shop, borrow, coded, of_keys
from tests.support.orchestrator import Orchestrator
from tests.support.world import COMPLETE, World

LIVE = InstanceState.LIVE


def births(world: World) -> list[list[str]]:
    """The refs of each event of borrowing."""
    facts = [event.fact for event in world.queries.events.after(0)]
    return [[birth.ref for birth in fact.births] for fact in facts if isinstance(fact, InstancesBorrowed)]


def branch_pin(world: World) -> int:
    opening = opening_of(world.store)
    assert opening is not None
    return opening.pin


def test_a_ref_whose_cone_is_the_same_is_the_instance_of_the_base(shop: Shop) -> None:
    branch = shop.branch()

    provided = borrow(branch, "report@x")

    assert provided == Provided(["raw@x", "other@x", "clean@x", "report@x"], {})
    there, here = shop.base.canonical("report@x"), branch.canonical("report@x")
    assert (here.uuid, here.manifest_uri, here.rows, here.code) == (
        there.uuid,
        there.manifest_uri,
        there.rows,
        there.code,
    )
    assert shop.base.seq == branch_pin(branch), "the base records nothing"


def test_a_changed_function_builds_its_cone_and_borrows_its_inputs_at_once(shop: Shop) -> None:
    branch = shop.branch(coded("clean", "raw", code="2"))

    provided = borrow(branch, "report@x")

    assert sorted(provided.live) == ["other@x", "raw@x"]
    assert provided.why_built == {
        "report@x": "its input clean@x is built here",
        "clean@x": "clean in shop.py changed",
    }
    assert len(births(branch)) == 1


def test_a_borrowed_instance_has_its_whole_lineage(shop: Shop) -> None:
    branch = shop.branch()
    borrow(branch, "other@x")
    borrow(branch, "report@x")

    for ref, inputs in {"report@x": ["clean@x", "other@x"], "clean@x": ["raw@x"], "other@x": ["raw@x"]}.items():
        instance = branch.queries.instances.get(branch.uuid(ref))
        assert instance is not None
        assert sorted(instance.inputs) == sorted(branch.uuid(used) for used in inputs)


def test_a_tick_borrows_and_launches_only_what_differs(shop: Shop) -> None:
    branch = shop.branch(coded("clean", "raw", code="2"))
    here = Orchestrator(branch, providers=[lambda engine, refs, **specs: borrow(branch, *refs)])
    branch.want("report@x")

    here.tick()

    assert [order.job for order in here.launcher.orders] == ["clean"]
    branch.succeed("clean@x", inputs=["raw@x"])
    here.tick()
    assert [order.job for order in here.launcher.orders] == ["clean", "report"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (coded("other", "raw", settings=["store"]), "it is given store, whose values are not compared"),
        (coded("other"), "its partitions or its inputs are declared differently"),
        (of_keys("other", "raw", version="7"), "its code_version differs"),
        (of_keys("other", "raw"), "its code is unknown"),
    ],
    ids=["resource", "inputs", "version", "unknown"],
)
def test_what_cannot_be_compared_is_built(shop: Shop, spec: object, why: str) -> None:
    branch = shop.branch(spec)  # type: ignore[arg-type]

    assert borrow(branch, "other@x").why_built == {"other@x": why}


def test_the_environment_sees_the_base_as_of_its_pin(shop: Shop) -> None:
    before = shop.base.uuid("other@x")
    branch = shop.branch()
    shop.build("y")
    shop.base.taint("report@x")
    shop.base.live("report@x")

    provided = borrow(branch, "other@x", "other@y")

    assert branch.uuid("other@x") == before
    assert provided.why_built["other@y"] == "the base had no live instance of it that is good today"


def compacted(world: World, ref: str, manifest: ManifestFact = COMPLETE, *, erased: bool = False) -> str:
    """Put other files in the place of an instance's, perhaps without some rows; the uuid of the new instance."""
    before = world.uuid(ref)
    world.handle(ReplaceFiles(ref=Ref(ref), uuid=before, job_run_id=world.ids(), manifest=manifest, erased=erased))
    return world.uuid(ref)


def test_an_input_that_the_base_compacted_is_the_same_input(shop: Shop) -> None:
    files = compacted(shop.base, "clean@x")
    branch = shop.branch()

    provided = borrow(branch, "report@x")

    assert "report@x" in provided.live
    report = branch.queries.instances.get(branch.uuid("report@x"))
    assert report is not None
    assert sorted(report.inputs) == sorted([files, branch.uuid("other@x")])


def test_an_input_of_which_the_base_erased_rows_is_a_different_one(shop: Shop) -> None:
    compacted(shop.base, "clean@x", replace(COMPLETE, rows=9), erased=True)
    branch = shop.branch()

    provided = borrow(branch, "report@x")

    assert provided.why_built["report@x"] == "its input clean@x is not the instance that the base read"


def test_a_borrowed_instance_brings_its_content_hash_and_its_numbers(shop: Shop) -> None:
    shop.base.taint("other@x")
    hashed = replace(COMPLETE, content_hash="arrow-1:10:2a")
    shop.base.succeed("other@x", inputs=["raw@x"], manifest=hashed, delay=2.5)
    branch = shop.branch()

    borrow(branch, "other@x")

    uuid = branch.uuid("other@x")
    assert branch.queries.instances.rows_of([uuid]) == shop.base.queries.instances.rows_of([uuid])
    assert branch.queries.canonical.numbers("other", "delay") == {"other@x": 2.5}


def test_a_tainted_instance_of_the_base_is_not_borrowed(shop: Shop) -> None:
    branch = shop.branch()
    shop.base.taint("clean@x")

    provided = borrow(branch, "report@x")

    assert "clean@x" not in provided.live
    assert provided.why_built["report@x"] == "its input clean@x is built here"


def test_an_input_from_outside_is_not_built_here(shop: Shop) -> None:
    branch = shop.branch()
    shop.base.taint("raw@x")

    assert borrow(branch, "clean@x").why_built["clean@x"] == "its input raw@x cannot be borrowed"


def test_an_instance_that_was_tainted_here_is_built_here(shop: Shop) -> None:
    branch = shop.branch()
    borrow(branch, "report@x")
    branch.taint("report@x")

    provided = borrow(branch, "report@x")

    assert provided.why_built == {"report@x": "the instance of the base was tainted or replaced here"}


def test_a_live_or_leased_ref_keeps_its_instance(shop: Shop) -> None:
    branch = shop.branch(coded("clean", "raw", code="2"))
    borrow(branch, "report@x")
    fact = next(event.fact for event in branch.queries.events.after(0) if isinstance(event.fact, InstancesBorrowed))
    branch.start("clean@x")
    (birth,) = [birth for birth in fact.births if birth.ref == "raw@x"]
    seq = branch.seq

    branch.handle(BorrowInstances(births=(birth,)))

    assert branch.seq == seq
    assert borrow(branch, "clean@x", "raw@x") == Provided([], {})


def test_a_rebuild_makes_the_same_tables(shop: Shop) -> None:
    branch = shop.branch(coded("clean", "raw", code="2"))
    borrow(branch, "report@x")
    branch.succeed("clean@x", inputs=["raw@x"])
    branch.succeed("report@x", inputs=["clean@x", "other@x"])
    before = branch.states("raw@x", "clean@x", "other@x", "report@x")

    rebuild(branch.store)

    assert branch.states("raw@x", "clean@x", "other@x", "report@x") == before == [LIVE] * 4
    assert branch.check() == []


def test_a_base_that_is_away_stops_the_environment(shop: Shop) -> None:
    branch = shop.branch()
    shop.home.rename(shop.home.with_name("elsewhere"))

    with pytest.raises(BaseAway):
        borrow(branch, "report@x")

    shop.home.with_name("elsewhere").rename(shop.home)
    assert "report@x" in borrow(branch, "report@x").live


def test_a_base_that_was_restored_stops_the_environment(shop: Shop) -> None:
    shop.base.close()
    copy = shop.home.with_name("copy")
    shutil.copytree(shop.home, copy)
    branch = shop.branch()
    shop.base.close()
    shutil.rmtree(shop.home)
    copy.rename(shop.home)

    with pytest.raises(BaseChanged, match="does not have the opening"):
        borrow(branch, "report@x")


def test_an_environment_that_is_over_or_closing_borrows_nothing(shop: Shop) -> None:
    branch = shop.branch(days=1)
    later = shop.branch(name="later")
    branch.clock.turn(2 * 86_400)

    with pytest.raises(EnvironmentOver):
        borrow(branch, "report@x")
    close_in(shop.base.engine, opened_in(shop.base.store)["later"])
    with pytest.raises(EnvironmentClosing):
        borrow(later, "report@x")


def test_what_was_chosen_before_a_refresh_is_chosen_again(shop: Shop) -> None:
    branch = shop.branch()
    clock, waiting = branch.engine.clock, ["a refresh"]

    def refreshing() -> float:
        # `provide` asks for the time after it has read the pin.
        if waiting:
            waiting.clear()
            shop.base.taint("other@x")
            shop.base.succeed("other@x", inputs=["raw@x"])
            shop.environments.refresh("branch")
        return clock()

    branch.engine.clock = refreshing

    provided = borrow(branch, "other@x")

    assert provided.live == ["raw@x", "other@x"]
    assert branch.uuid("other@x") == shop.base.uuid("other@x")
    shop.base.taint("other@x")
    shop.base.succeed("other@x", inputs=["raw@x"])
    uuid = branch.uuid("other@x")
    assert Pins(shop.base.engine).why_kept(Removals(shop.base.store).of_uuids([uuid]).values()).keys() == {uuid}
