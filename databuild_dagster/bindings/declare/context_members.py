"""The members of Dagster's context that a build does not have, as a table, with what to write instead.

`docs/how-to/existing-assets.md` has all members, and a test walks both.
"""

from collections.abc import Mapping
from typing import Final

_RUN_TAGS: Final = "context.run.tags"
_KEYS: Final = "context.partition_keys"
_CONFIG: Final = "a parameter `config:` with a class of dagster.Config"
_REFS: Final = "context.refs, what this call builds"
_ROWS: Final = "nothing: the parameter has the rows of exactly these partitions"

#: Member to its replacement. Every other member is in `context.dagster_context`, for the whole Dagster run.
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
