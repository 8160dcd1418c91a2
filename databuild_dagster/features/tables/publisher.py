"""The publisher: brings a table up to the end of the log, in a single snapshot (rule 10.10).

It keeps no state. The mark of the table says where to continue, and the log says which files a partition has at a seq. So a
publisher that dies at any line repeats its work, and a publisher that was overtaken looks again.
"""

from hashlib import sha256
from typing import Final, NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import MAX_EVENTS, Cursor, CursorStorage, LogFollower
from databuild_dagster.features.tables import errors
from databuild_dagster.features.tables.awaited import awaits_builds
from databuild_dagster.features.tables.live_files import Touches, contents_of_dataset, contents_of_refs
from databuild_dagster.features.tables.opening import open_table, place_of
from databuild_dagster.features.tables.port import Mark, OpenTable, Place, Snapshot, Table
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.store.queries.queries import Queries

#: Looks at a table that other publishers change.
MAX_TRIES: Final = 5
#: A table that is further behind is compared as a whole.
MAX_EVENTS_BEHIND: Final = 20 * MAX_EVENTS


class Published(NamedTuple):
    """The result of a look at a table."""

    asset: str
    #: Its name, or the folder of a Delta table.
    table: str
    #: The table holds what readers saw when this was the last event.
    seq: int
    #: None if the table was up to date.
    snapshot: Snapshot | None


def publish(
    engine: Engine,
    dataset: DatasetSpec,
    warehouse: str,
    *,
    repair: bool = False,
    take_over: bool = False,
    dry_run: bool = False,
    all_partitions: bool = False,
    advance: bool = False,
    touches: Touches | None = None,
    open_table: OpenTable = open_table,
) -> Published:
    """Bring the table of a dataset up to the end of the log.

    `repair` compares all partitions, also of a table that a foreign writer has changed; `take_over` does so with a foreign store's
    table; `all_partitions` compares them and replaces no foreign writer's work. With `advance` a table that has all files already
    gets a snapshot, too, so that no slower publisher commits an earlier state. `warehouse` is the home's own. Raises
    `NotPublished`, `StoreIsACopy`, the refusals of the mark, and what the table and the manifests raise.
    """
    place = place_of(dataset, warehouse)
    identity = engine.store.identity()
    if identity.id is None or not identity.is_in_place:
        raise errors.StoreIsACopy(asset=dataset.asset)
    table = open_table(place)
    is_whole = repair or take_over
    for n_try in range(1, MAX_TRIES + 1):
        try:
            before, is_readable = _mark_before(table, place, identity.id, repair=is_whole, take_over=take_over)
            # Read before the files: the table is never ahead of the log.
            head = engine.queries.events.head().seq
            after = Mark(identity.id, head, engine.queries.events.fingerprint(head) or "")
            if not is_whole:
                _check_is_of_log(engine.queries, place, before, head)
            if is_whole or all_partitions or before is None or head - before.seq > MAX_EVENTS_BEHIND:
                contents = contents_of_dataset(engine.queries, dataset, place, head, engine.catalog.left_out)
            else:
                refs = (touches or Touches(engine.queries)).of(place.asset, before.seq, head)
                contents = contents_of_refs(
                    engine.queries, dataset, place, refs, head, engine.catalog.left_out, since=before.seq
                )
            # A mark that is not of this log is replaced, also by the same files under a mark of ours.
            is_of_log = is_readable and is_of_this_log(engine.queries, before)
            is_behind = advance and before is not None and before.seq < head
            snapshot = table.replace(contents, after, before, dry_run=dry_run, always=is_behind or not is_of_log)
            return Published(place.asset, place.shown, head, snapshot)
        except errors.PublishConflict:
            if n_try == MAX_TRIES:
                raise
    raise AssertionError("the last try returns or raises")


def is_of_this_log(queries: Queries, mark: Mark | None) -> bool:
    """Whether the event that a mark names is unchanged; a log restored from a backup may have a different event there."""
    return mark is None or not mark.fingerprint or queries.events.fingerprint(mark.seq) == mark.fingerprint


def _check_is_of_log(queries: Queries, place: Place, before: Mark | None, head: int) -> None:
    """Raises `TableAhead`, `TableOfAnotherHistory`."""
    if before is not None and before.seq > head:
        raise errors.TableAhead(asset=place.asset, table=place.shown, found=before.seq, head=head)
    if before is not None and not is_of_this_log(queries, before):
        raise errors.TableOfAnotherHistory(asset=place.asset, table=place.shown, seq=before.seq)


def _mark_before(
    table: Table, place: Place, store_id: str, *, repair: bool, take_over: bool
) -> tuple[Mark | None, bool]:
    """The mark of the table, and whether it is this store's. Raises the refusals of the mark, and `TableOfAnother`."""
    try:
        mark = table.mark()
    except errors.ForeignSnapshot:
        if repair or place.spec.rebase:
            return None, False
        raise
    except errors.TableElsewhere:
        if take_over:
            return None, False
        raise
    if mark is None or mark.store_id == store_id:
        return mark, True
    if take_over:
        return mark, False
    raise errors.TableOfAnother(asset=place.asset, table=place.shown, found=mark.store_id, own=store_id)


class TableCursor(Cursor, frozen=True, kw_only=True):
    """How far the log was published."""

    #: The table then: a different table begins at the beginning.
    table: str = ""


def follow(
    engine: Engine,
    dataset: DatasetSpec,
    warehouse: str,
    storage: CursorStorage,
    *,
    head: int,
    touches: Touches,
    is_last: bool = False,
    open_table: OpenTable = open_table,
) -> Published | None:
    """Publish what a dataset's table does not have yet; None if the log has nothing for it, which opens no table.

    None also for a table that awaits builds, unless no look of this process follows (`is_last`). Raises what `publish` raises.
    """
    partitions = sha256((dataset.partitions or "").encode()).hexdigest()[:16]
    about = f"{dataset.table} {warehouse} {partitions}"
    follower = LogFollower(engine, cursor_name(dataset.asset), TableCursor, storage, about=about, head=head)
    if follower.is_at_end:
        return None
    cursor = follower.load()
    known = cursor is not None and cursor.table == about
    if cursor is not None and known and follower.head - cursor.seq <= MAX_EVENTS:
        touched = touches.of(dataset.asset, cursor.seq, follower.head)
        if not touched:
            if follower.head - cursor.seq > MAX_EVENTS // 2:
                follower.keep(TableCursor(follower.head, table=about))
            follower.rest(follower.head)
            return None
        if not is_last and awaits_builds(engine.queries, dataset, touched, cursor.seq, follower.head, engine.clock()):
            return None
    # Other options, such as `tainted`, and other partitions change what no event touches.
    is_changed = cursor is not None and not known
    done = publish(engine, dataset, warehouse, all_partitions=is_changed, touches=touches, open_table=open_table)
    follower.keep(TableCursor(done.seq, table=about))
    follower.rest(done.seq)
    return done


def cursor_name(asset: str) -> str:
    """The name under which the cursor of a dataset's table is stored."""
    return f"table/{asset}"
