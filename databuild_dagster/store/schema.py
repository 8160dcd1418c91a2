"""The tables: the log, which is never changed, and the projections, which a rebuild computes anew (SPEC 3).

SQLAlchemy owns the DDL. Columns of projections follow the fields of `model.rows`; states are checked against the
machines' own tables. Indexes are partial wherever only few rows matter, so that history does not slow the present;
and there are few of them, for what a commit costs is the pages it touches. Row ids are made of an event's seq and a
number within it (`row_ids`), so the job runs of a launch, and the instances of a job run, need no index either.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    event,
    text,
)

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState, JobRunState, WantState

#: Version of what stands in the log: raised with its shape, and with each new type of event, but not for a field that may be
#: passed over, left out where it says nothing. A higher one than this in a database means that newer code wrote there. 2 knows
#: delegations, expiry and SLAs, reverts, arcs; 3 removals and the meta storage.
LOG_VERSION = 3
#: Version of the projections; another one means that they have to be computed anew.
PROJECTION_VERSION = 8

PREFIX = "databuild_"

metadata = MetaData()

#: PostgreSQL's have 32 bits otherwise.
INTEGER = Integer().with_variant(BigInteger(), "postgresql")
#: Ordered as their bytes are, in whatever language the database was made: ranges of refs are asked for.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def _in(column: str, states: type[Enum]) -> CheckConstraint:
    # Not IN: for more than two values SQLite makes a table of them, with every row that it checks (10 µs a statement).
    return CheckConstraint(" OR ".join(f"{column} = '{state.value}'" for state in states))


def one_of(states: Iterable[Enum], *others: str) -> str:
    """A list of states and other words for SQL's `IN`, in one order, so that a statement is one text in every process."""
    values = "', '".join(sorted([*(state.value for state in states), *others]))
    return f"('{values}')"


def _table(
    name: str, *parts: Column[object] | CheckConstraint | PrimaryKeyConstraint, clustered: bool = False
) -> Table:
    return Table(PREFIX + name, metadata, *parts, sqlite_with_rowid=not clustered)


def _id() -> Column[object]:
    return Column("id", INTEGER, primary_key=True, autoincrement=False)


meta = _table("meta", Column("key", TEXT, primary_key=True), Column("value", TEXT, nullable=False))

