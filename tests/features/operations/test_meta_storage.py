"""The meta storage over a real store: revisions, tombstones, watches, compaction (rule 9.1)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from databuild_dagster.features.operations.meta_storage import WATCH_LEASE_SECONDS, MetaStorage
from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.meta_storage import (
    WATCHERS,
    CompactedRevision,
    Entry,
    Put,
    Remove,
    RemovePrefix,
    do,
    exists,
    tombstone,
)
from databuild_dagster.store.rebuild import rebuild
from tests.support.catalog import dataset
from tests.support.world import World


@pytest.fixture
def meta(make_world):
    return MetaStorage(make_world(dataset("a")).engine)


def put(meta, **values):
    return meta.invoke_all([do(*(Put(key, value) for key, value in values.items()))]).revision


def test_all_keys_that_an_invoke_touches_share_one_new_revision(meta):
    """Rules 9.1, I8"""
    first = put(meta, a=b"1", b=b"2", c=b"3")

    second = meta.invoke(exists("a"), do(Put("a", b"4"), Remove("b"), Put("d", b""), yields=7))

    assert second.value == 7
    assert second.revision > first
    look = meta.get_all(["a", "b", "c", "d", "e"])
    assert look.revision == second.revision
    assert look.entries == (
        Entry("a", b"4", second.revision),
        Entry("b", None, second.revision),
        Entry("c", b"3", first),
        Entry("d", b"", second.revision),
        Entry("e", None, 0),
    )


def test_a_removed_key_is_a_tombstone_and_is_not_found(meta):
    """Rule 9.1"""
    put(meta, a=b"1", b=b"2")
    removed = meta.remove("a")

    assert meta.invoke(tombstone("a")).value is True
    assert meta.get("a") == Entry("a", None, removed)
    assert [entry.key for entry in meta.prefix("").entries] == ["b"]
    assert meta.remove("a") > removed
    assert meta.get("a").revision == removed, "what does not exist is not touched"


def test_a_command_id_of_another_kind_of_command_is_refused(meta):
    meta.engine.handle(c.CreateWants(wants=(("a",),)), command_id="a want")

    with pytest.raises(InvalidRequest, match="another kind of command"):
        meta.invoke(exists("a"), command_id="a want")


def test_an_invoke_without_a_statement_is_refused(meta):
    with pytest.raises(InvalidRequest):
        meta.invoke_all([])


def test_a_prefix_and_a_range_are_of_bytes(meta):
    """In any language of the database."""
    for key in ("a.1", "a.10", "a.2", "a/", "B", "ä", "a.1.x"):
        meta.put(key, b"")

    assert [entry.key for entry in meta.prefix("a.1.").entries] == ["a.1.x"]
    assert [entry.key for entry in meta.prefix("a.").entries] == ["a.1", "a.1.x", "a.10", "a.2"]
    assert [entry.key for entry in meta.range("B", "a.10").entries] == ["B", "a.1", "a.1.x"]
    assert [entry.key for entry in meta.prefix("ä").entries] == ["ä"]


def test_what_begins_alike_is_removed_at_once_and_nothing_else(meta):
    for key in ("x.1", "x.10", "x.2", "xy", "x."):
        meta.put(key, b"")
    watch = meta.watch("x")

    revision = meta.invoke_all([do(RemovePrefix("x.1"), Put("x.10", b"again"))]).revision

    assert [entry.key for entry in meta.prefix("x").entries] == ["x.", "x.10", "x.2", "xy"]
    (batch,) = watch.poll()
    assert batch.entries == (Entry("x.1", None, revision), Entry("x.10", b"again", revision))


def test_a_rebuild_makes_the_same_meta_storage(meta):
    """Rule 3.4"""
    put(meta, a=b"\x00\xff", b=b"2", c=b"")
    meta.invoke_all([do(RemovePrefix("a"), Put("d", b"4"))])
    before = meta.get_all("abcd")

    rebuild(meta.engine.store)

    assert meta.get_all("abcd") == before


# Watches


def test_a_watch_that_is_far_behind_gets_the_changes_in_pages(meta, monkeypatch):
    revisions = [put(meta, a=b"%d" % number) for number in range(7)]

    position, seen = 0, []
    while (changes := meta.changes(position, "a", "b", limit=3)).batches:
        assert len(changes.batches) <= 3
        seen += [batch.revision for batch in changes.batches]
        position = changes.up_to

    assert seen == revisions
    assert position == meta.engine.queries.events.head().seq


_KEYS = st.sampled_from(["a", "a.1", "a.10", "b", "b.", "c"])
_OPS = st.one_of(st.builds(Put, _KEYS, st.binary(max_size=2)), st.builds(Remove, _KEYS), st.builds(RemovePrefix, _KEYS))
_STEPS = st.lists(
    st.one_of(
        st.lists(_OPS, max_size=4).map(lambda ops: ("invoke", ops)),
        st.sampled_from([("poll", 0), ("poll", 1), ("poll", 2), ("resume", 0), ("resume", 1), ("compact", None)]),
        st.just(("want", None)),
    ),
    max_size=25,
)
_RANGES = [("a", "b"), ("a.1", "a.1\x01"), ("", "z")]


@pytest.mark.timeout(300)
@example(steps=[("invoke", [Put("a", b""), Remove("a"), RemovePrefix("a")])])
@given(steps=_STEPS)
def test_a_watch_reports_each_revision_once_and_in_order_after_any_commands(database, steps):
    """Rule 9.1: none lost, none twice, resumable; compaction leaves what named watchers have not seen."""
    world = World([dataset("a")])
    meta = MetaStorage(world.engine)
    watches = [meta.watch_range(*place, after=0, name=f"watcher {at}") for at, place in enumerate(_RANGES)]
    heard = [[] for _ in watches]
    state, happened = {}, []

    for what, detail in steps:
        if what == "invoke":
            before = dict(state)
            revision = meta.invoke_all([do(*detail)]).revision
            happened.append((revision, _changed(state, before, detail)))
        elif what == "poll":
            heard[detail] += watches[detail].poll()
        elif what == "resume":
            # Another process goes on where this one has come to.
            watches[detail] = meta.watch_range(
                *_RANGES[detail], after=watches[detail].position, name=f"watcher {detail}"
            )
        elif what == "compact":
            meta.compact(meta.engine.queries.events.head().seq)
        else:
            world.want("a")

    for at, (start, end) in enumerate(_RANGES):
        heard[at] += watches[at].poll()
        expected = [
            (revision, {key: value for key, value in changes.items() if start <= key < end})
            for revision, changes in happened
        ]
        answer = [
            (batch.revision, {entry.key: entry.value for entry in batch.entries if not entry.key.startswith(WATCHERS)})
            for batch in heard[at]
        ]
        assert [entry for entry in answer if entry[1]] == [item for item in expected if item[1]]
        assert all(entry.revision == batch.revision for batch in heard[at] for entry in batch.entries)
    assert world.broken() == []
    world.store.close()


def _changed(state, before, ops):
    """The plainest model there is: what an invoke did to a dict, and what it touched."""
    touched = set()
    for op in ops:
        match op:
            case Put(key, value):
                state[key] = value
                touched.add(key)
            case Remove(key):
                if state.get(key) is not None:
                    state[key] = None
                    touched.add(key)
            case RemovePrefix(prefix):
                under = [key for key in state if key.startswith(prefix)]
                for key in [key for key in under if state[key] is not None or key not in before]:
                    if key in before:
                        state[key] = None
                        touched.add(key)
                    else:
                        # Of this very invoke: it never was.
                        del state[key]
                        touched.discard(key)
    return {key: state[key] for key in touched}


# Compaction


def test_a_watcher_that_is_gone_holds_nothing_back_for_long(meta):
    watch = meta.watch("a", name="another")
    put(meta, a=b"1")
    meta.engine.clock.turn(WATCH_LEASE_SECONDS + 1)

    compacted = meta.compact(meta.engine.queries.events.head().seq)

    assert meta.prefix(WATCHERS).entries == ()
    with pytest.raises(CompactedRevision, match=f"compacted up to {compacted}"):
        meta.watch("a", after=watch.position)


def test_a_watcher_that_closes_holds_nothing_back(meta):
    watch = meta.watch("a", name="another")
    put(meta, a=b"1")
    watch.close()

    assert meta.compact(head := meta.engine.queries.events.head().seq) == head


def test_a_watcher_that_asks_now_and_then_is_never_cut_off(meta):
    watch = meta.watch("a", name="another")
    for _ in range(4):
        meta.engine.clock.turn(WATCH_LEASE_SECONDS * 0.6)
        revision = put(meta, a=b"1")
        meta.compact(meta.engine.queries.events.head().seq)

        assert [batch.revision for batch in watch.poll()] == [revision]


def test_to_resume_from_a_compacted_revision_is_an_error_and_nothing_is_lost_silently(meta):
    """Rule 9.1"""
    slow = meta.watch("a")
    put(meta, a=b"1")
    meta.compact(meta.engine.queries.events.head().seq)

    with pytest.raises(CompactedRevision):
        slow.poll()


def test_compaction_forgets_tombstones_and_no_value(meta):
    put(meta, a=b"1", b=b"2")
    removed = meta.remove("a")

    meta.compact(removed)

    assert meta.get("a") == Entry("a", None, 0)
    assert meta.get("b").value == b"2"
    assert meta.compact(removed) == removed, "twice is once"
    assert meta.compact(removed - 1) == removed


def test_nothing_is_compacted_that_has_not_happened(meta):
    put(meta, a=b"1")

    assert meta.compact(10**9) == meta.engine.queries.events.head().seq - 1


def test_a_foreign_key_among_the_watchers_blocks_nothing(meta):
    meta.put(WATCHERS + "x", b"what?")

    assert meta.compact(head := meta.engine.queries.events.head().seq) == head
    assert meta.prefix(WATCHERS).entries == ()
