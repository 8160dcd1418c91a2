"""Wants are recorded and canceled."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from databuild_dagster.model import commands as c
from tests.simulation.naive import wants

from .compared import Compared, some_refs, which


class WantSteps(Compared):
    """Wants are recorded and canceled."""

    @rule(refs=some_refs, fail_fast=st.sampled_from([False, False, True]))
    def want(self, refs, fail_fast):
        outcome = self.world.handle(c.CreateWants(wants=(refs,), ttl_seconds=None, fail_fast=fail_fast))
        self.wants.append((outcome.want_ids[0], wants.want(self.naive, refs, fail_fast=fail_fast)))

    @rule(at=which, terminate=st.booleans())
    def cancel(self, at, terminate):
        if self.wants:
            want_id, want = self.wants[at % len(self.wants)]
            command = c.CancelWants(ids=(want_id,), terminate=terminate)
            self.both(command, wants.cancel(self.naive, want, terminate=terminate))
