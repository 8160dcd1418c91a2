"""The asset check that warns while the table of an asset is behind (rule 10.10).

An author adds it to assets with `publish=`. A run of the check computes the result at once. The ticks report it, too, when its
result changes: a catalog that is away is seen in Dagster without a run, and the check passes again after the table has caught up.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetsDefinition,
    DagsterInstance,
    MetadataValue,
    multi_asset_check,
)

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph
from databuild_dagster.bindings.adapter.keys import asset_text
from databuild_dagster.bindings.display.checks import keys_of, report_changed
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.follower import Cursor, LogFollower, apart
from databuild_dagster.engine.wording import when
from databuild_dagster.features.tables.table_lags import TableLag, table_lags
from databuild_dagster.model.datasets import DatasetSpec

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
    assets: Sequence[AssetKey | str | Sequence[str] | AssetsDefinition],
    max_behind_seconds: float = MAX_BEHIND_SECONDS,
    severity: AssetCheckSeverity = AssetCheckSeverity.WARN,
) -> Sequence[AssetChecksDefinition]:
    """Asset checks that fail while the published table of an asset is behind by more than `max_behind_seconds`.

    Give them to `build_definitions(…, asset_checks=…)`. `assets` have `publish=`, by themselves or by key; the check of another one
    passes. The age is that of the oldest change that the table does not have. The orchestrator reports the checks when they
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
        AssetCheckSpec(
            TABLE_CHECK,
            asset=key,
            description=f"Whether the published table has all changes that are older than {max_behind_seconds:g} s.",
            metadata={_SEVERITY: severity.value, _BOUND: float(max_behind_seconds)},
        )
        for key in keys
    ]
    texts = "\n".join(sorted(map(asset_text, keys)))

    # Dagster requires a name per step, and a location may have several.
    @multi_asset_check(name=f"{TABLE_CHECK}_{sha256(texts.encode()).hexdigest()[:8]}", specs=specs, can_subset=True)
    def table_is_up_to_date(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        selected = sorted(context.selected_asset_check_keys)
        known = engine_for(context.instance).queries.datasets().values()
        lags = _lags_by_asset(context.instance, known)
        for check in selected:
            verdict = _verdict(lags.get(asset_text(check.asset_key)), max_behind_seconds, severity)
            yield AssetCheckResult(asset_key=check.asset_key, check_name=check.name, **verdict)

    return [table_is_up_to_date]


@apart("the lag of published tables could not be shown in Dagster")
def report_table_checks(
    instance: DagsterInstance, location: str, graph: AssetGraph, datasets: Collection[DatasetSpec]
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


def _lags_by_asset(instance: DagsterInstance, datasets: Collection[DatasetSpec]) -> dict[str, TableLag]:
    return {lag.asset: lag for lag in table_lags(instance, datasets)}


def _options(metadata: Mapping[str, Any]) -> tuple[float, AssetCheckSeverity]:
    bound = metadata.get(_BOUND, MAX_BEHIND_SECONDS)
    return float(getattr(bound, "value", bound)), AssetCheckSeverity(
        metadata.get(_SEVERITY, AssetCheckSeverity.WARN.value)
    )


def _verdict(lag: TableLag | None, max_behind_seconds: float, severity: AssetCheckSeverity) -> dict[str, Any]:
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
            _BEHIND: MetadataValue.text(behind),
        },
    }
