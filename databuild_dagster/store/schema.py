"""The tables: the log, which never changes, and the projections, which a rebuild computes from it (rules 3).

SQLAlchemy writes the DDL. The columns of a projection are the fields of its row in `model.rows`; a CHECK admits the states of
the machines only. Indexes are partial wherever few rows matter, so that history does not slow the present; and there are few
of them, because a commit costs the pages that it touches. A row id begins with the seq of its event, so the job
runs of a launch, and the instances of a job run, need no index either.
"""

from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_type_hints

import sqlalchemy as sa

from databuild_dagster.model import rows
from databuild_dagster.model.coordination import MESSAGES, SKIPPED_MESSAGE, Answer, DelegationOutcome
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store.format import (
    DELEGATED_TO,
    HEARTBEAT_COLUMNS,
    HEARTBEATS,
    PREFIX,
    SESSION_COLUMNS,
    SESSIONS,
    TRIES,
    TRY_COLUMNS,
)

metadata = sa.MetaData()

#: By the Python type of a value. PostgreSQL's integers have 32 bits otherwise. Text is ordered by its bytes, in any language of
#: the database, because queries ask for ranges of refs.
_TYPES: dict[type, sa.types.TypeEngine[Any]] = {
    int: sa.Integer().with_variant(sa.BigInteger(), "postgresql"),
    float: sa.Float(),
    str: sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
}


def _in(column: str, states: type[Enum]) -> sa.CheckConstraint:
    # Not IN: for more than two values SQLite makes a table of them, with every row that it checks (10 µs a statement).
    return sa.CheckConstraint(" OR ".join(f"{column} = '{state.value}'" for state in states))


def _table(
    name: str,
    columns: Mapping[str, Any],
    *constraints: sa.CheckConstraint,
    key: tuple[str, ...],
    unique: str = "",
    clustered: bool = True,
) -> sa.Table:
    """A table of columns by the types of their values; a type with None is a column that may be NULL.

    `clustered` keeps the rows in the order of the key, without SQLite's row numbers.
    """
    parts: list[sa.Column[Any] | sa.CheckConstraint | sa.PrimaryKeyConstraint] = []
    checks = list(constraints)
    for column, hint in columns.items():
        (kind,) = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
        kind = getattr(kind, "__supertype__", kind)  # A ref is text.
        if issubclass(kind, Enum):
            checks.append(_in(column, kind))
            kind = str
        nullable = NoneType in get_args(hint)
        parts.append(sa.Column(column, _TYPES[kind], nullable=nullable, unique=column == unique, autoincrement=False))
    return sa.Table(
        PREFIX + name, metadata, *parts, sa.PrimaryKeyConstraint(*key), *checks, sqlite_with_rowid=not clustered
    )


def _entities(row: type[Any], unique: str) -> sa.Table:
    """The table of a row class."""
    hints = get_type_hints(row)
    columns = {name: hints[name] for name in row.__struct_fields__}
    return _table(row.TABLE, columns, key=("id",), unique=unique, clustered=False)


def _index(name: str, *columns: sa.ColumnElement[Any], where: str | None = None) -> None:
    condition = None if where is None else sa.text(where)
    sa.Index(PREFIX + name, *columns, sqlite_where=condition, postgresql_where=condition)


meta = _table("meta", {"key": str, "value": str}, key=("key",), clustered=False)

_EVENT = {"seq": int, "at": float, "type": str, "version": int, "command_id": str, "actor": str, "payload": str}
events = _table("events", _EVENT, key=("seq",), unique="command_id", clustered=False)

_NO_CHANGE = "the event log is append-only"
_ONLY_NEXT = f"{_NO_CHANGE}: a new event takes the next seq and a command id of its own"
#: Also against REPLACE, which deletes without asking; a seq that is not the next seq would be a gap.
_IS_NOT_NEXT = (
    f"NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM {PREFIX}events) "
    f"OR EXISTS (SELECT 1 FROM {PREFIX}events WHERE command_id = NEW.command_id)"
)


