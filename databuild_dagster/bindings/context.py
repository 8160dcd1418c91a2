"""What an asset's function can ask about its build: the part of Dagster's own context that makes sense per
partition.

One job run of a launch sees one `BuildContext`. Everything it hands out is either a value of this job run or
Dagster's own object; it decides nothing.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from dagster import AssetExecutionContext, AssetKey, DagsterRun, TimeWindow
from dagster import TimeWindowPartitionsDefinition as TimeWindowPartitions

from databuild_dagster.model.refs import PartitionRef


class BuildContext:
    """The build of one partition, as its asset's function sees it."""

    def __init__(
        self,
        *,
        dagster_context: AssetExecutionContext,
        asset_key: AssetKey,
        ref: PartitionRef,
        job_run_id: str,
        session: Callable[[], Any],
        read: Callable[[tuple[str, ...]], Any],
    ) -> None:
        self._dagster_context = dagster_context
        self._asset_key = asset_key
        self._ref = ref
        self._job_run_id = job_run_id
        self._session = session
        self._read = read
        self._metadata: dict[str, Any] = {}

    @property
    def partition_key(self) -> str:
        """The key of the partition being built."""
        if self._ref.partition_key is None:
            raise ValueError(f"{self._ref} has no partitions, so its build has no partition key.")
        return self._ref.partition_key

    @property
    def has_partition_key(self) -> bool:
        return self._ref.partition_key is not None

    @property
    def partition_time_window(self) -> TimeWindow:
        """The interval of the partition being built."""
        partitions = self._dagster_context.assets_def.specs_by_key[self._asset_key].partitions_def
        if not isinstance(partitions, TimeWindowPartitions):
            raise ValueError(f"{self._ref} is not partitioned by time, so its build has no time window.")
        return partitions.time_window_for_partition_key(self.partition_key)

    @property
    def ref(self) -> PartitionRef:
        """What is being built."""
        return self._ref

    @property
    def job_run_id(self) -> str:
        """The one execution that builds it; also an id for what has to be told apart by attempt."""
        return self._job_run_id

    @property
    def asset_key(self) -> AssetKey:
        return self._asset_key

    @property
    def log(self) -> logging.Logger:
        """Dagster's log of the run."""
        return self._dagster_context.log

    @property
    def resources(self) -> Any:
        """The resources that the function's parameters name."""
        return self._dagster_context.resources

    @property
    def run(self) -> DagsterRun:
        """The Dagster run that hosts this build, and perhaps many more."""
        return self._dagster_context.run

    @property
    def spark(self) -> Any:
        """The Spark session."""
        return self._session()

    def read(self, *refs: PartitionRef | str) -> Any:
        """One Spark frame of refs known only at run time; one that is not live makes this a dep miss."""
        return self._read(tuple(str(PartitionRef.parse(str(ref))) for ref in refs))

    def add_output_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Shown with the partition's materialization in Dagster."""
        self._metadata.update(metadata)

    @property
    def output_metadata(self) -> Mapping[str, Any]:
        """What was added so far."""
        return dict(self._metadata)

    def __repr__(self) -> str:
        return f"BuildContext({self._ref}, job_run_id={self._job_run_id!r})"
