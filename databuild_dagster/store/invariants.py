"""The invariants of rules 12 as queries over the tables: each query finds what breaks its invariant.

A query's first column is the entity, the second describes the fault. `rebuild.differences` checks I5; the floors that
know the disk check the rest of I7. Features have invariants of their own, which a caller passes in.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from databuild_dagster.model.coordination import DELEGATION, FIRST_OUTCOME, Answer, DelegationOutcome
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import derive_partition_uuid
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import MACHINES
from databuild_dagster.model.states import (
    FAILING,
    LEASED,
    OPEN_JOB_RUNS,
    OPEN_WANTS,
    SCHEDULABLE,
    InstanceState,
    WantState,
)
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.format import BITS, one_of
from databuild_dagster.store.format import PREFIX as P


class Violation(NamedTuple):
    """A fault of the store, with the invariant that it breaks."""

    invariant: str
    entity: str
    detail: str


class Invariant(NamedTuple):
    """A rule that the tables keep."""

    #: "I9" or "rule 7.1".
    name: str
    #: Each entity that breaks it, and the fault.
    broken: Callable[[Connection], Iterable[tuple[object, object]]]


#: Every move of the machines' tables, such as "instances Building>Live" (rule 3.2).
_LAWFUL = ", ".join(
    sorted(
        f"'{table} {from_state or ''}>{to_state}'"
        for table, machine in MACHINES.items()
        for from_state, to_state in machine.steps
    )
)


#: The kinds and outcomes of delegations that the machine's table allows, such as "joined>live". A requester that joined a build
#: may build the ref itself later.
_LAWFUL_DELEGATIONS = ", ".join(
    f"'{kind}>{outcome}'"
    for kind, first in {**FIRST_OUTCOME, Answer.BUILD: FIRST_OUTCOME[Answer.JOIN]}.items()
    for outcome in sorted({first, *(after for before, after in DELEGATION.steps if before is first)})
)

_I, _W, _D = InstanceState, WantState, DelegationOutcome
_LEASED, _FAILING = one_of(LEASED), one_of(FAILING)
#: A ref without an instance is missing.
_SCHEDULABLE = one_of((state for state in SCHEDULABLE if state is not None), "missing")
_OPEN_WANTS, _OPEN_RUNS = one_of(OPEN_WANTS), one_of(OPEN_JOB_RUNS)

#: The state of each open want by rule 5.2, counted from its refs.
_WANT_STATES = f"""
    SELECT w.want_id AS want_id, w.state AS state,
        CASE WHEN count(*) FILTER (WHERE r.state = '{_I.FAILED}') > 0 THEN '{_W.FAILED}'
             WHEN count(*) FILTER (WHERE r.state = '{_I.UPSTREAM_FAILED}') > 0 THEN '{_W.UPSTREAM_FAILED}'
             WHEN count(*) FILTER (WHERE r.state = '{_I.LIVE}') = count(*) THEN '{_W.SUCCESSFUL}'
             WHEN count(*) FILTER (WHERE r.state = '{_I.BUILDING}') > 0 THEN '{_W.BUILDING}'
             WHEN count(*) FILTER (WHERE r.state = '{_I.UPSTREAM_BUILDING}') > 0 THEN '{_W.UPSTREAM_BUILDING}'
             ELSE '{_W.IDLE}' END AS forced
    FROM {P}wants w JOIN {P}want_refs x ON x.want_id = w.id JOIN {P}refs r ON r.id = x.ref_id
    WHERE w.state IN {_OPEN_WANTS} GROUP BY w.id"""

#: By invariant or section, the queries that find what breaks it.
QUERIES: dict[str, tuple[str, ...]] = {
    "I1": (
        f"""SELECT r.ref, 'has ' || count(*) || ' instances that hold the lease' FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id
        WHERE i.state = '{_I.BUILDING}' OR i.state = '{_I.UPSTREAM_BUILDING}' GROUP BY r.id HAVING count(*) > 1""",
        f"""SELECT i.uuid, 'is ' || i.state || ' without being canonical' FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id
        WHERE i.state IN {_LEASED} AND r.canonical_id IS NOT i.id""",
    ),
    "I2": (
        f"""SELECT r.ref, 'its canonical instance is neither the last created nor what was reverted to' FROM {P}refs r
        LEFT JOIN (SELECT ref_id, max(id) AS last FROM {P}instances GROUP BY ref_id) i ON i.ref_id = r.id
        WHERE r.last_id IS NOT i.last OR r.canonical_id IS NOT coalesce(
            (SELECT v.instance_id FROM {P}reverts v WHERE v.ref_id = r.id AND v.seq > (i.last >> {BITS})
             ORDER BY v.seq DESC LIMIT 1), i.last)""",
        f"""SELECT r.ref, 'says ' || coalesce(r.state, 'missing') || ', its canonical instance says ' || coalesce(i.state, 'missing')
        FROM {P}refs r LEFT JOIN {P}instances i ON i.id = r.canonical_id
        WHERE r.state IS NOT i.state OR r.retry_at IS NOT i.retry_at OR (i.id IS NOT NULL AND i.ref_id <> r.id)""",
        f"""SELECT uuid, 'its previous_uuid is not the instance created before it'
        FROM (SELECT uuid, previous_id, lag(id) OVER (PARTITION BY ref_id ORDER BY id) AS before_id FROM {P}instances) i
        WHERE previous_id IS NOT before_id""",
    ),
    "I3": (
        f"""SELECT i.uuid, 'is UpstreamBuilding and waits for nothing' FROM {P}instances i WHERE i.state = '{_I.UPSTREAM_BUILDING}'
        AND NOT EXISTS (SELECT 1 FROM {P}missing m WHERE m.instance_id = i.id AND m.active = 1)""",
        f"""SELECT i.uuid, 'is ' || i.state || ' and still in the waiting index'
        FROM {P}missing m JOIN {P}instances i ON i.id = m.instance_id
        WHERE m.active = 1 AND i.state NOT IN ('{_I.UPSTREAM_BUILDING}', '{_I.UPSTREAM_FAILED}')""",
        f"""SELECT i.uuid, 'counts ' || i.n_unmet || ' unmet refs, there are ' || count(*) FROM {P}instances i
        JOIN {P}missing m ON m.instance_id = i.id AND m.active = 1 JOIN {P}refs r ON r.id = m.ref_id
        WHERE i.state = '{_I.UPSTREAM_BUILDING}' AND r.state IS NOT '{_I.LIVE}' GROUP BY i.id HAVING count(*) <> i.n_unmet""",
        f"""SELECT i.uuid, 'waits although all it misses is live' FROM {P}instances i WHERE i.state = '{_I.UPSTREAM_BUILDING}'
        AND NOT EXISTS (SELECT 1 FROM {P}missing m JOIN {P}refs r ON r.id = m.ref_id
                        WHERE m.instance_id = i.id AND m.active = 1 AND r.state IS NOT '{_I.LIVE}')""",
        f"""SELECT i.uuid, 'waits for ' || r.ref || ', which is ' || r.state FROM {P}instances i
        JOIN {P}missing m ON m.instance_id = i.id AND m.active = 1 JOIN {P}refs r ON r.id = m.ref_id
        WHERE i.state = '{_I.UPSTREAM_BUILDING}' AND r.state IN {_FAILING}""",
        f"""SELECT i.uuid, 'is UpstreamFailed although nothing it misses is failed' FROM {P}instances i
        JOIN {P}refs c ON c.canonical_id = i.id WHERE i.state = '{_I.UPSTREAM_FAILED}'
        AND NOT EXISTS (SELECT 1 FROM {P}missing m JOIN {P}refs r ON r.id = m.ref_id
                        WHERE m.instance_id = i.id AND m.active = 1 AND r.state IN {_FAILING})""",
        f"""SELECT r.ref, 'counts ' || r.n_waiters || ' waiters' FROM {P}refs r
        WHERE r.n_waiters <> (SELECT count(*) FROM {P}missing m WHERE m.ref_id = r.id AND m.active = 1)""",
    ),
    "I4": (
        f"SELECT want_id, 'is ' || state || ', its refs say ' || forced FROM ({_WANT_STATES}) w WHERE state <> forced",
        f"""SELECT w.want_id, 'its histogram is off' FROM {P}wants w JOIN {P}want_refs x ON x.want_id = w.id
        JOIN {P}refs r ON r.id = x.ref_id WHERE w.state IN {_OPEN_WANTS} GROUP BY w.id HAVING
        count(*) FILTER (WHERE r.state = '{_I.LIVE}') <> w.n_live OR count(*) FILTER (WHERE r.state = '{_I.FAILED}') <> w.n_failed
        OR count(*) FILTER (WHERE r.state = '{_I.BUILDING}') <> w.n_building
        OR count(*) FILTER (WHERE r.state = '{_I.UPSTREAM_FAILED}') <> w.n_upstream_failed
        OR count(*) FILTER (WHERE r.state = '{_I.UPSTREAM_BUILDING}') <> w.n_upstream_building""",
        f"""SELECT w.want_id, 'is ' || w.state || ', its hold on a ref says ' || x.open
        FROM {P}wants w JOIN {P}holds x ON x.want_id = w.id
        WHERE x.open <> CASE WHEN w.state IN {_OPEN_WANTS} THEN 1 WHEN w.state = '{_W.SUCCESSFUL}' THEN 2 ELSE 0 END""",
        f"""SELECT coalesce(w.want_id, 'want row ' || x.want_id), 'holds other refs than it names' FROM (
            SELECT want_id, ref_id, 1 AS n FROM {P}want_refs UNION ALL SELECT want_id, ref_id, -1 FROM {P}holds) x
        LEFT JOIN {P}wants w ON w.id = x.want_id GROUP BY x.want_id, x.ref_id, w.want_id HAVING sum(x.n) <> 0""",
        f"""SELECT r.ref, 'counts ' || r.n_open_wants || ' open wants' FROM {P}refs r
        WHERE r.n_open_wants <> (SELECT count(*) FROM {P}holds x WHERE x.ref_id = r.id AND x.open = 1)""",
        f"""SELECT r.ref, 'what its open wants add up to is off' FROM {P}refs r
        JOIN {P}holds x ON x.ref_id = r.id AND x.open = 1 JOIN {P}wants w ON w.id = x.want_id GROUP BY r.id
        HAVING max(w.priority) <> r.priority OR min(w.deadline) <> r.deadline OR min(w.created_at) <> r.wanted_since
        OR max(w.expires_at) <> r.wanted_until OR min(w.fail_fast) <> r.fail_fast""",
    ),
    "rule 5.4": (
        f"""SELECT r.ref, 'its due mark is ' || r.due FROM {P}refs r WHERE r.due <> CASE
        WHEN r.n_open_wants > 0 AND coalesce(r.state, 'missing') IN {_SCHEDULABLE} THEN 1 ELSE 0 END""",
    ),
    "rule 6.4": (
        f"""SELECT c.ref, 'waits without an open want' FROM {P}refs c WHERE c.state = '{_I.UPSTREAM_BUILDING}' AND c.n_open_wants = 0""",
        f"""SELECT r.ref, 'is missed by ' || c.ref || ' without a want of its own that is as urgent and as long-lived'
        FROM {P}refs c JOIN {P}missing m ON m.instance_id = c.canonical_id AND m.active = 1 JOIN {P}refs r ON r.id = m.ref_id
        WHERE c.state = '{_I.UPSTREAM_BUILDING}' AND r.state IS NOT '{_I.LIVE}'
        AND c.wanted_until > (SELECT coalesce(max(at), 0) FROM {P}events)
        AND NOT EXISTS (SELECT 1 FROM {P}holds x JOIN {P}wants w ON w.id = x.want_id WHERE x.ref_id = r.id AND x.open = 1
                        AND w.n_refs = 1 AND w.priority >= c.priority AND w.deadline <= c.deadline AND w.expires_at >= c.wanted_until
                        AND w.fail_fast <= c.fail_fast)""",
        f"""SELECT w.want_id, 'is a derivative want that was never met and that nothing waits for'
        FROM {P}wants w JOIN {P}want_refs x ON x.want_id = w.id
        WHERE w.state IN {_OPEN_WANTS} AND w.source = '{DERIVATIVE}' AND w.reopened = 0 AND w.keeping IS NULL AND NOT EXISTS (
            SELECT 1 FROM {P}missing m JOIN {P}instances i ON i.id = m.instance_id
            WHERE m.ref_id = x.ref_id AND m.active = 1 AND i.state = '{_I.UPSTREAM_BUILDING}')""",
    ),
    "I12": (
        f"""SELECT i.uuid, 'was launched while ' || p.actor || ' had paused ' || p.ref || ' at seq ' || p.seq
        FROM {P}pauses p JOIN {P}refs r ON r.dataset_id = p.dataset_id AND (p.is_whole = 1 OR r.ref = p.ref)
        JOIN {P}instances i ON i.ref_id = r.id JOIN {P}job_runs j ON j.id = i.job_run_id
        JOIN {P}launches l ON l.id = j.launch_id
        WHERE l.location <> '' AND i.created_seq > p.seq AND (p.ended_seq IS NULL OR i.created_seq < p.ended_seq)
        AND i.created_at < p.until""",
        f"""SELECT ref, 'has ' || count(*) || ' open pauses of its own' FROM {P}pauses
        WHERE ended_seq IS NULL GROUP BY ref HAVING count(*) > 1""",
    ),
    "rule 6.14": (
        f"""SELECT w.want_id, 'is kept for no want' FROM {P}wants w WHERE w.state IN {_OPEN_WANTS} AND w.keeping IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM {P}kept_for k JOIN {P}wants f ON f.id = k.want_id
                        WHERE k.keeping = w.keeping AND f.withdrawn = 0)""",
        f"""SELECT w.want_id, 'is kept for ' || f.want_id || ', which is ' || f.state FROM {P}wants w
        JOIN {P}kept_for k ON k.keeping = w.keeping JOIN {P}wants f ON f.id = k.want_id
        WHERE w.state IN {_OPEN_WANTS} AND f.state <> '{_W.UPSTREAM_FAILED}'""",
    ),
    "rule 6.1": (
        f"""SELECT job_run_id, 'is ' || state || CASE WHEN ended_at IS NULL THEN ' without an end' ELSE ' and has ended' END
        FROM {P}job_runs WHERE (ended_at IS NULL) <> (state IN {_OPEN_RUNS})""",
        f"""SELECT j.job_run_id, 'is ' || j.state || ' and builds nothing' FROM {P}job_runs j WHERE j.state IN {_OPEN_RUNS}
        AND NOT EXISTS (SELECT 1 FROM {P}instances i JOIN {P}refs r ON r.canonical_id = i.id WHERE i.job_run_id = j.id
                        AND i.id > j.id AND i.id < ((j.id >> {BITS}) + 1) << {BITS} AND r.id = i.ref_id AND r.state = '{_I.BUILDING}')""",
    ),
    "rule 4.4": (
        f"""SELECT i.uuid, 'is Building, its job run ' || j.job_run_id || ' is ' || j.state FROM {P}instances i
        JOIN {P}job_runs j ON j.id = i.job_run_id WHERE i.state = '{_I.BUILDING}' AND j.state NOT IN {_OPEN_RUNS}""",
    ),
    "I7": (
        f"""SELECT i.uuid, 'is Live with a manifest that is ' || i.manifest_state FROM {P}instances i
        JOIN {P}refs r ON r.id = i.ref_id
        WHERE i.state = '{_I.LIVE}' AND i.manifest_state IS NOT NULL AND i.manifest_state NOT IN ('complete', 'empty')
        AND NOT (i.manifest_state = '{REMOVED}' AND r.canonical_id <> i.id)""",
        f"""SELECT i.uuid, 'its data was removed while it was ' || i.state FROM {P}instances i
        WHERE i.manifest_state = '{REMOVED}' AND i.state IN {_LEASED}""",
        f"""SELECT i.uuid, 'is Live without a manifest, and did not come from outside' FROM {P}instances i
        WHERE i.state = '{_I.LIVE}' AND i.manifest_state IS NULL AND i.origin IS NULL""",
    ),
    "rule 10.8": (
        f"""SELECT i.uuid, 'its files are gone, and its data was never removed' FROM {P}instances i
        WHERE i.cleared_at IS NOT NULL AND i.manifest_state IS NOT '{REMOVED}'""",
    ),
    "I8": (
        f"""SELECT m.key, 'has revision ' || m.revision || ', which is no invoke of the meta storage' FROM {P}meta_entries m
        LEFT JOIN {P}events e ON e.seq = m.revision WHERE e.type IS NOT 'MetaInvoked'""",
        f"""SELECT m.key, 'has revision ' || m.revision || ', and changed last by revision ' || c.revision FROM {P}meta_entries m
        JOIN (SELECT key, max(revision) AS revision FROM {P}meta_changes GROUP BY key) c ON c.key = m.key
        WHERE c.revision <> m.revision""",
    ),
    "rule 3.1": (
        f"""SELECT 'seq ' || seq, 'the seq before it is missing' FROM {P}events e
        WHERE seq > 1 AND NOT EXISTS (SELECT 1 FROM {P}events p WHERE p.seq = e.seq - 1)""",
        f"""SELECT 'seq ' || e.seq, 'its time is before that of the event before' FROM {P}events e JOIN {P}events p ON p.seq = e.seq - 1
        WHERE e.at < p.at""",
        f"""SELECT 'log', 'ends at seq ' || e.last_seq || ', and the tables know of seq ' || h.last_seq || ': its end is lost'
        FROM (SELECT coalesce(max(seq), 0) AS last_seq FROM {P}events) e,
             (SELECT max(seq) AS last_seq FROM {P}history) h WHERE h.last_seq > e.last_seq""",
    ),
    "rule 7.1": (
        f"""SELECT i.uuid, 'counts ' || i.n_taints || ' taints' FROM {P}instances i WHERE i.n_taints <>
        (SELECT count(*) FROM {P}taint_instances x WHERE x.instance_id = i.id AND x.canceled_at IS NULL)""",
        f"""SELECT t.taint_id, 'is taken back, and instance ' || i.uuid || ' still has it' FROM {P}taints t
        JOIN {P}taint_instances x ON x.taint_id = t.id JOIN {P}instances i ON i.id = x.instance_id
        WHERE t.canceled_at IS NOT NULL AND x.canceled_at IS NULL""",
        f"""SELECT i.uuid, 'is ' || i.state || ' with ' || i.n_taints || ' taints' FROM {P}instances i
        JOIN {P}refs r ON r.canonical_id = i.id
        WHERE i.state IN ('{_I.LIVE}', '{_I.BUILDING}', '{_I.UPSTREAM_BUILDING}', '{_I.UP_FOR_RETRY}') AND i.n_taints > 0""",
        f"""SELECT i.uuid, 'is Tainted, was live, and has no taint' FROM {P}instances i JOIN {P}refs r ON r.canonical_id = i.id
        WHERE i.state = '{_I.TAINTED}' AND i.was_live = 1 AND i.n_taints = 0 AND i.manifest_state IS NOT '{REMOVED}'""",
    ),
    "rule 7.3": (
        f"""SELECT i.uuid, 'counts ' || i.n_spreading || ' taints that go on downstream' FROM {P}instances i
        WHERE i.n_spreading <> (SELECT count(*) FROM {P}taint_instances x JOIN {P}taints t ON t.id = x.taint_id
                                WHERE x.instance_id = i.id AND x.canceled_at IS NULL AND t.downstream = 1)""",
        # A revert may have taken the taint from the same rows in other files.
        f"""SELECT i.uuid, 'was built from ' || u.uuid || ', which is under taint ' || t.taint_id || ', and has it not'
        FROM {P}instances u JOIN {P}instance_inputs n ON n.input_id = u.id JOIN {P}instances i ON i.id = n.instance_id
        JOIN {P}taint_instances x ON x.instance_id = u.id AND x.canceled_at IS NULL
        JOIN {P}taints t ON t.id = x.taint_id AND t.downstream = 1
        WHERE u.n_spreading > 0 AND NOT EXISTS (
            SELECT 1 FROM {P}taint_instances y WHERE y.taint_id = t.id AND y.instance_id = i.id)
        AND NOT (i.same_as_id IS NOT NULL AND EXISTS (
            SELECT 1 FROM {P}taint_instances y JOIN {P}instances z ON z.id = y.instance_id
            WHERE y.taint_id = t.id AND y.canceled_at IS NOT NULL AND coalesce(z.same_as_id, z.id) = i.same_as_id))""",
    ),
    "rule 4.8": (
        f"""SELECT i.uuid, 'has the rows of ' || o.uuid || ', and another content hash' FROM {P}instances i
        JOIN {P}instances o ON o.id = i.same_as_id WHERE i.content_hash <> o.content_hash""",
        f"""SELECT i.uuid, 'has the rows of ' || o.uuid || ', no first instance of its ref with these rows' FROM {P}instances i
        JOIN {P}instances o ON o.id = i.same_as_id WHERE i.ref_id <> o.ref_id OR o.id >= i.id OR o.same_as_id IS NOT NULL""",
    ),
    "rule 8.3": (
        f"""SELECT r.ref, 'counts ' || r.n_joined || ' requests that wait for it' FROM {P}refs r WHERE r.n_joined <>
        (SELECT count(*) FROM {P}delegations d WHERE d.ref_id = r.id AND d.outcome = '{_D.WAITING}')""",
        f"""SELECT d.requester, 'waits for ' || r.ref || ', which is ' || r.state FROM {P}delegations d
        JOIN {P}refs r ON r.id = d.ref_id
        WHERE d.outcome = '{_D.WAITING}' AND r.state IN ('{_I.LIVE}', '{_I.FAILED}', '{_I.UPSTREAM_FAILED}')""",
        f"""SELECT d.requester, 'was served ' || r.ref || ' by an instance that was never live' FROM {P}delegations d
        JOIN {P}refs r ON r.id = d.ref_id LEFT JOIN {P}instances i ON i.id = d.served_id
        WHERE d.outcome = '{_D.LIVE}' AND coalesce(i.was_live, 0) = 0""",
    ),
    "rule 3.2": (
        *(
            f"""SELECT x.{name}, 'its last row of history is not ' || x.state FROM {P}{table} x WHERE x.state IS NOT (
            SELECT h.to_state FROM {P}history h WHERE h.kind = '{table}' AND h.entity_id = x.id
            ORDER BY seq DESC, place DESC LIMIT 1)"""
            for table, name in (("instances", "uuid"), ("wants", "want_id"), ("job_runs", "job_run_id"))
        ),
        f"""SELECT coalesce(i.uuid, w.want_id, j.job_run_id, h.kind || ' row ' || h.entity_id),
        'went from ' || coalesce(h.from_state, '(birth)') || ' to ' || h.to_state || ' at seq ' || h.seq
        || ', a move that is in no table' FROM {P}history h
        LEFT JOIN {P}instances i ON h.kind = 'instances' AND i.id = h.entity_id
        LEFT JOIN {P}wants w ON h.kind = 'wants' AND w.id = h.entity_id
        LEFT JOIN {P}job_runs j ON h.kind = 'job_runs' AND j.id = h.entity_id
        WHERE h.kind || ' ' || coalesce(h.from_state, '') || '>' || h.to_state NOT IN ({_LAWFUL})""",
        # A delegation has no rows of history: its own row has its start and its end (decision 0013).
        f"""SELECT d.requester, 'was ' || d.kind || ' for ' || r.ref || ' and is ' || d.outcome
        || CASE WHEN d.ended_at IS NULL THEN ', and has not ended' ELSE ', and has ended' END || ', which is in no table'
        FROM {P}delegations d JOIN {P}refs r ON r.id = d.ref_id
        WHERE d.kind || '>' || d.outcome NOT IN ({_LAWFUL_DELEGATIONS})
        OR (d.ended_at IS NULL) <> (d.outcome = '{_D.WAITING}')""",
    ),
}


def violations(connection: Connection, further: Iterable[Invariant] = ()) -> list[Violation]:
    """Every fault of the tables; none in a sound store."""
    return [
        Violation(invariant.name, str(entity), str(detail))
        for invariant in (*INVARIANTS, *further)
        for entity, detail in invariant.broken(connection)
    ]


def _found_by(queries: Iterable[str], connection: Connection) -> Iterator[tuple[object, object]]:
    for query in queries:
        yield from connection.execute(query)


def _wrong_uuids(connection: Connection) -> Iterator[tuple[object, object]]:
    """I6: each uuid recomputes from its job run and ref."""
    rows = connection.execute(
        f"""SELECT i.uuid, j.job_run_id, r.ref FROM {P}instances i
        JOIN {P}job_runs j ON j.id = i.job_run_id JOIN {P}refs r ON r.id = i.ref_id"""
    )
    for uuid, job_run_id, ref in rows:
        if derive_partition_uuid(job_run_id, ref) != uuid:
            yield uuid, f"does not follow from job run {job_run_id} and {ref}"


#: The invariants of the core.
INVARIANTS: Final = (
    *(Invariant(name, partial(_found_by, queries)) for name, queries in QUERIES.items()),
    Invariant("I6", _wrong_uuids),
)