def _refusing(name: str, why: str, condition: str = "") -> str:
    """The body of a trigger of PostgreSQL's."""
    refuse = f"RAISE EXCEPTION USING MESSAGE = '{why}', ERRCODE = 'integrity_constraint_violation';"
    body = f"IF {condition} THEN {refuse} END IF; RETURN NEW;" if condition else refuse
    return f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"


def _guards(*verbs: str, dropped: str, refused: str, only_next: str) -> tuple[str, ...]:
    """Statements that put triggers in place of any that are there."""
    triggers = {f"{PREFIX}events_no_{verb.lower()}": f"BEFORE {verb} ON {PREFIX}events {refused}" for verb in verbs}
    triggers[f"{PREFIX}events_only_next"] = f"BEFORE INSERT ON {PREFIX}events {only_next}"
    return tuple(
        statement
        for name, body in triggers.items()
        for statement in (f"DROP TRIGGER IF EXISTS {name}{dropped}", f"CREATE TRIGGER {name} {body}")
    )


#: By database, the statements that make the tables outside the log and the triggers that keep it append-only.
GUARDS = {
    "sqlite": _guards(
        "UPDATE",
        "DELETE",
        dropped="",
        refused=f"BEGIN SELECT RAISE(ABORT, '{_NO_CHANGE}'); END",
        only_next=f"WHEN {_IS_NOT_NEXT} BEGIN SELECT RAISE(ABORT, '{_ONLY_NEXT}'); END",
    ),
    "postgresql": (
        *(
            f"CREATE TABLE IF NOT EXISTS {name} {columns}"
            for name, columns in ((HEARTBEATS, HEARTBEAT_COLUMNS), (SESSIONS, SESSION_COLUMNS), (TRIES, TRY_COLUMNS))
        ),
        _refusing(f"{PREFIX}events_refuse", _NO_CHANGE),
        _refusing(f"{PREFIX}events_only_next", _ONLY_NEXT, _IS_NOT_NEXT),
        *_guards(
            "UPDATE",
            "DELETE",
            "TRUNCATE",
            dropped=f" ON {PREFIX}events",
            refused=f"FOR EACH STATEMENT EXECUTE FUNCTION {PREFIX}events_refuse()",
            only_next=f"FOR EACH ROW EXECUTE FUNCTION {PREFIX}events_only_next()",
        ),
    ),
}
for _dialect, _statements in GUARDS.items():
    for _statement in _statements:
        sa.event.listen(events, "after_create", sa.DDL(_statement).execute_if(dialect=_dialect))

datasets = _entities(rows.DatasetRow, unique="asset")

refs = _entities(rows.RefRow, unique="ref")
# Due refs of a dataset, the most urgent first, and refs that are being built, by which open job runs are found. One index,
# because a lease moves a ref from the one to the other.
_URGENCY = (refs.c.priority.desc(), refs.c.deadline, refs.c.wanted_since, refs.c.ref)
_index("refs_at_hand", refs.c.due, refs.c.dataset_id, *_URGENCY, where=f"due = 1 OR state = '{InstanceState.BUILDING}'")
# What failed by itself or is retried, by cause and by the age of the failure. A build that succeeds at once never touches it.
_index(
    "refs_failed",
    *(refs.c.state, refs.c.due, refs.c.dataset_id, refs.c.cause, refs.c.canonical_id),
    where="cause IS NOT NULL",
)
_index("refs_tainted", refs.c.dataset_id, where=f"state = '{InstanceState.TAINTED}'")

instances = _entities(rows.InstanceRow, unique="uuid")
# Data whose removal a crash may have left half-way.
_index("instances_unfinished", instances.c.id, where=f"manifest_state = '{REMOVED}' AND cleared_at IS NULL")
_index("instances_same_as", instances.c.same_as_id, where="same_as_id IS NOT NULL")

job_runs = _entities(rows.JobRunRow, unique="job_run_id")

