"""Published tables: each tick publishes what is new since the last tick, table by table (rule 10.10).

A table that cannot be reached delays nothing else: its reason is set aside as the reasons of refs are (rule 11.7), it rests for a
growing time, and then publication continues from the table's own mark.

Libraries of catalogs may wait without a bound. So each table has a thread, for which a look waits so long and no longer. A thread
that still runs at the next look is asked again, and none is begun beside it. A tick does not wait for such a thread a second time,
so a silent catalog delays one tick. The end of a build does, because the thread ends with the process.

Dagster shows name and place of a table beside each materialization, and an observation per snapshot: a tick publishes many
partitions later, at once, so the id of a snapshot is in an observation of the asset, which has no partition. An asset check warns
while the table is behind. A run of the check computes the result at once. The ticks report it, too, when its result changes: a
catalog that is away is seen in Dagster without a run.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from hashlib import sha256
from typing import Any, Final

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph
from databuild_dagster.bindings.adapter.keys import asset_key, asset_text
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.display.checks import keys_of, report_changed
from databuild_dagster.bindings.orchestration.duties import Duty, Place, Work
from databuild_dagster.bindings.registry.instance import DagsterCursors, engine_for, warehouse_of
from databuild_dagster.engine.follower import Cursor, LogFollower, apart
from databuild_dagster.engine.holders import this_process
from databuild_dagster.engine.set_aside import TableReasons
from databuild_dagster.engine.wording import when
from databuild_dagster.features.tables.errors import PublishingContinues
from databuild_dagster.features.tables.live_files import Touches
from databuild_dagster.features.tables.opening import place_of
from databuild_dagster.features.tables.publisher import Published, follow
from databuild_dagster.features.tables.table_lags import TableLag, table_lags
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.store.errors import NewerStore, StoreUnusable
from databuild_dagster.warehouse.threads import in_own_thread

#: The seconds for which a tick waits for all tables of its location. Dagster gives an evaluation sixty.
TICK_WAIT_SECONDS: Final = 20.0
#: The seconds for which a build waits at its end, because its process may be the only one that publishes.
BUILD_WAIT_SECONDS: Final = 300.0
#: A log line announces the wait of a build for a table that takes longer.
SILENT_SECONDS: Final = 5.0

_log = logger(__name__)


@apart("published tables could not be brought up to date")
def publish_tables(
    instance: dg.DagsterInstance,
    deployment: Deployment,
    datasets: Collection[DatasetSpec],
    *,
    wait_seconds: float,
    head: int | None = None,
    is_last: bool = False,
) -> bool | None:
    """Bring the tables of a location's datasets up to date; returns whether all are. A later tick tries an error again.

    Tables that are not begun after `wait_seconds` are left to the next tick. With `is_last` no tick of this process follows, so
    the wait is also for tables that an earlier tick has begun, and these are looked at once more.
    """
    published = [dataset for dataset in datasets if dataset.table]
    if not published:
        return True
    engine = engine_for(instance)
    end = engine.queries.events.head().seq if head is None else head
    touches, cursors = Touches(engine.queries), DagsterCursors(instance)
    reasons = TableReasons(engine, deployment.location)
    running = engine.memory.of((publish_tables, deployment.location), dict[str, Future[Published | None]])
    until = time.monotonic() + wait_seconds
    failed: dict[str, Exception] = {}
    done: list[str] = []
    # Those that run come last: one that never ends takes no time from the others.
    for dataset in sorted(published, key=lambda dataset: dataset.asset in running):
        if reasons.rests(dataset.asset) and not (is_last and dataset.asset in running):
            continue
        if time.monotonic() >= until:
            break
        publish = partial(
            follow, engine, dataset, warehouse_of(instance), cursors, head=end, touches=touches, is_last=is_last
        )
        try:
            # What runs already was begun at an earlier seq, so the last look of a process follows it.
            for _ in range(1 + (is_last and dataset.asset in running)):
                left_seconds = max(until - time.monotonic(), 0.0)
                if dataset.asset not in running:
                    running[dataset.asset] = in_own_thread(publish, f"databuild table of {dataset.asset}")
                elif not is_last:
                    left_seconds = 0.0
                report_snapshot(instance, dataset, _published(dataset.asset, running, left_seconds, is_last=is_last))
        except (StoreUnusable, NewerStore):
            raise
        except Exception as error:
            failed[dataset.asset] = error
            log_failure(_log, f"the table of {dataset.asset} could not be published", error)
        else:
            done.append(dataset.asset)
    reasons.record(failed, done, this_process())
    return len(done) == len(published)


def _published(
    asset: str, running: dict[str, Future[Published | None]], seconds: float, *, is_last: bool
) -> Published | None:
    """The end of a publication that runs. Raises `PublishingContinues` if it takes longer, and the errors of the publication."""
    future = running[asset]
    if is_last and seconds > SILENT_SECONDS and not wait([future], SILENT_SECONDS).done:
        _log.warning("databuild: waiting for the table of %s, for at most %.0f s; Ctrl-C ends the wait", asset, seconds)
    if not wait([future], seconds).done:
        raise PublishingContinues(asset=asset)
    return running.pop(asset).result()


def _publish(work: Work) -> None:
    publish_tables(work.instance, work.deployment, work.datasets, wait_seconds=TICK_WAIT_SECONDS, head=work.head)


def _finish(place: Place, seconds: float | None) -> bool | None:
    wait_seconds = BUILD_WAIT_SECONDS if seconds is None else seconds
    return publish_tables(place.instance, place.deployment, place.datasets, wait_seconds=wait_seconds, is_last=True)


def _report_checks(work: Work) -> None:
    report_table_checks(work.instance, work.deployment.location, work.repository.asset_graph, work.datasets)


DUTIES = (
    Duty(
        "publish tables",
        _publish,
        is_public=True,
        why="it waits for catalogs on other machines, and only the next duty depends on it, so it comes late",
        finish=_finish,
    ),
    Duty(
        "report table checks",
        _report_checks,
        why="a table that this tick has brought up to date passes at once",
    ),
)


#: The check's name, the same for every asset.
TABLE_CHECK: Final = "table_is_up_to_date"
#: Seconds that a table may be behind unless the author gives another bound: more than some failed tries in a row.
MAX_BEHIND_SECONDS: Final = 900.0

_PARTITIONS: Final = "databuild/partitions_behind"
_BEHIND: Final = "databuild/behind"
_SEVERITY: Final = "databuild/severity"
_BOUND: Final = "databuild/max_behind_seconds"


def build_table_checks(
    *,
    assets: Sequence[dg.AssetKey | str | Sequence[str] | dg.AssetsDefinition],
    max_behind_seconds: float = MAX_BEHIND_SECONDS,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
) -> Sequence[dg.AssetChecksDefinition]:
    """Asset checks that fail while the published table of an asset is behind by more than `max_behind_seconds`.

    Give them to `build_definitions(…, asset_checks=…)`. `assets` have `publish=`, by themselves or by key; the check of any other
    asset passes. The age is counted from the oldest change that the table does not have. The orchestrator reports the checks when they
    change; they may be executed, too. Raises ValueError without assets, and for a bound that is not above 0 (rule 10.10).
    """
    keys = keys_of(assets)
    if not keys:
        raise ValueError("build_table_checks got no assets; name those with publish=.")
    if max_behind_seconds <= 0:
        raise ValueError(
            f"max_behind_seconds is {max_behind_seconds}; a table is behind for some seconds after each build."
        )
    specs = [
        dg.AssetCheckSpec(
            TABLE_CHECK,
            asset=key,
            description=f"Whether the published table has all changes that are older than {max_behind_seconds:g} s.",
            metadata={_SEVERITY: severity.value, _BOUND: float(max_behind_seconds)},
        )
        for key in keys
    ]
    texts = "\n".join(sorted(map(asset_text, keys)))

    # Dagster requires a name per step, and a location may have several.
    @dg.multi_asset_check(name=f"{TABLE_CHECK}_{sha256(texts.encode()).hexdigest()[:8]}", specs=specs, can_subset=True)
    def table_is_up_to_date(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = sorted(context.selected_asset_check_keys)
        known = engine_for(context.instance).queries.datasets.all().values()
        lags = _lags_by_asset(context.instance, known)
        for check in selected:
            verdict = _verdict(lags.get(asset_text(check.asset_key)), max_behind_seconds, severity)
            yield dg.AssetCheckResult(asset_key=check.asset_key, check_name=check.name, **verdict)

    return [table_is_up_to_date]


@apart("the lag of published tables could not be shown in Dagster")
def report_table_checks(
    instance: dg.DagsterInstance, location: str, graph: AssetGraph, datasets: Collection[DatasetSpec]
) -> None:
    """Report the checks of a location to Dagster, without a run. Errors are logged: the checks are only shown."""
    specs = {key: graph.get_check_spec(key) for key in graph.asset_check_keys if key.name == TABLE_CHECK}
    if not specs:
        return
    follower = LogFollower(engine_for(instance), f"table_checks/{location}", Cursor)
    if follower.is_at_end:
        return
    lags = _lags_by_asset(instance, datasets)
    verdicts = {
        key: _verdict(lags.get(asset_text(key.asset_key)), *_options(spec.metadata or {}))
        for key, spec in specs.items()
    }
    report_changed(instance, verdicts, _BEHIND)
    # A table that is behind exceeds its bound without an event.
    if all(lag.since is None for lag in lags.values()):
        follower.rest(follower.head)


def _lags_by_asset(instance: dg.DagsterInstance, datasets: Collection[DatasetSpec]) -> dict[str, TableLag]:
    return {lag.asset: lag for lag in table_lags(instance, datasets)}


def _options(metadata: Mapping[str, Any]) -> tuple[float, dg.AssetCheckSeverity]:
    bound = metadata.get(_BOUND, MAX_BEHIND_SECONDS)
    return float(getattr(bound, "value", bound)), dg.AssetCheckSeverity(
        metadata.get(_SEVERITY, dg.AssetCheckSeverity.WARN.value)
    )


def _verdict(lag: TableLag | None, max_behind_seconds: float, severity: dg.AssetCheckSeverity) -> dict[str, Any]:
    """`databuild/behind` changes only with the verdict and its reason, so that a tick does not report the age of each second."""
    is_late = lag is not None and lag.seconds_behind > max_behind_seconds
    behind = ""
    if lag is not None and is_late:
        assert lag.since is not None, "it is late"
        behind = f"behind since {when(lag.since)}" + ("" if lag.why is None else f"; {lag.why}")
    return {
        "passed": not is_late,
        "severity": severity,
        "description": f"The table is {behind}" if behind else None,
        "metadata": {
            _PARTITIONS: 0 if lag is None else lag.partitions_behind or 0,
            _BEHIND: dg.MetadataValue.text(behind),
        },
    }


#: Dagster's own names, which its catalog shows at the head of an asset.
TABLE_NAME, URI = "dagster/table_name", "dagster/uri"


def table_entries(dataset: DatasetSpec, warehouse: str) -> dict[str, Any]:
    """The metadata of a materialization: the name and the place of the table; none for a dataset without a table.

    `warehouse` is the home's own.
    """
    if not dataset.table:
        return {}
    place = place_of(dataset, warehouse)
    named = {TABLE_NAME: place.spec.name or None, URI: place.uri}
    return {name: value for name, value in named.items() if value is not None}


@apart("a snapshot of a published table could not be shown in Dagster")
def report_snapshot(instance: dg.DagsterInstance, dataset: DatasetSpec, published: Published | None) -> None:
    """Observe a snapshot that a tick has committed. A process that dies before leaves the snapshot without an observation."""
    if published is None or published.snapshot is None or not dataset.table:
        return
    snapshot = published.snapshot
    metadata: dict[str, Any] = {
        **({TABLE_NAME: dataset.table.name} if dataset.table.name else {}),
        URI: snapshot.uri,
        "dagster/row_count": snapshot.rows,
        # As text: JavaScript's numbers are too short for an id of Iceberg.
        "databuild/table_snapshot": dg.MetadataValue.text(str(snapshot.id)),
        "databuild/table_seq": published.seq,
        "databuild/table_metadata": dg.MetadataValue.path(snapshot.metadata_file),
        "databuild/files_added": snapshot.files_added,
        "databuild/files_removed": snapshot.files_removed,
    }
    description = f"{published.table} holds up to seq {published.seq}, in snapshot {snapshot.id}."
    instance.report_runless_asset_event(
        dg.AssetObservation(asset_key=asset_key(dataset.asset), description=description, metadata=metadata)
    )
