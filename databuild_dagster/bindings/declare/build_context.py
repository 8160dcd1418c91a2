"""`BuildContext`: the part of Dagster's context that has a meaning for a call of an asset's function.

A call builds a partition or a batch. The context returns values of the call or Dagster's objects; it decides nothing.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagster import AssetExecutionContext, AssetKey, DagsterInstance, DagsterRun, TimeWindow
from dagster import TimeWindowPartitionsDefinition as TimeWindowPartitions

from databuild_dagster.bindings.adapter.keys import asset_key
from databuild_dagster.bindings.declare.outcomes import storable, texts_of
from databuild_dagster.model.refs import AnyRef, PartitionRef, Ref, asset_of, parse_ref, partition_key_of


@dataclass(frozen=True, slots=True)
class HostedRun:
    """A job run that a step executes: the outputs of a partition key that are to be built (rule 6.2)."""

    id: str
    refs: tuple[Ref, ...]
    #: Its number among the attempts of its refs (rule 10.2).
    attempt: int = 1

    @property
    def partition_key(self) -> str | None:
        return partition_key_of(self.refs[0])


class BuildContext:
    """The build of a partition or of a batch, for the asset's function."""

    def __init__(
        self,
        *,
        dagster_context: AssetExecutionContext,
        runs: Sequence[HostedRun],
        output_names: Mapping[str, str | None],
        is_batched: bool = False,
        session: Callable[[], Any],
        read: Callable[[tuple[Ref, ...]], Any],
    ) -> None:
        self._dagster_context = dagster_context
        self._runs = tuple(runs)
        #: Asset to the author's name of the output, None for a single asset.
        self._output_names = output_names
        self._is_batched = is_batched
        self._session = session
        self._read = read
        self._metadata: dict[Ref, dict[str, Any]] = {}

    @property
    def partition_key(self) -> str:
        """The key of the partition being built. Raises ValueError for an unpartitioned asset and for a batch, even of one key."""
        if self._is_batched:
            raise ValueError(f"{self} is built in a batch of {len(self._runs)}; use context.partition_keys.")
        return self.partition_keys[0]

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The keys of the partitions being built, a single key unless the asset is batched. Raises ValueError without any key."""
        if not self.has_partition_key:
            raise ValueError(f"{self} has no partitions, so its build has no partition key.")
        return tuple(run.partition_key for run in self._runs if run.partition_key is not None)

    @property
    def has_partition_key(self) -> bool:
        """Whether the asset has partitions."""
        return self._runs[0].partition_key is not None

    @property
    def partition_time_window(self) -> TimeWindow:
        """The interval being built; of a batch, from its first partition's start to its last partition's end."""
        key = asset_key(asset_of(self._runs[0].refs[0]))
        partitions = self._dagster_context.assets_def.specs_by_key[key].partitions_def
        if not isinstance(partitions, TimeWindowPartitions):
            raise ValueError(f"{self} is not partitioned by time, so its build has no time window.")
        windows = [partitions.time_window_for_partition_key(key) for key in self.partition_keys]
        return TimeWindow(min(window.start for window in windows), max(window.end for window in windows))

    @property
    def refs(self) -> tuple[PartitionRef, ...]:
        """The refs being built. Rows of other refs are not kept."""
        return tuple(PartitionRef.parse(ref) for run in self._runs for ref in run.refs)

    @property
    def ref(self) -> PartitionRef:
        """The ref being built. Raises ValueError for several."""
        if len(self.refs) > 1:
            raise ValueError(f"{self} builds {len(self.refs)} refs at once; use context.refs.")
        return self.refs[0]

    @property
    def job_run_id(self) -> str:
        """The id of the job run, unique per attempt; of a batch, the id of its first job run."""
        return self._runs[0].id

    @property
    def asset_key(self) -> AssetKey:
        """The asset being built. Raises ValueError for a multi-asset."""
        assets = {asset_of(ref) for run in self._runs for ref in run.refs}
        if len(self._output_names) > 1:
            raise ValueError(f"{self} is one of several assets: {', '.join(sorted(assets))}; use context.refs.")
        return asset_key(assets.pop())

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
        """The Dagster run that hosts this build, and possibly many more builds."""
        return self._dagster_context.run

    @property
    def run_id(self) -> str:
        """The id of the Dagster run that hosts this build."""
        return self.run.run_id

    @property
    def job_name(self) -> str:
        """The name of the Dagster job of that run."""
        return self.run.job_name

    @property
    def instance(self) -> DagsterInstance:
        """The Dagster instance, for example to add dynamic partitions."""
        instance: DagsterInstance = self._dagster_context.instance
        return instance

    @property
    def spark(self) -> Any:
        """The Spark session."""
        return self._session()

    def read(self, *refs: AnyRef | Iterable[AnyRef]) -> Any:
        """A Spark frame of refs that are known only at run time, all of the same asset.

        The lineage records the refs. If any ref is not live, this build is a dep miss: the refs are built, and then the function
        is called again (rule 6.3). Raises ValueError for no refs, or refs of several assets.
        """
        texts = texts_of(refs)
        assets = sorted({asset_of(text) for text in texts})
        if len(assets) != 1:
            given = f"refs of {' and '.join(assets)}" if assets else "no refs"
            raise ValueError(f"context.read(…) of {self} was given {given}; give it refs of one asset at a time.")
        return self._read(texts)

    def add_output_metadata(
        self, metadata: Mapping[str, Any], *, output_name: str | None = None, partition_key: str | None = None
    ) -> None:
        """Add metadata to the materializations of this call in Dagster.

        The first 20 finite numbers are recorded with the output, too, so that the page of the asset's numbers has a chart of each.

        It applies to every partition and output of the call unless a name selects some. Raises ValueError for a name that the
        call does not build, and `InvalidMetadata` for a value that Dagster cannot store.
        """
        chosen = [
            ref
            for run in self._runs
            for ref in run.refs
            if partition_key in (None, partition_key_of(ref))
            and output_name in (None, self._output_names[asset_of(ref)])
        ]
        if not chosen and (partition_key is not None or output_name not in self._output_names.values()):
            named = " and ".join(repr(name) for name in (output_name, partition_key) if name is not None)
            raise ValueError(f"add_output_metadata of {self} names {named}, which this call does not build.")
        storable(metadata, str(self))
        for ref in chosen:
            self._metadata.setdefault(ref, {}).update(metadata)

    def output_metadata(self, ref: AnyRef) -> Mapping[str, Any]:
        """The metadata added for a ref so far."""
        return dict(self._metadata.get(parse_ref(ref), {}))

    @property
    def dagster_context(self) -> AssetExecutionContext:
        """Dagster's own context, of the whole step: its partitions are all partitions of the Dagster run, which may be many."""
        return self._dagster_context

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError, with the way to what Dagster's context has and a build has not."""
        if name.startswith("_") or not hasattr(AssetExecutionContext, name):
            raise AttributeError(f"BuildContext has no attribute {name!r}.")
        instead = f"write {INSTEAD[name]}; " if name in INSTEAD else ""
        raise AttributeError(
            f"context.{name} is not known for one build of a Dagster run that may host many; {instead}of the whole run it is "
            f"context.dagster_context.{name}."
        )

    def __str__(self) -> str:
        first = self._runs[0].refs[0]
        return first if len(self._runs) == 1 else f"{first} …"

    def __repr__(self) -> str:
        return f"BuildContext({self}, job_run_id={self.job_run_id!r})"


