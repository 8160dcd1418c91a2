"""Patterns such as `/data/flights/day={partition_key}/*.parquet`, and the paths that they mean for a partition key.

The text around the placeholders is a glob; the values of placeholders are taken literally. `{partition_key}` is the whole
key, `{dimension}` the key of one dimension, and `{partition_key:%Y/%m}` formats the start of a time window.
"""

import glob
import string
from collections.abc import Callable, Iterator
from datetime import datetime

from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

from databuild_dagster.model.errors import Refused
from databuild_dagster.spark.staging import hive_value
from databuild_dagster.warehouse.outside import whole_pattern

PARTITION_KEY = "partition_key"


class BadFilePattern(Refused):
    """The pattern {pattern!r} does not give the files of a partition of {asset}: {why}."""

    hint = "Write it as in {example}."


class FilePattern:
    """The paths of the files of each partition of one asset. Raises `BadFilePattern`."""

    def __init__(self, pattern: str, asset: str, partitions: PartitionsDefinition | None) -> None:
        self.text = pattern
        self._asset = asset
        self._partitions = partitions
        try:
            #: Text before a placeholder, the placeholder's name and its format.
            self._parts = list(string.Formatter().parse(whole_pattern(pattern)))
        except ValueError as error:
            raise self._bad(f"{error}; write a literal brace twice") from error
        self._check()

    def of(self, partition_key: str | None) -> list[str]:
        """The globs of one partition: with its key, and with Hive's spelling of the key if that differs."""
        return list(dict.fromkeys(self._filled(partition_key, spelled) for spelled in (str, hive_value)))

    def twin_of(self, partition_key: str) -> str | None:
        """The key with the same paths by a format: of the other hour of two that the clocks show under one local time."""
        partitions = self._partitions
        if not isinstance(partitions, TimeWindowPartitionsDefinition):
            return None
        start: datetime = partitions.start_time_for_partition_key(partition_key)
        other = start.replace(fold=1 - start.fold)
        if start.utcoffset() == other.utcoffset():
            return None
        twin = partitions.get_partition_key_for_timestamp(other.timestamp())
        return twin if twin != partition_key and self.of(twin) == self.of(partition_key) else None

    def _filled(self, partition_key: str | None, spelled: Callable[[str], str]) -> str:
        return "".join(
            literal + ("" if name is None else glob.escape(spelled(self._value(name, spec or "", partition_key))))
            for literal, name, spec, _ in self._parts
        )

    def _value(self, name: str, spec: str, partition_key: str | None) -> str:
        assert partition_key is not None, "a pattern with placeholders is one for partitions"
        key, partitions = partition_key, self._partitions
        if name != PARTITION_KEY:
            assert isinstance(partitions, MultiPartitionsDefinition), "checked when the pattern was made"
            key = partitions.get_partition_key_from_str(partition_key).keys_by_dimension[name]
            partitions = partitions.get_partitions_def_for_dimension(name)
        if not spec:
            return key
        assert isinstance(partitions, TimeWindowPartitionsDefinition), "checked when the pattern was made"
        start: datetime = partitions.start_time_for_partition_key(key)
        return start.strftime(spec)

    def _check(self) -> None:
        named = list(self._placeholders())
        dimensions = self._dimensions()
        if self._partitions is None and named:
            raise self._bad("the asset has no partitions, so it can have no placeholder")
        for name, spec in named:
            if name != PARTITION_KEY and name not in dimensions:
                raise self._bad(f"{{{name}}} is neither {{partition_key}} nor one of its dimensions")
            kind = self._partitions if name == PARTITION_KEY else dimensions[name]
            if spec and not isinstance(kind, TimeWindowPartitionsDefinition):
                raise self._bad(f"{{{name}:{spec}}} has a format, and only partitions in time have a date")
        names = {name for name, _ in named}
        if self._partitions is not None and PARTITION_KEY not in names and (absent := [*(dimensions.keys() - names)]):
            raise self._bad(f"{', '.join(f'{{{name}}}' for name in sorted(absent))} is not in it")
        if self._partitions is not None and not names:
            raise self._bad("all partitions would have the same files")

    def _placeholders(self) -> Iterator[tuple[str, str]]:
        for _, name, spec, conversion in self._parts:
            if name is not None:
                if conversion is not None:
                    raise self._bad(f"!{conversion} means nothing here")
                yield name, spec or ""

    def _dimensions(self) -> dict[str, PartitionsDefinition]:
        if not isinstance(self._partitions, MultiPartitionsDefinition):
            return {}
        return {dimension.name: dimension.partitions_def for dimension in self._partitions.partitions_defs}

    def _bad(self, why: str) -> BadFilePattern:
        if self._partitions is None:
            example = "--files '/data/airlines/*.parquet'"
        elif dimensions := self._dimensions():
            folders = "/".join(f"{name}={{{name}}}" for name in dimensions)
            example = f"--files '/data/flights/{folders}/*.parquet'"
        else:
            example = "--files '/data/flights/day={partition_key}/*.parquet'"
        return BadFilePattern(pattern=self.text, asset=self._asset, why=why, example=example)
