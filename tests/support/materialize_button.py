"""The button Materialize of Dagster's web page, as the GraphQL request that it sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""


def launch_params(asset: str, keys: Sequence[str | None]) -> dict[str, Any]:
    """`params` of `LAUNCH` for an asset of `definitions.py`: without a partition, for one, or for the range that keys begin and end."""
    tags = {"dagster/partition": keys[0]} if keys else {}
    if len(keys) > 1:
        tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
    return {
        "selector": {
            "repositoryLocationName": "definitions.py",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [asset]}],
            "assetCheckSelection": [],
        },
        "mode": "default",
        "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        "runConfigData": "{}",
    }
