"""The invariants of rules 12 over a `MemoryView`, written without SQL: one function per rule, each yields what breaks it.

`store.invariants` asks the same of the tables. Two readings of one specification find more than one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from databuild_dagster.model.coordination import DelegationOutcome
from databuild_dagster.model.events import Event
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.rows import MACHINES, InstanceRow, JobRunRow, LaunchRow, RefRow, TaintRow, WantRow
from databuild_dagster.model.states import (
    FAILING,
    LEASED,
    OPEN_JOB_RUNS,
    OPEN_WANTS,
    InstanceState,
    JobRunState,
    WantState,
)
from databuild_dagster.model.view import Openness

from .memory_view import ROW_BITS, MemoryView

_I = InstanceState


def violations(view: MemoryView, log: list[Event]) -> list[str]:
    """Every violation as a sentence that begins with its rule."""
    now = log[-1].at if log else 0.0
    return [f"{rule}: {found}" for rule, question in _QUESTIONS for found in question(view, now)]


def _leases(view: MemoryView, now: float) -> Iterator[str]:
    canonical = {ref.canonical_id for ref in view.rows[RefRow]}
    for row in view.rows[InstanceRow]:
        if row.state in LEASED and row.id not in canonical:
            yield f"{row.uuid} is {row.state} without being canonical"


def _pointers(view: MemoryView, now: float) -> Iterator[str]:
    instances = view.rows[InstanceRow].by_id
    for ref in view.rows[RefRow]:
        built = [row.id for row in view.rows[InstanceRow] if row.ref_id == ref.id]
        last = built[-1] if built else None
        turned = sorted(
            (seq, i) for (of, seq), i in view.reverts.items() if of == ref.id and seq > (last or 0) >> ROW_BITS
        )
        if ref.last_id != last or ref.canonical_id != (turned[-1][1] if turned else last):
            yield f"{ref.ref} points at neither its last instance nor the one reverted to"
        canonical = instances.get(ref.canonical_id)
        if canonical is not None and (ref.state, ref.retry_at, ref.id) != (
            canonical.state,
            canonical.retry_at,
            canonical.ref_id,
        ):
            yield f"{ref.ref} says {ref.state}, its canonical instance {canonical.state}"
        for before, after in pairwise([None, *built]):
            if instances[after].previous_id != before:
                yield f"{instances[after].uuid} has another previous instance than the one before it"


def _waiting(view: MemoryView, now: float) -> Iterator[str]:
    refs, instances = view.rows[RefRow].by_id, view.rows[InstanceRow].by_id
    waits: dict[int, list[RefRow]] = {}
    for (instance_id, ref_id), active in view.missing.items():
        if active:
            waits.setdefault(instance_id, []).append(refs[ref_id])
    for row in instances.values():
        missed = waits.get(row.id, [])
        unmet = [ref for ref in missed if ref.state is not _I.LIVE]
        if missed and row.state not in (_I.UPSTREAM_BUILDING, _I.UPSTREAM_FAILED):
            yield f"{row.uuid} is {row.state} and still waits"
        if row.state is _I.UPSTREAM_BUILDING and (not unmet or len(unmet) != row.n_unmet):
            yield f"{row.uuid} counts {row.n_unmet} unmet refs, there are {len(unmet)}"
        if row.state is _I.UPSTREAM_BUILDING and any(ref.state in FAILING for ref in missed):
            yield f"{row.uuid} waits for a ref that has failed"
        is_canonical = refs[row.ref_id].canonical_id == row.id
        if row.state is _I.UPSTREAM_FAILED and is_canonical and not any(ref.state in FAILING for ref in missed):
            yield f"{row.uuid} is UpstreamFailed although no ref that it misses has failed"
    counted = Counter(ref.id for missed in waits.values() for ref in missed)
    for ref in refs.values():
        if ref.n_waiters != counted[ref.id]:
            yield f"{ref.ref} counts {ref.n_waiters} waiters, there are {counted[ref.id]}"


_FORCED = (
    (_I.FAILED, WantState.FAILED),
    (_I.UPSTREAM_FAILED, WantState.UPSTREAM_FAILED),
    (_I.BUILDING, WantState.BUILDING),
    (_I.UPSTREAM_BUILDING, WantState.UPSTREAM_BUILDING),
)


def forced_state(states: list[InstanceState | None]) -> WantState:
    """Rule 5.2 for a want whose refs have these states; a failure wins over everything, then Live for all."""
    present = set(states)
    failed = [forced for state, forced in _FORCED[:2] if state in present]
    if not failed and present == {_I.LIVE}:
        return WantState.SUCCESSFUL
    return next((forced for state, forced in _FORCED if state in present), WantState.IDLE)


def _wants(view: MemoryView, now: float) -> Iterator[str]:
    refs = view.rows[RefRow].by_id
    openness = {WantState.SUCCESSFUL: Openness.SUCCESSFUL, **dict.fromkeys(OPEN_WANTS, Openness.OPEN)}
    for want in view.rows[WantRow]:
        named = view.want_refs[want.id]
        held = {view.holds[ref_id, want.id] for ref_id in named}
        if held != {openness.get(want.state, Openness.ENDED)}:
            yield f"{want.want_id} is {want.state}, its hold on a ref says {held}"
        if want.state not in OPEN_WANTS:
            continue
        states = [refs[ref_id].state for ref_id in named]
        if want.state is not forced_state(states):
            yield f"{want.want_id} is {want.state}, its refs say {forced_state(states)}"
        counted = [states.count(state) for state in (_I.LIVE, *(state for state, _ in _FORCED))]
        kept = [want.n_live, want.n_failed, want.n_upstream_failed, want.n_building, want.n_upstream_building]
        if counted != kept:
            yield f"{want.want_id} has a histogram that is off"


def _wanted(view: MemoryView, now: float) -> Iterator[str]:
    wants = view.rows[WantRow].by_id
    for ref in view.rows[RefRow]:
        held = [wants[w] for (r, w), openness in view.holds.items() if r == ref.id and openness is Openness.OPEN]
        if len(held) != ref.n_open_wants:
            yield f"{ref.ref} counts {ref.n_open_wants} open wants, there are {len(held)}"
        if held and (ref.priority, ref.deadline, ref.wanted_since, ref.wanted_until, ref.fail_fast) != (
            max(want.priority for want in held),
            min(want.deadline for want in held),
            min(want.created_at for want in held),
            max(want.expires_at for want in held),
            min(want.fail_fast for want in held),
        ):
            yield f"{ref.ref} adds its open wants up wrongly"


def _derivative(view: MemoryView, now: float) -> Iterator[str]:
    refs, instances = view.rows[RefRow].by_id, view.rows[InstanceRow].by_id
    waiting = [(instances[i], refs[r]) for (i, r), active in view.missing.items() if active]
    waiting = [(row, ref) for row, ref in waiting if row.state is _I.UPSTREAM_BUILDING]
    for row, missed in waiting:
        waiter = refs[row.ref_id]
        if not waiter.n_open_wants:
            yield f"{waiter.ref} waits without an open want"
        if missed.state is _I.LIVE or waiter.wanted_until <= now:
            continue
        own = [want for _, want in view.wants_holding([missed.id], Openness.OPEN) if want.n_refs == 1]
        if not any(
            want.priority >= waiter.priority
            and want.deadline <= waiter.deadline
            and want.expires_at >= waiter.wanted_until
            and want.fail_fast <= waiter.fail_fast
            for want in own
        ):
            yield f"{missed.ref} is missed by {waiter.ref} without a want as urgent and as long-lived"
    missed_refs = {ref.id for _, ref in waiting}
    for want in view.rows[WantRow]:
        is_derivative = want.source == "job run" and not want.reopened and want.keeping is None
        if want.state in OPEN_WANTS and is_derivative and missed_refs.isdisjoint(view.want_refs[want.id]):
            yield f"{want.want_id} is a derivative want that no instance needs"


def _kept(view: MemoryView, now: float) -> Iterator[str]:
    wants = view.rows[WantRow].by_id
    for want in view.rows[WantRow]:
        if want.keeping is None or want.state not in OPEN_WANTS:
            continue
        made_for = [wants[want_id] for _, want_id in view.kept_for([want.keeping])]
        if any(served.state is not WantState.UPSTREAM_FAILED for served in made_for):
            yield f"{want.want_id} is kept for a want that has not failed upstream"
        if all(served.withdrawn for served in made_for):
            yield f"{want.want_id} is kept for no want"


def _job_runs(view: MemoryView, now: float) -> Iterator[str]:
    refs, job_runs = view.rows[RefRow].by_id, view.rows[JobRunRow].by_id
    building = {
        row.job_run_id
        for row in view.rows[InstanceRow]
        if refs[row.ref_id].canonical_id == row.id and row.state is _I.BUILDING
    }
    for row in job_runs.values():
        if (row.ended_at is None) != (row.state in OPEN_JOB_RUNS):
            yield f"{row.job_run_id} is {row.state} and ended at {row.ended_at}"
        if row.state in OPEN_JOB_RUNS and row.id not in building:
            yield f"{row.job_run_id} is {row.state} and builds nothing"
    for job_run_id in building:
        if job_runs[job_run_id].state not in OPEN_JOB_RUNS:
            yield f"{job_runs[job_run_id].job_run_id} is {job_runs[job_run_id].state} and has an instance that is Building"


def _uuids(view: MemoryView, now: float) -> Iterator[str]:
    for row in view.rows[InstanceRow]:
        job_run = view.rows[JobRunRow].by_id[row.job_run_id]
        if derive_partition_uuid(job_run.job_run_id, view.rows[RefRow].by_id[row.ref_id].ref) != row.uuid:
            yield f"{row.uuid} does not follow from its job run and ref"


def _manifests(view: MemoryView, now: float) -> Iterator[str]:
    for row in view.rows[InstanceRow]:
        is_canonical = view.rows[RefRow].by_id[row.ref_id].canonical_id == row.id
        if row.state is _I.LIVE and row.manifest_state not in ("complete", "empty"):
            from_outside = row.manifest_state is None and row.origin is not None
            if not from_outside and not (row.manifest_state == "removed" and not is_canonical):
                yield f"{row.uuid} is Live with the manifest {row.manifest_state}"
        if row.manifest_state == "removed" and row.state in LEASED:
            yield f"{row.uuid} lost its data while it was {row.state}"
        if row.cleared_at is not None and row.manifest_state != "removed":
            yield f"{row.uuid} has no files and was never removed"


def _taints(view: MemoryView, now: float) -> Iterator[str]:
    instances, taints = view.rows[InstanceRow].by_id, view.rows[TaintRow].by_id
    acting = [(instances[i], taints[t]) for (t, i), canceled_at in view.taint_links.items() if canceled_at is None]
    counted = Counter(row.id for row, _ in acting)
    spreading = Counter(row.id for row, taint in acting if taint.downstream)
    for row in instances.values():
        if (row.n_taints, row.n_spreading) != (counted[row.id], spreading[row.id]):
            yield f"{row.uuid} counts {row.n_taints} taints, {row.n_spreading} of them downstream"
        if view.rows[RefRow].by_id[row.ref_id].canonical_id != row.id:
            continue
        if row.n_taints and row.state in (_I.LIVE, _I.BUILDING, _I.UPSTREAM_BUILDING, _I.UP_FOR_RETRY):
            yield f"{row.uuid} is {row.state} with {row.n_taints} taints"
        if row.state is _I.TAINTED and row.was_live and not row.n_taints and row.manifest_state != "removed":
            yield f"{row.uuid} is Tainted, was live, and has no taint"
    for row, taint in acting:
        if taint.canceled_at is not None:
            yield f"{row.uuid} still has the taint {taint.taint_id}, which is taken back"
        for built in view.instances_built_from([row.id]) if taint.downstream else ():
            # A revert may have taken the taint from these rows in other files.
            taken_from = {
                instances[i].same_root for (t, i), at in view.taint_links.items() if t == taint.id and at is not None
            }
            if (taint.id, built) not in view.taint_links and instances[built].same_root not in taken_from:
                yield f"{instances[built].uuid} was built from {row.uuid} and lacks its downstream taint"


def _delegations(view: MemoryView, now: float) -> Iterator[str]:
    refs, instances = view.rows[RefRow].by_id, view.rows[InstanceRow].by_id
    waiting = Counter[int]()
    for row in view.delegations_made.values():
        if row.outcome == DelegationOutcome.WAITING:
            waiting[row.ref_id] += 1
            if refs[row.ref_id].state in (_I.LIVE, *FAILING):
                yield f"{row.requester} waits for {refs[row.ref_id].ref}, which is {refs[row.ref_id].state}"
        if row.outcome == DelegationOutcome.LIVE and not (row.served_id and instances[row.served_id].was_live):
            yield f"{row.requester} was served {refs[row.ref_id].ref} by an instance that was never live"
    for ref in refs.values():
        if ref.n_joined != waiting[ref.id]:
            yield f"{ref.ref} counts {ref.n_joined} requests that wait for it, there are {waiting[ref.id]}"


def _histories(view: MemoryView, now: float) -> Iterator[str]:
    last = {(kind, entity): after for kind, entity, *_, after in view.history}
    for row_type, kind in ((InstanceRow, "instances"), (WantRow, "wants"), (JobRunRow, "job_runs")):
        for row in view.rows[row_type]:
            if last.get((kind, row.id)) != row.state:
                yield f"{kind} {row.id} is {row.state}, its history ends with {last.get((kind, row.id))}"
    for kind, entity, _, _, before, after in view.history:
        if (before, after) not in MACHINES[kind].steps:
            yield f"{kind} {entity} went from {before} to {after}, a move that is in no table"


def _dead_job_runs(view: MemoryView, now: float) -> Iterator[str]:
    for row in view.rows[JobRunRow]:
        if row.state is JobRunState.SKIPPED and any(i.job_run_id == row.id for i in view.rows[InstanceRow]):
            yield f"{row.job_run_id} was skipped and has an instance"


def _pauses(view: MemoryView, now: float) -> Iterator[str]:
    refs, job_runs, launches = (view.rows[kind].by_id for kind in (RefRow, JobRunRow, LaunchRow))
    for row in view.rows[InstanceRow]:
        ref = refs[row.ref_id].ref
        for pause in view.paused.values():
            names_it = pause.ref in (ref, ref.partition("@")[0])
            in_time = row.created_at < pause.until
            in_force = pause.seq < row.created_seq < (pause.ended_seq or row.created_seq + 1) and in_time
            if names_it and in_force and launches[job_runs[row.job_run_id].launch_id].location:
                yield f"{row.uuid} was launched while {pause.ref} was paused"


_QUESTIONS: tuple[tuple[str, Callable[[MemoryView, float], Iterator[str]]], ...] = (
    ("I1", _leases),
    ("I2", _pointers),
    ("I3", _waiting),
    ("I4", _wants),
    ("I4", _wanted),
    ("rule 6.4", _derivative),
    ("rule 6.14", _kept),
    ("rules 6.1, 4.4", _job_runs),
    ("rule 8.2", _dead_job_runs),
    ("I6", _uuids),
    ("I7", _manifests),
    ("rules 7", _taints),
    ("rule 8.3", _delegations),
    ("I12", _pauses),
    ("rule 3.2", _histories),
)
