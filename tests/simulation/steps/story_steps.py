"""Several commands in a row that are common in a pipeline and rare among single commands."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.surroundings import Fate

from .compared import REFS, a_ref, some_outputs, which
from .job_run_steps import JobRunSteps
from .want_steps import an_urgency

_WAITS = InstanceState.UPSTREAM_BUILDING


class StorySteps(JobRunSteps):
    """Several commands in a row that are common in a pipeline and rare among single commands."""

    @rule(refs=some_outputs, begins=st.booleans(), together=st.booleans(), fails=st.booleans(), times=st.integers(1, 3))
    def want_and_lose(self, refs, begins, together, fails, times):
        """A pipeline on a machine that dies again and again."""
        for _ in range(times):
            for ref in refs:
                self.want((ref,))
            self.launch(refs, begins, together)
            if fails:
                self.fail(refs[0], "transient")
            self.lose(refs[-1], Fate.KILLED)
            self.they_look_the_same()
            self.time_passes(5.0)
            self.they_look_the_same()
            self.time_passes(5.0)

    @rule(
        refs=some_outputs, at=which, end=st.sampled_from(["miss", "miss", "fail", "succeed", "to retry", "by a person"])
    )
    def want_and_end_together(self, refs, at, end):
        """Common for a job with several outputs, and rare among single commands."""
        for ref in refs:
            self.want((ref,))
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
                self.want((ref,))
            self.start_together(outputs, True)
            self.fail(refs[0], "transient")
            self.time_passes(10.0)

    @rule(ref=st.sampled_from(REFS[2:]), at=which, fail_fast=st.booleans(), urgency=an_urgency)
    def want_and_miss(self, ref, at, fail_fast, urgency):
        """Common in a pipeline, and rare among single commands."""
        self.want((ref,), fail_fast, urgency)
        self.start(ref)
        self.miss(ref, at, True)

    @rule(refs=st.lists(a_ref, min_size=2, max_size=3, unique=True), at=which)
    def wait_for_each_other(self, refs, at):
        """The last dep miss closes a cycle, and perhaps a second one."""
        for ref, item in zip(refs, (*refs[1:], refs[0]), strict=True):
            self.want((ref,))
            self.start(ref)
            self.miss_exactly(ref, {ref: tuple(dict.fromkeys((item, REFS[at % len(REFS)])))})

    @rule(at=which)
    def fail_what_is_waited_for(self, at):
        missing = {item for row in self.naive.refs.values() if row.state is _WAITS for item in row.missing}
        if due := sorted(missing & set(self.naive.due())):
            self.start(due[at % len(due)])
            self.fail(due[at % len(due)], "hard")

    @rule(at=which, how=st.sampled_from(["by a person", "by a person", "to retry", "by an interrupt"]))
    def cancel_what_is_waited_for(self, at, how):
        missing = {item for row in self.naive.refs.values() if row.state is _WAITS for item in row.missing}
        if refs := sorted(missing):
            self.start(refs[at % len(refs)], at % 2 == 0)
            self.cancel_job_run(refs[at % len(refs)], how)

    @rule(refs=st.lists(a_ref, min_size=2, max_size=3, unique=True), begins=st.booleans(), terminate=st.booleans())
    def cancel_the_want_of_what_is_waited_for(self, refs, begins, terminate):
        """The first ref misses the others, which are built together and wanted for themselves."""
        waiting, *outputs = refs
        for ref in refs:
            self.want((ref,))
        self.start(waiting)
        self.miss_exactly(waiting, {waiting: tuple(outputs)})
        self.start_together(tuple(outputs), begins)
        for at in range(len(outputs)):
            self.cancel(len(self.wants) - 1 - at, terminate)

    @rule(refs=st.lists(a_ref, min_size=2, max_size=4, unique=True), begins=st.booleans(), by_another=st.booleans())
    def cancel_where_some_outputs_are_waited_for(self, refs, begins, by_another):
        """The first ref waits for the second, which is built together with the others."""
        waiting, *outputs = refs
        self.want((waiting,))
        self.start(waiting)
        self.miss_exactly(waiting, {waiting: (outputs[0],)})
        for output in outputs[1:]:
            self.want((output, waiting) if by_another else (output,))
        self.start_together(tuple(outputs), begins)
        self.cancel_job_run(outputs[0], "by a person")
