"""Dagster runs that are not launches claim refs, wait for the builds of others, and stop waiting."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from databuild_dagster.model import commands as c
from databuild_dagster.model.events import BufferedRun
from tests.simulation.naive import claims
from tests.support.catalog import HERE

from .compared import REFS, some_outputs, some_refs
from .job_run_steps import JobRunSteps

a_requester = st.sampled_from(["nightly", "by-hand"])


class ClaimSteps(JobRunSteps):
    """Dagster runs that are not launches claim refs, wait for the builds of others, and stop waiting."""

    @rule(refs=some_refs | some_outputs, requester=a_requester, by_person=st.booleans(), together=st.booleans())
    def claim(self, refs, requester, by_person, together):
        groups = [refs] if together else [(ref,) for ref in refs]
        command = c.ClaimRefs(
            launch_id=self.world.ids(),
            job="job",
            location=HERE,
            dagster_run_id=requester,
            holder="somewhere",
            runs=tuple(BufferedRun(self.world.ids(), group) for group in groups),
            by_person=by_person,
            code_version="1",
        )
        granted = self.both(command, None).claim
        answers = claims.claim(self.naive, groups, command.launch_id, requester, by_person=by_person)
        given = {"built": granted.build, "joined": granted.join, "reused": granted.reuse, "refused": granted.refused}
        assert {ref: name for name, found in given.items() for ref in found} == answers
        for ref in granted.build:
            self.uuids[ref].append(self.world.uuid(ref))

    @rule(requester=a_requester)
    def stop_waiting(self, requester):
        self.both(c.GiveUpDelegations(requester=requester, reason="waited for 60 s"), None)
        claims.give_up(self.naive, requester)

    @invariant()
    def their_delegations_look_the_same(self):
        for requester in ("nightly", "by-hand"):
            entries = self.world.ledger.of_requester(requester)
            seen = {entry.ref: (entry.kind, entry.outcome) for entry in entries if entry.kind != "built"}
            expected = {ref: self.naive.delegations.get((requester, ref)) for ref in REFS}
            assert seen == {ref: found for ref, found in expected.items() if found}