events = _table(
    "events",
    Column("seq", INTEGER, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("type", TEXT, nullable=False),
    Column("version", INTEGER, nullable=False),
    Column("command_id", TEXT, nullable=False, unique=True),
    Column("actor", TEXT, nullable=False),
    Column("payload", TEXT, nullable=False),
)

_NO_CHANGE = "the event log is append-only"
_ONLY_NEXT = f"{_NO_CHANGE}: a new event takes the next seq and a command id of its own"
#: Also against REPLACE, which deletes without asking; and a seq that is not the next one would be a gap.
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
    """Statements that put triggers in place, whatever is there."""
    triggers = {f"{PREFIX}events_no_{verb.lower()}": f"BEFORE {verb} ON {PREFIX}events {refused}" for verb in verbs}
    triggers[f"{PREFIX}events_only_next"] = f"BEFORE INSERT ON {PREFIX}events {only_next}"
    return tuple(
        statement
        for name, body in triggers.items()
        for statement in (f"DROP TRIGGER IF EXISTS {name}{dropped}", f"CREATE TRIGGER {name} {body}")
    )


#: Kept outside of the log, and never waited for (`heartbeats`): in a file beside SQLite's, or in tables beside
#: PostgreSQL's, which survive its crash: a launch of which nothing is known is taken for lost.
HEARTBEATS, HEARTBEAT_COLUMNS = PREFIX + "heartbeats", "(launch_id TEXT PRIMARY KEY, at FLOAT NOT NULL)"
SESSIONS, SESSION_COLUMNS = (
    PREFIX + "sessions",
    "(dagster_run_id TEXT NOT NULL, address TEXT NOT NULL, holder TEXT NOT NULL, at FLOAT NOT NULL, "
    "PRIMARY KEY (dagster_run_id, address))",
)
#: What lies beside the log, and what refuses to change it, in the words of each database: made with it, and put back.
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
            for name, columns in ((HEARTBEATS, HEARTBEAT_COLUMNS), (SESSIONS, SESSION_COLUMNS))
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
        event.listen(events, "after_create", DDL(_statement).execute_if(dialect=_dialect))

datasets = _table(
    "datasets",
    _id(),
    Column("asset", TEXT, nullable=False, unique=True),
    Column("location", TEXT, nullable=False),
    Column("job", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("spec", TEXT, nullable=False),
    Column("removed", INTEGER, nullable=False),
)

refs = _table(
    "refs",
    _id(),
    Column("ref", TEXT, nullable=False, unique=True),
    Column("dataset_id", INTEGER, nullable=False),
    Column("canonical_id", INTEGER),
    Column("last_id", INTEGER),
    Column("state", TEXT),
    Column("retry_at", Float),
    Column("n_open_wants", INTEGER, nullable=False),
    Column("priority", INTEGER, nullable=False),
    Column("deadline", Float, nullable=False),
    Column("wanted_since", Float, nullable=False),
    Column("wanted_until", Float, nullable=False),
    Column("misses", INTEGER, nullable=False),
    Column("attempts", INTEGER, nullable=False),
    Column("origin", TEXT),
    Column("learned_id", INTEGER),
    Column("n_waiters", INTEGER, nullable=False),
    Column("n_joined", INTEGER, nullable=False),
    Column("due", INTEGER, nullable=False),
    _in("state", InstanceState),
)
#: What the orchestrator looks at: what is due, and what is being built, which is how open job runs are found. One
#: index for both, since a lease moves a ref from the one to the other.
_AT_HAND = text(f"due = 1 OR state = '{InstanceState.BUILDING}'")
Index(PREFIX + "refs_at_hand", refs.c.due, refs.c.dataset_id, sqlite_where=_AT_HAND, postgresql_where=_AT_HAND)
_TAINTED = text(f"state = '{InstanceState.TAINTED}'")
Index(PREFIX + "refs_tainted", refs.c.dataset_id, sqlite_where=_TAINTED, postgresql_where=_TAINTED)

instances = _table(
    "instances",
    _id(),
    Column("uuid", TEXT, nullable=False, unique=True),
    Column("ref_id", INTEGER, nullable=False),
    Column("job_run_id", INTEGER, nullable=False),
    Column("previous_id", INTEGER),
    Column("created_seq", INTEGER, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("retry_at", Float),
    Column("n_unmet", INTEGER, nullable=False),
    Column("n_taints", INTEGER, nullable=False),
    Column("n_spreading", INTEGER, nullable=False),
    Column("was_live", INTEGER, nullable=False),
    Column("live_at", Float),
    Column("reason", TEXT),
    Column("code_version", TEXT),
    Column("manifest_state", TEXT),
    Column("manifest_uri", TEXT),
    Column("n_files", INTEGER),
    Column("n_rows", INTEGER),
    Column("n_bytes", INTEGER),
    Column("origin", TEXT),
    Column("cleared_at", Float),
    Column("same_as_id", INTEGER),
    _in("state", InstanceState),
)
#: Data that is being taken away, which a crash may have left half-way.
_UNFINISHED = text(f"manifest_state = '{REMOVED}' AND cleared_at IS NULL")
Index(PREFIX + "instances_unfinished", instances.c.id, sqlite_where=_UNFINISHED, postgresql_where=_UNFINISHED)
_COMPACTED = text("same_as_id IS NOT NULL")
Index(PREFIX + "instances_same_as", instances.c.same_as_id, sqlite_where=_COMPACTED, postgresql_where=_COMPACTED)

job_runs = _table(
    "job_runs",
    _id(),
    Column("job_run_id", TEXT, nullable=False, unique=True),
    Column("launch_id", INTEGER, nullable=False),
    Column("partition_key", TEXT),
    Column("refs", TEXT, nullable=False),
    Column("buffered_at", Float, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("error", TEXT),
    _in("state", JobRunState),
)

launches = _table(
    "launches",
    _id(),
    Column("launch_id", TEXT, nullable=False, unique=True),
    Column("job", TEXT, nullable=False),
    Column("location", TEXT, nullable=False),
    Column("owner", TEXT, nullable=False),
    Column("code_version", TEXT),
    Column("buffered_at", Float, nullable=False),
    Column("dagster_run_id", TEXT),
    Column("holder", TEXT),
    Column("started_at", Float),
)
#: What a Dagster run claimed, which is the owner then; the orchestrator's launches are not in it.
_CLAIMED = text("owner = dagster_run_id")
Index(PREFIX + "launches_claimed", launches.c.dagster_run_id, sqlite_where=_CLAIMED, postgresql_where=_CLAIMED)

wants = _table(
    "wants",
    _id(),
    Column("want_id", TEXT, nullable=False, unique=True),
    Column("request_id", TEXT, nullable=False, index=True),
    Column("source", TEXT, nullable=False),
    Column("source_id", TEXT),
    Column("comment", TEXT, nullable=False),
    Column("priority", INTEGER, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("data_timestamp", Float),
    Column("expires_at", Float, nullable=False),
    Column("deadline", Float, nullable=False),
    Column("n_refs", INTEGER, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("ended_at", Float),
    Column("n_live", INTEGER, nullable=False),
    Column("n_failed", INTEGER, nullable=False),
    Column("n_upstream_failed", INTEGER, nullable=False),
    Column("n_building", INTEGER, nullable=False),
    Column("n_upstream_building", INTEGER, nullable=False),
    Column("sla_at", Float),
    Column("sla_missed_at", Float),
    Column("reopened", INTEGER, nullable=False),
    _in("state", WantState),
)
#: What time does to wants is looked for in every tick, among the few that it can happen to.
_OPEN_WANT = text("ended_at IS NULL")
Index(PREFIX + "wants_expiring", wants.c.expires_at, sqlite_where=_OPEN_WANT, postgresql_where=_OPEN_WANT)
_HAS_SLA = text("sla_at IS NOT NULL")
Index(PREFIX + "wants_sla", wants.c.sla_at, sqlite_where=_HAS_SLA, postgresql_where=_HAS_SLA)

#: What a want names, which never changes.
want_refs = _table(
    "want_refs",
    Column("want_id", INTEGER, nullable=False),
    Column("ref_id", INTEGER, nullable=False),
    PrimaryKeyConstraint("want_id", "ref_id"),
    clustered=True,
)

#: The same from the refs' side, and how it stands. A table, not an index of the one above: what changes is one tree.
holds = _table(
    "holds",
    Column("ref_id", INTEGER, nullable=False),
    #: `model.view.Openness`
    Column("open", INTEGER, nullable=False),
    Column("want_id", INTEGER, nullable=False),
    PrimaryKeyConstraint("ref_id", "open", "want_id"),
    clustered=True,
)

missing = _table(
    "missing",
    Column("instance_id", INTEGER, nullable=False),
    Column("ref_id", INTEGER, nullable=False),
    #: 1 while the instance waits, or has failed because of what it waited for.
    Column("active", INTEGER, nullable=False),
    PrimaryKeyConstraint("instance_id", "ref_id"),
    clustered=True,
)
Index(PREFIX + "missing_active", missing.c.ref_id, sqlite_where=text("active = 1"), postgresql_where=text("active = 1"))

instance_inputs = _table(
    "instance_inputs",
    Column("instance_id", INTEGER, nullable=False),
    Column("ref_id", INTEGER, nullable=False),
    Column("input_id", INTEGER, nullable=False),
    PrimaryKeyConstraint("instance_id", "ref_id"),
    clustered=True,
)
Index(PREFIX + "instance_inputs_of_input", instance_inputs.c.input_id)

taints = _table(
    "taints",
    _id(),
    Column("taint_id", TEXT, nullable=False, unique=True),
    Column("reason", TEXT, nullable=False),
    Column("actor", TEXT, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("downstream", INTEGER, nullable=False),
    Column("canceled_at", Float),
)

taint_instances = _table(
    "taint_instances",
    Column("taint_id", INTEGER, nullable=False),
    Column("instance_id", INTEGER, nullable=False),
    #: Set with the taint's own, or earlier when somebody reverted to this instance.
    Column("canceled_at", Float),
    PrimaryKeyConstraint("taint_id", "instance_id"),
    clustered=True,
)
Index(PREFIX + "taint_instances_of_instance", taint_instances.c.instance_id)

#: Where the canonical pointer was turned back, which no instance's birth tells.
reverts = _table(
    "reverts",
    Column("ref_id", INTEGER, nullable=False),
    Column("seq", INTEGER, nullable=False),
    Column("instance_id", INTEGER, nullable=False),
    PrimaryKeyConstraint("ref_id", "seq"),
    clustered=True,
)

arcs = _table(
    "arcs",
    _id(),
    Column("asset", TEXT, nullable=False, unique=True),
    Column("seq", INTEGER, nullable=False),
    Column("removed", INTEGER, nullable=False),
)

#: Which source instances have woken an arc: its key says that each does so once.
arc_firings = _table(
    "arc_firings",
    Column("arc_id", INTEGER, nullable=False),
    Column("instance_id", INTEGER, nullable=False),
    Column("seq", INTEGER, nullable=False),
    PrimaryKeyConstraint("arc_id", "instance_id"),
    clustered=True,
)

delegations = _table(
    "delegations",
    Column("requester", TEXT, nullable=False),
    Column("ref_id", INTEGER, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("outcome", TEXT, nullable=False),
    Column("asked_at", Float, nullable=False),
    Column("job_run_id", INTEGER, nullable=False),
    Column("instance_id", INTEGER, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("ended_at", Float),
    Column("served_id", INTEGER),
    PrimaryKeyConstraint("requester", "ref_id"),
    _in("kind", Answer),
    _in("outcome", DelegationOutcome),
    clustered=True,
)
#: Who waits for a ref, in each command that ends a wait; and everybody who ever asked for it.
Index(PREFIX + "delegations_of_ref", delegations.c.ref_id, delegations.c.outcome)

history = _table(
    "history",
    Column("kind", TEXT, nullable=False),
    Column("entity_id", INTEGER, nullable=False),
    Column("seq", INTEGER, nullable=False),
    #: Place among the moves of one event.
    Column("place", INTEGER, nullable=False),
    Column("from_state", TEXT),
    Column("to_state", TEXT, nullable=False),
    # By entity first: ids follow the log, so what is young stands together and one page takes a command's moves.
    PrimaryKeyConstraint("entity_id", "kind", "seq", "place"),
    clustered=True,
)

#: The meta storage's keys (SPEC 9.1). Not `meta`, which is about this database.
meta_entries = _table(
    "meta_entries",
    Column("key", TEXT, primary_key=True),
    Column("revision", INTEGER, nullable=False),
    #: In base64, as in the log; NULL for a tombstone.
    Column("value", TEXT),
    clustered=True,
)

#: What watchers are told of: each change of a key, until it is compacted.
meta_changes = _table(
    "meta_changes",
    Column("revision", INTEGER, nullable=False),
    Column("key", TEXT, nullable=False),
    Column("value", TEXT),
    PrimaryKeyConstraint("revision", "key"),
    clustered=True,
)

#: Up to where changes were forgotten.
meta_compactions = _table(
    "meta_compactions",
    Column("seq", INTEGER, primary_key=True, autoincrement=False),
    Column("revision", INTEGER, nullable=False),
)

#: What a rebuild computes anew; everything else is the log.
PROJECTIONS: tuple[Table, ...] = (
    datasets,
    refs,
    instances,
    job_runs,
    launches,
    wants,
    want_refs,
    holds,
    missing,
    instance_inputs,
    taints,
    taint_instances,
    reverts,
    arcs,
    arc_firings,
    delegations,
    history,
    meta_entries,
    meta_changes,
    meta_compactions,
)

#: For people and their tools: the delegation seed's two questions (SPEC 13). A build request is the Dagster run that
#: built, or is to build; before there is one, the launch.
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
}
for _name, _select in VIEWS.items():
    # Made anew with the tables, for a rebuild may follow a version that knew other columns.
    event.listen(metadata, "after_create", DDL(f"DROP VIEW IF EXISTS {_name}"))
    event.listen(metadata, "after_create", DDL(f"CREATE VIEW {_name} AS {_select}"))
