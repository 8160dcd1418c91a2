"""Instances: history, inputs, taints, and the builds from them, now or after an earlier event (rules 3.2, 4, 7).

At an earlier event, later instances are left out, and so are the inputs of an instance that was not live yet: its success
records them.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from databuild_dagster.model.events import Erasure, JobRunStarted, MadeWith, ManifestRemoved
from databuild_dagster.model.records import Time
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import BORROWED, VERIFIES
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.store import log
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, PREFIX
from databuild_dagster.store.queries.asking import (
    MAX_COUNTED,
    MAX_SEQ,
    OF_DATASET,
    Asking,
    Selection,
    dataset_range,
    grouped,
)
from databuild_dagster.store.queries.canonical import (
    BUILT_FROM_ROOTS,
    CHOSEN_AT,
    HAS_ROWS_OF,
    TO_THE_ONE_BEFORE,
    state_at,
    was_live_at,
)
from databuild_dagster.store.store import again_if_cut

#: Attempts of a ref since it was live that are counted.
MAX_SINCE_LIVE = 1_000


class SinceLive(NamedTuple):
    """An instance that was never live, newer than every instance of its ref that was."""

    uuid: str
    #: Whether its job run failed or was lost.
    is_failed: bool


class Instance(NamedTuple):
    """A build of a ref."""

    uuid: str
    ref: Ref
    state: InstanceState
    seq: int
    at: Time
    job_run: str
    reason: str | None
    code_version: str | None
    manifest_state: str | None
    manifest_uri: str | None
    #: Uuids of the instances it was built from.
    inputs: tuple[str, ...]
    canonical: bool
    live_at: Time | None
    #: The actor of the event that made it.
    actor: str
    #: The instance of its ref that was created before it; None for the first.
    previous_uuid: str | None
    #: Of data from outside: "adopted from …" and the like.
    origin: str | None


class SecondBuild(NamedTuple):
    """A second build from the code and inputs of an earlier instance (rule 4.9)."""

    ref: Ref
    #: The uuid of the earlier instance.
    first: str
    #: None until it is live.
    second: str | None


class FolderOwner(NamedTuple):
    """The owner of a storage folder."""

    ref: Ref
    state: InstanceState
    #: Its job run has ended, so no process writes to it.
    has_ended: bool
    #: Readers see it.
    is_canonical: bool

    @property
    def is_live(self) -> bool:
        return self.is_canonical and self.state is InstanceState.LIVE


class StateChange(NamedTuple):
    """A row of an instance's history: the state it came into, by which event, and when."""

    state: InstanceState
    seq: int
    at: float


def _selection(inputs: str) -> Selection[Instance]:
    return Selection(
        Instance,
        "i",
        ref="r.ref",
        seq="i.created_seq",
        at="i.created_at",
        job_run="j.job_run_id",
        inputs=inputs,
        canonical="r.canonical_id = i.id",
        actor=f"(SELECT e.actor FROM {PREFIX}events e WHERE e.seq = i.created_seq)",
        previous_uuid=f"(SELECT p.uuid FROM {PREFIX}instances p WHERE p.id = i.previous_id)",
    )


_INSTANCE = _selection(
    f"""(SELECT json_group_array(u.uuid) FROM {PREFIX}instance_inputs x JOIN {PREFIX}instances u ON u.id = x.input_id
        WHERE x.instance_id = i.id)"""
)


@lru_cache(maxsize=16)
def _with_inputs(most: int | None) -> Selection[Instance]:
    """The columns of an instance with the first of its inputs; None for all."""
    if most is None:
        return _INSTANCE
    return _selection(
        f"""(SELECT json_group_array(few.uuid) FROM (
            SELECT u.uuid FROM {PREFIX}instance_inputs x JOIN {PREFIX}instances u ON u.id = x.input_id
            WHERE x.instance_id = i.id ORDER BY x.ref_id LIMIT {most}) few)"""
    )


_FROM = f"""
FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id JOIN {PREFIX}job_runs j ON j.id = i.job_run_id """
_INSTANCES = f"SELECT {_INSTANCE.columns} {_FROM}"
_BARE = _selection("'[]' AS inputs")
_WITHOUT_INPUTS = f"SELECT {_BARE.columns} {_FROM}"

_STATE_CHANGE = Selection(StateChange, "h", state="h.to_state", at="e.at")
_KEPT = Selection(
    FolderOwner, "i", ref="r.ref", has_ended="j.ended_at IS NOT NULL", is_canonical="r.canonical_id = i.id"
)


#: Instances that are sorted by ref, among all instances built from an instance.
MAX_SORTED = 2_000
#: Instances that are walked to count the live instances.
MAX_WALKED = MAX_COUNTED + MAX_COUNTED // 4
#: Characters of a manifest's path below the folder of its dataset.
_IN_DATASET = len("/data/instance=/manifest.json") + 36


class DataFacts(NamedTuple):
    """The data of an instance as its success recorded it; None for an instance that was never live, or is not in a warehouse."""

    files: int | None
    rows: int | None
    bytes: int | None
    #: "complete" or "empty", "removed" after a removal.
    manifest_state: str | None


class InputPair(NamedTuple):
    """A ref of which two instances read different instances; None for the instance that did not read it."""

    ref: Ref
    first: str | None
    second: str | None
    #: Both have the same rows: either is a compaction of the other, or was built with equal rows.
    is_same_rows: bool


class InputCounts(NamedTuple):
    """The inputs that only the second instance has, that only the first instance has, and that are different instances of a ref."""

    added: int
    removed: int
    replaced: int


_FACTS = Selection(DataFacts, "i", files="i.n_files", rows="i.n_rows", bytes="i.n_bytes")
_PAIR = Selection(
    InputPair,
    "differing",
    ref="r.ref",
    first="a.uuid",
    second="b.uuid",
    is_same_rows="coalesce(coalesce(a.same_as_id, a.id) = coalesce(b.same_as_id, b.id), 1 = 0)",
)
_ID = f"(SELECT id FROM {PREFIX}instances WHERE uuid = ?)"
_INPUT_ROWS = f"{PREFIX}instance_inputs"
#: A row for each ref of which the two read different instances, by the key of the table: of fifty thousand inputs each, a sort of
#: all took four times as long.
_DIFFERING = f"""
    SELECT x.ref_id AS ref_id, x.input_id AS first_id, coalesce(y.input_id, 0) AS second_id
    FROM {_INPUT_ROWS} x LEFT JOIN {_INPUT_ROWS} y ON y.instance_id = {_ID} AND y.ref_id = x.ref_id
    WHERE x.instance_id = {_ID} AND coalesce(y.input_id, 0) <> x.input_id
    UNION ALL
    SELECT y.ref_id, 0, y.input_id FROM {_INPUT_ROWS} y LEFT JOIN {_INPUT_ROWS} x ON x.instance_id = {_ID} AND x.ref_id = y.ref_id
    WHERE y.instance_id = {_ID} AND x.input_id IS NULL"""