_RUN_TAGS: Final = "context.run.tags"
_KEYS: Final = "context.partition_keys"
_CONFIG: Final = "a parameter `config:` with a class of dagster.Config"
_REFS: Final = "context.refs, what this call builds"
_ROWS: Final = "nothing: the parameter has the rows of exactly these partitions"

#: The members of Dagster's context that a build does not have, with what to write instead. `docs/how-to/existing-assets.md` has all
#: members, and a test walks both. Every other member is in `context.dagster_context`, for the whole Dagster run.
INSTEAD: Final[Mapping[str, str]] = {
    "add_asset_metadata": "context.add_output_metadata",
    "asset_key_for_output": "context.asset_key",
    "asset_partition_key_for_input": _ROWS,
    "asset_partition_key_for_output": "context.partition_key",
    "asset_partition_key_range": _KEYS,
    "asset_partition_key_range_for_input": _ROWS,
    "asset_partition_key_range_for_output": _KEYS,
    "asset_partition_keys_for_input": _ROWS,
    "asset_partition_keys_for_output": _KEYS,
    "asset_partitions_time_window_for_input": _ROWS,
    "asset_partitions_time_window_for_output": "context.partition_time_window",
    "dagster_run": "context.run",
    "get_tag": _RUN_TAGS,
    "has_partition_key_range": "context.has_partition_key",
    "has_tag": _RUN_TAGS,
    "is_subset": _REFS,
    "load_asset_value": "a parameter annotated with a frame, or context.read(ref)",
    "multi_partition_key": "context.partition_key, which is text: a key of each dimension, joined by |",
    "op_config": _CONFIG,
    "partition_key_range": _KEYS,
    "run_config": _CONFIG,
    "run_tags": _RUN_TAGS,
    "selected_asset_keys": _REFS,
    "selected_output_names": _REFS,
    "set_data_version": "nothing: the data version is the uuid of the instance",
}
