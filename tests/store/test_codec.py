"""Stored shapes live for ever: old ones are raised to today's, unknown ones are refused by name (rule 3.1, HOUSE_STYLE 9)."""

from __future__ import annotations

import msgspec
import pytest

from databuild_dagster.model import events as e
from databuild_dagster.store import codec
from databuild_dagster.store.check import check
from databuild_dagster.store.rebuild import rebuild
from databuild_dagster.store.store import Store
from tests.support import golden
from tests.support.world import World


@pytest.fixture
def renamed(monkeypatch):
    """A future in which a want's cancellation was stored in three shapes, one after another."""
    monkeypatch.setitem(codec._versions, "WantCanceled", 3)
    monkeypatch.setitem(
        codec._upcasters, ("WantCanceled", 1), lambda raw: {"type": raw["type"], "wants": [raw["want"]]}
    )
    monkeypatch.setitem(
        codec._upcasters, ("WantCanceled", 2), lambda raw: {"type": raw["type"], "want_ids": raw["wants"]}
    )


@pytest.mark.parametrize(
    ("version", "payload"),
    [
        (1, '{"type":"WantCanceled","want":"w"}'),
        (2, '{"type":"WantCanceled","wants":["w"]}'),
        (3, '{"type":"WantCanceled","want_ids":["w"]}'),
    ],
)
def test_a_stored_shape_is_raised_version_by_version(renamed, version, payload):
    assert codec.decode("WantCanceled", version, payload) == e.WantCanceled(want_ids=("w",))


def test_a_log_with_shapes_of_several_versions_folds_and_is_sound(monkeypatch, tmp_path):
    """Rule 3.4: an older version's log, folded by code whose newest shape is another one, and then added to."""
    path = tmp_path / "build.db"
    golden.restore(golden.read(golden.versions()[-1]), path)
    monkeypatch.setitem(codec._versions, "WantCanceled", 2)
    monkeypatch.setitem(codec._upcasters, ("WantCanceled", 1), lambda raw: {**raw, "reason": "no reason was kept"})
    older = Store(f"sqlite:///{path}", check_projections=False)
    rebuild(older)
    older.close()
    world = World(url=f"sqlite:///{path}", first_id=1_000_000)

    world.clock.turn(24 * 3600.0)
    world.cancel_want(world.open_wants("k")[0].id)

    versions = [row[3] for row in world.queries.events.raw(0, 10_000) if row[2] == "WantCanceled"]
    assert set(versions) == {1, 2}
    assert check(world.store) == []
    assert rebuild(world.store) == world.seq
    world.store.close()


def test_an_arc_of_an_older_registration_does_not_keep_its_place():
    """Rules 3.7, 10.5"""
    old = codec.decode("DatasetRegistered", 1, '{"type":"DatasetRegistered","location":"here"}')

    assert old == e.DatasetRegistered(location="here", resumed=())


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("WantForgotten", 1, "no event of this type is known here"),
        ("WantCanceled", 3, "the newest version known here is 2"),
        ("WantCanceled", 0, "the newest version known here is 2"),
    ],
)
def test_what_is_not_known_here_is_refused_and_not_guessed(name, version, message):
    """Rule 3.5"""
    with pytest.raises(codec.UnknownShape, match=message):
        codec.decode(name, version, '{"type":"WantCanceled","want_ids":["w"]}')


@pytest.mark.parametrize(
    ("name", "payload", "fields"),
    [
        ("WantCanceled", '{"type":"WantCanceled","want_ids":["w"],"reason":"r"}', []),
        ("WantCanceled", '{"type":"WantCanceled","want_ids":["w"],"reasom":"r"}', ["reasom"]),
        ("WantCreated", '{"type":"WantCreated","wants":[{"id":"w","refs":["a"],"x":1}]}', ["wants.x"]),
        ("LotArrived", '{"type":"LotArrived","arrivals":[{"ref":"a","manifest":null}]}', []),
        (
            "LotArrived",
            '{"type":"LotArrived","arrivals":[{"ref":"a","manifest":{"rowz":1}}]}',
            ["arrivals.manifest.rowz"],
        ),
        ("JobRunFailed", '{"type":"JobRunFailed","failures":[{"retries":{"any ref":1.0}}]}', []),
    ],
)
def test_a_field_that_its_shape_has_not_is_named_with_the_way_to_it(name, payload, fields):
    """Rule 3.1: decoding passes over it, so that check has to ask."""
    assert codec.unknown_fields(name, codec._versions.get(name, 1), payload) == fields


def test_a_registration_of_an_older_version_has_no_code():
    """Rules 3.1, 4.7: it is of no other code, so that an update rebuilds nothing."""
    spec = '{"asset":"a","job":"a","location":"here","inputs":[],"code_version":null,"kind":"ours"}'
    old = codec.decode("DatasetRegistered", 2, f'{{"type":"DatasetRegistered","location":"here","datasets":[{spec}]}}')

    assert isinstance(old, e.DatasetRegistered)
    assert old.datasets[0].code is msgspec.UNSET
    assert not old.datasets[0].is_of_other_code(None, "tree-1:now")
    assert codec.encode(old)[1] == 3


def test_a_success_of_an_older_version_has_no_equal_rows():
    """Rules 3.1, 4.8"""
    run = '{"job_run_id":"j","outputs":[{"ref":"a","manifest":{"state":"complete","uri":"u"}}]}'
    old = codec.decode("JobRunSucceeded", 1, f'{{"type":"JobRunSucceeded","runs":[{run}]}}')

    assert isinstance(old, e.JobRunSucceeded)
    (output,) = old.runs[0].outputs
    assert (output.same_data_as, output.manifest) == (None, e.ManifestFact("complete", "u"))
    assert codec.encode(old)[1] == 2
