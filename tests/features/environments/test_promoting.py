"""What an environment built becomes the base's, with its files, wherever a command was killed (rules 16.10 to 16.12)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from databuild_dagster.calls.taints import RevertedEvent, revert_event
from databuild_dagster.data.environment import FILE_NAME, folder_of, home_of
from databuild_dagster.data.home import sqlite_url
from databuild_dagster.data.ownership import marker_of, plan_take_over
from databuild_dagster.engine import returning
from databuild_dagster.features.clean.cleaning import Cleaner
from databuild_dagster.features.environments import environments, errors
from databuild_dagster.features.environments.keeping import Given
from databuild_dagster.features.environments.promoting import Promotion, promote, settle
from databuild_dagster.features.environments.records import attempt_at, earlier_pins, give, given_in, given_uuids
from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec, DatasetSpec
from databuild_dagster.model.errors import (
    EnvironmentMoved,
    EventNotReverted,
    NoReason,
    NotFound,
    NotReversible,
    PromotionRefused,
    UnknownAsset,
    UnknownPartition,
)
from databuild_dagster.model.events import InstancesPromoted, MadeWith, OutputFact, RunSuccess
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.selections import InvalidSelection
from databuild_dagster.model.states import InstanceState
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import missing_files, read_manifest
from tests.features.environments.conftest import Shop, borrow, changed, coded
from tests.features.environments.test_environments import Statements
from tests.support.catalog import HERE
from tests.support.crashes import AT_STATEMENTS, MOST_STATEMENTS, fewest, killed_at
from tests.support.parquet_rows import written_fact
from tests.support.world import World

CLEANER = coded("clean", "raw", code="2")
BUILT = {"clean@x": ("raw@x",), "report@x": ("clean@x", "other@x")}


def build(
    shop: Shop,
    branch: World,
    ref: str,
    *inputs: str,
    name: str = "branch",
    spec: DatasetSpec = CLEANER,
    numbers: dict[str, float] | None = None,
) -> str:
    """Build a ref in an environment, with files; the uuid."""
    found = {one.asset: one for one in changed(spec)}[asset_of(Ref(ref))]
    assert isinstance(found.code, CodeSpec)
    launch_id, made_with = branch.buffer(ref), MadeWith(code=found.code.digest)
    branch.handle(c.StartLaunch(launch_id=launch_id, dagster_run_id="run", holder="gone", made_with=made_with))
    job_run = str(branch.canonical(ref).job_run)
    root = Warehouse(shop.environments.opened()[name].root)
    output = OutputFact(Ref(ref), {Ref(used): branch.uuid(used) for used in inputs})
    manifest = written_fact(root, ref, job_run, {"n": [1, 2]})
    output = OutputFact(output.ref, output.inputs, None, manifest, numbers=numbers or {})
    branch.handle(c.SucceedJobRuns(runs=(RunSuccess(job_run, (output,)),)))
    return branch.uuid(ref)


def built(shop: Shop, name: str = "branch") -> World:
    """An environment with a changed asset, in which its cone was built."""
    branch = shop.branch(CLEANER, name=name)
    borrow(branch, "report@x")
    for ref, inputs in BUILT.items():
        build(shop, branch, ref, *inputs, name=name)
    return branch


def other_files(shop: Shop, world: World, ref: str, *, erased: bool = False) -> None:
    """Replace the files of a ref by files of the same rows, or of fewer."""
    root = Warehouse(shop.environments.opened()["branch"].root)
    run_id = world.ids()
    manifest = written_fact(root, ref, run_id, {"n": [1] if erased else [1, 2]})
    replacing = c.ReplaceFiles(ref=Ref(ref), uuid=world.uuid(ref), job_run_id=run_id, manifest=manifest, erased=erased)
    world.handle(replacing)


def edit(shop: Shop, spec: DatasetSpec) -> None:
    """The base has other code of an asset, and what was built by the code before is set aside."""
    shop.base.handle(c.RegisterDatasets(location=HERE, datasets=changed(spec)))
    shop.base.handle(c.CreateWants(wants=((Ref("clean@x"),),), fresh=True))


def deploy(shop: Shop) -> None:
    shop.base.handle(c.RegisterDatasets(location=HERE, datasets=changed(CLEANER)))


def run(shop: Shop, *names: str, name: str = "branch", actor: str = "user:kate", **options: Any) -> Promotion:
    return promote(shop.environments, name, [Ref(one) for one in names], actor=actor, **options)


def causes(shop: Shop, *names: str, name: str = "branch") -> list[tuple[str, str]]:
    """Why a promotion is refused: a rehearsal names the same causes, and neither records anything."""
    seq = shop.base.seq
    rehearsed = [(one.ref, one.why) for one in run(shop, *names, name=name, dry_run=True).causes]
    with pytest.raises(PromotionRefused) as refused:
        run(shop, *names, name=name)
    assert shop.base.seq == seq
    assert list(refused.value.facts["causes"]) == rehearsed
    return rehearsed


def lost(world: World, ref: str) -> tuple[str, ...]:
    """The files of the canonical instance that are not there."""
    one = world.canonical(ref)
    place = Warehouse.of_manifest(str(one.manifest_uri), asset_of(Ref(ref)))
    return missing_files(place, read_manifest(place, asset_of(Ref(ref)), str(one.uuid)))


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def promotions(world: World) -> int:
    return sum(isinstance(event.fact, InstancesPromoted) for event in world.queries.events.after(0))


def test_a_promotion_moves_what_was_built_and_the_base_keeps_it_after_the_drop(shop: Shop) -> None:
    branch = built(shop)
    before = shop.base.uuid("clean@x")
    deploy(shop)

    done = run(shop)

    assert [move.ref for move in done.moved] == list(BUILT)
    assert done.moved[0].before == before
    assert [shop.base.uuid(ref) for ref in BUILT] == [branch.uuid(ref) for ref in BUILT]
    assert shop.base.queries.instances.stale([shop.base.uuid("report@x")]) == set()
    root = Path(shop.environments.opened()["branch"].root)
    branch.close()
    shop.environments.drop("branch")
    assert [lost(shop.base, ref) for ref in BUILT] == [(), ()]
    assert list(folder_of(shop.home, "branch").iterdir()) == [root]
    identity = shop.base.store.identity()
    assert marker_of(Warehouse(str(root))) == (identity.id, identity.place)
    with pytest.raises(errors.NoEnvironment):
        shop.environments.drop("branch")


def test_gc_of_the_base_removes_what_it_took_once_the_environment_is_gone(shop: Shop) -> None:
    built(shop).close()
    deploy(shop)
    run(shop)
    root = Path(shop.environments.opened()["branch"].root)
    shop.base.taint("clean@x")
    shop.base.succeed("clean@x", inputs=["raw@x"])

    def going() -> list[str]:
        cleaner = Cleaner(shop.base.engine, str(shop.home / "warehouse"))
        plan = cleaner.plan_gc(["clean"], keep=0, older_than_seconds=0)
        cleaner.carry_out(plan)
        return [one.ref for one in plan.going]

    assert going() == []
    shop.environments.drop("branch")
    assert going() == ["clean@x"]
    assert not list((root / "clean").rglob("*.parquet"))
    assert lost(shop.base, "report@x") == ()


def test_gc_of_the_environment_keeps_what_it_gave(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    run(shop)
    branch.taint("clean@x")
    build(shop, branch, "clean@x", "raw@x")
    given = [Given(branch.engine)]

    plan = Cleaner(branch.engine, shop.environments.opened()["branch"].root, given).plan_gc(
        ["clean"], keep=0, older_than_seconds=0
    )

    assert plan.going == []
    assert [one.why for one in plan.kept] == ["it was given to the base of the environment"]


def test_what_the_environment_alone_has_goes_with_it(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    run(shop, "clean")
    root = Path(shop.environments.opened()["branch"].root)
    branch.close()

    shop.environments.drop("branch")

    assert not files(root / "report")
    assert {path.parent for path in files(root / "clean")} == {
        Path(str(shop.base.canonical("clean@x").manifest_uri)).parent
    }


def test_a_name_is_used_again_beside_what_the_base_took(shop: Shop) -> None:
    built(shop).close()
    deploy(shop)
    run(shop)
    shop.environments.drop("branch")

    opened = shop.environments.create("branch")

    assert Path(opened.root).name == "data-2"
    shop.environments.drop("branch")
    assert lost(shop.base, "clean@x") == ()


def test_a_named_root_keeps_what_the_base_took(shop: Shop, tmp_path: Path) -> None:
    root = tmp_path / "elsewhere"
    shop.environments.create("branch", root=str(root))
    branch = World(changed(CLEANER), url=sqlite_url(home_of(shop.home, "branch")), first_id=1_000_000)
    shop.worlds.append(branch)
    borrow(branch, "clean@x")
    build(shop, branch, "clean@x", "raw@x")
    deploy(shop)
    run(shop)
    branch.close()

    shop.environments.drop("branch")

    assert lost(shop.base, "clean@x") == ()
    assert not folder_of(shop.home, "branch").exists()


def test_a_rehearsal_records_nothing(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    seqs = shop.base.seq, branch.seq

    found = run(shop, dry_run=True)

    assert [move.ref for move in found.moved] == list(BUILT)
    assert found.causes == ()
    assert (shop.base.seq, branch.seq) == seqs


def revert(shop: Shop, seq: int, *, dry_run: bool = False) -> RevertedEvent:
    return revert_event(shop.base.engine, seq, force=False, reason="wrong rates", actor="user:kate", dry_run=dry_run)


def test_a_promotion_is_reverted_as_a_whole_with_its_files(shop: Shop) -> None:
    built(shop)
    deploy(shop)
    run(shop)
    before = {ref: shop.base.uuid(ref) for ref in BUILT}
    spec = coded("clean", "raw", code="3")
    branch = shop.branch(spec, name="next")
    borrow(branch, "report@x")
    for ref, inputs in {**BUILT, "clean@y": ["raw@x"]}.items():
        build(shop, branch, ref, *inputs, name="next", spec=spec)
    shop.base.handle(c.RegisterDatasets(location=HERE, datasets=changed(spec)))
    run(shop, name="next")
    seq = shop.base.seq
    rehearsed = revert(shop, seq, dry_run=True)
    assert shop.base.seq == seq

    done = revert(shop, seq)

    assert done == rehearsed
    assert ({one.ref: one.uuid for one in done.reverted}, done.tainted) == (before, ["clean@y"])
    assert {ref: shop.base.uuid(ref) for ref in BUILT} == before
    assert [shop.base.state(ref) for ref in (*BUILT, "clean@y")] == [*[InstanceState.LIVE] * 2, InstanceState.TAINTED]
    assert revert(shop, seq, dry_run=True).causes


def test_a_revert_by_seq_names_files_that_are_gone(shop: Shop) -> None:
    built(shop)
    deploy(shop)
    run(shop)
    seq = shop.base.seq

    # What the base built has no files.
    causes = revert(shop, seq, dry_run=True).causes

    assert [one.ref for one in causes] == list(BUILT)
    with pytest.raises(EventNotReverted):
        revert(shop, seq)
    with pytest.raises(NotReversible):
        revert(shop, 1)
    for no_event in (seq + 1, 0, 10**20):
        with pytest.raises(NotFound):
            revert(shop, no_event)


def test_a_dry_run_of_a_revert_by_seq_needs_no_reason(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    build(shop, branch, "clean@y", "raw@x")
    run(shop, "clean@y")
    seq = shop.base.seq
    asked = partial(revert_event, shop.base.engine, seq, force=False, reason="", actor="user:kate")

    assert asked(dry_run=True).tainted == ["clean@y"]
    with pytest.raises(NoReason):
        asked()


def test_a_repeated_promotion_finds_nothing_to_do(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    run(shop)
    seqs = shop.base.seq, branch.seq

    again = run(shop)

    assert (again.moved, list(again.there)) == ((), list(BUILT))
    assert (shop.base.seq, branch.seq) == seqs


def test_a_refusal_gives_the_files_back(shop: Shop) -> None:
    branch = built(shop)

    assert causes(shop) == [("clean@x", "its code is not the code that the base has registered by a tick or a build")]

    assert given_in(branch.store) == {}
    assert run(shop, ahead=True).moved


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("report@x",), "its input clean@x is not promoted with it"),
        (("clean@y",), "it is missing in the environment"),
        (("other@x",), "the environment has borrowed it"),
    ],
    ids=["input", "missing", "borrowed"],
)
def test_a_cause_names_its_ref(shop: Shop, names: tuple[str, ...], why: str) -> None:
    built(shop)
    deploy(shop)

    assert causes(shop, *names) == [(names[0], why)]


def test_the_hint_of_a_refusal_has_what_was_typed(shop: Shop) -> None:
    built(shop)
    deploy(shop)

    with pytest.raises(PromotionRefused) as refused:
        run(shop, "report@x", "clean@y")
    with pytest.raises(PromotionRefused) as by_base:
        run(shop, "report@x")

    assert "`databuild env promote --dry-run branch report@x clean@y`" in refused.value.advice
    assert "`databuild env promote --dry-run branch report@x`" in by_base.value.advice


@pytest.mark.parametrize(
    ("names", "moved", "not_built"),
    [
        (("clean@x..y",), ["clean@x"], 1),
        (("clean@*", "report@x..x"), list(BUILT), 0),
        (("clean", "report@x"), list(BUILT), 0),
    ],
    ids=["range", "all", "asset"],
)
def test_of_a_range_what_is_built_is_promoted(
    shop: Shop, names: tuple[str, ...], moved: list[str], not_built: int
) -> None:
    built(shop)
    deploy(shop)

    done = run(shop, *names)

    assert ([move.ref for move in done.moved], done.not_built) == (moved, not_built)


def test_a_range_that_is_not_there_or_not_built_is_refused(shop: Shop) -> None:
    built(shop)
    deploy(shop)

    with pytest.raises(InvalidSelection):
        run(shop, "clean@x..z")
    with pytest.raises(UnknownPartition):
        run(shop, "clean@z")
    with pytest.raises(UnknownAsset):
        run(shop, "claen@x..y")
    with pytest.raises(errors.NothingBuilt):
        run(shop, "other@x..y")


def test_an_instance_that_is_tainted_in_the_environment_is_refused(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    branch.taint("clean@x")

    tainted = ("clean@x", "it is tainted in the environment")
    assert causes(shop, "clean@x") == [tainted]
    assert tainted in causes(shop), "it was built here, so it is not left out without a word"


def test_an_instance_whose_files_are_gone_is_refused(shop: Shop) -> None:
    built(shop)
    deploy(shop)
    root = Path(shop.environments.opened()["branch"].root)
    next((root / "clean").rglob("*.parquet")).unlink()

    ((ref, why),) = causes(shop)

    assert (ref, "is lost or cut short" in why) == ("clean@x", True)


def test_of_two_environments_with_the_same_ref_one_wins(shop: Shop) -> None:
    built(shop)
    other = built(shop, "other")
    deploy(shop)
    run(shop)

    found = causes(shop, name="other")

    assert {ref for ref, _ in found} == set(BUILT)
    assert all("took its place in the base" in why for _, why in found)
    assert given_in(other.store) == {}


def test_a_refresh_lifts_no_taint_of_the_base(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    run(shop)
    shop.base.taint("clean@x", reason="wrong rates")
    shop.environments.refresh("branch")
    assert run(shop).moved == (), "what the base took and tainted is left to the base"
    (mark,) = branch.queries.instances.taints_of(branch.uuid("clean@x"))
    branch.untaint(mark.taint_id)

    why = f"the base has a taint on instance {branch.uuid('clean@x')}"
    assert causes(shop, "clean@x") == [("clean@x", why)]


@pytest.mark.parametrize("is_compacted", [False, True], ids=["built", "compacted"])
def test_a_refresh_puts_no_older_build_before_a_newer_one(shop: Shop, *, is_compacted: bool) -> None:
    branch = built(shop)
    deploy(shop)
    shop.base.taint("clean@x", reason="wrong rates")
    newer = shop.base.succeed("clean@x", inputs=["raw@x"])
    shop.environments.refresh("branch")
    if is_compacted:
        other_files(shop, branch, "clean@x")

    ((_, why),) = causes(shop, "clean@x")

    assert f"instance {newer} took its place in the base since event" in why
    branch.taint("clean@x")
    build(shop, branch, "clean@x", "raw@x")
    assert [move.before for move in run(shop, "clean@x").moved] == [newer]


def test_a_second_refresh_keeps_the_pins_of_earlier_builds(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    shop.environments.refresh("branch")
    branch.taint("clean@x")
    build(shop, branch, "clean@x", "raw@x")
    shop.base.taint("clean@x", reason="wrong rates")
    shop.base.succeed("clean@x", inputs=["raw@x"])
    shop.environments.refresh("branch")

    seqs = {Ref(ref): branch.queries.instances.seqs_of([branch.uuid(ref)])[branch.uuid(ref)] for ref in BUILT}
    pins = earlier_pins(branch.store, seqs)

    assert pins[Ref("clean@x")] > pins[Ref("report@x")] > 0
    ((_, why),) = causes(shop, "clean@x")
    assert f"since event {pins[Ref('clean@x')]}, " in why


def test_an_instance_of_other_partitions_is_refused(shop: Shop) -> None:
    keys = {"__class__": "ExternalStaticPartitionsDefinitionData", "partition_keys": ["x", "y", "z"]}
    spec = replace(CLEANER, partitions=json.dumps(keys))
    branch = shop.branch(spec)
    borrow(branch, "clean@x")
    build(shop, branch, "clean@x", "raw@x", spec=spec)
    deploy(shop)

    assert causes(shop) == [("clean@x", "its partitions are declared differently in the base")]


@pytest.mark.parametrize("is_compacted", [False, True], ids=["promoted", "compacted"])
def test_erased_rows_that_were_promoted_never_come_back_in_place_of_a_build(shop: Shop, *, is_compacted: bool) -> None:
    spec = replace(CLEANER, deterministic=True)
    branch = shop.branch(spec)
    borrow(branch, "clean@x")
    build(shop, branch, "clean@x", "raw@x", spec=spec)
    other_files(shop, branch, "clean@x", erased=True)
    shop.base.handle(c.RegisterDatasets(location=HERE, datasets=changed(spec)))
    run(shop, "clean@x")
    if is_compacted:
        other_files(shop, shop.base, "clean@x")
    edit(shop, replace(coded("clean", "raw", code="3"), deterministic=True))
    newer = shop.base.succeed("clean@x", inputs=["raw@x"])
    edit(shop, spec)

    returned = returning.provide(shop.base.engine, [Ref("clean@x")])

    assert list(returned.live) == []
    assert shop.base.uuid("clean@x") == newer


def test_a_promoted_instance_has_the_numbers_of_its_author(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    branch.taint("clean@x")
    build(shop, branch, "clean@x", "raw@x", numbers={"share": 0.5})

    run(shop, "clean@x")

    uuid = shop.base.uuid("clean@x")
    assert shop.base.queries.instances.rows_of([uuid])[uuid].numbers == '{"share":0.5}'


def test_an_environment_without_anything_to_promote_says_so(shop: Shop) -> None:
    shop.branch()

    with pytest.raises(errors.NothingBuilt):
        run(shop)
    with pytest.raises(errors.NoEnvironment):
        run(shop, name="none")


def test_an_environment_that_is_over_or_closing_promotes_nothing(shop: Shop) -> None:
    built(shop)
    shop.base.clock.turn(15 * 86_400)

    with pytest.raises(errors.EnvironmentOver):
        run(shop)


def test_an_environment_without_a_record_in_its_base_promotes_nothing(shop: Shop) -> None:
    shop.branch(CLEANER, is_pinned=False)

    with pytest.raises(PromotionRefused, match="--unpinned"):
        run(shop)


def test_what_a_killed_promotion_gave_is_taken_back_and_never_promoted(shop: Shop) -> None:
    """The process of the first promotion goes on after a second one has settled what it gave."""
    branch = built(shop)
    deploy(shop)
    give(branch.engine, "first", [branch.uuid("clean@x")], "user:kate")

    settle(shop.base.engine, branch.engine, "user:kate")

    assert given_in(branch.store) == {}
    birth = shop.base.birth("clean@x", raw=shop.base.uuid("raw@x"))
    late = shop.base.promotion(birth, environment="late")
    assert shop.base.handle(late, command_id="first").repeated
    assert promotions(shop.base) == 0


def test_a_killed_promotion_is_repeated_with_its_command_id_and_done_once(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    give(branch.engine, attempt_at("form", "1"), [branch.uuid("clean@x")], "web:kate")

    first, second = (promote(shop.environments, "branch", actor="web:kate", command_id="form") for _ in range(2))

    assert ([move.ref for move in first.moved], second.there) == (["clean@x", "report@x"], ("clean@x", "report@x"))
    assert (second.moved, second.seq) == ((), first.seq)
    assert promotions(shop.base) == 1
    assert given_uuids(branch.store) == {branch.uuid("clean@x"), branch.uuid("report@x")}


def test_a_command_id_that_a_later_promotion_has_used_up_promotes_nothing(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    give(branch.engine, attempt_at("form", "1"), [branch.uuid("clean@x")], "web:kate")
    settle(shop.base.engine, branch.engine, "user:kate")

    with pytest.raises(EnvironmentMoved):
        promote(shop.environments, "branch", actor="web:kate", command_id="form")

    assert (given_in(branch.store), promotions(shop.base)) == ({}, 0)


def test_a_gift_of_what_is_all_tainted_by_now_is_taken_back_by_the_next_promotion(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    give(branch.engine, "first", [branch.uuid(ref) for ref in BUILT], "user:kate")
    for ref in BUILT:
        branch.taint(ref)

    with pytest.raises(PromotionRefused, match="tainted"):
        run(shop)

    assert given_in(branch.store) == {}


def test_an_instance_that_changes_while_it_is_given_is_not_promoted(shop: Shop) -> None:
    branch = built(shop)
    deploy(shop)
    before = shop.base.uuid("clean@x")
    waiting = ["clean@x"]

    def taint(_: str) -> None:
        if waiting and given_in(branch.store):
            branch.taint(waiting.pop())

    def trace(engine: Any) -> None:
        if engine.store.path == branch.store.path:
            engine.store._connection().set_trace_callback(taint)

    shop.traced = trace

    with pytest.raises(EnvironmentMoved):
        run(shop)

    assert given_in(branch.store) == {}
    assert shop.base.uuid("clean@x") == before


def test_a_take_over_of_the_base_leaves_the_root_of_an_environment(shop: Shop) -> None:
    built(shop)
    deploy(shop)
    run(shop)
    opened = shop.environments.opened()["branch"]
    root = Warehouse(opened.root)
    # Its home may be on a different host.
    Path(opened.home, FILE_NAME).unlink()

    (planned,) = [one for one in plan_take_over(shop.base.store, [root]) if one.root == root.root]

    assert planned.why_not == "the environment branch owns it until `databuild env drop branch`"


def rebuilt(shop: Shop, name: str) -> World:
    """An environment in which the cone was built although the base has it."""
    branch = shop.branch(CLEANER, name=name)
    borrow(branch, "report@x")
    for ref, inputs in BUILT.items():
        if branch.state(ref) is InstanceState.LIVE:
            branch.taint(ref)
        build(shop, branch, ref, *inputs, name=name)
    return branch


@pytest.mark.long("it kills a process at each statement of a command")
@pytest.mark.parametrize("counter", AT_STATEMENTS)
@pytest.mark.parametrize("command", ["promote", "drop"])
def test_a_command_that_was_killed_anywhere_is_repeated(shop: Shop, command: str, counter: Any) -> None:
    deploy(shop)
    world = SimpleNamespace(store=Statements(shop))

    for statement in range(1, MOST_STATEMENTS):
        name = f"branch-{statement}"
        branch = rebuilt(shop, name)
        before, after = ([one.uuid(ref) for ref in BUILT] for one in (shop.base, branch))
        if command == "drop":
            run(shop, name=name)
        branch.close()
        shop.base.close()

        def act(_: object, name: str = name) -> None:
            run(shop, name=name) if command == "promote" else shop.environments.drop(name)

        is_killed = killed_at(world, statement, act, counter)

        found = [shop.base.uuid(ref) for ref in BUILT]
        assert found in ([before, after] if command == "promote" else [after])
        if command == "promote":
            run(shop, name=name)
            assert list(given_in(branch.store).values()) == [frozenset(after)]
            branch.close()
        if name in shop.environments.opened():
            shop.environments.drop(name)
        assert [shop.base.uuid(ref) for ref in BUILT] == after
        assert [lost(shop.base, ref) for ref in BUILT] == [(), ()]
        if not is_killed:
            break
    assert statement > fewest(counter)


def test_a_drop_that_was_killed_between_two_files_is_continued(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(shop)
    left = 0

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return function(*args, **named)

        return called

    for n_done in range(100):
        name = f"branch-{n_done}"
        rebuilt(shop, name).close()
        run(shop, "clean", name=name)
        left = n_done
        with monkeypatch.context() as killed, suppress(KeyboardInterrupt):
            for place, function in ((os, "unlink"), (os, "rmdir"), (environments, "replace_marker")):
                killed.setattr(place, function, dying(getattr(place, function)))
            shop.environments.drop(name)

        assert lost(shop.base, "clean@x") == ()
        if name in shop.environments.opened():
            shop.environments.drop(name)
        assert lost(shop.base, "clean@x") == ()
        assert [path.name for path in folder_of(shop.home, name).iterdir()] == ["data"]
        if left >= 0:
            break
    assert n_done > 5
