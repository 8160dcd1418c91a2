"""The engine beside a model that anybody can check by reading it: they agree about everything, all the time."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import OutputFact, RunSuccess
from databuild_dagster.model.states import InstanceState
from tests.simulation.naive import Naive
from tests.support import fixtures  # noqa: F401  (the profiles)
from tests.support.catalog import dataset
from tests.support.world import COMPLETE, World

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LONG = bool(os.environ.get("DATABUILD_LONG"))
REFS = tuple("abcde")
_WAITS = InstanceState.UPSTREAM_BUILDING

some_refs = st.lists(st.sampled_from(REFS), min_size=1, max_size=2, unique=True).map(tuple)
some_outputs = st.lists(st.sampled_from(REFS), min_size=2, max_size=3, unique=True).map(tuple)
a_ref = st.sampled_from(REFS)
which = st.integers(0, 1000)


class Compared(RuleBasedStateMachine):
    """Each command goes to both: both take it, or both refuse it, and afterwards they look the same."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World([dataset(name) for name in REFS])
        self.naive = Naive(REFS)
        self.naive.now = self.world.clock.now
        self.wants = []
        #: Ref to its instances, oldest first.
        self.uuids = {ref: [] for ref in REFS}
        self.taints = []

    def both(self, command, refusal):
        """Both take it, or refuse it by the same error."""
        try:
            self.world.handle(command)
        except Refused as refused:
            assert type(refused) is refusal
        else:
            assert refusal is None

    def job_run(self, ref):
        """The one that made the canonical instance; any id where there is none."""
        return self.world.canonical(ref).job_run

    @rule(refs=some_refs, fail_fast=st.sampled_from([False, False, True]))
    def want(self, refs, fail_fast):
        outcome = self.world.handle(c.CreateWants(wants=(refs,), ttl_seconds=None, fail_fast=fail_fast))
        self.wants.append((outcome.want_ids[0], self.naive.want(refs, fail_fast=fail_fast)))

    @rule(at=which, terminate=st.booleans())
    def cancel(self, at, terminate):
        if self.wants:
            want_id, want = self.wants[at % len(self.wants)]
            command = c.CancelWants(ids=(want_id,), terminate=terminate)
            self.both(command, self.naive.cancel(want, terminate=terminate))

    @rule(refs=some_outputs, begins=st.sampled_from([True, True, False]), together=st.booleans())
    def launch(self, refs, begins, together):
        """One job run for those of the refs that are due, or a job run for each, in one launch."""
        launch = self.world.launch_of(*refs, together=together)
        is_taken = bool(self.world.handle(launch).events)
        groups = [refs] if together else [(ref,) for ref in refs]
        built = [ref for group in groups for ref in self.naive.buffer(group, launch.launch_id)]
        assert is_taken == bool(built)
        for ref in built:
            self.uuids[ref].append(self.world.uuid(ref))
        if is_taken and begins:
            self.world.start_launch(launch.launch_id)
            self.naive.begin(launch.launch_id)

    def start_together(self, refs, begins):
        self.launch(refs, begins, True)

    @rule(ref=a_ref, begins=st.sampled_from([True, True, False]))
    def start(self, ref, begins=True):
        self.start_together((ref,), begins)

    @rule(at=which)
    def start_what_is_due(self, at):
        if due := sorted(self.naive.due()):
            self.start(due[at % len(due)])

    @rule(ref=a_ref, read=st.lists(a_ref, max_size=2, unique=True))
    def succeed(self, ref, read=()):
        """The job run has read these refs, if readers saw data of them since it was buffered."""
        if job_run := self.job_run(ref):
            run = self.naive.refs[ref].run
            inputs = {item: row for item in read if (row := self.read_by(run, item))}
            uuids = {item: self.uuids[item][self.naive.history[item].index(row)] for item, row in inputs.items()}
            outputs = tuple(OutputFact(ref=output, inputs=uuids, manifest=COMPLETE) for output in run.outputs)
            success = c.SucceedJobRuns(runs=(RunSuccess(job_run, outputs),))
            self.both(success, self.naive.succeed(ref, list(inputs.values())))

    def read_by(self, run, ref):
        """The first instance of a ref that a job run may have read, or None."""
        return next((row for row in self.naive.history[ref] if row in run.seen and row.was_live), None)

    @rule(ref=a_ref, kind=st.sampled_from(["hard", "transient", "transient"]))
    def fail(self, ref, kind):
        if job_run := self.job_run(ref):
            failure = c.RunFailure(job_run, "it raised", kind)
            self.both(c.FailJobRuns(failures=(failure,)), self.naive.fail(ref, transient=kind == "transient"))

    @rule(ref=a_ref)
    def lose(self, ref):
        if job_run := self.job_run(ref):
            launch_id = self.world.queries.job_run(job_run).launch_id
            command = c.LoseLaunches(launch_ids=(launch_id,), reason="its process is gone")
            self.both(command, self.naive.lose(launch_id))

    @rule(refs=some_outputs, begins=st.booleans(), together=st.booleans(), fails=st.booleans(), times=st.integers(1, 3))
    def want_and_lose(self, refs, begins, together, fails, times):
        """A pipeline on a machine that dies again and again."""
        for _ in range(times):
            for ref in refs:
                self.want((ref,), False)
            self.launch(refs, begins, together)
            if fails:
                self.fail(refs[0], "transient")
            self.lose(refs[-1])
            self.they_look_the_same()
            self.time_passes(5.0)
            self.they_look_the_same()
            self.time_passes(5.0)

    def miss_exactly(self, ref, impacted):
        """The job run of a ref misses these refs, by impacted output."""
        if job_run := self.job_run(ref):
            self.both(c.MissDeps(misses=(c.RunMiss(job_run, impacted),)), self.naive.miss(ref, impacted))

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

    @rule(
        refs=some_outputs, at=which, end=st.sampled_from(["miss", "miss", "fail", "succeed", "to retry", "by a person"])
    )
    def want_and_end_together(self, refs, at, end):
        """Common for a job with several outputs, and rare among single commands."""
        for ref in refs:
            self.want((ref,), False)
        self.start_together(refs, True)
        if end == "miss":
            self.miss(refs[0], at, True, at % 4 > 0)
        elif end == "fail":
            self.fail(refs[0], "transient")
        elif end == "succeed":
            self.succeed(refs[0])
        else:
            self.cancel_job_run(refs[0], end)

    @rule(refs=some_outputs, times=st.sampled_from([1, 2]))
    def fail_with_different_attempts(self, refs, times):
        """The first output has failed before, alone."""
        for outputs in [refs[:1]] * times + [refs]:
            for ref in outputs:
                self.want((ref,), False)
            self.start_together(outputs, True)
            self.fail(refs[0], "transient")
            self.time_passes(10.0)

    @rule(ref=st.sampled_from(REFS[2:]), at=which, fail_fast=st.booleans())
    def want_and_miss(self, ref, at, fail_fast):
        """Common in a pipeline, and rare among single commands."""
        self.want((ref,), fail_fast)
        self.start(ref)
        self.miss(ref, at, True)

    @rule(refs=st.lists(a_ref, min_size=2, max_size=3, unique=True), at=which)
    def wait_for_each_other(self, refs, at):
        """The last dep miss closes a cycle, and perhaps a second one."""
        for ref, item in zip(refs, (*refs[1:], refs[0]), strict=True):
            self.want((ref,), False)
            self.start(ref)
            self.miss_exactly(ref, {ref: tuple(dict.fromkeys((item, REFS[at % len(REFS)])))})

    @rule(at=which)
    def fail_what_is_waited_for(self, at):
        missing = {item for row in self.naive.refs.values() if row.state is _WAITS for item in row.missing}
        if due := sorted(missing & self.naive.due()):
            self.start(due[at % len(due)])
            self.fail(due[at % len(due)], "hard")

    @rule(ref=a_ref, how=st.sampled_from(["by a person", "to retry", "by an interrupt"]))
    def cancel_job_run(self, ref, how):
        keep_wants, fail_missed = how == "to retry", how == "by a person"
        if job_run := self.job_run(ref):
            command = c.CancelJobRuns(job_run_ids=(job_run,), keep_wants=keep_wants, fail_missed=fail_missed)
            self.both(command, self.naive.cancel_job_run(ref, keep_wants=keep_wants, fail_missed=fail_missed))

    @rule(at=which, how=st.sampled_from(["by a person", "by a person", "to retry", "by an interrupt"]))
    def cancel_what_is_waited_for(self, at, how):
        missing = {item for row in self.naive.refs.values() if row.state is _WAITS for item in row.missing}
        if refs := sorted(missing):
            self.start(refs[at % len(refs)], at % 2 == 0)
            self.cancel_job_run(refs[at % len(refs)], how)

    @rule(refs=st.lists(a_ref, min_size=2, max_size=4, unique=True), begins=st.booleans(), by_another=st.booleans())
    def cancel_where_some_outputs_are_waited_for(self, refs, begins, by_another):
        """The first ref waits for the second, which is built together with the others."""
        waiting, *outputs = refs
        self.want((waiting,), False)
        self.start(waiting)
        self.miss_exactly(waiting, {waiting: (outputs[0],)})
        for output in outputs[1:]:
            self.want((output, waiting) if by_another else (output,), False)
        self.start_together(tuple(outputs), begins)
        self.cancel_job_run(outputs[0], "by a person")

    @rule(refs=some_refs, downstream=st.booleans())
    def taint(self, refs, downstream=False):
        taint_id = self.world.ids()
        command = c.TaintPartitions(refs=refs, reason="it looks wrong", downstream=downstream, taint_id=taint_id)
        refusal = self.naive.taint(refs, taint_id, downstream=downstream)
        self.both(command, refusal)
        if refusal is None:
            self.taints.append(taint_id)

    def build(self, ref, read=()):
        self.want((ref,), False)
        self.start(ref)
        self.succeed(ref, read)

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
        self.want((third,), False)
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

    @rule(at=which)
    def untaint_the_last(self, at):
        """Later taints are the ones that still act."""
        if self.taints:
            self.untaint(len(self.taints) - 1 - at % min(3, len(self.taints)))

    @rule(ref=a_ref, at=which)
    def replace_and_revert(self, ref, at):
        """Common, and rare among single commands."""
        for _ in range(2):
            self.taint((ref,))
            self.want((ref,), False)
            self.start(ref)
            self.succeed(ref)
        self.revert(ref, at)

    @rule(ref=a_ref, at=which, force=st.booleans())
    def revert(self, ref, at, force=False):
        if uuids := self.uuids[ref]:
            command = c.RevertCanonical(ref=ref, uuid=uuids[at % len(uuids)], force=force)
            self.both(command, self.naive.revert(ref, at % len(uuids), force=force))

    @rule(at=which)
    def untaint(self, at):
        if self.taints:
            taint_id = self.taints[at % len(self.taints)]
            self.both(c.UntaintPartitions(taint_id=taint_id), self.naive.untaint(taint_id))

    @rule(refs=some_refs, seconds=st.sampled_from([None, None, 0.0, 5.0, 60.0]), terminate=st.booleans())
    def pause(self, refs, seconds, terminate):
        until = None if seconds is None else self.world.clock.now + seconds
        command = c.PausePartitions(refs=refs, reason="its source is wrong", until=until, terminate=terminate)
        self.both(command, self.naive.pause(refs, seconds, terminate=terminate))

    @rule(refs=some_refs)
    def resume(self, refs):
        self.both(c.ResumePartitions(refs=refs), self.naive.resume(refs))

    @rule(at=which)
    def resume_what_is_paused(self, at):
        if paused := sorted(filter(self.naive.is_paused, REFS)):
            self.resume((paused[at % len(paused)],))

    @rule(seconds=st.sampled_from([1.0, 5.0, 60.0]))
    def time_passes(self, seconds):
        self.world.clock.turn(seconds)
        self.naive.now += seconds

    @invariant()
    def they_look_the_same(self):
        states = {ref: row.state for ref, row in self.naive.refs.items()}
        assert self.world.queries.states(REFS) == states
        assert set(self.world.due()) == self.naive.due()
        for ref, row in self.naive.refs.items():
            needs = self.world.queries.learned_inputs([ref], self.world.clock.now)
            coming = set(filter(self.naive.is_coming, self.naive.learned[ref]))
            assert {need.ref for need in needs} == coming
            if row.cycle:
                reason = f"a cycle of dep misses: {' → '.join((*row.cycle, row.cycle[0]))}"
                assert self.world.canonical(ref).reason == reason
        paused = self.world.queries.paused(REFS, self.world.clock.now)
        assert set(paused) == set(filter(self.naive.is_paused, REFS))
        for want_id, want in self.wants:
            assert self.world.want_state(want_id) == want.state
        for ref in REFS:
            derived = [want for want in self.naive.wants if want.is_open and want.is_derivative and ref in want.refs]
            assert len(self.world.derivative_wants(ref)) == len(derived)

    def teardown(self):
        assert self.world.check() == []
        self.world.store.close()


TestCompared = Compared.TestCase
TestCompared.settings = settings(
    settings.get_profile("long" if LONG else "ci"),
    max_examples=2000 if LONG else 120,
    stateful_step_count=60 if LONG else 40,
)
