"""Refs are paused and resumed."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from databuild_dagster.model import commands as c
from tests.simulation.naive import pauses

from .compared import REFS, Compared, some_refs, which


class PauseSteps(Compared):
    """Refs are paused and resumed."""

    @rule(refs=some_refs, seconds=st.sampled_from([None, None, 0.0, 5.0, 60.0]), terminate=st.booleans())
    def pause(self, refs, seconds, terminate):
        until = None if seconds is None else self.world.clock.now + seconds
        command = c.PausePartitions(refs=refs, reason="its source is wrong", until=until, terminate=terminate)
        self.both(command, pauses.pause(self.naive, refs, seconds, terminate=terminate))

    @rule(refs=some_refs)
    def resume(self, refs):
        self.both(c.ResumePartitions(refs=refs), pauses.resume(self.naive, refs))

    @rule(at=which)
    def resume_what_is_paused(self, at):
        if paused := sorted(filter(self.naive.is_paused, REFS)):
            self.resume((paused[at % len(paused)],))
