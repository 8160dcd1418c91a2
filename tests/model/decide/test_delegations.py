"""Stories of who asks for what others build, or have built: the ledger (rules 8)."""

from __future__ import annotations

import msgspec
import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.coordination import ANSWERS, MESSAGES, Answer
from databuild_dagster.model.datasets import CodeSpec
from databuild_dagster.model.states import InstanceState, WantState
from databuild_dagster.store.ledger import LedgerEntry
from tests.support.catalog import dataset
from tests.support.model_world import ModelWorld
from tests.support.world import COMPLETE


@pytest.fixture
def world(make_world):
    return make_world(*(dataset(name) for name in "abc"), *(dataset(name, job="trio") for name in ("x", "y", "z")))


def entry(world: ModelWorld, requester: str, ref: str) -> LedgerEntry:
    (found,) = [item for item in world.ledger.of_requester(requester) if item.ref == ref]
    return found


def ledger(world: ModelWorld, requester: str) -> dict[str, tuple[str, str]]:
    """Ref to (kind, outcome)."""
    return {item.ref: (item.kind.value, item.outcome.value) for item in world.ledger.of_requester(requester)}


# The seed's three scenarios, as section 8 of the rules corrects them: a job of the outputs x, y and z.


def test_mixed_availability_builds_what_is_needed_and_delegates_the_rest_to_its_builders(world):
    """Seed scenario 1, rule 8.2: outputs that are live keep their instance."""
    x, z = world.succeed("x"), world.succeed("z")
    before = world.seq

    claim = world.claim("x", "y", "z", together=True, dagster_run_id="A").claim

    assert list(claim.build) == ["y"]
    assert world.log(before) == ["PartitionDelegated", "WantCreated", "JobRunBuffered", "JobRunStarted"]
    assert ledger(world, "A") == {"x": ("reused", "live"), "y": ("built", "waiting"), "z": ("reused", "live")}
    assert (entry(world, "A", "x").uuid, entry(world, "A", "z").uuid) == (x, z)
    assert MESSAGES[entry(world, "A", "x").kind] == "Delegated to historical build - partition already available"


def test_all_available_delegates_each_ref_to_its_own_build_and_skips_the_job(world):
    """Seed scenario 2, rule 8.2"""
    uuids = {ref: world.succeed(ref) for ref in ("x", "y", "z")}
    before = world.seq

    world.claim("x", "y", "z", together=True, dagster_run_id="A")

    assert world.log(before) == ["PartitionDelegated", "JobRunSkipped"]
    assert {instance.ref: instance.uuid for instance in world.ledger.of_requester("A")} == uuids
    assert len({item.job_run for item in world.ledger.of_requester("A")}) == 3


def test_an_active_build_is_joined_for_its_ref_alone_and_followed_to_its_end(world):
    """Seed scenario 3, rules 8.2, 8.3: what is live is delegated to its own builder, never to the builder of another ref."""
    x = world.succeed("x")
    builder = world.job_run("y")
    before = world.seq

    world.claim("x", "y", together=True, dagster_run_id="A")

    assert world.log(before) == ["PartitionDelegated", "WantCreated"]
    joined = entry(world, "A", "y")
    assert (joined.job_run, joined.outcome.value) == (builder, "waiting")
    assert MESSAGES[joined.kind] == "Delegated to active build during execution"
    assert entry(world, "A", "x").uuid == x
    y = world.succeed("y")
    assert (entry(world, "A", "y").outcome.value, entry(world, "A", "y").uuid) == ("live", y)


def test_wants_that_a_dagster_run_overtakes_have_joined_it(world):
    """Rule 8.4: of all that asked before anything was launched, exactly one builds."""
    first, second = (world.handle(c.CreateWants(wants=(("a",),))).request_id for _ in range(2))
    assert ledger(world, first) == ledger(world, second) == {"a": ("built", "waiting")}

    world.claim("a", dagster_run_id="A")
    uuid = world.succeed("a")

    assert ledger(world, "A") == {"a": ("built", "live")}
    assert ledger(world, first) == ledger(world, second) == {"a": ("joined", "live")}
    assert {entry(world, item, "a").uuid for item in ("A", first, second)} == {uuid}


# Following


def test_an_active_delegation_follows_its_ref_and_names_the_present_job_run(world):
    """Rule 8.3"""
    first = world.job_run("a")
    world.claim("a", dagster_run_id="A")
    assert entry(world, "A", "a").job_run == first

    world.miss("a", "b")
    assert ledger(world, "A") == {"a": ("joined", "waiting")}
    world.live("b")
    second = world.job_run("a")
    world.lose("a")
    world.clock.turn(3600)

    assert ledger(world, "A") == {"a": ("joined", "waiting")}
    assert entry(world, "A", "a").job_run == second
    served = world.succeed("a")
    assert (entry(world, "A", "a").uuid, entry(world, "A", "a").outcome.value) == (served, "live")


