"""The ledger of requests: each request for a ref with the job run that built it.

The table of delegations has the foreign builds of a request. The request's own builds follow from its job runs or its wants, so
the common case, a request for missing refs, writes no row for the ledger.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.fold.react import CLAIMANT
from databuild_dagster.model.records import Column, Time, headline
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import FAILING, InstanceState, JobRunState, WantState
from databuild_dagster.store.backends.base import Keys
from databuild_dagster.store.format import BITS, DELEGATED_TO, one_of
from databuild_dagster.store.format import PREFIX as P
from databuild_dagster.store.queries.asking import CHAIN, Selection
from databuild_dagster.store.store import Store, again_if_cut


class LedgerEntry(msgspec.Struct, frozen=True):
    """The answer to a request for a ref (rules 8.1, 15)."""

    #: The request id of wants, or a Dagster run.
    requester: Annotated[str, Column()]
    ref: Annotated[Ref, Column()]
    kind: Annotated[Answer, Column()]
    #: The job run that builds it, or built it; the present job run while the request waits.
    job_run: Annotated[str | None, Column("job run", wide_only=True)]
    uuid: Annotated[str | None, Column("instance", wide_only=True)]
    outcome: Annotated[DelegationOutcome, Column()]
    asked_at: Annotated[Time, Column("asked", wide_only=True)]
    ended_at: Time | None
    #: The reason of a refusal, a failure, or the end of the waiting.
    reason: Annotated[str, Column(narrow=headline)]
    #: The Dagster run that executed the job run; None for data from outside.
    dagster_run_id: str | None


_Outcome = DelegationOutcome
# CROSS JOIN keeps the order of the tables, each by its key: by its statistics SQLite would begin with the largest.

#: The last want of a Dagster run for a ref that it could not build and that no job run builds now: when the want was canceled
#: or has expired, the request waits in vain.
_LAST_WANT = f"""
LEFT JOIN {P}wants w ON i.state = '{InstanceState.UP_FOR_RETRY}' AND {{joined}} w.id = (
    SELECT max(x.want_id) FROM {P}holds x CROSS JOIN {P}wants own_w ON own_w.id = x.want_id
    WHERE x.ref_id = r.id AND own_w.request_id = {{run}})"""
_UNWANTED = f"w.state IN {one_of([WantState.CANCELED, WantState.EXPIRED])}"
#: States of an attempt without data to read.
_IN_VAIN = one_of([*FAILING, InstanceState.TAINTED])
_WANT_ENDED = "its want ended"
_OWN_LOST = "its own job run was lost, and another built it"

#: Delegations. An open delegation follows the ref to its present instance; an ended delegation, to the instance of its end. A
#: requester that joined a build and claimed the ref later is here too.
_DELEGATED_ENTRY = Selection(
    LedgerEntry,
    "d",
    ref="r.ref",
    job_run="j.job_run_id",
    uuid="i.uuid",
    outcome=f"CASE WHEN {_UNWANTED} THEN '{_Outcome.GIVEN_UP}' ELSE d.outcome END",
    ended_at=f"CASE WHEN {_UNWANTED} THEN w.ended_at ELSE d.ended_at END",
    reason=f"CASE WHEN {_UNWANTED} THEN '{_WANT_ENDED}' ELSE d.reason END",
    dagster_run_id="l.dagster_run_id",
)
_DELEGATED = f"""
SELECT {_DELEGATED_ENTRY.columns}
FROM {{source}} d CROSS JOIN {P}refs r ON r.id = d.ref_id
CROSS JOIN {P}instances i ON i.id = {DELEGATED_TO}
CROSS JOIN {P}job_runs j ON j.id = i.job_run_id CROSS JOIN {P}launches l ON l.id = j.launch_id
{_LAST_WANT.format(joined=f"d.kind = '{Answer.BUILD}' AND d.outcome = '{_Outcome.WAITING}' AND", run="d.requester")}
ORDER BY d.asked_at DESC, r.ref LIMIT :most"""

#: Claims: a Dagster run that claimed owns its launch. By its wants, other launches build the refs that it could not finish: `i` is the
#: instance of the ref then. A ref that it had joined before the claim is among the delegations.
_CLAIMED_ENTRY = Selection(
    LedgerEntry,
    "l",
    requester="coalesce(own_l.dagster_run_id, own_l.launch_id)",
    ref="r.ref",
    kind=f"'{Answer.BUILD}'",
    job_run="j.job_run_id",
    uuid="i.uuid",
    outcome=f"""CASE WHEN i.was_live = 1 THEN '{_Outcome.LIVE}' WHEN i.state IN {_IN_VAIN} THEN '{_Outcome.FAILED}'
            WHEN {_UNWANTED} THEN '{_Outcome.GIVEN_UP}' ELSE '{_Outcome.WAITING}' END""",
    asked_at="own_l.buffered_at",
    ended_at=f"""CASE WHEN i.was_live = 1 THEN i.live_at WHEN i.state IN {_IN_VAIN} THEN j.ended_at
            WHEN {_UNWANTED} THEN w.ended_at END""",
    reason=f"""CASE WHEN i.was_live = 1 AND own_j.state = '{JobRunState.LOST}' THEN '{_OWN_LOST}'
            WHEN {_UNWANTED} THEN '{_WANT_ENDED}' ELSE coalesce(i.reason, '') END""",
)
_BUILT = f"""
SELECT {_CLAIMED_ENTRY.columns}
FROM ({{source}}) s CROSS JOIN {P}instances own ON own.id = s.id CROSS JOIN {P}refs r ON r.id = own.ref_id
CROSS JOIN {P}job_runs own_j ON own_j.id = own.job_run_id CROSS JOIN {P}launches own_l ON own_l.id = own_j.launch_id
CROSS JOIN {P}instances i ON i.id = CASE own.state WHEN '{InstanceState.UP_FOR_RETRY}' THEN r.canonical_id ELSE own.id END
CROSS JOIN {P}job_runs j ON j.id = i.job_run_id CROSS JOIN {P}launches l ON l.id = j.launch_id
{_LAST_WANT.format(joined="", run="own_l.dagster_run_id")}
WHERE {{which}} AND NOT EXISTS (
    SELECT 1 FROM {P}delegations d
    WHERE d.requester = own_l.dagster_run_id AND d.ref_id = r.id AND d.kind = '{Answer.BUILD}')