launches = _entities(rows.LaunchRow, unique="launch_id")
# Claims of Dagster runs, which own their launches; the orchestrator's launches are not in it.
_index("launches_claimed", launches.c.dagster_run_id, where="owner = dagster_run_id")

wants = _entities(rows.WantRow, unique="want_id")
sa.Index(f"ix_{PREFIX}wants_request_id", wants.c.request_id)
# Every tick looks for TTLs and SLAs that have passed, among the few wants that have one.
_index("wants_expiring", wants.c.expires_at, where="ended_at IS NULL")
_index("wants_sla", wants.c.sla_at, where="sla_at IS NOT NULL")
_index("wants_kept", wants.c.keeping, where="keeping IS NOT NULL")

#: The refs that a want names. They never change.
want_refs = _table("want_refs", {"want_id": int, "ref_id": int}, key=("want_id", "ref_id"))
#: The same from the refs' side, with `model.view.Openness`. A table, not an index of the table above: a change touches a single tree.
holds = _table("holds", {"ref_id": int, "open": int, "want_id": int}, key=("ref_id", "open", "want_id"))

#: The ended wants that derivative wants are kept for (rule 6.14).
kept_for = _table("kept_for", {"keeping": int, "want_id": int}, key=("keeping", "want_id"))
_index("kept_for_want", kept_for.c.want_id)

#: Missing inputs of instances; `active` is 1 while the instance waits, or has failed because of a missing input.
missing = _table("missing", {"instance_id": int, "ref_id": int, "active": int}, key=("instance_id", "ref_id"))
_index("missing_active", missing.c.ref_id, where="active = 1")

_INPUT = {"instance_id": int, "ref_id": int, "input_id": int}
instance_inputs = _table("instance_inputs", _INPUT, key=("instance_id", "ref_id"))
_index("instance_inputs_of_input", instance_inputs.c.input_id)

taints = _entities(rows.TaintRow, unique="taint_id")
#: `canceled_at` is set with the taint's own, or earlier by a revert to the instance.
_CARRIED = {"taint_id": int, "instance_id": int, "canceled_at": float | None}
taint_instances = _table("taint_instances", _CARRIED, key=("taint_id", "instance_id"))
_index("taint_instances_of_instance", taint_instances.c.instance_id)

#: Reverts of canonical pointers, which no instance's creation shows; `returned` is 1 if an instance came back in place of a build.
_REVERT = {"ref_id": int, "seq": int, "instance_id": int, "returned": int}
reverts = _table("reverts", _REVERT, key=("ref_id", "seq"))

pauses = _table("pauses", get_type_hints(rows.PauseRow), key=("ref", "seq"))
# Few pauses are open, and planning asks for those of whole datasets.
_index("pauses_open", pauses.c.dataset_id, where="ended_seq IS NULL")

arcs = _entities(rows.ArcRow, unique="asset")

set_aside = _entities(rows.AsideRow, unique="subject")
# Those that are set aside now are few of those that ever were.
_index("set_aside_now", set_aside.c.name, where="reason IS NOT NULL")
#: The source instances that have woken an arc, each once, and again when it comes back in place of a build.
arc_firings = _table(
    "arc_firings", {"arc_id": int, "instance_id": int, "seq": int}, key=("arc_id", "instance_id", "seq")
)
_index("arc_firings_newest", arc_firings.c.arc_id, arc_firings.c.seq)

delegations = _table(
    "delegations",
    get_type_hints(rows.DelegationRow),
    _in("kind", Answer),
    _in("outcome", DelegationOutcome),
    key=("requester", "ref_id"),
)
# Requesters that wait for a ref, for each command that ends a wait; and all that ever asked for it.
_index("delegations_of_ref", delegations.c.ref_id, delegations.c.outcome)
# The newest answers of all. Only a request that is not answered by a build of its own pays for it.
_index("delegations_asked", delegations.c.asked_at)

