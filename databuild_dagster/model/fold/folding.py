"""The fold of an event in progress: the canonical states that changed, and the moves.

Every state change of every entity passes here, so that each has its row of history (rule 3.2).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from databuild_dagster.model.coordination import DELEGATION, DelegationCause, DelegationOutcome
from databuild_dagster.model.errors import IllegalMove
from databuild_dagster.model.events import Event
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import InstanceRow, JobRunRow, RefRow, TaintRow, WantRow
from databuild_dagster.model.set_aside import cause_of
from databuild_dagster.model.states import (
    INSTANCE,
    JOB_RUN,
    TAINTABLE,
    WANT,
    InstanceCause,
    InstanceState,
    JobRunCause,
    JobRunState,
    WantCause,
    WantState,
)
from databuild_dagster.model.view import Openness, View

K = TypeVar("K")
T = TypeVar("T")

#: The field of a want's histogram for each canonical state that counts in 5.2.
_HISTOGRAM = {
    InstanceState.LIVE: "n_live",
    InstanceState.FAILED: "n_failed",
    InstanceState.UPSTREAM_FAILED: "n_upstream_failed",
    InstanceState.BUILDING: "n_building",
    InstanceState.UPSTREAM_BUILDING: "n_upstream_building",
}

_WAITING = frozenset({InstanceState.UPSTREAM_BUILDING, InstanceState.UPSTREAM_FAILED})

#: A canonical state that changed: (ref, from, to).
Crossing = tuple[RefRow, InstanceState | None, InstanceState]


class Folding:
    """An event being folded into a view."""

    def __init__(self, view: View, event: Event) -> None:
        self.view = view
        self.event = event
        self.seq = view.seq = event.seq
        self.at = event.at
        #: Changes of canonical states without a reaction yet.
        self.crossings: list[Crossing] = []
        #: The canonical state of each changed ref that its wants have counted.
        self.seen_by_wants: dict[int, InstanceState | None] = {}
        self.new_wants: list[WantRow] = []
        #: Wants that ended and still hold their refs.
        self.ended_wants: list[WantRow] = []

    # Lookups that must succeed: the log says that these rows exist.

    def found(self, rows: Mapping[K, T], keys: Iterable[K], kind: str) -> Mapping[K, T]:
        for key in keys:
            if key not in rows:
                raise IllegalMove(
                    seq=self.seq, entity=f"{kind} {key}", on=type(self.event.fact).__name__, why="it does not exist"
                )
        return rows

    def job_runs(self, job_run_ids: Iterable[str]) -> Collection[JobRunRow]:
        ids = list(job_run_ids)
        return self.found(self.view.job_runs(ids), ids, "job run").values()

    def outputs(self, job_runs: Iterable[JobRunRow]) -> dict[int, dict[Ref, InstanceRow]]:
        """Instances of job runs: by job run, then by ref."""
        found: dict[int, dict[Ref, InstanceRow]] = {job_run.id: {} for job_run in job_runs}
        instances = self.view.instances_of_job_runs(found)
        refs = self.view.refs_by_id(instance.ref_id for instance in instances)
        for instance in instances:
            found[instance.job_run_id][refs[instance.ref_id].ref] = instance
        return found

    def output(self, outputs: dict[int, dict[Ref, InstanceRow]], job_run: JobRunRow, ref: Ref) -> InstanceRow:
        instance = outputs[job_run.id].get(ref)
        if instance is None:
            raise IllegalMove(
                seq=self.seq,
                entity=f"job run {job_run.job_run_id}",
                state=job_run.state.value,
                on="output",
                why=f"{ref} is not its output",
            )
        return instance

    def ref_of(self, instance: InstanceRow) -> RefRow:
        return self.view.ref_by_id(instance.ref_id)

    # Moves.

    def _record(
        self, row: InstanceRow | WantRow | JobRunRow, before: InstanceState | WantState | JobRunState | None
    ) -> None:
        self.view.record_move(row.TABLE, row.id, self.seq, before, row.state)

    def bear_instance(self, instance: InstanceRow, ref: RefRow, cause: InstanceCause) -> None:
        instance.state = INSTANCE.next(None, cause, entity=instance.uuid, seq=self.seq)
        self._record(instance, None)
        ref.canonical_id = ref.last_id = instance.id
        self._canonical_moved(ref, instance)

    def move_instance(self, instance: InstanceRow, cause: InstanceCause, *, retry_at: float | None = None) -> None:
        before = instance.state
        ref = self.ref_of(instance)
        instance.state = INSTANCE.next(before, cause, entity=f"{instance.uuid} of {ref.ref}", seq=self.seq)
        instance.retry_at = retry_at
        self._record(instance, before)
        if before is InstanceState.UPSTREAM_BUILDING:
            # Its missing refs may have no other waiter.
            self.view.unsettled.update(missing for _, missing in self.view.missing_of([instance.id]))
        if before in _WAITING and instance.state not in _WAITING:
            self.view.end_waiting(instance.id)
            instance.n_unmet = 0
        if ref.canonical_id == instance.id:
            self._canonical_moved(ref, instance)

    def _canonical_moved(self, ref: RefRow, instance: InstanceRow) -> None:
        before, after = ref.state, instance.state
        ref.state, ref.retry_at = after, instance.retry_at
        if after is InstanceState.LIVE:
            instance.was_live = 1
            instance.live_at = self.at if instance.live_at is None else instance.live_at
        if after is InstanceState.LIVE or after is InstanceState.TAINTED:
            ref.misses = ref.attempts = ref.outages = ref.losses = 0
        is_retried = after is InstanceState.UP_FOR_RETRY and (ref.attempts or ref.outages or ref.losses)
        if after is InstanceState.FAILED or is_retried:
            ref.cause = cause_of(instance.reason or "", ref.ref)
        else:
            ref.cause = None
        if before is not after:
            self.seen_by_wants.setdefault(ref.id, before)
            self.crossings.append((ref, before, after))

    # Taints.

    def carry(self, taint: TaintRow, instances: Iterable[InstanceRow]) -> None:
        """Put a taint on instances; canonical instances become Tainted, other instances only carry it."""
        carrying = list(instances)
        self.view.add_taint_links(taint.id, [instance.id for instance in carrying])
        self.view.refs_by_id(instance.ref_id for instance in carrying)
        for instance in carrying:
            instance.n_taints += 1
            instance.n_spreading += taint.downstream
            canonical = self.ref_of(instance).canonical_id == instance.id
            if canonical and instance.state in TAINTABLE and instance.state is not InstanceState.TAINTED:
                self.move_instance(instance, InstanceCause.TAINTED)

    def carry_on(self, instance: InstanceRow, input_ids: list[int]) -> None:
        """An instance built from inputs under a downstream taint inherits the taint in the event that completes it (rule 7.3)."""
        pairs = self.view.taints_of_instances(input_ids)
        for taint in self.view.taints_by_id({taint_id for _, taint_id in pairs}).values():
            if taint.downstream:
                self.carry(taint, [instance])

    def let_go_of_taints(self, pairs: list[tuple[int, int]], cause: InstanceCause) -> None:
        """Remove taints, as (instance, taint) pairs; an instance without any left that was live is live again."""
        taints = self.view.taints_by_id(taint_id for _, taint_id in pairs)
        instances = self.view.instances_by_id(instance_id for instance_id, _ in pairs)
        self.view.cancel_taint_links(pairs, self.at)
        for instance_id, taint_id in pairs:
            instances[instance_id].n_taints -= 1
            instances[instance_id].n_spreading -= taints[taint_id].downstream
        for instance in instances.values():
            canonical = self.ref_of(instance).canonical_id == instance.id
            is_tainted = instance.state is InstanceState.TAINTED
            has_data = instance.was_live and instance.manifest_state != REMOVED
            if is_tainted and canonical and instance.n_taints == 0 and has_data:
                self.move_instance(instance, cause)

    def revert(self, ref: RefRow, instance: InstanceRow, cause: InstanceCause) -> None:
        """Readers see this instance again, without any taint (rules 7.4, 4.9)."""
        ref.canonical_id = instance.id
        self.view.add_revert(ref.id, self.seq, instance.id, returned=cause is InstanceCause.RETURNED)
        self.let_go_of_taints(self.view.taints_of_instances([instance.id]), cause)
        if instance.state is InstanceState.TAINTED:
            # Its taints were canceled while another instance was canonical.
            self.move_instance(instance, cause)
        if ref.state is not instance.state or ref.retry_at is not instance.retry_at:
            self._canonical_moved(ref, instance)

    def wait_for(self, instance: InstanceRow, missing: list[RefRow]) -> None:
        self.view.add_missing(instance.id, [ref.id for ref in missing])
        self.view.unsettled.update(ref.id for ref in missing)

    def remember(self, instance: InstanceRow, missing: list[RefRow]) -> None:
        """Keep missing refs that are live by now for its next build, without waiting for them (rule 6.3)."""
        self.view.add_missing(instance.id, [ref.id for ref in missing])
        self.view.end_waiting(instance.id)

    def bear_job_run(self, job_run: JobRunRow, cause: JobRunCause) -> None:
        job_run.state = JOB_RUN.next(None, cause, entity=job_run.job_run_id, seq=self.seq)
        self._record(job_run, None)
        if job_run.state is not JobRunState.QUEUED:
            job_run.ended_at = self.at

    def move_job_run(self, job_run: JobRunRow, cause: JobRunCause) -> None:
        before = job_run.state
        job_run.state = JOB_RUN.next(before, cause, entity=job_run.job_run_id, seq=self.seq)
        self._record(job_run, before)
        if job_run.state is not JobRunState.RUNNING:
            job_run.ended_at = self.at

    # Wants.

    def bear_want(self, want: WantRow) -> None:
        want.state = WANT.next(None, WantCause.CREATED, entity=want.want_id, seq=self.seq)
        self._record(want, None)
        self.new_wants.append(want)

    def count_state(self, want: WantRow, state: InstanceState | None, by: int) -> None:
        if state is not None and (field := _HISTOGRAM.get(state)):
            setattr(want, field, getattr(want, field) + by)

    def move_want(self, want: WantRow, cause: WantCause) -> None:
        before = want.state
        want.state = WANT.next(before, cause, entity=want.want_id, seq=self.seq)
        self._record(want, before)

    def end_want(self, want: WantRow, cause: WantCause) -> None:
        """A want that ends releases its refs after the reactions to the event."""
        self.move_want(want, cause)
        want.ended_at = self.at
        successful = want.state is WantState.SUCCESSFUL
        if want.state is WantState.UPSTREAM_FAILED:
            self.view.failed_upstream.append(want)
        if successful or want.state is WantState.CANCELED:
            # One that failed or expired misses its SLA, by an event at its deadline.
            want.sla_at = None
        self.view.set_openness(want.id, Openness.SUCCESSFUL if successful else Openness.ENDED)
        self.ended_wants.append(want)

    # Delegations.

    def give_up(self, delegations: Iterable[tuple[RefRow, str]], reason: str) -> None:
        """End active delegations: their requesters do not wait any longer. Raises `IllegalMove` for an ended delegation."""
        given_up = list(delegations)
        asked: dict[str, list[int]] = {}
        for ref, requester in given_up:
            asked.setdefault(requester, []).append(ref.id)
        self.view.meet_delegations(asked)
        ends = []
        for ref, requester in given_up:
            before = self.view.delegations(requester, [ref.id]).get(ref.id)
            state = None if before is None else DelegationOutcome(before)
            entity = f"of {requester} to {ref.ref}"
            outcome = DELEGATION.next(state, DelegationCause.GIVEN_UP, entity=entity, seq=self.seq)
            ref.n_joined -= 1
            ends.append((outcome.value, None, self.at, reason, requester, ref.id))
        self.view.end_delegations(ends)
