"""The asset check that counts an asset's tainted partitions, and reports of checks to Dagster without a run.

The asset's own step computes the check, so a launch needs no extra step or process. After a taint no run is needed
either: a tick reports the check when the number has changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from databuild_dagster.bindings.adapter.keys import asset_key, asset_text
from databuild_dagster.bindings.adapter.run_tags import TAINT_CHECK
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.model.wording import few_of

#: Refs named in its metadata.
MAX_NAMED = 20

_COUNT: Final = "databuild/tainted"


def taint_check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """The check that the UI lists beside the asset."""
    return dg.AssetCheckSpec(TAINT_CHECK, asset=key, description="How many partitions of the asset are tainted.")


def selected_taint_checks(context: dg.AssetExecutionContext) -> Iterable[dg.AssetCheckResult]:
    """The results of the taint checks that the run selects."""
    keys = [check.asset_key for check in context.selected_asset_check_keys if check.name == TAINT_CHECK]
    found = engine_for(context.instance).queries.instances.tainted_refs([asset_text(key) for key in keys], MAX_NAMED)
    for key in keys:
        yield dg.AssetCheckResult(asset_key=key, check_name=TAINT_CHECK, **_verdict(*found[asset_text(key)]))


def report_tainted(instance: dg.DagsterInstance, found: Mapping[str, tuple[int, Sequence[str]]]) -> None:
    """Report to Dagster, without a run, how many refs of each asset are tainted, where the number has changed.

    `found` has by asset the number of its tainted refs, and at most `MAX_NAMED` of them.
    """
    verdicts = {dg.AssetCheckKey(asset_key(asset), TAINT_CHECK): _verdict(*tainted) for asset, tainted in found.items()}
    if verdicts:
        report_changed(instance, verdicts, _COUNT)


def report_changed(
    instance: dg.DagsterInstance, verdicts: Mapping[dg.AssetCheckKey, Mapping[str, Any]], entry: str
) -> None:
    """Report each verdict whose metadata entry differs from the last evaluation, or that has none yet."""
    last = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(verdicts))
    for check, verdict in verdicts.items():
        evaluation = dg.AssetCheckEvaluation(asset_key=check.asset_key, check_name=check.name, **verdict)
        record = last.get(check)
        event = None if record is None or record.event is None else record.event.dagster_event
        before = None if event is None else event.event_specific_data
        # The record of a check that is only planned has no evaluation.
        reported = before.metadata.get(entry) if isinstance(before, dg.AssetCheckEvaluation) else None
        if reported is None or reported.value != evaluation.metadata[entry].value:
            instance.report_runless_asset_event(evaluation)


def _verdict(count: int, named: Sequence[str]) -> dict[str, Any]:
    # A warning: tainted partitions are red already, and no launch has failed.
    return {
        "passed": count == 0,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": None if count == 0 else f"{count} tainted: {few_of(listed(count, named))}.",
        "metadata": {_COUNT: count, "databuild/refs": dg.MetadataValue.text("\n".join(listed(count, named)))},
    }


def keys_of(assets: Iterable[dg.AssetKey | str | Sequence[str] | dg.AssetsDefinition]) -> list[dg.AssetKey]:
    """The keys of assets that an author names by themselves or by key, each once."""
    keys = [
        list(asset.keys) if isinstance(asset, dg.AssetsDefinition) else [dg.AssetKey.from_coercible(asset)]
        for asset in assets
    ]
    return list(dict.fromkeys(key for of_asset in keys for key in of_asset))


def listed(count: int, named: Sequence[str]) -> list[str]:
    """The first of `count` entries, and a last entry for the rest."""
    return [*named, *([f"{count - len(named)} more"] if count > len(named) else [])]