#: The moves; `place` counts the moves of an event.
_MOVE = {"kind": str, "entity_id": int, "seq": int, "place": int, "from_state": str | None, "to_state": str}
# By entity first: ids follow the log, so young entities are together and one page takes a command's moves.
history = _table("history", _MOVE, key=("entity_id", "kind", "seq", "place"))

#: The meta storage's keys (rule 9.1); `meta` is about this database. Values are in base64, as in the log; NULL for a tombstone.
meta_entries = _table("meta_entries", {"key": str, "revision": int, "value": str | None}, key=("key",))
#: Each change of a key, for watchers, until it is compacted.
meta_changes = _table("meta_changes", {"revision": int, "key": str, "value": str | None}, key=("revision", "key"))
#: The revisions up to which changes were compacted.
meta_compactions = _table("meta_compactions", {"seq": int, "revision": int}, key=("seq",), clustered=False)

#: The tables that a rebuild computes; the other tables are the log.
PROJECTIONS: tuple[sa.Table, ...] = tuple(table for table in metadata.tables.values() if table not in (meta, events))

_MESSAGES = " ".join(f"WHEN '{answer}' THEN '{message}'" for answer, message in MESSAGES.items())
#: Views for people and their tools (rules 13). A build request is the Dagster run that builds; before it exists, the launch.
VIEWS: dict[str, str] = {
    PREFIX + "available_partitions": f"""
        SELECT r.ref AS partition_ref, coalesce(l.dagster_run_id, l.launch_id) AS build_request_id,
               j.job_run_id AS job_run_id, i.uuid AS uuid, i.live_at AS live_at
        FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id
        JOIN {PREFIX}job_runs j ON j.id = i.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
        WHERE r.state = '{InstanceState.LIVE}'""",
    PREFIX + "active_builds": f"""
        SELECT r.ref AS partition_ref, coalesce(l.dagster_run_id, l.launch_id) AS build_request_id,
               j.job_run_id AS job_run_id, i.uuid AS uuid, r.state AS state
        FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.canonical_id
        JOIN {PREFIX}job_runs j ON j.id = i.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
        WHERE r.state = '{InstanceState.BUILDING}' OR r.state = '{InstanceState.UPSTREAM_BUILDING}'""",
    PREFIX + "runs_of_jobs": f"""
        SELECT j.job_run_id AS job_run_id, l.job AS job_label, j.partition_key AS partition_key, j.state AS state,
               coalesce(l.dagster_run_id, l.launch_id) AS build_request_id,
               j.buffered_at AS buffered_at, j.started_at AS started_at, j.ended_at AS ended_at,
               CASE j.state WHEN '{JobRunState.SKIPPED}' THEN '{SKIPPED_MESSAGE}' ELSE j.error END AS message
        FROM {PREFIX}job_runs j JOIN {PREFIX}launches l ON l.id = j.launch_id""",
    PREFIX + "delegated_partitions": f"""
        SELECT r.ref AS partition_ref, d.requester AS requester, d.kind AS kind,
               CASE d.kind {_MESSAGES} END AS message, d.outcome AS outcome, d.reason AS reason,
               coalesce(l.dagster_run_id, l.launch_id) AS delegated_to, j.job_run_id AS job_run_id, i.uuid AS uuid,
               d.asked_at AS asked_at, d.ended_at AS ended_at
        FROM {PREFIX}delegations d JOIN {PREFIX}refs r ON r.id = d.ref_id
        JOIN {PREFIX}instances i ON i.id = {DELEGATED_TO}
        JOIN {PREFIX}job_runs j ON j.id = i.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
        WHERE d.kind <> '{Answer.BUILD}'""",
}
for _name, _select in VIEWS.items():
    # Dropped first, because a rebuild may follow a version that knew other columns.
    sa.event.listen(metadata, "after_create", sa.DDL(f"DROP VIEW IF EXISTS {_name}"))
    sa.event.listen(metadata, "after_create", sa.DDL(f"CREATE VIEW {_name} AS {_select}"))
