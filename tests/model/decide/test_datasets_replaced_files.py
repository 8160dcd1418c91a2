"""An instance whose rows were rewritten in other files takes the place of the first, and nothing else changes (rule 9.8)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import CanonicalMoved, NotFound
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.states import InstanceState
from tests.support.catalog import dataset
from tests.support.world import COMPLETE


@pytest.fixture
def chain(make_world):
    """`report` is built from `table`, which is built from `source`; `arc` subscribes to `table`, late data included."""
    world = make_world(
        dataset("source"),
        dataset("table", "source"),
        dataset("report", "table"),
        dataset("arc", "table", subscribe=["table"], follow_late=True),
    )
    world.live("source")
    world.succeed("table", inputs=["source"])
    world.succeed("report", inputs=["table"])
    world.succeed("arc", inputs=["table"])
    world.fire()
    return world


def compact(world, ref, uuid=None):
    """The uuid of the new instance."""
    command = c.ReplaceFiles(ref=ref, uuid=uuid or world.uuid(ref), job_run_id=world.ids(), manifest=COMPLETE)
    world.handle(command)
    return world.uuid(ref)


def test_a_compacted_instance_is_live_with_the_lineage_of_the_first(chain):
    """Rules 4.6, 9.8"""
    first = chain.uuid("table")

    new = compact(chain, "table")

    assert new != first
    assert chain.state("table") is InstanceState.LIVE
    assert {instance.uuid for instance in chain.queries.instances.lineage(new)} == {new, chain.uuid("source")}
    assert chain.queries.instances.get(new).code_version == chain.queries.instances.get(first).code_version
    assert chain.check() == []


def test_late_data_that_is_compacted_before_anybody_looks_is_still_late(chain):
    """Rule 10.5"""
    chain.taint("table")
    chain.succeed("table", inputs=["source"])
    compact(chain, "table")

    assert chain.fire() == ["arc"]
    assert chain.state("arc") is InstanceState.TAINTED


def test_a_lot_that_was_built_while_its_source_was_compacted_is_not_late(chain):
    """Rule 10.5"""
    chain.taint("arc")
    chain.start("arc")
    first = chain.uuid("table")
    compact(chain, "table")
    chain.handle(
        c.SucceedJobRuns(
            runs=(
                RunSuccess(chain.job_run("arc"), (OutputFact(ref="arc", inputs={"table": first}, manifest=COMPLETE),)),
            )
        )
    )

    assert chain.fire() == []
    assert chain.state("arc") is InstanceState.LIVE


def test_a_taint_of_what_was_seen_finds_its_rows_in_other_files(chain):
    """Rule 9.8"""
    first = chain.uuid("table")
    compact(chain, "table")

    chain.handle(c.TaintPartitions(seen=(first,), reason="rows offend"))

    assert chain.state("table") is InstanceState.TAINTED


@pytest.mark.parametrize("is_first", [True, False])
def test_a_taint_that_goes_downstream_knows_that_the_rows_are_the_same(chain, is_first):
    """Rule 7.3: from the instance that readers see, and from the one before"""
    first, second = chain.uuid("table"), compact(chain, "table")
    chain.taint("arc")
    chain.succeed("arc", inputs=["table"])

    chain.handle(c.TaintPartitions(uuids=(first if is_first else second,), reason="wrong", downstream=True))

    assert chain.state("report") is InstanceState.TAINTED, "it was built from the first"
    assert chain.state("arc") is InstanceState.TAINTED, "it was built from the second"
    assert chain.check() == []


def test_rows_that_a_forced_revert_brought_back_are_compacted_without_the_taint(chain):
    """Rules 7.3, 7.4: the new files have an input under the taint, and the revert has canceled it for their rows."""
    first = chain.uuid("table")
    chain.handle(c.TaintPartitions(refs=("source",), reason="it looks wrong", downstream=True))
    chain.succeed("source")
    chain.succeed("table", inputs=["source"])
    chain.handle(c.RevertCanonical(ref="table", uuid=first, force=True))

    compact(chain, "table")
    compact(chain, "table")

    assert chain.state("table") is InstanceState.LIVE
    assert chain.check() == []


def test_what_is_compacted_must_be_what_readers_see(chain):
    """Rule 9.8: the pointer is swung only if the canonical has not moved"""
    first = chain.uuid("table")
    chain.taint("table")
    seq = chain.seq
    with pytest.raises(CanonicalMoved):
        compact(chain, "table")
    chain.succeed("table", inputs=["source"])
    later = chain.seq
    with pytest.raises(CanonicalMoved):
        compact(chain, "table", uuid=first)

    assert chain.seq == later > seq


def test_of_what_was_looked_at_only_what_readers_still_see_is_tainted(chain):
    """Rule 9.8: a look at an instance says nothing of the one that took its place"""
    table, report = chain.uuid("table"), chain.uuid("report")
    chain.taint("report")
    chain.succeed("report", inputs=["table"])

    chain.handle(c.TaintPartitions(seen=(table, report), reason="rows offend"))

    assert chain.state("table") is InstanceState.TAINTED
    assert chain.state("report") is InstanceState.LIVE
    seq = chain.seq
    assert chain.handle(c.TaintPartitions(seen=(table, report), reason="rows offend")).events == ()
    assert chain.seq == seq
    with pytest.raises(NotFound):
        chain.handle(c.TaintPartitions(seen=("unknown",), reason="rows offend"))
