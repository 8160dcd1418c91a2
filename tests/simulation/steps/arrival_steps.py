"""Data that exists already, or that another program writes, is recorded."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from databuild_dagster.model import commands as c
from databuild_dagster.model.events import Arrival
from tests.simulation.naive import arrivals
from tests.support.world import COMPLETE

from .compared import Compared, some_refs, which


class ArrivalSteps(Compared):
    """Data that exists already, or that another program writes, is recorded."""

    @rule(
        refs=some_refs, origin=st.sampled_from(["file:///1", "file:///2", "file:///3"]), looks=st.booleans(), at=which
    )
    def arrive(self, refs, origin, looks, at):
        """With a look at the canonical instance before, which may have moved since."""
        seen, seen_uuids = {}, {}
        if looks:
            for ref in refs:
                rows, uuids = [*self.naive.history[ref]], [*self.uuids[ref]]
                number = len(rows) - 1 if at % 4 else at % max(len(rows), 1)
                seen[ref] = rows[number] if rows else self.naive.refs[ref]
                seen_uuids[ref] = uuids[number] if rows else None
        command = c.ArriveLots(
            arrivals=tuple(Arrival(self.world.ids(), ref, origin, COMPLETE) for ref in refs), seen=seen_uuids
        )
        before = {ref: self.naive.refs[ref] for ref in refs}
        if self.both(command, arrivals.arrive(self.naive, refs, origin, seen)) is not None:
            for ref in refs:
                if self.naive.refs[ref] is not before[ref]:
                    self.uuids[ref].append(self.world.uuid(ref))
