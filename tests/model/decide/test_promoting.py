"""A base takes what an environment has built, in one event, or refuses it as a whole by name (rules 16.10, 16.12)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from databuild_dagster.engine.engine import Outcome
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CODE_RULES, CodeSpec, DatasetSpec, TableFormat, TableSpec
from databuild_dagster.model.errors import EnvironmentMoved, EventNotReverted, NoReason, PromotionRefused
from databuild_dagster.model.events import Birth, CanonicalReverted, InstancesPromoted
from databuild_dagster.model.meta_storage import Put, do
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState, WantState
from databuild_dagster.store.rebuild import rebuild
from tests.support.catalog import HERE, dataset
from tests.support.world import COMPLETE, World, instance_of

LIVE, TAINTED = InstanceState.LIVE, InstanceState.TAINTED
OPENING = "environments/branch"


def coded(asset: str, *needs: str, code: str = "1", **options: Any) -> DatasetSpec:
    return replace(dataset(asset, *needs, code_version=None), code=CodeSpec(digest(asset, code)), **options)


def digest(asset: str, code: str) -> str:
    return f"{CODE_RULES}:{asset}-{code}"


#: raw is read by clean, which is read by report.
SHOP = (dataset("raw"), coded("clean", "raw"), coded("report", "clean"))


@dataclass
class Base:
    """A world in which an environment was opened, and the environment's instances."""

    world: World
    pin: int = 0
    births: dict[str, Birth] = field(default_factory=dict)

    def promote(self, *refs: str, **options: Any) -> Outcome:
        births = [self.births[ref] for ref in refs or self.births]
        return self.world.handle(self.world.promotion(*births, **options))

    def causes(self, *refs: str, **options: Any) -> list[tuple[str, str]]:
        """Why the base refuses; it records nothing."""
        seq = self.world.seq
        with pytest.raises(PromotionRefused) as refused:
            self.promote(*refs, **options)
        assert self.world.seq == seq
        return list(refused.value.facts["causes"])

    def deploy(self, *specs: DatasetSpec) -> None:
        found = {spec.asset: spec for spec in (*SHOP, *specs)}
        self.world.handle(c.RegisterDatasets(location=HERE, datasets=tuple(found.values())))


@pytest.fixture
def base() -> Base:
    """The environment has built clean and report, from the raw of its base."""
    world = World(SHOP)
    world.live("raw")
    world.succeed("clean", inputs=["raw"])
    world.succeed("report", inputs=["clean"])
    found = Base(world)
    found.pin = world.promotion().pin
    clean = replace(world.birth("clean", raw=world.uuid("raw")), code_version=None, code=digest("clean", "1"))
    report = replace(world.birth("report", clean=instance_of(clean)), code_version=None, code=digest("report", "1"))
    found.births = {"clean": clean, "report": report}
    return found


def test_one_event_moves_every_pointer(base: Base) -> None:
    before = base.world.uuid("clean")

    (event,) = base.promote().events

    assert isinstance(event.fact, InstancesPromoted)
    for ref, birth in base.births.items():
        assert base.world.uuid(ref) == instance_of(birth)
        assert base.world.state(ref) is LIVE
    report = base.world.queries.instances.get(base.world.uuid("report"))
    assert report is not None
    assert report.inputs == (base.world.uuid("clean"),)
    assert [one.uuid for one in base.world.queries.instances.history("clean")] == [before, base.world.uuid("clean")]
    assert base.world.queries.instances.stale([report.uuid]) == set()
    assert base.world.check() == []


def test_what_the_base_built_from_a_replaced_instance_is_stale(base: Base) -> None:
    report = base.world.uuid("report")

    base.promote("clean")

    assert base.world.queries.instances.stale([report]) == {report}


def test_a_promotion_ends_wants_and_wakes_what_waits() -> None:
    world = World([dataset("clean"), dataset("report", "clean")])
    promotion = world.promotion(world.birth("clean"))
    want = world.want("report")
    world.miss("report", "clean")

    world.handle(promotion)

    assert world.state("report") is InstanceState.UP_FOR_RETRY
    assert world.open_wants("clean") == []
    world.live("report")
    assert world.want_state(want) is WantState.SUCCESSFUL