@pytest.mark.parametrize("upstream", [False, True])
def test_an_active_delegation_fails_with_its_ref(world, upstream):
    """Rule 8.3: Failed, or UpstreamFailed."""
    world.job_run("a")
    world.claim("a", dagster_run_id="A")

    if upstream:
        world.miss("a", "b")
        world.fail("b", error="no such file")
    else:
        world.fail("a", error="no such file")

    assert ledger(world, "A") == {"a": ("joined", "failed")}
    assert entry(world, "A", "a").reason == ("b failed" if upstream else "no such file")


def test_a_refusal_says_what_failed(world):
    """Rule 8.1"""
    world.fail("a", error="no such file")

    world.claim("a", by_person=False, dagster_run_id="A")

    assert ledger(world, "A") == {"a": ("refused", "refused")}
    assert entry(world, "A", "a").reason == "a is failed: no such file"


def test_a_requester_that_gave_up_differs_from_one_whose_build_failed(world):
    """Rule 8.3: the delegation timeout."""
    world.job_run("a")
    world.claim("a", dagster_run_id="A")
    world.claim("a", dagster_run_id="B")

    world.handle(c.GiveUpDelegations(requester="A", reason="waited for 60 s"))
    world.succeed("a")

    assert ledger(world, "A") == {"a": ("joined", "given up")}
    assert entry(world, "A", "a").reason == "waited for 60 s"
    assert ledger(world, "B") == {"a": ("joined", "live")}
    assert world.handle(c.GiveUpDelegations(requester="A", reason="again")).events == ()


def test_what_a_person_canceled_is_built_by_no_want_but_by_the_run_that_waits_for_it(world):
    """Rules 8.3, 6.10, decision 0014: a Dagster run that waits is a request of its own, and was not taken back."""
    world.want("a")
    world.job_run("a")
    world.claim("a", dagster_run_id="A", by_person=False)

    world.cancel("a")
    assert (world.due(), world.open_wants("a")) == ([], [])
    claim = world.claim("a", dagster_run_id="A", by_person=False).claim

    assert list(claim.build) == ["a"]
    (want,) = world.open_wants("a")
    assert (want.source, want.request_id) == ("dagster run", "A")
    world.cancel("a")
    assert (world.due(), world.open_wants("a")) == ([], [])
    assert ledger(world, "A") == {"a": ("built", "given up")}


def test_a_ref_that_backs_off_is_waited_for_unless_a_person_asks(world):
    """Rules 4.5, 6.8: it is not schedulable until its retry_at has passed."""
    world.fail("a", kind="transient")

    waiting = world.claim("a", by_person=False, dagster_run_id="A").claim
    assert (list(waiting.build), list(waiting.join)) == ([], ["a"])
    world.clock.turn(3600)
    assert list(world.claim("a", by_person=False, dagster_run_id="A").claim.build) == ["a"]
    world.fail("a", kind="transient")

    assert list(world.claim("a", by_person=True, dagster_run_id="B").claim.build) == ["a"]


def test_one_step_that_gives_up_does_not_give_up_for_another(world):
    """Rule 8.3"""
    world.job_run("a")
    world.job_run("b")
    world.claim("a", dagster_run_id="A")
    world.claim("b", dagster_run_id="A")

    world.handle(c.GiveUpDelegations(requester="A", reason="waited for 60 s", refs=("a",)))

    assert ledger(world, "A") == {"a": ("joined", "given up"), "b": ("joined", "waiting")}


# Wants


def test_a_want_for_what_is_there_or_being_built_is_in_the_ledger_too(world):
    """Rule 8.1: for every kind of requester."""
    a = world.succeed("a")
    builder = world.job_run("b")

    request = world.handle(c.CreateWants(wants=(("a",), ("b",), ("c",)))).request_id

    assert ledger(world, request) == {"a": ("reused", "live"), "b": ("joined", "waiting"), "c": ("built", "waiting")}
    assert entry(world, request, "a").uuid == a
    assert entry(world, request, "b").job_run == builder
    c_uuid = world.succeed("c")
    world.succeed("b")
    assert ledger(world, request) == {"a": ("reused", "live"), "b": ("joined", "live"), "c": ("built", "live")}
    assert entry(world, request, "c").uuid == c_uuid


# Asking without building


