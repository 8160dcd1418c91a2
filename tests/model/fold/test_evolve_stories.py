"""The story that led to the seed, from beginning to end (DataBuild, "Testing Strategy"; rules 5-7)."""

from __future__ import annotations

from databuild_dagster.model.states import InstanceState, WantState
from tests.support.catalog import dataset

_I, _W = InstanceState, WantState


def test_four_wants_and_a_dep_miss(make_world):
    """The bug that led to the seed: the second want stayed Idle, and the dep miss panicked over it."""
    world = make_world(dataset("alpha"), dataset("beta"))

    first = world.want("beta")
    assert world.want_state(first) is _W.IDLE
    world.start("beta")
    missed = world.uuid("beta")
    wants = [first, *(world.want("beta") for _ in range(3))]
    assert {world.want_state(want) for want in wants} == {_W.BUILDING}

    world.miss("beta", "alpha")
    assert {world.want_state(want) for want in wants} == {_W.UPSTREAM_BUILDING}
    late = world.want("beta")
    assert world.want_state(late) is _W.UPSTREAM_BUILDING

    world.start("alpha")
    world.succeed("alpha")
    assert {world.want_state(want) for want in wants} == {_W.IDLE}
    assert world.due() == ["beta"]

    world.start("beta")
    assert {world.want_state(want) for want in wants} == {_W.BUILDING}
    world.succeed("beta", inputs=["alpha"])
    assert {world.want_state(want) for want in [*wants, late]} == {_W.SUCCESSFUL}
    assert [instance.state for instance in world.queries.instances.history("beta")] == [_I.UP_FOR_RETRY, _I.LIVE]
    assert world.uuid("beta") != missed