def test_a_promotion_wakes_arcs_like_any_publication() -> None:
    world = World([dataset("clean"), dataset("mart", subscribe=["clean"])])

    world.handle(world.promotion(world.birth("clean")))

    assert world.fire() == ["mart"]


def test_a_rebuild_makes_the_same_tables(base: Base) -> None:
    base.promote()
    before = [base.world.canonical(ref) for ref in ("raw", "clean", "report")]

    rebuild(base.world.store)

    assert [base.world.canonical(ref) for ref in ("raw", "clean", "report")] == before
    assert base.world.check() == []


def test_a_promotion_is_reverted_and_the_instance_returns(base: Base) -> None:
    before = base.world.uuid("clean")
    base.promote("clean")

    base.world.handle(c.RevertCanonical(ref=Ref("clean"), uuid=before))

    assert base.world.uuid("clean") == before
    (event,) = base.promote("clean").events
    assert isinstance(event.fact, InstancesPromoted)
    assert (event.fact.births, [one.ref for one in event.fact.returns]) == ((), ["clean"])
    assert base.world.uuid("clean") == instance_of(base.births["clean"])
    assert base.world.check() == []


def reverting(base: Base, seq: int, *refs: str, **options: Any) -> c.RevertEvent:
    """The command that takes back a promotion of refs."""
    before = base.world.queries.canonical.at([Ref(ref) for ref in refs], seq - 1)
    reversals = tuple(
        c.Reversal(ref, instance_of(base.births[ref]), one.uuid if one.state is LIVE else None)
        for ref, one in before.items()
    )
    return c.RevertEvent(seq=seq, reversals=reversals, **{"reason": "wrong rates", **options})


def test_a_whole_promotion_is_reverted_in_one_command(base: Base) -> None:
    before = [base.world.uuid(ref) for ref in base.births]
    (event,) = base.promote().events

    outcome = base.world.handle(reverting(base, event.seq, *base.births, reason=""))

    assert [base.world.uuid(ref) for ref in base.births] == before
    assert [base.world.state(ref) for ref in base.births] == [LIVE, LIVE]
    assert {type(one.fact) for one in outcome.events} == {CanonicalReverted}
    assert base.world.check() == []


def test_the_instance_of_a_ref_that_was_not_live_before_is_tainted(base: Base) -> None:
    report = base.world.uuid("report")
    base.world.taint("clean")
    (event,) = base.promote(pin=base.world.seq).events
    with pytest.raises(NoReason):
        base.world.handle(reverting(base, event.seq, *base.births, reason=" "))

    base.world.handle(reverting(base, event.seq, *base.births))

    promoted = instance_of(base.births["clean"])
    assert (base.world.uuid("clean"), base.world.state("clean")) == (promoted, TAINTED)
    assert [taint.reason for taint in base.world.queries.instances.taints_of(promoted)] == ["wrong rates"]
    assert (base.world.uuid("report"), base.world.state("report")) == (report, LIVE)
    assert base.world.check() == []


def test_a_ref_that_moved_since_refuses_the_whole_revert(base: Base) -> None:
    (event,) = base.promote().events
    base.world.taint("report")
    base.world.succeed("report", inputs=["clean"])
    seq = base.world.seq

    with pytest.raises(EventNotReverted) as refused:
        base.world.handle(reverting(base, event.seq, *base.births))

    moved = ("report", f"instance {base.world.uuid('report')} took its place since")
    assert (refused.value.facts["causes"], base.world.seq) == ((moved,), seq)


@pytest.mark.parametrize("downstream", [False, True])
def test_an_instance_that_was_tainted_since_comes_back_by_force_alone(base: Base, *, downstream: bool) -> None:
    before = {ref: base.world.uuid(ref) for ref in base.births}
    (event,) = base.promote().events
    uuids = (before["clean"],)
    base.world.handle(c.TaintPartitions(uuids=uuids, reason="wrong", downstream=downstream))

    with pytest.raises(EventNotReverted) as refused:
        base.world.handle(reverting(base, event.seq, *base.births))
    base.world.handle(reverting(base, event.seq, *base.births, force=True))

    tainted = [ref for ref, _ in refused.value.facts["causes"]]
    assert tainted == (["clean", "report"] if downstream else ["clean"])
    assert {ref: base.world.uuid(ref) for ref in base.births} == before


