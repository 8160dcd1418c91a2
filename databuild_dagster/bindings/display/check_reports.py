"""From verdicts of asset checks to evaluations in Dagster, without a run: a tick reports those that differ from the last."""

from collections.abc import Mapping
from typing import Any

from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterInstance


def report_changed(instance: DagsterInstance, verdicts: Mapping[AssetCheckKey, Mapping[str, Any]], entry: str) -> None:
    """Report each verdict whose metadata entry is another one than in the last evaluation, or the first."""
    last = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(verdicts))
    for check, verdict in verdicts.items():
        evaluation = AssetCheckEvaluation(asset_key=check.asset_key, check_name=check.name, **verdict)
        record = last.get(check)
        event = None if record is None or record.event is None else record.event.dagster_event
        before = None if event is None else event.event_specific_data
        # A record may be of a check that is planned only.
        said = before.metadata.get(entry) if isinstance(before, AssetCheckEvaluation) else None
        if said is None or said.value != evaluation.metadata[entry].value:
            instance.report_runless_asset_event(evaluation)