ORDER BY own_l.id DESC, r.ref LIMIT :most"""
_CLAIMED = partial(_BUILT.format, which="own_l.owner = own_l.dagster_run_id")

#: Instances are numbered after their job run, and job runs after their launch. The plus keeps SQLite from making an index over
#: all of them for this query.
_OUTPUTS = f"""
CROSS JOIN {P}job_runs j ON j.id > l.id AND j.id < ((l.id >> {BITS}) + 1) << {BITS} AND +j.launch_id = l.id
CROSS JOIN {P}instances i ON i.id > j.id AND i.id < ((j.id >> {BITS}) + 1) << {BITS} AND +i.job_run_id = j.id"""

#: Wants without a delegation, with the build of their ref while the want was open; its other refs may have ended otherwise.
_WANTED_ENTRY = Selection(
    LedgerEntry,
    "l",
    requester="w.request_id",
    ref="r.ref",
    kind=f"'{Answer.BUILD}'",
    job_run="j.job_run_id",
    uuid="i.uuid",
    outcome=f"""CASE WHEN w.state = '{WantState.SUCCESSFUL}' OR i.live_at <= w.ended_at THEN '{_Outcome.LIVE}'
            WHEN w.ended_at IS NULL AND r.state = '{InstanceState.LIVE}' THEN '{_Outcome.LIVE}'
            WHEN w.ended_at IS NULL THEN '{_Outcome.WAITING}'
            WHEN {_UNWANTED} THEN '{_Outcome.GIVEN_UP}'
            WHEN w.n_refs = 1 THEN '{_Outcome.FAILED}'
            WHEN i.was_live = 0 AND i.state IN {_IN_VAIN} THEN '{_Outcome.FAILED}'
            WHEN i.id IS NULL AND r.canonical_id > w.id THEN '{_Outcome.FAILED}'
            ELSE '{_Outcome.GIVEN_UP}' END""",
    asked_at="w.created_at",
    ended_at=f"""CASE WHEN i.live_at <= w.ended_at OR (w.ended_at IS NULL AND r.state = '{InstanceState.LIVE}')
            THEN i.live_at ELSE w.ended_at END""",
    reason="coalesce(i.reason, '')",
)
_WANTED = f"""
SELECT {_WANTED_ENTRY.columns}
FROM {{source}}
LEFT JOIN {P}instances i
    ON i.id = r.canonical_id AND i.id > w.id AND (w.ended_at IS NULL OR i.created_at <= w.ended_at)
LEFT JOIN {P}job_runs j ON j.id = i.job_run_id LEFT JOIN {P}launches l ON l.id = j.launch_id
WHERE w.source NOT IN ('{DERIVATIVE}', '{CLAIMANT}') AND {{which}}
  AND NOT EXISTS (SELECT 1 FROM {P}delegations d WHERE d.requester = w.request_id AND d.ref_id = r.id)