def test_data_that_was_removed_since_refuses_the_revert(base: Base) -> None:
    before = base.world.uuid("clean")
    (event,) = base.promote("clean").events
    base.world.clock.turn(100)
    base.world.handle(c.RemoveManifests(uuids=(before,), reason="retention"))

    with pytest.raises(EventNotReverted) as refused:
        base.world.handle(reverting(base, event.seq, "clean", force=True))

    why = f"the data of instance {before}, which was live before, was removed"
    assert refused.value.facts["causes"] == (("clean", why),)


def test_a_promoted_return_is_news_for_arcs() -> None:
    world = World([dataset("clean"), dataset("late", "clean", subscribe=["clean"], follow_late=True)])
    world.live("clean")
    before, birth = world.uuid("clean"), world.birth("clean")
    world.handle(world.promotion(birth))
    world.handle(c.RevertCanonical(ref=Ref("clean"), uuid=before))
    world.fire()
    world.succeed("late", inputs=["clean"])

    world.handle(world.promotion(birth))
    world.fire()

    assert world.state("late") is TAINTED
    tables = [world.canonical(ref) for ref in ("clean", "late")]
    rebuild(world.store)
    assert [world.canonical(ref) for ref in ("clean", "late")] == tables


def test_equal_rows_leave_what_was_built_from_them_as_it_is(base: Base) -> None:
    hashed = replace(COMPLETE, content_hash="h1:10:1")
    base.world.taint("clean")
    base.world.succeed("clean", inputs=["raw"], manifest=hashed)
    report = base.world.succeed("report", inputs=["clean"]) if base.world.taint("report") else ""
    base.births["clean"] = replace(base.births["clean"], manifest=hashed)

    base.promote("clean", pin=base.world.seq)

    assert base.world.queries.instances.stale([report]) == set()
    rebuild(base.world.store)
    assert base.world.queries.instances.stale([report]) == set()


def test_what_the_base_has_already_is_left_out(base: Base) -> None:
    base.promote("clean")

    (event,) = base.promote().events

    assert [birth.ref for birth in event.fact.births] == ["report"]  # type: ignore[attr-defined]
    assert base.promote().events == ()


def test_a_ref_that_the_base_never_built_is_promoted() -> None:
    world = World([dataset("new")])

    world.handle(world.promotion(world.birth("new")))

    assert world.state("new") is LIVE


def test_a_ref_that_moved_since_the_pin_is_refused(base: Base) -> None:
    base.world.taint("clean")
    newer = base.world.succeed("clean", inputs=["raw"])

    assert base.causes("clean") == [("clean", f"instance {newer} took its place in the base since the pin")]


def test_a_ref_that_was_tainted_since_the_pin_is_refused(base: Base) -> None:
    base.world.taint("clean")

    assert base.causes("clean") == [("clean", "its instance in the base is tainted since the pin")]


def test_a_promoted_instance_that_the_base_tainted_is_refused(base: Base) -> None:
    base.promote("clean")
    base.world.taint("clean")

    for pin in (base.pin, base.world.seq):
        why = f"the base has a taint on instance {instance_of(base.births['clean'])}"
        assert base.causes("clean", pin=pin) == [("clean", why)]


def test_a_later_pin_overwrites_no_newer_repair(base: Base) -> None:
    base.world.taint("clean")
    newer = base.world.succeed("clean", inputs=["raw"])
    later = base.world.seq

    ((_, why),) = base.causes("clean", pin=later, built_at={Ref("clean"): base.pin})

    when = f"event {base.pin}, the pin when it was built; build it again"
    assert why == f"instance {newer} took its place in the base since {when}"
    assert base.promote("clean", pin=later).events


def test_a_later_pin_allows_to_repair_what_was_tainted_before_it(base: Base) -> None:
    base.world.taint("clean")

    base.promote("clean", pin=base.world.seq, built_at={Ref("clean"): base.pin})

    assert base.world.state("clean") is LIVE


