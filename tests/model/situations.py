"""What brings a ref into a state, for the tests of what may happen in it."""

from __future__ import annotations

from databuild_dagster.model.states import InstanceState
from tests.support.world import World


def bring(world: World, state: InstanceState | None) -> None:
    """Bring `a` into a state; if it needs an input for that, the input is `b`."""
    match state:
        case InstanceState.BUILDING:
            world.start("a")
        case InstanceState.UPSTREAM_BUILDING:
            world.miss("a", "b")
        case InstanceState.UP_FOR_RETRY:
            world.fail("a", kind="transient")
        case InstanceState.LIVE:
            world.live("a")
        case InstanceState.TAINTED:
            world.live("a")
            world.taint("a")
        case InstanceState.FAILED:
            world.fail("a")
        case InstanceState.UPSTREAM_FAILED:
            world.miss("a", "b")
            world.fail("b")
    assert world.state("a") is state