ORDER BY w.id DESC, r.ref LIMIT :most"""

_WANTS = f"{P}wants w CROSS JOIN {P}want_refs x ON x.want_id = w.id CROSS JOIN {P}refs r ON r.id = x.ref_id"

#: The three parts of the ledger, and how each is read.
_ENTRIES = (_DELEGATED_ENTRY, _CLAIMED_ENTRY, _WANTED_ENTRY)
#: The newest wants of requests, with the number of their refs.
_NEWEST_WANTS = f"""
SELECT newest.id, newest.n_refs FROM {P}wants newest
WHERE newest.source NOT IN ('{DERIVATIVE}', '{CLAIMANT}') ORDER BY newest.id DESC LIMIT :most"""
#: The parts, by question. Of all claims, only claims after `:floor` are read.
_ALL = (
    _DELEGATED.format(source=f"(SELECT newest.* FROM {P}delegations newest ORDER BY newest.asked_at DESC LIMIT :most)"),
    _CLAIMED(
        source=f"""SELECT i.id FROM (
            SELECT newest.id FROM {P}launches newest
            WHERE newest.owner = newest.dagster_run_id AND newest.id > :floor ORDER BY newest.id DESC LIMIT :most) l {_OUTPUTS}"""
    ),
    _WANTED.format(source=_WANTS, which="w.id IN (SELECT value FROM json_each(:wants))"),
)
_OF_REQUESTER = (
    _DELEGATED.format(source=f"(SELECT * FROM {P}delegations WHERE requester = :key)"),
    _CLAIMED(
        source=f"SELECT i.id FROM {P}launches l {_OUTPUTS} WHERE l.dagster_run_id = :key AND l.owner = l.dagster_run_id"
    ),
    _WANTED.format(source=_WANTS, which="w.request_id = :key"),
)
#: The builds of a launch, which is no request, by its id or its Dagster run.
_OF_LAUNCH = _BUILT.format(
    source=f"SELECT i.id FROM {P}launches l {_OUTPUTS} WHERE l.dagster_run_id = :key OR l.launch_id = :key",
    which="1 = 1",
)
_OF_REF = (
    _DELEGATED.format(
        source=f"(SELECT * FROM {P}delegations WHERE ref_id = (SELECT id FROM {P}refs WHERE ref = :key))"
    ),
    _CLAIMED(source=f"{CHAIN.format(ref=':key')} SELECT id FROM chain"),
    _WANTED.format(
        source=f"{P}refs r CROSS JOIN {P}holds x ON x.ref_id = r.id CROSS JOIN {P}wants w ON w.id = x.want_id",
        which="r.ref = :key",
    ),
)


class Ledger:
    """Read-only, as `Queries` is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @again_if_cut
    def entries(self, *, most: int = 100) -> list[LedgerEntry]:
        """The newest entries of all requests, the newest first."""
        with self._store.reading() as connection:
            newest, n_refs = [], 0
            for want_id, n in connection.execute(_NEWEST_WANTS, {"most": most}).fetchall():
                newest.append(want_id)
                n_refs += n
                if n_refs >= most:
                    break
            # Row ids follow the log, and each ref of a want has an entry, if only that of its delegation. So an older claim has none.
            floor = newest[-1] if n_refs >= most else 0
            return self._entries(_ALL, None, most, floor=floor, wants=Keys(newest))

    def delegations(self, *, most: int = 100) -> list[LedgerEntry]:
        """The newest entries that are no builds of their own: joined, reused and refused."""
        return self._entries(_ALL[:1], None, most)

    def of_requester(self, requester: str, *, most: int = 100_000) -> list[LedgerEntry]:
        """The answers to a request, or a Dagster run, for each of its refs."""
        return self._entries(_OF_REQUESTER, requester, most)

    @again_if_cut
    def of_launch(self, name: str, *, most: int = 100_000) -> list[LedgerEntry]:
        """The builds of a launch, by its id or its Dagster run, as `get_build_request_for_available_partition` gives it.

        Scans the launches.
        """
        with self._store.reading() as connection:
            return _CLAIMED_ENTRY.rows(connection.execute(_OF_LAUNCH, {"key": name, "most": most}).fetchall())

    def of_ref(self, ref: Ref, *, most: int = 100) -> list[LedgerEntry]:
        """The requests for a ref."""
        return self._entries(_OF_REF, ref, most)

    @again_if_cut
    def _entries(self, parts: Sequence[str], key: str | None, most: int, **others: Any) -> list[LedgerEntry]:
        asked = {"key": key, "most": most, **others}
        with self._store.reading() as connection:
            entries = [
                entry
                for selection, sql in zip(_ENTRIES[: len(parts)], parts, strict=True)
                for entry in selection.rows(connection.execute(sql, asked).fetchall())
            ]
        entries.sort(key=lambda entry: (-entry.asked_at, entry.ref))
        # A requester that claimed or wanted a ref again has one entry: the latest.
        latest: dict[tuple[str, str, Answer], LedgerEntry] = {}
        for entry in entries:
            latest.setdefault((entry.requester, entry.ref, entry.kind), entry)
        return list(latest.values())[:most]
