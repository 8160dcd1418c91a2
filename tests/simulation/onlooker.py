"""An observer of every commit, which trusts no process: leases and starts counted from the log, in the plainest way.

Independent of the fold on purpose: who holds a lease is read off the events themselves.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence

from databuild_dagster.model import events as e
from databuild_dagster.model.refs import asset_of
from tests.support.operations import Marks

from .processes import Broken

#: Ends the holder of a launch that is followed from outside, so that no process of ours reports for it.
_PLAIN = "dagster run "


class Onlooker:
    """Reads each event once, in order, with the name of the process that caused it."""

    def __init__(self, written: Container[str]) -> None:
        #: Job runs whose data is complete: others may say for them that they succeeded (rule 6.9).
        self._written = written
        #: Job runs of ours that did.
        self.succeeded: set[str] = set()
        self.log: list[e.Event] = []
        #: Ref to the job run that builds it, from buffering until it ended in any way.
        self.builds: dict[str, str] = {}
        #: What each job run builds.
        self.refs: dict[str, tuple[str, ...]] = {}
        #: Job run to the process that started it.
        self._host: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        #: Names of refs and assets that are paused, with the end of the pause (rule 6.13).
        self.paused: dict[str, float] = {}
        #: How the jobs of operations ended (rule 9.5).
        self.marks = Marks()

    def see_refs(self, event: e.Event) -> None:
        """Only so that the story can name what job runs build."""
        if isinstance(event.fact, e.JobRunBuffered):
            self.refs.update((run.job_run_id, run.refs) for run in event.fact.runs)

    def see(self, events: Sequence[e.Event]) -> None:
        for event in events:
            if event.seq != len(self.log) + 1:
                raise Broken("log", f"seq {event.seq} follows seq {len(self.log)}")
            if self.log and event.at < self.log[-1].at:
                raise Broken("log", f"seq {event.seq} happened before the event in front of it")
            self.log.append(event)
            self._see(event)

    def _see(self, event: e.Event) -> None:
        match event.fact:
            case e.JobRunBuffered(runs=runs):
                for run in runs:
                    for ref in run.refs:
                        if other := self.builds.get(ref):
                            raise Broken("two leases", f"{ref} is being built by {other}, and by {run.job_run_id} too")
                        if max(self.paused.get(ref, 0.0), self.paused.get(asset_of(ref), 0.0)) > event.at:
                            raise Broken("rule 6.13", f"{ref} is paused, and {run.job_run_id} is to build it")
                        self.builds[ref] = run.job_run_id
            case e.PartitionsPaused(refs=refs, until=until):
                self.paused.update(dict.fromkeys(refs, math.inf if until is None else until))
            case e.PartitionsResumed(refs=refs):
                for ref in refs:
                    del self.paused[ref]
            case e.JobRunStarted(job_run_ids=ids, holder=holder):
                for job_run_id in ids:
                    if first := self._host.get(job_run_id):
                        raise Broken("started twice", f"{job_run_id} was started by {first}, and by {holder} too")
                    self._host[job_run_id] = holder
            case e.JobRunSucceeded(runs=successes):
                for success in successes:
                    self._succeeds(success, event.actor)
            case e.JobRunDepMissed(misses=misses):
                self._end((miss.job_run_id for miss in misses), "missed an input")
            case e.JobRunFailed(failures=failures) | e.JobRunLost(failures=failures):
                self._end((failure.job_run_id for failure in failures), type(event.fact).__name__)
            case e.JobRunCanceled(job_run_ids=ids):
                self._end(ids, "was canceled")
            case e.MetaInvoked():
                if wrong := self.marks.see(event):
                    raise Broken("stale mark taken", wrong)
            case e.LotArrived(arrivals=arrivals):
                for arrival in arrivals:
                    if other := self.builds.get(arrival.ref):
                        raise Broken("two leases", f"{arrival.ref} arrived while {other} builds it")

    def _succeeds(self, success: e.RunSuccess, actor: str) -> None:
        job_run_id, host = success.job_run_id, self._host.get(success.job_run_id)
        if job_run_id in self._ended:
            raise Broken("late report taken", f"{job_run_id} {self._ended[job_run_id]} and succeeded afterwards")
        is_adopted = job_run_id in self._written
        if host is None or (host != actor and not host.startswith(_PLAIN) and not is_adopted):
            raise Broken("foreign report taken", f"{job_run_id} was started by {host}, and {actor} reports its success")
        for output in success.outputs:
            if (builder := self.builds.get(output.ref)) != job_run_id:
                raise Broken("success without lease", f"{job_run_id} built {output.ref}, whose lease {builder} holds")
        if not host.startswith(_PLAIN):
            self.succeeded.add(job_run_id)
        self._end([job_run_id], "succeeded")

    def _end(self, job_run_ids: Iterable[str], how: str) -> None:
        for job_run_id in job_run_ids:
            if job_run_id in self._ended:
                raise Broken("ended twice", f"{job_run_id} {self._ended[job_run_id]}, and then: {how}")
            self._ended[job_run_id] = how
            for ref in self.refs[job_run_id]:
                if self.builds.get(ref) == job_run_id:
                    del self.builds[ref]