#: An instance `n` that readers see has the rows of `u`, which is tainted, and no rows were erased from it.
_IS_AS_GOOD = f"n.id <> u.id AND n.state = '{InstanceState.LIVE}' AND n.content_hash = u.content_hash"
#: Instances of refs with rows that readers do not see any more.
_EARLIER = f"""
SELECT u.id FROM {PREFIX}refs r JOIN {PREFIX}instances u ON u.ref_id = r.id LEFT JOIN {PREFIX}instances n ON n.id = r.canonical_id
WHERE r.ref IN (SELECT value FROM json_each(?)) AND u.was_live = 1 AND (
    coalesce(u.same_as_id, u.id) <> coalesce(n.same_as_id, n.id)
    OR (u.state = '{InstanceState.TAINTED}' AND coalesce(({_IS_AS_GOOD}), 1 = 0) = (1 = 0)))"""
#: Instances built from instances, or from equal rows: where readers see equal rows of a later build, that one stands for the first.
_BUILT_ON = f"""
WITH level AS (
    SELECT u.id, u.same_as_id, u.content_hash, r.canonical_id FROM {PREFIX}instances u JOIN {PREFIX}refs r ON r.id = u.ref_id
    WHERE u.id IN (SELECT value FROM json_each(?))
), read_rows(id) AS (
    SELECT u.id FROM level u LEFT JOIN {PREFIX}instances n ON n.id = u.canonical_id
        AND coalesce(n.same_as_id, n.id) = coalesce(u.same_as_id, u.id) AND {_IS_AS_GOOD}
    WHERE n.id IS NULL
    UNION SELECT s.id FROM level u JOIN {PREFIX}instances s ON s.same_as_id = coalesce(u.same_as_id, u.id)
    WHERE u.canonical_id = u.id AND s.content_hash = u.content_hash
    UNION SELECT s.id FROM level u JOIN {PREFIX}instances s ON s.id = u.same_as_id
    WHERE u.canonical_id = u.id AND s.content_hash = u.content_hash
)
SELECT DISTINCT instance_id FROM {PREFIX}instance_inputs WHERE input_id IN (SELECT id FROM read_rows)"""


#: Instances `first`, and what was built from them, directly or not.
_BUILT_FROM = f"""made(id) AS (
    SELECT id FROM first UNION SELECT x.instance_id FROM made JOIN {PREFIX}instance_inputs x ON x.input_id = made.id"""
#: `_BUILT_FROM` where instances may have equal rows, which a downstream taint treats alike (rule 7.3).
_BUILT_FROM_EQUAL = f"""roots(id) AS (
    SELECT coalesce(u.same_as_id, u.id) FROM first JOIN {PREFIX}instances u ON u.id = first.id
), made(id) AS ({BUILT_FROM_ROOTS}"""


class InstanceThen(NamedTuple):
    """An instance as it was after an earlier event."""

    uuid: str
    ref: Ref
    state: InstanceState
    #: Readers of its ref saw it.
    canonical: bool
    #: None if it had not been live by then.
    live_at: Time | None


_THEN = Selection(
    InstanceThen,
    "i",
    ref="r.ref",
    state=state_at("i.id"),
    canonical=f"{CHOSEN_AT} = i.id",
    live_at=f"CASE WHEN {was_live_at('i.id')} THEN i.live_at END",
)
#: From each instance of a list to the newest instance of its ref at the seq.
_CHAIN = f"""chain(node_id, ref_id, id) AS (
    SELECT n.id, n.ref_id, q.last_id FROM {{nodes}} JOIN {PREFIX}refs q ON q.id = n.ref_id WHERE {{which}}
    UNION ALL
    SELECT chain.node_id, chain.ref_id, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
    WHERE {TO_THE_ONE_BEFORE})"""
_NAMED = _CHAIN.format(
    nodes=f"{PREFIX}instances n", which="n.uuid IN (SELECT value FROM json_each(:uuids)) AND n.id < :end"
)
_INSTANCES_THEN = f"""
WITH RECURSIVE {_NAMED}
SELECT {_THEN.columns} FROM chain JOIN {PREFIX}instances i ON i.id = chain.node_id JOIN {PREFIX}refs r ON r.id = i.ref_id
WHERE chain.id < :end ORDER BY r.ref, i.id"""

_EDGES = f"""
SELECT u.uuid, i.uuid FROM {PREFIX}instances {{known}} JOIN {PREFIX}instance_inputs x ON {{joined}}
JOIN {PREFIX}instances {{other}}
WHERE {{known}}.uuid IN (SELECT value FROM json_each(:uuids)) AND x.instance_id < :end AND {was_live_at("x.instance_id")}"""
_INPUTS = _EDGES.format(known="i", joined="x.instance_id = i.id", other="u ON u.id = x.input_id") + " LIMIT :most"
_USES = (
    _EDGES.format(known="u", joined="x.input_id = u.id", other="i ON i.id = x.instance_id")
    + " ORDER BY x.instance_id, x.input_id LIMIT :most"
)


def _reached(walk: str) -> str:
    """The other live refs with data of an instance at an event; `walk` adds what was built from the instance."""
    return f"""
WITH RECURSIVE first(id) AS (SELECT u.id FROM {PREFIX}instances u WHERE u.uuid = :uuid AND u.id < :end), made(id) AS (
    SELECT id FROM first
    {walk}
), {_CHAIN.format(nodes=f"made JOIN {PREFIX}instances n ON n.id = made.id", which="n.uuid <> :uuid")}
SELECT count(*) FROM chain
WHERE chain.id < :end AND chain.node_id = {CHOSEN_AT} AND {state_at("chain.node_id")} = '{InstanceState.LIVE}'"""


_REACHED = _reached(f"""UNION SELECT x.instance_id FROM made JOIN {PREFIX}instance_inputs x ON x.input_id = made.id
    WHERE x.instance_id < :end AND {was_live_at("x.instance_id")}""")
#: An instance has the rows of an earlier instance from the moment at which it is live.
_REACHED_EQUAL = _reached(f"""UNION SELECT s.id FROM first JOIN {PREFIX}instances b ON b.id = first.id
    JOIN {PREFIX}instances s ON {HAS_ROWS_OF}
    WHERE {was_live_at("b.id")} AND s.id < :end AND {was_live_at("s.id")}
    UNION SELECT s.id FROM made JOIN {PREFIX}instance_inputs x ON x.input_id = made.id
    JOIN {PREFIX}instances b ON b.id = x.instance_id
    JOIN {PREFIX}instances s ON {HAS_ROWS_OF}
    WHERE b.id < :end AND {was_live_at("b.id")} AND s.id < :end AND {was_live_at("s.id")}""")


