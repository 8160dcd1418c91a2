"""Job runs begin, and end in one of their ways."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.surroundings import Fate, Surrounding
from tests.simulation.naive import job_runs
from tests.support.world import COMPLETE

from .compared import REFS, a_ref, some_outputs, which
from .want_steps import WantSteps

#: Few, so that the rows of a build are often those before; often unknown.
some_rows = st.sampled_from([None, "x:1", "x:1", "x:2"])


class JobRunSteps(WantSteps):
    """Job runs begin, and end in one of their ways."""

    @rule(refs=some_outputs, begins=st.sampled_from([True, True, False]), together=st.booleans())
    def launch(self, refs, begins, together):
        """One job run for those of the refs that are due, or a job run for each, in one launch."""
        launch = self.world.launch_of(*refs, together=together)
        is_taken = bool(self.world.handle(launch).events)
        groups = [refs] if together else [(ref,) for ref in refs]
        built = [ref for group in groups for ref in job_runs.buffer(self.naive, group, launch.launch_id)]
        assert is_taken == bool(built)
        for ref in built:
            self.uuids[ref].append(self.world.uuid(ref))
        if is_taken and begins:
            self.world.start_launch(launch.launch_id)
            job_runs.begin(self.naive, launch.launch_id)

    def start_together(self, refs, begins):
        self.launch(refs, begins, True)

    @rule(ref=a_ref, begins=st.sampled_from([True, True, False]))
    def start(self, ref, begins=True):
        self.start_together((ref,), begins)

    @rule(at=which)
    def start_what_is_due(self, at):
        if due := self.naive.due():
            self.start(due[at % len(due)])

    @rule(ref=a_ref, read=st.lists(a_ref, max_size=2, unique=True), rows=some_rows)
    def succeed(self, ref, read=(), rows=None):
        """The job run has read these refs, if readers saw data of them since it was buffered. `rows` is their content hash."""
        if job_run := self.job_run(ref):
            run = self.naive.refs[ref].run
            inputs = {item: row for item in read if (row := self.read_by(run, item))}
            uuids = {item: self.uuids[item][self.naive.history[item].index(row)] for item, row in inputs.items()}
            manifest = replace(COMPLETE, content_hash=rows)
            outputs = tuple(OutputFact(ref=output, inputs=uuids, manifest=manifest) for output in run.outputs)
            success = c.SucceedJobRuns(runs=(RunSuccess(job_run, outputs),))
            self.both(success, job_runs.succeed(self.naive, ref, list(inputs.values()), rows))

    def read_by(self, run, ref):
        """The first instance of a ref that a job run may have read, or None."""
        return next((row for row in self.naive.history[ref] if row in run.seen and row.was_live), None)

    @rule(ref=a_ref, kind=st.sampled_from(["hard", "transient", "transient", "outage", "outage"]))
    def fail(self, ref, kind):
        if job_run := self.job_run(ref):
            owner = Surrounding.SPARK if kind == "outage" else None
            failure = c.RunFailure(job_run, "it raised", "transient" if owner else kind, owner)
            self.both(c.FailJobRuns(failures=(failure,)), job_runs.fail(self.naive, ref, kind))

    @rule(ref=a_ref, fate=st.sampled_from(Fate))
    def lose(self, ref, fate):
        if job_run := self.job_run(ref):
            launch_id = self.world.queries.job_runs.get(job_run).launch_id
            command = c.LoseLaunches(launch_ids=(launch_id,), reason="its process is gone", fate=fate)
            self.both(command, job_runs.lose(self.naive, launch_id, fate.value))

    def miss_exactly(self, ref, impacted):
        """The job run of a ref misses these refs, by impacted output."""
        if job_run := self.job_run(ref):
            self.both(c.MissDeps(misses=(c.RunMiss(job_run, impacted),)), job_runs.miss(self.naive, ref, impacted))

    @rule(ref=a_ref, at=which, several=st.booleans(), in_order=st.booleans())
    def miss(self, ref, at, several, in_order=True):
        """The ref and some other outputs of its job run. In order, only of what has a name before its own: no cycle is closed."""
        impacted = {}
        for number, output in enumerate(dict.fromkeys((ref, *self.naive.refs[ref].run.outputs))):
            if output == ref or (at >> number) % 2:
                others = (REFS[: REFS.index(output)] if in_order else REFS) or REFS
                seeds = (at + number, at // 7)[: 1 + several]
                impacted[output] = tuple(dict.fromkeys(others[seed % len(others)] for seed in seeds))
        self.miss_exactly(ref, dict(reversed(impacted.items())) if at % 3 == 0 else impacted)

    @rule(ref=a_ref, how=st.sampled_from(["by a person", "to retry", "by an interrupt"]))
    def cancel_job_run(self, ref, how):
        keep_wants, fail_missed = how == "to retry", how == "by a person"
        if job_run := self.job_run(ref):
            command = c.CancelJobRuns(job_run_ids=(job_run,), keep_wants=keep_wants, fail_missed=fail_missed)
            self.both(command, job_runs.cancel_job_run(self.naive, ref, keep_wants=keep_wants, fail_missed=fail_missed))

    def build(self, ref, read=()):
        self.want((ref,))
        self.start(ref)
        self.succeed(ref, read)
