"""What a feature says is asked for first: an instance without a build, and the judgement of a launch."""

from __future__ import annotations

import pytest

from databuild_dagster.engine.judge import LEASE_SECONDS, Evidence
from databuild_dagster.engine.ports import Provided
from databuild_dagster.model.commands import RevertCanonical
from databuild_dagster.model.states import InstanceState, JobRunState
from tests.support.catalog import dataset
from tests.support.orchestrator import Orchestrator


@pytest.fixture
def chain(make_world):
    """`second` needs `first`."""
    return make_world(dataset("first"), dataset("second", "first"))


def returning(world, ref, uuid):
    """A provider that takes back one instance of a ref, and the refs for which it was asked."""
    asked = []

    def provide(engine, refs, *, is_plan=False, specs=None):
        asked.append(list(refs))
        if ref not in refs:
            return Provided([], {})
        world.handle(RevertCanonical(ref=ref, uuid=uuid, reason="the same code and the same inputs"))
        return Provided([ref], {})

    return provide, asked


def tainted_after_a_rebuild(world):
    """`first` with an earlier good instance under a tainted one; the uuid of the good one."""
    world.live("first")
    good = world.uuid("first")
    world.taint("first")
    world.want("first")
    world.live("first")
    world.taint("first")
    return good


def test_a_ref_that_is_provided_is_live_and_not_launched(chain):
    good = tainted_after_a_rebuild(chain)
    provide, _ = returning(chain, "first", good)
    here = Orchestrator(chain, providers=[provide])
    chain.want("first")

    here.tick()

    assert (chain.state("first"), chain.uuid("first")) == (InstanceState.LIVE, good)
    assert here.launcher.orders == []


def test_a_provided_input_lets_its_consumer_be_launched_in_the_same_tick(chain):
    good = tainted_after_a_rebuild(chain)
    provide, asked = returning(chain, "first", good)
    here = Orchestrator(chain, providers=[provide])
    chain.want("second")

    here.tick()

    assert [order.job for order in here.launcher.orders] == ["second"]
    assert "second" in asked[1], "what is due is asked for before its inputs are missed"
    assert asked[0] == [], "a tick begins with what became of earlier answers"


@pytest.mark.parametrize(
    ("evidence", "state"),
    [
        (Evidence(lives=True), JobRunState.RUNNING),
        (Evidence(lives=False, why="its host was drained"), JobRunState.LOST),
        (None, JobRunState.LOST),
    ],
    ids=["it lives", "it is lost", "it does not know"],
)
def test_a_witness_is_believed_before_the_heartbeat(chain, evidence, state):
    here = Orchestrator(chain, witnesses=[lambda launch, now: evidence])
    chain.want("first")
    here.tick()
    (order,) = here.launcher.orders
    here.start(order.launch_id)

    here.tick_for(3 * LEASE_SECONDS)

    (run,) = chain.queries.job_runs.of_launch(order.launch_id)
    assert run.state is state
