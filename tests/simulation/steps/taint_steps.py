"""Taints and reverts, of instances that are made of each other."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from databuild_dagster.model import commands as c
from tests.simulation.naive import taints

from .compared import REFS, a_ref, some_refs, which
from .job_run_steps import JobRunSteps


class TaintSteps(JobRunSteps):
    """Taints and reverts, of instances that are made of each other."""

    @rule(refs=some_refs, downstream=st.booleans())
    def taint(self, refs, downstream=False):
        taint_id = self.world.ids()
        command = c.TaintPartitions(refs=refs, reason="it looks wrong", downstream=downstream, taint_id=taint_id)
        refusal = taints.taint(self.naive, refs, taint_id, downstream=downstream)
        self.both(command, refusal)
        if refusal is None:
            self.taints.append(taint_id)

    @rule(at=which)
    def untaint(self, at):
        if self.taints:
            taint_id = self.taints[at % len(self.taints)]
            self.both(c.UntaintPartitions(taint_id=taint_id), taints.untaint(self.naive, taint_id))

    @rule(at=which)
    def untaint_the_last(self, at):
        """Later taints are the ones that still act."""
        if self.taints:
            self.untaint(len(self.taints) - 1 - at % min(3, len(self.taints)))

    @rule(ref=a_ref, at=which, force=st.booleans())
    def revert(self, ref, at, force=False):
        if uuids := self.uuids[ref]:
            command = c.RevertCanonical(ref=ref, uuid=uuids[at % len(uuids)], force=force)
            self.both(command, taints.revert(self.naive, ref, at % len(uuids), force=force))

    @rule(
        refs=st.permutations(REFS).map(lambda refs: refs[:3]),
        while_it_runs=st.booleans(),
        replaced=st.booleans(),
        untaints=st.booleans(),
    )
    def taint_what_others_are_made_of(self, refs, while_it_runs, replaced, untaints):
        """Three refs, each made of the one before: the first is tainted before or after the last is built."""
        first, second, third = refs
        self.build(first)
        self.build(second, (first,))
        self.want((third,))
        self.start(third)
        if while_it_runs:
            self.taint((first,), True)
        if replaced:
            self.build(first)
            self.build(second)
        if untaints and while_it_runs:
            self.untaint(len(self.taints) - 1)
        if not while_it_runs:
            self.succeed(third, (second,))
            self.taint((first,), True)

    @rule(ref=a_ref, at=which)
    def replace_and_revert(self, ref, at):
        """Common, and rare among single commands."""
        for _ in range(2):
            self.taint((ref,))
            self.want((ref,))
            self.start(ref)
            self.succeed(ref)
        self.revert(ref, at)
