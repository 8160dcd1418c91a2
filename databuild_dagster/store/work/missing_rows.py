"""A reference to a row that is not there, in words (rule 3.5).

Row ids come from other rows only, so an id without a row is a damage of the tables. The rows that are left name it.
"""

from __future__ import annotations

import msgspec

from databuild_dagster.model.errors import MissingRow
from databuild_dagster.model.refs import Ref, derive_partition_uuid
from databuild_dagster.store.backends.base import Connection
from databuild_dagster.store.format import BITS
from databuild_dagster.store.format import PREFIX as P

#: By table, a row that refers to one of its rows, and the state of that. Nothing indexes these questions.
_REFERRING = {
    "refs": f"SELECT 'instance ' || uuid, state FROM {P}instances WHERE ref_id = ?",
    "instances": f"SELECT ref, state FROM {P}refs WHERE ? IN (canonical_id, last_id, learned_id)",
    "job_runs": f"""SELECT r.ref || ', instance ' || i.uuid, i.state FROM {P}instances i JOIN {P}refs r ON r.id = i.ref_id
        WHERE i.job_run_id = ?""",
    "wants": f"SELECT r.ref, r.state FROM {P}holds h JOIN {P}refs r ON r.id = h.ref_id WHERE h.want_id = ?",
    "taints": f"""SELECT 'instance ' || i.uuid, i.state FROM {P}taint_instances t JOIN {P}instances i ON i.id = t.instance_id
        WHERE t.taint_id = ?""",
}
_LAST_STATE = f"SELECT to_state FROM {P}history WHERE entity_id = ? AND kind = ? ORDER BY seq DESC, place DESC LIMIT 1"
#: The instances of a job run are numbered after it, in the order of its refs.
_JOB_RUN = f"SELECT id, job_run_id, refs FROM {P}job_runs WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1"


def missing_row(connection: Connection, table: str, row_id: int) -> MissingRow:
    """The error about a row of a table, without its prefix, that another row refers to."""
    referring = connection.execute(f"{_REFERRING[table]} LIMIT 1", (row_id,)).fetchall() if table in _REFERRING else []
    entity, state = referring[0] if referring else ("a row", None)
    last = connection.execute(_LAST_STATE, (row_id, table)).fetchall()
    return MissingRow(
        seq=row_id >> BITS,
        entity=entity,
        state=state or "-",
        on=_named(connection, table, row_id),
        why=f"its last state was {last[0][0]}" if last else "it has no history either",
    )


def _named(connection: Connection, table: str, row_id: int) -> str:
    kind = table.removesuffix("s").replace("_", " ")
    if table == "instances":
        seq = row_id >> BITS
        for job_run_row, job_run_id, listed in connection.execute(_JOB_RUN, (seq << BITS, row_id)):
            refs = msgspec.json.decode(listed, type=list[Ref])
            if (place := row_id - job_run_row - 1) < len(refs):
                return f"instance {derive_partition_uuid(job_run_id, refs[place])} of {refs[place]}"
    return f"{kind} {row_id}"
