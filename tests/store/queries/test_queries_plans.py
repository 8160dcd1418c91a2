"""Keys and indexes answer the questions of commands and ticks, however long the history is (rule 11.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.why.job_runs import builds_of
from databuild_dagster.model import commands as c
from databuild_dagster.model.meta_storage import Put, RemovePrefix, do
from databuild_dagster.store.meta_storage import MetaQueries
from databuild_dagster.store.queries.job_runs import JobRunFilter
from databuild_dagster.store.queries.wants import WantFilter
from databuild_dagster.store.removals import Removals
from databuild_dagster.web.events import failures_of
from tests.support.catalog import dataset
from tests.support.world import World

#: Its plans follow from the indexes alone. PostgreSQL's follow from the sizes of tables too: of one as small as a test's it reads
#: everything, with any index. What commands cost there as tables grow is measured by `bench/engine`.
DATABASES = ("sqlite",)


@pytest.fixture
def world():
    world = World([dataset(name) for name in "abcd"])
    world.want("a")
    world.miss("a", "b")
    world.live("d")
    yield world
    world.store.close()


def meta(world):
    return MetaQueries(world.store)


ASKED = [
    ("what was built from a ref", lambda world: world.queries.instances.n_live_built_from(["a"], [])),
    ("a command from want to success", lambda world: world.live("c")),
    ("several at once", lambda world: world.live("b", "c")),
    ("a dep miss, and what ends a wait", lambda world: (world.miss("c", "b"), world.live("b"))),
    ("a taint that opens a want again", lambda world: world.taint("d")),
    ("taking wants back", lambda world: world.handle(c.CancelWants(ids=(world.open_wants("a")[0].id,)))),
    ("what is due", lambda world: world.due()),
    ("what is recorded of a range of lots", lambda world: world.queries.canonical.recorded_between("a", "a@2024")),
    ("the newest want of refs", lambda world: world.queries.wants.last_of(["a", "d"])),
    ("what was learned", lambda world: world.queries.planning.learned_inputs(["a", "c"], world.clock.now)),
    ("whether an asset is an arc", lambda world: world.queries.datasets.is_arc("a")),
    ("what woke arcs", lambda world: world.queries.datasets.last_firings(["a"])),
    ("the late inputs of instances", lambda world: world.queries.datasets.late_inputs([world.uuid("d")], 5)),
    ("who asked", lambda world: world.queries.wants.requesters([world.open_wants("a")[0].request_id])),
    ("the operations that ended last", lambda world: meta(world).newest("distOpHistory.", 100, 5)),
    ("the states of inputs", lambda world: world.queries.canonical.input_states(["a", "d"])),
    ("what waiting refs wait for", lambda world: world.queries.planning.waited_for(["a"], world.clock.now)),
    ("when the next retry is due", lambda world: world.queries.planning.next_retry([1], world.clock.now)),
    ("what of some refs is due", lambda world: world.queries.planning.due_among(["a"], [1], world.clock.now, 5)),
    (
        "what of a request is not live",
        lambda world: world.queries.planning.unserved(world.open_wants("a")[0].request_id),
    ),
    ("which refs are needed", lambda world: world.queries.planning.served_among(["a"], ["b", "c"])),
    ("which job runs build what is needed", lambda world: world.queries.planning.awaited(["a"], 5)),
    ("when what is needed is due", lambda world: world.queries.planning.due_soon(["a"], world.clock.now)),
    ("launches that have not ended", lambda world: world.queries.launches.open()),
    ("job runs that have not ended", lambda world: world.queries.job_runs.newest(open_only=True)),
    ("every want of a ref", lambda world: world.queries.wants.of_ref("a")),
    ("derivative wants of refs", lambda world: world.queries.wants.derivative(["a", "b"])),
    (
        "open wants for a ref",
        lambda world: world.queries.wants.newest(WantFilter(open_only=True, derivative=False, ref="a")),
    ),
    ("what readers of refs saw once", lambda world: world.queries.canonical.at(["a", "d"], 4)),
    ("what readers of a dataset saw once", lambda world: world.queries.canonical.of_dataset_at("d", 4)),
    ("how an instance came into its state", lambda world: world.queries.instances.last_change(world.uuid("d"), 4)),
    ("what open wants add up to", lambda world: world.queries.planning.wanted(["a", "d"])),
    ("what failed because of refs", lambda world: world.queries.canonical.failed_upstream_of(["a", "b"])),
    ("where the causes of refs failed", lambda world: world.queries.canonical.runs_that_failed_first(["a", "b"])),
    ("what many instances wait for", lambda world: world.queries.planning.missing_of_each([world.uuid("a")])),
    ("what taints many instances", lambda world: world.queries.instances.taints_in_force([world.uuid("d")])),
    ("job runs by name", lambda world: world.queries.job_runs.named([world.canonical("a").job_run])),
    ("how long launches took", lambda world: world.queries.launches.spans("d")),
    ("what is held against refs", lambda world: world.queries.instances.taints_to_show(["a", "d"])),
    ("the refs of a taint", lambda world: world.queries.instances.tainted_by("none")),
    ("how many refs are tainted", lambda world: world.queries.instances.tainted_refs(["a", "d"], 5)),
    ("how instances came to be", lambda world: world.queries.wants.origins([world.uuid("d")])),
    ("paused refs", lambda world: world.queries.planning.paused(["a", "b"], 0.0)),
    ("some events", lambda world: world.queries.events.named(["TaintCreated"], 1, 5)),
    ("who asked for instances", lambda world: world.queries.wants.askers([world.uuid("d"), world.uuid("a")])),
    ("what instances were made with", lambda world: world.queries.instances.made_with([world.uuid("d")])),
    ("what stays for others", lambda world: world.queries.wants.kept_for_others([world.open_wants("a")[0].id])),
    ("how many wants are open", lambda world: world.queries.wants.n_open()),
    ("what a request got", lambda world: world.engine.ledger.of_requester("R")),
    ("who asked for a ref", lambda world: world.engine.ledger.of_ref("a")),
    ("what may be removed of a dataset", lambda world: Removals(world.store).of_dataset("a")),
    ("what may be removed by uuid", lambda world: Removals(world.store).of_uuids([world.uuid("d")])),
    ("what was not removed to its end", lambda world: Removals(world.store).unfinished()),
    ("removing", lambda world: world.handle(c.RemoveManifests(uuids=(world.uuid("d"),), reason="enough"))),
    ("keys of the meta storage", lambda world: meta(world).get_all(["a", "b"])),
    ("keys that begin alike", lambda world: meta(world).prefix("a")),
    ("what happened to keys", lambda world: meta(world).changes(1, "a", "b")),
    ("an invoke", lambda world: world.invoke(do(Put("a", b"1"), Put("b", b"1"), RemovePrefix("b")))),
    ("the marks of refs", lambda world: world.queries.canonical.marked(["a", "d"])),
    ("the marks of a dataset", lambda world: world.queries.canonical.marked_groups("d", 4)),
    ("instances by uuid", lambda world: world.queries.instances.named([world.uuid("d")])),
    ("what was built from an instance", lambda world: world.queries.instances.built_from(world.uuid("d"), 5)),
    ("the inputs of instances", lambda world: world.queries.instances.inputs_of([world.uuid("d")], 5)),
    ("second builds", lambda world: world.queries.instances.second_builds(["d"])),
    ("the refs of inputs", lambda world: world.queries.instances.inputs_by_ref([world.uuid("d")])),
    ("the uses of instances", lambda world: world.queries.instances.uses_of([world.uuid("d")], 5)),
    ("instances at an earlier event", lambda world: world.queries.instances.at([world.uuid("d")], world.seq)),
    ("the inputs of then", lambda world: world.queries.instances.inputs_at([world.uuid("d")], 5, world.seq)),
    ("the uses of then", lambda world: world.queries.instances.uses_at([world.uuid("d")], 5, world.seq)),
    (
        "what a taint had reached",
        lambda world: world.queries.instances.n_live_built_from_at(world.uuid("d"), world.seq),
    ),
    (
        "in which inputs two differ",
        lambda world: world.queries.instances.input_differences(world.uuid("a"), world.uuid("d"), 5),
    ),
    ("what --fresh set aside", lambda world: world.queries.instances.set_aside_by_code(["a", "d"])),
    ("whether it is stale", lambda world: world.queries.instances.stale([world.uuid("d")])),
    ("the newest requests", lambda world: world.ledger.entries(most=5)),
    ("the newest delegations", lambda world: world.ledger.delegations(most=5)),
    ("the data of instances", lambda world: world.queries.instances.data_facts([world.uuid("d")])),
    ("inputs with equal rows", lambda world: world.queries.instances.equal_inputs([world.uuid("d")])),
    ("how many are cut off", lambda world: world.queries.instances.n_cut_off(["a"])),
    (
        "first rows without erasures",
        lambda world: world.queries.instances.first_with_rows([world.uuid("d")], with_erased=False),
    ),
    ("recorded hashes", lambda world: world.queries.instances.content_hashes([world.uuid("d")])),
    ("how many inputs", lambda world: world.queries.instances.n_inputs_of([world.uuid("d")])),
    ("the refs of a want in pages", lambda world: world.queries.wants.refs_of(world.open_wants("a")[0].id, 5, 1)),
    (
        "wants with their first refs",
        lambda world: world.queries.wants.newest_cut(WantFilter(ref="a"), most=9, most_refs=2),
    ),
    (
        "the open builds of a page",
        lambda world: builds_of(world.queries, world.queries.job_runs.newest(open_only=True, most=5)),
    ),
    ("the builds of a ref", lambda world: world.queries.job_runs.newest(JobRunFilter(ref="a", since=1.0), most=5)),
    ("the failures of a page", lambda world: failures_of(world.queries)),
    ("how much was built from a ref, for a page", lambda world: world.queries.instances.live_built_from(["a"], [])),
    ("the newest wants of a dataset", lambda world: world.queries.wants.newest(WantFilter(asset="d", after_id=5))),
    (
        "the number of the newest wants",
        lambda world: world.queries.wants.count(WantFilter(source="user", after_id=5), 5),
    ),
    ("the open wants of a dataset", lambda world: world.queries.wants.newest(WantFilter(open_only=True, asset="d"))),
    (
        "the open wants of a page",
        lambda world: world.queries.wants.newest(WantFilter(open_only=True, derivative=False)),
    ),
    ("the last event by a time", lambda world: world.queries.events.seq_at(world.clock.now)),
]


@pytest.mark.parametrize("ask", [ask for _, ask in ASKED], ids=[what for what, _ in ASKED])
def test_no_table_that_grows_is_walked_through(world, ask):
    """Rule 11.3"""
    statements: list[str] = []
    with world.store.reading() as connection:
        connection.set_trace_callback(statements.append)
    ask(world)
    connection.set_trace_callback(None)

    assert statements
    assert walks(connection, statements) == []


#: The newest delegations and launches, of which a question inside gives a bounded number.
OF_NEWEST = ("SCAN d", "SCAN l")


def walks(connection, statements):
    """The steps of the plans that read a table from end to end, be it to make an index for this one question.

    Datasets are few, and the last event is found at once; `waiting` is what a recursion has found so far.
    """
    # SQLite tells what it bound as text, and cannot read its own infinity.
    asked = {text.replace("Inf", "9e999") for text in statements if text.split()[0] in ("SELECT", "UPDATE", "DELETE")}
    steps = [
        step
        for text in sorted(asked)
        if not text.endswith("ORDER BY seq DESC LIMIT 1")
        for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {text}")
    ]
    # The head of the log is a row.
    # The chain of a ref is what a recursion has found by keys; of the newest, an index gives a bounded number; the few refs of
    # a want, and the inputs of either instance, by which the two are differing, are found by keys; and the
    # open wants have an index of their own, as have the open pauses, what failed, and what was not removed to its end.
    few = (
        "json_each",
        "databuild_datasets",
        "SCAN chain",
        "SCAN newest",
        "SCAN few",
        "SCAN either",
        "SCAN differing",
        "SCAN (subquery",
        "SCAN head",
        "SCAN counted",
        "databuild_refs_failed",
        "databuild_wants_expiring",
        "databuild_instances_unfinished",
        "databuild_pauses_open",
    )
    return [
        step
        for step in steps
        if (step.startswith("SCAN") or "AUTOMATIC" in step)
        and step not in OF_NEWEST
        and not any(name in step for name in few)
    ]