class Taint(msgspec.Struct, frozen=True):
    """A taint of an instance."""

    taint_id: str
    reason: str
    actor: str
    created_at: Time


_TAINT = Selection(Taint, "t")


class TaintNow(Taint, frozen=True):
    """A taint in force that readers of some refs see now."""

    #: Whether it covers what is built from the tainted data, too.
    downstream: bool
    #: The refs whose canonical instance it taints: their number, and the first of them.
    n: int
    refs: tuple[Ref, ...]


class TaintLink(NamedTuple):
    """A taint that an instance has, or had."""

    uuid: str
    taint_id: str
    reason: str
    downstream: bool
    of_code: bool
    is_in_force: bool


_LINK = Selection(TaintLink, "t", uuid="i.uuid", is_in_force="x.canceled_at IS NULL")


class EqualInput(msgspec.Struct, frozen=True):
    """An input of an instance that was built again with equal rows, which does not make the instance stale (rule 4.8)."""

    #: The instance that read it.
    uuid: str
    ref: Ref
    #: The instance of the input that was read.
    read: str
    #: The live instance with its rows.
    now: str
    #: The time of the last build with its rows; `now` may be a later compaction.
    live_at: Time


class InstanceRows(NamedTuple):
    """The rows of an instance."""

    #: The uuid of the first instance with the rows, or with all of them and more, before an erasure.
    first: str
    n_rows: int | None
    content_hash: str | None
    #: The numbers of the author's metadata, as a JSON object.
    numbers: str | None


_ROWS = Selection(InstanceRows, "i", first="coalesce(o.uuid, i.uuid)")
_EQUAL_INPUT = Selection(EqualInput, "n", uuid="i.uuid", ref="r.ref", read="u.uuid", now="c.uuid")
#: An erasure up to `i`, of the rows that it once had.
_ERASED = f"""
SELECT 1 FROM {PREFIX}instances s JOIN {PREFIX}job_runs j ON j.id = s.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
WHERE s.same_as_id = i.same_as_id AND s.id <= i.id AND substr(l.owner, 1, 7) = 'erased:'"""
#: Whether the launch `l` built its instances: a compaction is no build.
IS_BUILD = "substr(l.owner, 1, 10) <> 'compacted:'"
#: Readers see `c`, which has the rows of `u`, from which `i` was built. `n` built them again since: it is `c`, or `c` is a compaction.
_CUT_OFF = f"""{PREFIX}instances i JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id
JOIN {PREFIX}instances u ON u.id = x.input_id
JOIN {PREFIX}refs r ON r.id = u.ref_id AND r.state = '{InstanceState.LIVE}'
JOIN {PREFIX}instances c ON c.id = r.canonical_id AND c.content_hash = u.content_hash
    AND (u.id = c.same_as_id OR u.same_as_id = c.same_as_id)
JOIN {PREFIX}instances n ON n.id > u.id AND n.id = (
    SELECT b.id FROM {PREFIX}instances b JOIN {PREFIX}job_runs j ON j.id = b.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
    WHERE b.same_as_id = c.same_as_id AND b.id <= c.id AND b.was_live = 1 AND b.content_hash = c.content_hash AND {IS_BUILD}
    ORDER BY b.id DESC LIMIT 1)"""


class BorrowedInstance(NamedTuple):
    """An instance of the base in an environment."""

    uuid: str
    ref: Ref
    state: InstanceState
    is_canonical: bool
    is_removed: bool


_BORROWED = Selection(
    BorrowedInstance,
    "i",
    ref="r.ref",
    is_canonical="r.canonical_id = i.id",
    is_removed=f"coalesce(i.manifest_state = '{REMOVED}', 1 = 0)",
)


#: Refs of a taint that a list names.
MAX_OF_TAINT = 3
_TAINT_NOW = Selection(
    TaintNow,
    "t",
    n="tainting.n",
    refs=f"""(SELECT json_group_array(few.ref) FROM (
        SELECT r.ref FROM {PREFIX}taint_instances x JOIN {PREFIX}instances i ON i.id = x.instance_id
        JOIN {PREFIX}refs r ON r.id = i.ref_id AND r.canonical_id = i.id
        WHERE x.taint_id = t.id AND x.canceled_at IS NULL ORDER BY x.instance_id LIMIT {MAX_OF_TAINT}) few)""",
)


#: Each instance with the launch that made it.
_MADE_BY = (
    f"{PREFIX}instances i JOIN {PREFIX}job_runs j ON j.id = i.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id"
)


