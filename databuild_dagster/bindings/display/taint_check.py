"""The asset check that says how many partitions of an asset are tainted.

It is computed by the asset's own step, so no launch has a step or a process more for it; and whoever taints needs no
run at all to have it told, for a tick tells Dagster when the number is another one.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    DagsterInstance,
    MetadataValue,
)

from databuild_dagster.bindings.adapter.asset_keys import asset_key, asset_text
from databuild_dagster.bindings.adapter.run_tags import TAINT_CHECK
from databuild_dagster.bindings.display.check_reports import report_changed
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.wording import few_of

#: Refs named in its metadata.
MAX_NAMED = 20

_COUNT: Final = "databuild/tainted"


def taint_check_spec(key: AssetKey) -> AssetCheckSpec:
    """What the UI lists beside the asset."""
    return AssetCheckSpec(TAINT_CHECK, asset=key, description="How many partitions of the asset somebody has tainted.")


def selected_taint_checks(context: AssetExecutionContext) -> Iterable[AssetCheckResult]:
    """The results of those that the run at hand is to give."""
    keys = [check.asset_key for check in context.selected_asset_check_keys if check.name == TAINT_CHECK]
    found = engine_for(context.instance).queries.tainted_refs([asset_text(key) for key in keys], MAX_NAMED)
    for key in keys:
        yield AssetCheckResult(asset_key=key, check_name=TAINT_CHECK, **_verdict(*found[asset_text(key)]))


def report_taint_checks(instance: DagsterInstance, engine: Engine, assets: Sequence[str]) -> dict[str, int]:
    """Tell Dagster, without a run, how many refs of assets are tainted, where it was told another number last.

    Returns the numbers.
    """
    if not assets:
        return {}
    found = engine.queries.tainted_refs(assets, MAX_NAMED)
    verdicts = {AssetCheckKey(asset_key(asset), TAINT_CHECK): _verdict(*tainted) for asset, tainted in found.items()}
    report_changed(instance, verdicts, _COUNT)
    return {asset: count for asset, (count, _) in found.items()}


def _verdict(count: int, named: Sequence[str]) -> dict[str, Any]:
    # A warning: tainted partitions are red already, and nobody's launch has failed.
    return {
        "passed": count == 0,
        "severity": AssetCheckSeverity.WARN,
        "description": None if count == 0 else f"{count} tainted: {few_of(_listed(count, named))}.",
        "metadata": {_COUNT: count, "databuild/refs": MetadataValue.text("\n".join(_listed(count, named)))},
    }


def _listed(count: int, named: Sequence[str]) -> list[str]:
    return [*named, *([f"{count - len(named)} more"] if count > len(named) else [])]
