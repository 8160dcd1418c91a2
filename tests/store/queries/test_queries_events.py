"""The events of a command are one step for readers (rules 3.2, 3.3)."""

from __future__ import annotations

from databuild_dagster.model.command_ids import with_fingerprint
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.store.log import Head
from databuild_dagster.store.queries.queries import EventQueries
from tests.support.catalog import dataset
from tests.support.world import World


def test_an_event_within_a_command_leads_to_the_end_of_the_command():
    """Also if the id of the next command carries a fingerprint, whose sign is that of a second event."""
    world = World([dataset("report", "orders"), dataset("orders")])
    world.start("report")
    before = world.seq
    world.miss("report", "orders")
    missed = world.seq
    world.handle(CreateWants(wants=(("orders",),)), command_id=with_fingerprint("asked", ["orders"]))

    ends = [world.queries.events.end_of_command(seq) for seq in range(before, world.seq + 1)]

    assert missed == before + 2
    assert ends == [before, missed, missed, world.seq]


def test_the_end_of_the_last_command_is_found_in_one_look_at_the_log():
    """A command that another process records meanwhile is not part of it."""
    world = World([dataset("orders")])
    last = world.seq

    class Meanwhile(EventQueries):
        def head(self) -> Head:
            world.want("orders")
            return super().head()

    assert Meanwhile(world.store).end_of_command(last) == last