def test_a_requester_that_may_not_build_gets_the_list_of_what_would_be_built(world):
    """Rule 8.4: nothing is recorded, so that the next request is decided by itself."""
    world.live("a")
    before = world.seq

    claim = ask(world, "a", "b", may_build=False).claim

    assert (list(claim.reuse), list(claim.build)) == (["a"], ["b"])
    assert world.seq == before


def ask(world, *refs, dagster_run_id="A", **how):
    runs = tuple(c.BufferedRun(world.ids(), (ref,), None) for ref in refs)
    return world.handle(
        c.ClaimRefs(
            launch_id=world.ids(),
            job="a",
            location="here",
            dagster_run_id=dagster_run_id,
            holder="",
            runs=runs,
            **how,
        )
    )


# Rebuilding


def test_a_rebuild_taints_live_and_failed_refs_joins_running_builds_and_wants_all(world):
    """Rule 8.7: one command."""
    a = world.succeed("a")
    world.fail("b")
    world.job_run("c")
    before = world.seq

    outcome = world.handle(c.CreateWants(wants=(("a",), ("b",), ("c",), ("x",)), rebuild=True))

    assert world.log(before) == ["TaintCreated", "PartitionDelegated", "WantCreated"]
    assert world.states("a", "b", "c", "x") == [
        InstanceState.TAINTED,
        InstanceState.TAINTED,
        InstanceState.BUILDING,
        None,
    ]
    assert [world.want_state(want) for want in outcome.want_ids] == [
        WantState.IDLE,
        WantState.IDLE,
        WantState.BUILDING,
        WantState.IDLE,
    ]
    assert world.succeed("a") != a


def test_a_run_that_rebuilds_builds_older_data_again_and_not_its_own(world):
    """Rule 8.7: so that a re-execution, or a second look of the same run, does not build for ever."""
    world.live("a")
    world.clock.turn(10)
    asked_at = world.clock.now
    world.clock.turn(10)

    first = ask(world, "a", dagster_run_id=world.ids(), rebuild_before=asked_at).claim
    world.succeed("a")
    second = ask(world, "a", dagster_run_id=world.ids(), rebuild_before=asked_at).claim

    assert list(first.build) == ["a"]
    assert (list(second.build), list(second.reuse)) == ([], ["a"])


# The table


def test_every_state_has_an_answer():
    """Rule 8.1: exactly one of build, join, reuse and refused."""
    assert set(ANSWERS) == {None, *InstanceState}
    assert {state for state, answer in ANSWERS.items() if answer is Answer.BUILD} == {
        None,
        InstanceState.TAINTED,
        InstanceState.UP_FOR_RETRY,
    }


@pytest.mark.parametrize(
    ("version", "code", "is_built_again"),
    [
        (None, "tree-1:now", False),
        (None, "tree-1:before", True),
        (None, "unknown", True),
        (None, None, False),
        (None, "code-sha256:before", False),
        ("1", "tree-1:before", False),
        ("2", "tree-1:now", True),
    ],
)
def test_fresh_builds_what_other_code_built(make_world, version, code, is_built_again):
    """Rules 4.7, 8.7: the job runs of the test world have the code version 1, or none."""
    spec = dataset("a", code_version=version)
    world = make_world(msgspec.structs.replace(spec, code=CodeSpec(digest="tree-1:now")))
    launch_id = world.buffer("a")
    made_with = None if code is None else e.MadeWith(code=code)
    world.handle(c.StartLaunch(launch_id=launch_id, dagster_run_id="run", holder="somewhere", made_with=made_with))
    output = e.OutputFact(ref="a", code_version=version and "1", manifest=COMPLETE)
    world.handle(c.SucceedJobRuns(runs=(e.RunSuccess(world.canonical("a").job_run, (output,)),)))

    world.handle(c.CreateWants(wants=(("a",),), fresh=True))

    assert (world.due() == ["a"]) is is_built_again


def test_compacted_rows_are_of_the_code_that_built_them(make_world):
    """Rules 4.7, 9.8"""
    world = make_world(msgspec.structs.replace(dataset("a", code_version=None), code=CodeSpec(digest="tree-1:now")))
    launch_id = world.buffer("a")
    world.handle(
        c.StartLaunch(launch_id=launch_id, dagster_run_id="r", holder="h", made_with=e.MadeWith(code="tree-1:before"))
    )
    output = e.OutputFact(ref="a", manifest=COMPLETE)
    world.handle(c.SucceedJobRuns(runs=(e.RunSuccess(world.canonical("a").job_run, (output,)),)))

    world.handle(c.ReplaceFiles(ref="a", uuid=world.uuid("a"), job_run_id=world.ids(), manifest=COMPLETE))

    assert world.canonical("a").code == "tree-1:before"
