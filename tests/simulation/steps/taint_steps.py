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

    @rule(ref=a_ref, ats=st.lists(which, min_size=1, max_size=2), downstream=st.booleans())
    def taint_builds(self, ref, ats, downstream):
        """Any builds of a ref, canonical or not."""
        if builds := self.builds(ref, ats):
            taint_id = self.world.ids()
            command = c.TaintPartitions(
                reason="it looks wrong", uuids=tuple(builds), downstream=downstream, taint_id=taint_id
            )
            refusal = taints.taint_instances(self.naive, list(builds.values()), taint_id, downstream=downstream)
            self.both(command, refusal)
            if refusal is None:
                self.taints.append(taint_id)

    @rule(refs=some_refs, ats=st.lists(which, min_size=1, max_size=2), downstream=st.booleans())
    def taint_what_a_check_has_read(self, refs, ats, downstream):
        """Some of the builds may be replaced by now, or tainted."""
        builds = {uuid: row for ref in refs for uuid, row in self.builds(ref, ats).items() if row.was_live}
        if builds:
            taint_id = self.world.ids()
            command = c.TaintPartitions(
                reason="a check failed", seen=tuple(builds), downstream=downstream, taint_id=taint_id
            )
            is_taken = bool(self.both(command, None).events)
            assert is_taken == taints.taint_seen(self.naive, list(builds.values()), taint_id, downstream=downstream)
            if is_taken:
                self.taints.append(taint_id)

    def builds(self, ref, ats):
        """Uuid to instance of some builds of a ref; the first is often the newest."""
        uuids, rows = self.uuids[ref], self.naive.history[ref]
        numbers = [len(rows) - 1 - at % min(2, len(rows)) if at % 3 else at % len(rows) for at in ats if rows]
        return {uuids[number]: rows[number] for number in numbers}

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

    @rule(
        refs=st.permutations(REFS).map(lambda refs: refs[:3]),
        tainted=st.sampled_from([None, "before", "while it is built", "after"]),
        at=which,
        ends=st.sampled_from(["untaint", "revert", "build", "not at all"]),
    )
    def build_equal_rows_over_two_levels(self, refs, tainted, at, ends):
        """Each ref is made of the one before; the first two get equal rows again, and a taint that goes on downstream."""
        first, second, third = refs
        self.build_rows(first)
        self.build_rows(second, (first,))
        self.build_rows(third, (second,))
        for ref, read in ((first, ()), (second, (first,))):
            if tainted == "before":
                self.taint((ref,), True)
            self.taint((ref,))
            self.want((ref,))
            self.start(ref)
            if tainted == "while it is built":
                self.taint_builds(ref, [1], True)
            self.succeed(ref, read, "x:1")
        if tainted == "after":
            self.taint_builds(first, [at], True)
        if ends == "untaint":
            self.untaint_the_last(at)
        elif ends == "revert":
            self.revert(refs[at % 3], at, True)
        elif ends == "build":
            self.build_rows(third, (second,))

    def build_rows(self, ref, read=()):
        """`build`, with rows that are always the same."""
        self.taint((ref,))
        self.want((ref,))
        self.start(ref)
        self.succeed(ref, read, "x:1")

    @rule(ref=a_ref, at=which)
    def replace_and_revert(self, ref, at):
        """Common, and rare among single commands."""
        for _ in range(2):
            self.taint((ref,))
            self.want((ref,))
            self.start(ref)
            self.succeed(ref)
        self.revert(ref, at)