class InstanceQueries(Asking):
    """Instances, whether readers see them or not."""

    def _instances(self, sql: str, *parameters: Any) -> list[Instance]:
        return _INSTANCE.rows(self._all(sql, *parameters), manifest_uri=self._store.places.whole)

    def get(self, uuid: str, most_inputs: int | None = None) -> Instance | None:
        """An instance with all of its inputs, which may be a hundred thousand, or with the first `most_inputs`."""
        sql = f"SELECT {_with_inputs(most_inputs).columns} {_FROM} WHERE i.uuid = ?"
        return next(iter(self._instances(sql, uuid)), None)

    def named(self, uuids: Iterable[str]) -> list[Instance]:
        """The instances with the given uuids, ordered by ref and without their inputs; unknown uuids are left out."""
        sql = "WHERE i.uuid IN (SELECT value FROM json_each(?)) ORDER BY r.ref, i.id"
        return self._instances(_WITHOUT_INPUTS + sql, Keys(uuids))

    def built_from(self, uuid: str, most: int) -> tuple[int, list[Instance]]:
        """The number of instances that were built from an instance, at most `MAX_COUNTED` + 1, and some without their inputs.

        The shown instances are the first by ref among the `MAX_SORTED` that were created first.
        """
        made = f"""SELECT x.instance_id FROM {PREFIX}instance_inputs x
            WHERE x.input_id = (SELECT u.id FROM {PREFIX}instances u WHERE u.uuid = ?)"""
        ((n,),) = self._all(f"SELECT count(*) FROM ({made} LIMIT ?) counted", uuid, MAX_COUNTED + 1)
        sql = f"WHERE i.id IN (SELECT * FROM ({made} ORDER BY x.instance_id LIMIT ?)) ORDER BY r.ref, i.id LIMIT ?"
        return int(n), self._instances(_WITHOUT_INPUTS + sql, uuid, MAX_SORTED, most)

    def inputs_of(self, uuids: Iterable[str], most: int) -> list[tuple[str, str]]:
        """Pairs of an input and an instance among `uuids` that was built from it."""
        # In no order: to sort, all inputs would be read, which can be millions.
        sql = f"""
            SELECT u.uuid, i.uuid FROM {PREFIX}instances i JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id
            JOIN {PREFIX}instances u ON u.id = x.input_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) LIMIT ?"""
        return [(used, user) for used, user in self._all(sql, Keys(uuids), most)]

    def inputs_by_ref(self, uuids: Iterable[str]) -> list[tuple[str, Ref, str]]:
        """Of each instance among `uuids`, every input that it was built from: (instance, ref of the input, input)."""
        sql = f"""
            SELECT i.uuid, r.ref, u.uuid FROM {PREFIX}instances i JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id
            JOIN {PREFIX}instances u ON u.id = x.input_id JOIN {PREFIX}refs r ON r.id = u.ref_id
            WHERE i.uuid IN (SELECT value FROM json_each(?))"""
        return self._all(sql, Keys(uuids))

    def uses_of(self, uuids: Iterable[str], most: int) -> list[tuple[str, str]]:
        """Pairs of an instance among `uuids` and an instance that was built from it."""
        # In no order, as above.
        sql = f"""
            SELECT u.uuid, i.uuid FROM {PREFIX}instances u JOIN {PREFIX}instance_inputs x ON x.input_id = u.id
            JOIN {PREFIX}instances i ON i.id = x.instance_id
            WHERE u.uuid IN (SELECT value FROM json_each(?)) LIMIT ?"""
        return [(used, user) for used, user in self._all(sql, Keys(uuids), most)]

    def n_inputs_of(self, uuids: Iterable[str]) -> dict[str, int]:
        """The number of inputs of each instance; instances without inputs are left out."""
        sql = f"""
            SELECT i.uuid, count(*) FROM {PREFIX}instances i JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) GROUP BY i.uuid"""
        return dict(self._all(sql, Keys(uuids)))

    def history(self, ref: Ref, most: int = MAX_SEQ, most_inputs: int | None = None) -> list[Instance]:
        """The newest `most` instances of a ref, the oldest first (rule 4.2), each with all inputs or the first `most_inputs`."""
        sql = f"""
            WITH RECURSIVE chain(id, n) AS (
                SELECT last_id, CAST(1 AS BIGINT) FROM {PREFIX}refs WHERE ref = ? AND last_id IS NOT NULL
                UNION ALL SELECT p.previous_id, chain.n + 1 FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
                WHERE p.previous_id IS NOT NULL AND chain.n < ?
            ) SELECT {_with_inputs(most_inputs).columns} {_FROM} WHERE i.id IN (SELECT id FROM chain) ORDER BY i.id"""
        return self._instances(sql, ref, most)

    def attempts_since_live(self, refs: Iterable[Ref]) -> dict[Ref, list[SinceLive]]:
        """The newest `MAX_SINCE_LIVE` instances of each ref since its last live instance, the oldest first; without empty lists."""
        sql = f"""
            WITH RECURSIVE chain(ref, id, n) AS (
                SELECT r.ref, i.id, CAST(1 AS BIGINT) FROM {PREFIX}refs r JOIN {PREFIX}instances i ON i.id = r.last_id
                WHERE r.ref IN (SELECT value FROM json_each(?)) AND i.was_live = 0
                UNION ALL SELECT chain.ref, p.id, chain.n + 1 FROM chain JOIN {PREFIX}instances i ON i.id = chain.id
                JOIN {PREFIX}instances p ON p.id = i.previous_id WHERE p.was_live = 0 AND chain.n < {MAX_SINCE_LIVE}
            ) SELECT chain.ref, i.uuid, j.state FROM chain JOIN {PREFIX}instances i ON i.id = chain.id
            JOIN {PREFIX}job_runs j ON j.id = i.job_run_id ORDER BY i.id"""
        found: dict[Ref, list[SinceLive]] = {}
        for ref, uuid, state in self._all(sql, Keys(refs)):
            found.setdefault(ref, []).append(
                SinceLive(uuid, state in (JobRunState.FAILED.value, JobRunState.LOST.value))
            )
        return found

    def live(self, asset: str) -> list[Instance]:
        """The live canonical instances of a dataset, ordered by ref."""
        sql = f"{_INSTANCES} WHERE {OF_DATASET} AND r.canonical_id = i.id AND i.state = '{InstanceState.LIVE}' ORDER BY r.ref"
        return self._instances(sql, *dataset_range(asset))

    def removed(self, uuids: Iterable[str]) -> set[str]:
        """The instances among `uuids` whose data was removed."""
        sql = f"""
            SELECT uuid FROM {PREFIX}instances
            WHERE uuid IN (SELECT value FROM json_each(?)) AND manifest_state = '{REMOVED}'"""
        return {uuid for (uuid,) in self._all(sql, Keys(uuids))}

    @again_if_cut
    def erasure_of(self, uuid: str) -> tuple[float, Erasure] | None:
        """The time and the request by which the data of an instance was erased; None if it was not."""
        # Removals are rare: the log has them, instead of a column of every instance.
        with self._store.reading() as connection:
            events = log.events_named(connection, Keys(["ManifestRemoved"]), 0, MAX_SEQ)
        for event in events:
            if isinstance(event.fact, ManifestRemoved) and event.fact.erasure and uuid in event.fact.uuids:
                return event.at, event.fact.erasure
        return None

    def refs_built_from(self, uuids: Iterable[str]) -> list[Ref]:
        """Other refs with an instance, whose data is there, that was built from `uuids`, directly or not; ordered."""
        sql = f"""
            WITH RECURSIVE made(id) AS (
                SELECT id FROM {PREFIX}instances WHERE uuid IN (SELECT value FROM json_each(?))
                UNION SELECT x.instance_id FROM made JOIN {PREFIX}instance_inputs x ON x.input_id = made.id
            ) SELECT DISTINCT r.ref FROM made JOIN {PREFIX}instances i ON i.id = made.id JOIN {PREFIX}refs r ON r.id = i.ref_id
            WHERE i.was_live = 1 AND coalesce(i.manifest_state, '') <> '{REMOVED}'
            AND i.uuid NOT IN (SELECT value FROM json_each(?)) ORDER BY r.ref"""
        found = list(uuids)
        return [ref for (ref,) in self._all(sql, Keys(found), Keys(found))]

    def missed(self, uuids: Iterable[str]) -> dict[str, tuple[Ref, ...]]:
        """The inputs that instances missed, live by now or not, by uuid; an instance without any is left out."""
        sql = f"""
            SELECT i.uuid, r.ref FROM {PREFIX}instances i JOIN {PREFIX}missing m ON m.instance_id = i.id
            JOIN {PREFIX}refs r ON r.id = m.ref_id WHERE i.uuid IN (SELECT value FROM json_each(?)) ORDER BY r.ref"""
        return grouped(self._all(sql, Keys(uuids)))

    def last_change(self, uuid: str, seq: int | None = None) -> StateChange | None:
        """The last move of an instance, or its last move up to `seq` (rule 3.2)."""
        sql = f"""
            SELECT {_STATE_CHANGE.columns} FROM {PREFIX}history h JOIN {PREFIX}events e ON e.seq = h.seq
            WHERE h.entity_id = (SELECT id FROM {PREFIX}instances WHERE uuid = ?) AND h.kind = 'instances' AND h.seq <= ?
            ORDER BY h.seq DESC, h.place DESC LIMIT 1"""
        changes = _STATE_CHANGE.rows(self._all(sql, uuid, MAX_SEQ if seq is None else min(seq, MAX_SEQ)))
        return changes[0] if changes else None

    def kept(self, uuids: Iterable[str]) -> dict[str, FolderOwner]:
        """The owner of each uuid's storage; a uuid without an instance is left out."""
        sql = f"""
            SELECT i.uuid, {_KEPT.columns}
            FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id
                 JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
            WHERE i.uuid IN (SELECT value FROM json_each(?))"""
        return dict(_KEPT.by(self._all(sql, Keys(uuids))))

    def dataset_folders(self) -> list[tuple[str, str]]:
        """(asset, folder of a warehouse) of all instances with manifests. Scans all instances."""
        sql = f"""
            SELECT substr(i.manifest_uri, 1, length(i.manifest_uri) - {_IN_DATASET}) AS folder, min(r.ref)
            FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id WHERE length(i.manifest_uri) > {_IN_DATASET}
            GROUP BY substr(i.manifest_uri, 1, length(i.manifest_uri) - {_IN_DATASET})"""
        return [(asset_of(ref), str(self._store.places.whole(folder))) for folder, ref in self._all(sql)]

    def stale(self, uuids: Sequence[str]) -> set[str]:
        """The instances among `uuids` with an input that is now tainted or not canonical, unless a live one has its rows (rule 4.6)."""
        return {uuid for uuid, is_stale in self.behind(uuids).items() if is_stale}

    def behind(self, uuids: Sequence[str]) -> dict[str, bool]:
        """The instances among `uuids` with an input that is now tainted or not canonical, and whether that makes them stale."""
        sql = f"""
            SELECT i.uuid, max(CASE WHEN r.canonical_id = x.input_id THEN 1
                WHEN EXISTS (SELECT 1 FROM {PREFIX}instances u WHERE u.id = x.input_id AND NOT EXISTS (
                    SELECT 1 FROM {PREFIX}instances n WHERE n.id = r.canonical_id AND n.state <> '{InstanceState.TAINTED}'
                    AND coalesce(n.same_as_id, n.id) = coalesce(u.same_as_id, u.id)
                    AND (u.state <> '{InstanceState.TAINTED}' OR ({_IS_AS_GOOD})))) THEN 1 ELSE 0 END)
            FROM {PREFIX}instances i JOIN {PREFIX}instance_inputs x ON x.instance_id = i.id
            JOIN {PREFIX}refs r ON r.id = x.ref_id
            WHERE i.uuid IN (SELECT value FROM json_each(?))
            AND (coalesce(r.canonical_id, 0) <> x.input_id OR r.state = '{InstanceState.TAINTED}') GROUP BY i.uuid"""
        return {uuid: bool(is_stale) for uuid, is_stale in self._all(sql, Keys(uuids))}

    def set_aside_by_code(self, refs: Iterable[Ref]) -> list[Ref]:
        """The refs among `refs` that are open, and of which `--fresh` once asked for a build (rule 4.9)."""
        sql = f"""
            WITH RECURSIVE chain(ref, id) AS (
                SELECT ref, last_id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?))
                AND state IN ('{InstanceState.TAINTED}', '{InstanceState.UP_FOR_RETRY}')
                UNION ALL SELECT chain.ref, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
                WHERE p.previous_id IS NOT NULL
            ) SELECT DISTINCT chain.ref FROM chain JOIN {PREFIX}taint_instances l ON l.instance_id = chain.id
            JOIN {PREFIX}taints t ON t.id = l.taint_id WHERE t.of_code = 1"""
        return [ref for (ref,) in self._all(sql, Keys(refs))]

    def second_builds(self, refs: Iterable[Ref]) -> list[SecondBuild]:
        """The last second build of each ref that had one (rule 4.9), without refs that were built again since; ordered by ref."""
        sql = f"""
            WITH RECURSIVE chain(ref, canonical_id, id) AS (
                SELECT ref, canonical_id, last_id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?))
                UNION ALL SELECT chain.ref, canonical_id, p.previous_id FROM chain JOIN {PREFIX}instances p ON p.id = chain.id
                WHERE p.previous_id IS NOT NULL
            ), live(ref, canonical_id, id, uuid, root) AS (
                SELECT ref, canonical_id, chain.id, uuid, coalesce(i.same_as_id, i.id)
                FROM chain JOIN {PREFIX}instances i ON i.id = chain.id WHERE i.was_live = 1
            ) SELECT m.ref, t.reason, n.uuid, n.id = n.canonical_id OR EXISTS (
                SELECT 1 FROM {PREFIX}instances o JOIN {PREFIX}job_runs j ON j.id = o.job_run_id
                JOIN {PREFIX}launches l ON l.id = j.launch_id
                WHERE o.id = n.canonical_id AND o.same_as_id = n.root AND NOT ({IS_BUILD})
            ) FROM live m
            JOIN {PREFIX}taint_instances x ON x.instance_id = m.id
            JOIN {PREFIX}taints t ON t.id = x.taint_id AND t.reason LIKE '{VERIFIES}%'
            JOIN live f ON f.ref = m.ref AND f.uuid = substr(t.reason, {len(VERIFIES) + 1})
            LEFT JOIN live n ON n.ref = m.ref AND n.id > t.id ORDER BY m.ref, t.id, n.id DESC"""
        # The last row of a ref has its last taint of the kind, and the first instance that was live since.
        found = {row[0]: row for row in self._all(sql, Keys(refs))}
        return [
            SecondBuild(Ref(ref), reason.removeprefix(VERIFIES), second)
            for ref, reason, second, is_canonical in found.values()
            if second is None or is_canonical
        ]

    def live_from_earlier(self, refs: Iterable[Ref]) -> list[Ref]:
        """The other live refs that were built, directly or not, from instances of `refs` whose rows readers no longer see."""
        named = list(refs)
        level = [made for (made,) in self._all(_EARLIER, Keys(named))]
        made = set(level)
        while level:
            level = [built for (built,) in self._all(_BUILT_ON, Keys(level)) if built not in made]
            made.update(level)
        sql = f"""
            SELECT ref FROM {PREFIX}refs WHERE canonical_id IN (SELECT value FROM json_each(?))
            AND state = '{InstanceState.LIVE}' AND ref NOT IN (SELECT value FROM json_each(?)) ORDER BY canonical_id"""
        return [ref for (ref,) in self._all(sql, Keys(made), Keys(named))]

    def with_the_rows_of(self, uuids: Sequence[str]) -> set[str]:
        """Instances among `uuids` whose rows are readable: a canonical instance has them."""
        sql = f"""
            SELECT i.uuid FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id
            JOIN {PREFIX}instances n ON n.id = r.canonical_id
            WHERE i.uuid IN (SELECT value FROM json_each(?))
            AND coalesce(n.same_as_id, n.id) = coalesce(i.same_as_id, i.id)"""
        return {uuid for (uuid,) in self._all(sql, Keys(uuids))}

    def first_with_rows(self, uuids: Iterable[str], *, with_erased: bool = True) -> dict[str, str]:
        """By uuid, the first instance with its rows; an instance that is itself the first is left out.

        Without `with_erased`, so is one whose rows an erasure has left, and of which the first has more.
        """
        if not self._has_equal_rows():
            return {}
        whole = "1 = 1" if with_erased else f"NOT EXISTS ({_ERASED})"
        sql = f"""
            SELECT i.uuid, o.uuid FROM {PREFIX}instances i JOIN {PREFIX}instances o ON o.id = i.same_as_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND {whole}"""
        return dict(self._all(sql, Keys(uuids)))

    def equal_inputs(self, uuids: Iterable[str]) -> list[EqualInput]:
        """The inputs of instances that were built again with equal rows since, and are live; ordered by ref."""
        if not self._has_equal_rows():
            return []
        sql = f"""
            SELECT {_EQUAL_INPUT.columns} FROM {_CUT_OFF}
            WHERE i.uuid IN (SELECT value FROM json_each(?)) ORDER BY r.ref, i.id"""
        return _EQUAL_INPUT.rows(self._all(sql, Keys(uuids)))

    def n_cut_off(self, refs: Iterable[Ref]) -> int:
        """The number of live refs that were built from earlier instances of `refs`, whose rows the present instances have."""
        sql = f"""
            SELECT count(DISTINCT i.id) FROM {_CUT_OFF}
            JOIN {PREFIX}refs k ON k.id = i.ref_id AND k.canonical_id = i.id AND k.state = '{InstanceState.LIVE}'
            WHERE r.ref IN (SELECT value FROM json_each(?))"""
        ((n,),) = self._all(sql, Keys(refs))
        return int(n)

    def rows_of(self, uuids: Iterable[str]) -> dict[str, InstanceRows]:
        """The facts about the rows of instances, by uuid."""
        sql = f"""
            SELECT i.uuid, {_ROWS.columns} FROM {PREFIX}instances i LEFT JOIN {PREFIX}instances o ON o.id = i.same_as_id
            WHERE i.uuid IN (SELECT value FROM json_each(?))"""
        return dict(_ROWS.by(self._all(sql, Keys(uuids))))

    def _has_equal_rows(self) -> bool:
        """Most stores have no instance with the rows of an earlier one, which costs a look into an empty index."""
        return bool(self._all(f"SELECT 1 FROM {PREFIX}instances WHERE same_as_id IS NOT NULL LIMIT 1"))

    def n_live_built_from(self, refs: Sequence[Ref], uuids: Sequence[str]) -> int:
        """The number of other live refs with data from the canonical instances of `refs`, or from `uuids`.

        Reads all that was built from them.
        """
        return self._walk(refs, uuids, MAX_SEQ)[1]

    def live_built_from(self, refs: Sequence[Ref], uuids: Sequence[str]) -> int:
        """`n_live_built_from`, which stops counting at `MAX_COUNTED` + 1."""
        n_walked, n = self._walk(refs, uuids, MAX_WALKED)
        if n_walked == MAX_WALKED and n <= MAX_COUNTED:
            # Most of what was built from them is not live any more.
            n = self.n_live_built_from(refs, uuids)
        return min(n, MAX_COUNTED + 1)

    def _walk(self, refs: Sequence[Ref], uuids: Sequence[str], most: int) -> tuple[int, int]:
        """The number of instances that are walked, at most so many, and of the live refs among them."""
        # A limit on a join would stop no recursion, and PostgreSQL would read whole tables for a join.
        built_from = _BUILT_FROM_EQUAL if self._has_equal_rows() else _BUILT_FROM
        sql = f"""
            WITH RECURSIVE first(id) AS (
                SELECT canonical_id FROM {PREFIX}refs WHERE ref IN (SELECT value FROM json_each(?)) AND canonical_id IS NOT NULL
                UNION SELECT id FROM {PREFIX}instances WHERE uuid IN (SELECT value FROM json_each(?))
            ), {built_from}
            ) SELECT count(*), sum((
                SELECT count(*) FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id AND r.canonical_id = i.id
                WHERE i.id = walked.id AND r.state = '{InstanceState.LIVE}' AND r.ref NOT IN (SELECT value FROM json_each(?))
            )) FROM (SELECT id FROM made LIMIT ?) walked"""
        ((n_walked, n),) = self._all(sql, Keys(refs), Keys(uuids), Keys(refs), most)
        return int(n_walked), int(n or 0)

    def lineage(self, uuid: str) -> list[Instance]:
        """An instance and all its inputs, with theirs, the oldest first (rule 4.6)."""
        sql = f"""
            WITH RECURSIVE made_of(id) AS (
                SELECT id FROM {PREFIX}instances WHERE uuid = ?
                UNION SELECT x.input_id FROM made_of JOIN {PREFIX}instance_inputs x ON x.instance_id = made_of.id
            ) {_INSTANCES} WHERE i.id IN (SELECT id FROM made_of) ORDER BY i.id"""
        return self._instances(sql, uuid)

    @again_if_cut
    def made_with(self, uuids: Iterable[str]) -> dict[str, MadeWith]:
        """The code, configuration and libraries of the launches that built instances.

        For compacted rows, of the last build with its rows and code. Instances that no launch of ours built, or older code, are left
        out.
        """
        sql = f"""
            SELECT i.uuid, h.seq FROM {PREFIX}instances i JOIN {PREFIX}job_runs j ON j.id = i.job_run_id
            JOIN {PREFIX}instances o ON o.id = i.id OR (o.id < i.id AND (o.id = i.same_as_id OR o.same_as_id = i.same_as_id))
            JOIN {PREFIX}job_runs b ON b.id = o.job_run_id AND (b.id = j.id OR coalesce(b.code, '') = coalesce(j.code, ''))
            JOIN {PREFIX}history h ON h.entity_id = b.id AND h.kind = 'job_runs' AND h.to_state = '{JobRunState.RUNNING}'
            WHERE i.uuid IN (SELECT value FROM json_each(?)) ORDER BY o.id"""
        begun = dict(self._all(sql, Keys(uuids)))
        with self._store.reading() as connection:
            facts = {event.seq: event.fact for event in log.events_at(connection, Keys(dict.fromkeys(begun.values())))}
        started = {uuid: fact for uuid, seq in begun.items() if isinstance(fact := facts[seq], JobRunStarted)}
        return {uuid: fact.made_with for uuid, fact in started.items() if fact.made_with is not None}

    def data_facts(self, uuids: Iterable[str]) -> dict[str, DataFacts]:
        """By uuid; instances that do not exist are left out."""
        sql = f"""
            SELECT i.uuid, {_FACTS.columns} FROM {PREFIX}instances i WHERE i.uuid IN (SELECT value FROM json_each(?))"""
        return dict(_FACTS.by(self._all(sql, Keys(uuids))))

    def content_hashes(self, uuids: Iterable[str]) -> dict[str, str]:
        """The recorded content hashes by uuid (rule 4.8); instances without one are left out."""
        sql = f"""
            SELECT uuid, content_hash FROM {PREFIX}instances
            WHERE uuid IN (SELECT value FROM json_each(?)) AND content_hash IS NOT NULL"""
        return dict(self._all(sql, Keys(uuids)))

    def input_differences(self, first: str, second: str, most: int) -> tuple[InputCounts, list[InputPair]]:
        """The number of inputs in which two instances differ, and the first of them by ref."""
        sql = f"""
            SELECT n_added, n_removed, n, {_PAIR.columns} FROM (
                SELECT ref_id, first_id, second_id, sum(CASE WHEN first_id = 0 THEN 1 ELSE 0 END) OVER () AS n_added,
                    sum(CASE WHEN second_id = 0 THEN 1 ELSE 0 END) OVER () AS n_removed, count(*) OVER () AS n
                FROM ({_DIFFERING}) either
            ) differing JOIN {PREFIX}refs r ON r.id = differing.ref_id
            LEFT JOIN {PREFIX}instances a ON a.id = differing.first_id LEFT JOIN {PREFIX}instances b ON b.id = differing.second_id
            ORDER BY r.ref LIMIT ?"""
        rows = self._all(sql, second, first, first, second, most)
        if not rows:
            return InputCounts(0, 0, 0), []
        n_added, n_removed, n = map(int, rows[0][:3])
        return InputCounts(n_added, n_removed, n - n_added - n_removed), _PAIR.rows([row[3:] for row in rows])

    def at(self, uuids: Iterable[str], seq: int) -> list[InstanceThen]:
        """The instances with the given uuids that had been made by `seq`, ordered by ref; later instances are left out."""
        return _THEN.rows(self._at(_INSTANCES_THEN, seq, uuids=Keys(uuids)))

    def inputs_at(self, uuids: Iterable[str], most: int, seq: int) -> list[tuple[str, str]]:
        """As `inputs_of`."""
        return [(used, user) for used, user in self._at(_INPUTS, seq, uuids=Keys(uuids), most=most)]

    def uses_at(self, uuids: Iterable[str], most: int, seq: int) -> list[tuple[str, str]]:
        """As `uses_of`."""
        return [(used, user) for used, user in self._at(_USES, seq, uuids=Keys(uuids), most=most)]

    def n_live_built_from_at(self, uuid: str, seq: int) -> int:
        """The number of other refs that were live by then with data from an instance."""
        ((n,),) = self._at(_REACHED_EQUAL if self._has_equal_rows() else _REACHED, seq, uuid=uuid)
        return int(n)

    def _at(self, sql: str, seq: int, **parameters: Any) -> list[tuple[Any, ...]]:
        seq = min(seq, MAX_SEQ)
        return self._store.ask(sql, {**parameters, "seq": seq, "end": (seq + 1) << BITS})

    def seqs_of(self, uuids: Iterable[str]) -> dict[str, int]:
        """The seq of the event that created each instance."""
        sql = f"SELECT uuid, id >> {BITS} FROM {PREFIX}instances WHERE uuid IN (SELECT value FROM json_each(?))"
        return dict(self._all(sql, Keys(uuids)))

    def borrowed_of(self, uuids: Iterable[str]) -> set[str]:
        """The instances of the base among instances."""
        sql = f"""
            SELECT i.uuid FROM {_MADE_BY} WHERE l.owner = '{BORROWED}' AND i.uuid IN (SELECT value FROM json_each(?))"""
        return {str(uuid) for (uuid,) in self._all(sql, Keys(uuids))}

    def borrowed_and_built(self) -> tuple[int, int, int]:
        """The numbers of instances of the base, and of instances with data that were built here, and the bytes that these wrote.

        Looks at every instance.
        """
        sql = f"""
            SELECT count(CASE WHEN l.owner = '{BORROWED}' THEN 1 END), count(CASE WHEN l.owner <> '{BORROWED}' THEN 1 END),
                coalesce(sum(CASE WHEN l.owner <> '{BORROWED}' THEN i.n_bytes END), 0)
            FROM {_MADE_BY} WHERE i.was_live = 1"""
        ((borrowed, built, n_bytes),) = self._all(sql)
        return int(borrowed), int(built), int(n_bytes)

    def borrowed(self) -> list[BorrowedInstance]:
        """The instances of the base. Looks at every instance."""
        sql = f"""
            SELECT {_BORROWED.columns} FROM {PREFIX}instances i JOIN {PREFIX}refs r ON r.id = i.ref_id
            JOIN {PREFIX}job_runs j ON j.id = i.job_run_id JOIN {PREFIX}launches l ON l.id = j.launch_id
            WHERE l.owner = '{BORROWED}' ORDER BY i.id"""
        return _BORROWED.rows(self._all(sql))

    def taint_links(self, uuids: Iterable[str]) -> list[TaintLink]:
        """The taints that each of `uuids` has, or had."""
        return self._links("i.uuid", uuids)

    def links_of_taints(self, taint_ids: Iterable[str]) -> list[TaintLink]:
        """The instances that have, or had, each of the taints."""
        return self._links("t.taint_id", taint_ids)

    def _links(self, column: str, keys: Iterable[str]) -> list[TaintLink]:
        sql = f"""
            SELECT {_LINK.columns} FROM {PREFIX}instances i
            JOIN {PREFIX}taint_instances x ON x.instance_id = i.id JOIN {PREFIX}taints t ON t.id = x.taint_id
            WHERE {column} IN (SELECT value FROM json_each(?)) ORDER BY t.id, i.id"""
        return _LINK.rows(self._all(sql, Keys(keys)))

    def refs_built(self) -> list[Ref]:
        """The refs whose canonical instance has data, and is not one of the base, the oldest instance first. Looks at every ref."""
        sql = f"""
            SELECT r.ref FROM {_MADE_BY} JOIN {PREFIX}refs r ON r.canonical_id = i.id
            WHERE i.was_live = 1 AND l.owner <> '{BORROWED}' ORDER BY i.id"""
        return [Ref(ref) for (ref,) in self._all(sql)]

    def owners_of(self, uuids: Iterable[str]) -> dict[str, str]:
        """The owners of the launches that made instances, by uuid."""
        sql = f"SELECT i.uuid, l.owner FROM {_MADE_BY} WHERE i.uuid IN (SELECT value FROM json_each(?))"
        return dict(self._all(sql, Keys(uuids)))

    def taints_of(self, uuid: str) -> tuple[Taint, ...]:
        """The taints in force of an instance."""
        return self.taints_in_force([uuid]).get(uuid, ())

    def taints_in_force(self, uuids: Iterable[str]) -> dict[str, tuple[Taint, ...]]:
        """The taints in force of many instances, by uuid."""
        sql = f"""
            SELECT i.uuid, {_TAINT.columns} FROM {PREFIX}instances i
            JOIN {PREFIX}taint_instances x ON x.instance_id = i.id JOIN {PREFIX}taints t ON t.id = x.taint_id
            WHERE i.uuid IN (SELECT value FROM json_each(?)) AND x.canceled_at IS NULL ORDER BY t.id"""
        return grouped(_TAINT.by(self._all(sql, Keys(uuids))))

    def taints_now(self, most: int) -> list[TaintNow]:
        """The taints in force that readers see now, the newest first. A taint of replaced instances alone is left out.

        Looks at every tainted ref, by the index of tainted refs.
        """
        sql = f"""
            SELECT {_TAINT_NOW.columns} FROM (
                SELECT x.taint_id, count(*) AS n FROM {PREFIX}refs r JOIN {PREFIX}taint_instances x ON x.instance_id = r.canonical_id
                WHERE r.state = '{InstanceState.TAINTED}' AND x.canceled_at IS NULL GROUP BY x.taint_id
            ) tainting JOIN {PREFIX}taints t ON t.id = tainting.taint_id ORDER BY t.id DESC LIMIT ?"""
        return _TAINT_NOW.rows(self._all(sql, most))

    def taints_to_show(self, refs: Iterable[Ref]) -> dict[Ref, Taint]:
        """The newest taint in force of each ref that is not live: of its canonical instance if that is tainted, else of the
        last instance that was live. Other refs are left out."""
        sql = f"""
            WITH RECURSIVE chain(ref, state, id, found) AS (
                SELECT r.ref, r.state, i.id, CASE WHEN i.state = '{InstanceState.TAINTED}' THEN 1 ELSE i.was_live END FROM {PREFIX}refs r
                JOIN {PREFIX}instances i ON i.id = r.last_id WHERE r.ref IN (SELECT value FROM json_each(?))
                UNION ALL
                SELECT chain.ref, chain.state, p.id, p.was_live FROM chain JOIN {PREFIX}instances i ON i.id = chain.id
                JOIN {PREFIX}instances p ON p.id = i.previous_id WHERE found = 0
            )
            SELECT chain.ref, {_TAINT.columns} FROM chain
            JOIN {PREFIX}taint_instances x ON x.instance_id = chain.id JOIN {PREFIX}taints t ON t.id = x.taint_id
            WHERE found = 1 AND chain.state <> '{InstanceState.LIVE}' AND x.canceled_at IS NULL ORDER BY t.id"""
        return dict(_TAINT.by(self._all(sql, Keys(refs))))

    def tainted_by(self, taint_id: str) -> tuple[Ref, ...]:
        """The refs whose canonical instance has, or had, a taint."""
        sql = f"""
            SELECT r.ref FROM {PREFIX}taints t JOIN {PREFIX}taint_instances x ON x.taint_id = t.id
            JOIN {PREFIX}instances i ON i.id = x.instance_id JOIN {PREFIX}refs r ON r.id = i.ref_id AND r.canonical_id = i.id
            WHERE t.taint_id = ? ORDER BY r.ref"""
        return tuple(ref for (ref,) in self._all(sql, taint_id))

    def tainted_refs(self, assets: Sequence[str], most: int) -> dict[str, tuple[int, tuple[Ref, ...]]]:
        """The number of tainted refs of each dataset, and the first of them; by the index of tainted refs."""
        sql = f"""
            SELECT d.asset, d.id, count(*) FROM {PREFIX}refs r JOIN {PREFIX}datasets d ON d.id = r.dataset_id
            WHERE r.state = '{InstanceState.TAINTED}' AND d.asset IN (SELECT value FROM json_each(?)) GROUP BY d.id"""
        named = f"SELECT ref FROM {PREFIX}refs WHERE state = '{InstanceState.TAINTED}' AND dataset_id = ? ORDER BY ref LIMIT ?"
        found = {
            asset: (count, tuple(ref for (ref,) in self._all(named, dataset_id, most)))
            for asset, dataset_id, count in self._all(sql, Keys(assets))
        }
        return {asset: found.get(asset, (0, ())) for asset in assets}

    def tainted_at_birth(self, uuids: Iterable[str]) -> set[str]:
        """The instances among `uuids` that became live and tainted in the same event (rule 7.3)."""
        sql = f"""
            SELECT DISTINCT i.uuid FROM {PREFIX}instances i JOIN {PREFIX}history h ON h.entity_id = i.id AND h.kind = 'instances'
            JOIN {PREFIX}history n ON n.entity_id = i.id AND n.kind = 'instances' AND n.seq = h.seq AND n.place > h.place
            WHERE i.uuid IN (SELECT value FROM json_each(?))
              AND h.to_state = '{InstanceState.LIVE}' AND h.from_state IS NOT '{InstanceState.TAINTED}'
              AND n.to_state = '{InstanceState.TAINTED}'"""
        return {uuid for (uuid,) in self._all(sql, Keys(uuids))}