@pytest.mark.parametrize("ahead", [False, True])
def test_other_partitions_are_refused_and_so_are_other_inputs_unless_ahead(base: Base, *, ahead: bool) -> None:
    here = coded("clean", "raw", "rates", partitions="days")

    causes = base.causes("clean", datasets={"clean": here}, ahead=ahead)

    whats = ["partitions"] if ahead else ["partitions", "inputs"]
    assert causes == [("clean", f"its {what} are declared differently in the base") for what in whats]


def test_a_ref_that_was_tainted_at_the_pin_is_repaired() -> None:
    world = World([dataset("clean")])
    world.live("clean")
    world.taint("clean")

    world.handle(world.promotion(world.birth("clean")))

    assert world.state("clean") is LIVE


def test_an_instance_that_a_revert_left_is_tainted_first(base: Base) -> None:
    before = base.world.uuid("clean")
    base.promote("clean")
    base.world.taint("clean")
    base.world.handle(c.RevertCanonical(ref=Ref("clean"), uuid=before))

    ((ref, why),) = base.causes("clean")

    assert (ref, "has a taint on instance" in why) == ("clean", True)


def test_an_input_that_is_not_promoted_with_it_is_named(base: Base) -> None:
    assert base.causes("report") == [("report", "its input clean is not promoted with it")]


def test_an_input_that_the_promotion_itself_replaces_is_named(base: Base) -> None:
    base.births["report"] = replace(base.births["report"], inputs={"clean": base.world.uuid("clean")})

    assert base.causes("report", "clean") == [("report", "a different instance of its input clean is promoted with it")]
    assert base.promote("report").events


def test_an_input_that_was_replaced_or_is_bad_is_named(base: Base) -> None:
    taint = base.world.taint("raw")
    assert base.causes() == [("clean", "its input raw is tainted in the base")]
    base.world.untaint(taint)
    base.world.taint("raw")
    base.world.live("raw")

    assert base.causes() == [("clean", "its input raw has a different instance in the base")]


def test_an_input_under_a_downstream_taint_is_named(base: Base) -> None:
    taint = c.TaintPartitions(refs=("raw",), reason="wrong", downstream=True)
    base.births["clean"] = replace(base.births["clean"], inputs={"raw": base.world.uuid("raw")})
    base.world.handle(taint)

    assert ("clean", "its input raw is tainted in the base") in base.causes("clean")


def test_code_that_the_base_has_not_registered_is_refused_unless_ahead(base: Base) -> None:
    base.births["clean"] = replace(base.births["clean"], code=digest("clean", "2"))
    assert base.causes("clean") == [
        ("clean", "its code is not the code that the base has registered by a tick or a build")
    ]

    base.deploy(coded("clean", "raw", code="2"))

    assert base.promote("clean").events
    base.births["report"] = replace(
        base.births["report"], code=digest("report", "2"), inputs={"clean": base.world.uuid("clean")}
    )
    assert base.promote("report", ahead=True).events


def test_a_ref_that_is_being_built_or_paused_is_refused(base: Base) -> None:
    base.world.taint("report")
    base.world.start("report")
    base.world.pause("clean")

    assert base.causes() == [
        ("clean", "it is paused in the base by tester: its source is wrong"),
        ("report", "it is being built in the base"),
    ]


def test_a_delta_table_cannot_list_what_an_environment_wrote(base: Base) -> None:
    base.deploy(coded("clean", "raw", table=TableSpec(format=TableFormat.DELTA)))

    assert base.causes("clean") == [("clean", "its Delta table cannot list files of an environment")]


def test_an_asset_or_partition_that_the_base_does_not_know_is_refused(base: Base) -> None:
    base.births = {ref: base.world.birth(ref) for ref in ("other", "clean@x")}

    assert [ref for ref, _ in base.causes()] == ["other", "clean@x"]


def test_an_environment_that_closes_meanwhile_promotes_nothing(base: Base) -> None:
    base.world.invoke(do(Put(OPENING, b'{"is_closing":true}')))

    with pytest.raises(EnvironmentMoved):
        base.promote()
