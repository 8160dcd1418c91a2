"""An id is named in full or by its last characters (rule 2.3)."""

from __future__ import annotations

from itertools import count

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.wording import SHORT_ID
from databuild_dagster.store.queries.ids import AmbiguousId, IdKind
from tests.support.catalog import dataset
from tests.support.world import World


@pytest.fixture
def world():
    world = World([dataset(name) for name in "abcdefgh"])
    yield world
    world.store.close()


def test_ids_like_a_text_are_it_or_begin_or_end_with_it(world):
    world.live("a", "b")
    one, other = world.uuid("a"), world.uuid("b")

    def like(text, most=5):
        return world.queries.ids.like(IdKind.INSTANCE, text, most)

    assert (like(one), like(one[:13]), like(other[-12:])) == ([one], [one], [other])
    assert (like(""), len(like("", 1)), like("none")) == (sorted([one, other]), 1, [])


def test_each_kind_of_id_is_found_by_its_end(world):
    world.live("a")
    want = world.want("b")
    world.taint("a")
    instance = world.queries.instances.get(world.uuid("a"))
    (taint,) = world.queries.instances.taints_of(instance.uuid)
    (known,) = world.queries.wants.named(want)

    for kind, id in (
        (IdKind.WANT, want),
        (IdKind.WANT, known.request_id),
        (IdKind.REQUEST, known.request_id),
        (IdKind.JOB_RUN, instance.job_run),
        (IdKind.INSTANCE, instance.uuid),
        (IdKind.TAINT, taint.taint_id),
    ):
        assert world.queries.ids.full(kind, id) == id
        assert world.queries.ids.full(kind, id[-SHORT_ID:]) == id


def test_an_end_that_several_ids_have_is_refused_with_the_candidates(world):
    numbers = count(1)
    world.engine.new_id = lambda: f"0193a5b2-7c00-7abc-{next(numbers):04x}-000000000abc"
    world.engine.handle(c.CreateWants(wants=tuple((name,) for name in "abcdefg")))
    wants = [want.id for want in world.queries.wants.newest()]

    with pytest.raises(AmbiguousId) as refused:
        world.queries.ids.full(IdKind.WANT, "00000abc")

    assert refused.value.message.endswith(" and 3 more.")
    assert wants[-1] in refused.value.message
    assert world.queries.ids.full(IdKind.WANT, wants[0][-17:]) == wants[0]


@pytest.mark.parametrize("kind", list(IdKind))
def test_an_unknown_id_is_refused_with_ids_like_it(world, kind):
    world.live("a")
    world.taint("a")
    (known, *_) = world.queries.ids._newest(kind)
    mistyped = known[:-1] + ("0" if known[-1] != "0" else "1")

    with pytest.raises(NotFound) as refused:
        world.queries.ids.full(kind, mistyped)

    with pytest.raises(NotFound) as end_refused:
        world.queries.ids.full(kind, mistyped[-SHORT_ID:])

    assert refused.value.message == f"There is no {kind.value} {mistyped!r}."
    assert known in refused.value.advice
    assert known[-SHORT_ID:] in end_refused.value.advice
    assert known not in end_refused.value.advice


def test_a_text_that_is_shorter_or_no_id_names_none(world):
    want = world.want("a")

    for text in ("", want[-4:], "%", "_" * SHORT_ID, "a@b"):
        with pytest.raises(NotFound):
            world.queries.ids.full(IdKind.WANT, text)


def test_the_beginning_of_an_id_is_refused_with_the_ids_that_begin_so(world):
    numbers = count(1)
    world.engine.new_id = lambda: f"0193a5b2-7c00-7abc-{next(numbers):04x}-000000000abc"
    world.engine.handle(c.CreateWants(wants=(("a",),)))
    (want,) = [want.id for want in world.queries.wants.newest()]

    with pytest.raises(
        NotFound, match="It is the beginning of 0193a5b2-7c00-7abc-.*: give the end of the id, or all of it"
    ):
        world.queries.ids.full(IdKind.WANT, want[:SHORT_ID])
