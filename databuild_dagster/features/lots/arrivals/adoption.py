"""Partitions whose files other programs have written become live, with the files listed where they are.

Everything is checked before anything is recorded: files that are missing, damaged, matched twice or of different columns
are refused in a sentence. `recording` writes the manifests and the event.

A pattern such as `/data/flights/day={partition_key}/*.parquet` is a glob around placeholders, whose values are taken literally:
`{partition_key}` is the whole key, `{dimension}` the key of a dimension, and `{partition_key:%Y/%m}` formats the start of a
time window.
"""

from __future__ import annotations

import glob
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

from databuild_dagster.bindings.registry.catalog import refs_of_dataset
from databuild_dagster.bindings.registry.registration import partitions_from
from databuild_dagster.bindings.registry.selections import refs_named
from databuild_dagster.features.lots.arrivals.recording import (
    ListedTwice,
    LiveAlready,
    NoFiles,
    NotAdoptable,
    OutsideInstance,
    Recorder,
    SaidToBeWrong,
    check_not_own,
)
from databuild_dagster.model.commands import ArriveLots
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import Arrival
from databuild_dagster.model.refs import Ref, make_ref, partition_key_of
from databuild_dagster.model.states import LEASED, InstanceState
from databuild_dagster.model.wording import counted, few_of
from databuild_dagster.spark.staging import hive_value
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.files import find_files, fingerprint_of, whole_pattern
from databuild_dagster.warehouse.manifest import FileEntry
from databuild_dagster.warehouse.threads import in_threads

#: The kinds of datasets whose partitions are not recorded by adoption.
_NOT_ADOPTABLE = {
    DatasetKind.PLAIN: "a plain Dagster asset",
    DatasetKind.SOURCE: "declared, and built elsewhere",
    DatasetKind.BOUNDARY: "a boundary, whose lots arrive",
}
_DAGSTERS = "Dagster knows what it has: materialize it there, or make it a @databuild_asset."
_INSTEAD = {
    DatasetKind.PLAIN: _DAGSTERS,
    DatasetKind.SOURCE: _DAGSTERS,
    DatasetKind.BOUNDARY: "Existing files arrive like new ones: `databuild lot arrive DATASET LOT URI…`.",
}
#: Partitions named in a message.
MAX_NAMED = 3


class IfLive(StrEnum):
    """The decision for a partition that is live with other data than the files that were found."""

    #: Nothing is recorded; the user decides which data is right.
    REFUSE = "refuse"
    #: The partition keeps its instance.
    KEEP = "keep"
    #: The files become its new instance; the old instance is kept as history.
    REPLACE = "replace"


@dataclass(slots=True)
class Adoption:
    """The result for every partition in question."""

    recorded: list[OutsideInstance] = field(default_factory=list)
    #: Live from exactly these files before.
    same: list[Ref] = field(default_factory=list)
    #: Live with other data, and left unchanged.
    kept: list[Ref] = field(default_factory=list)
    without_files: list[Ref] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Adopter(Recorder):
    """Adopts partitions of a dataset."""

    def adopt(
        self,
        pattern: str,
        partitions: Sequence[str] = (),
        *,
        if_live: IfLive = IfLive.REFUSE,
        allow_schema_change: bool = False,
        dry_run: bool = False,
    ) -> Adoption:
        """Record the named partitions, or all that have files, as live from files that match: all or none.

        Raises `NotAdoptable`, `BadFilePattern`, `UnknownPartition`, `InvalidSelection`, `NoFiles`, `ListedTwice`, `OwnFiles`, `CannotRead`,
        `ColumnsDiffer`, `SchemasDiffer`, `LiveAlready`, `SaidToBeWrong`, `BeingBuilt`, `CanonicalMoved`, and errors of
        listing and reading the files, with nothing recorded.
        """
        if self.dataset.kind is not DatasetKind.OURS:
            kind = self.dataset.kind
            raise NotAdoptable(asset=self.dataset.asset, what=_NOT_ADOPTABLE[kind], instead=_INSTEAD[kind])
        files = FilePattern(pattern, self.dataset.asset, partitions_from(self.dataset.partitions))
        refs = self._named(partitions) if partitions else refs_of_dataset(self.dataset, self.instance)
        adoption = Adoption()
        found = self._found(files, refs, adoption, all_or_none=bool(partitions))
        described = self._described(found, files, allow_schema_change=allow_schema_change)
        canonical = self.engine.queries.canonical.of([outside.ref for outside in described])
        for outside in described:
            self._sort(outside, canonical[outside.ref], if_live, adoption)
        if adoption.kept and if_live is IfLive.REFUSE:
            raise LiveAlready(named=few_of(adoption.kept, MAX_NAMED), verb="is" if len(adoption.kept) == 1 else "are")
        if not dry_run:
            uuids = self.record(adoption.recorded, canonical) if adoption.recorded else {}
            self.show(adoption.recorded, uuids, adoption.same)
        return adoption

    # Partitions and files

    def _named(self, partitions: Sequence[str]) -> list[Ref]:
        """The refs of keys and ranges (rule 2.5), each once. Raises `UnknownPartition`, `InvalidSelection`."""
        names = [make_ref(self.dataset.asset, named) for named in partitions]
        return list(
            dict.fromkeys(ref for name in names for ref in refs_named(self.dataset, name, lambda: self.instance))
        )

    def _found(
        self, pattern: FilePattern, refs: Sequence[Ref], adoption: Adoption, *, all_or_none: bool
    ) -> dict[Ref, list[tuple[str, int]]]:
        patterns = {ref: pattern.of(partition_key_of(ref)) for ref in refs}
        listed = in_threads(lambda ref: [file for one in patterns[ref] for file in find_files(one)], list(refs))
        found = dict(zip(refs, (sorted(set(files)) for files in listed), strict=True))
        adoption.without_files = [ref for ref, files in found.items() if not files]
        if adoption.without_files and (all_or_none or len(adoption.without_files) == len(refs)):
            first = adoption.without_files[0]
            raise NoFiles(named=few_of(adoption.without_files, MAX_NAMED), pattern=patterns[first][0])
        owner: dict[str, Ref] = {}
        for ref, files in found.items():
            for path, _ in files:
                if (other := owner.setdefault(path, ref)) != ref:
                    raise ListedTwice(path=path, one=other, other=ref)
        for ref, files in found.items():
            if files and (key := partition_key_of(ref)) is not None and (twin := pattern.twin_of(key)) is not None:
                raise ListedTwice(path=files[0][0], one=ref, other=make_ref(self.dataset.asset, twin))
        check_not_own(owner, self.warehouse)
        return {ref: files for ref, files in found.items() if files}

    # Contents

    def _described(
        self, found: Mapping[Ref, list[tuple[str, int]]], pattern: FilePattern, *, allow_schema_change: bool
    ) -> list[OutsideInstance]:
        def origin(ref: Ref, entries: Sequence[FileEntry]) -> str:
            where = pattern.of(partition_key_of(ref))[0]
            return f"adopted from {where} ({counted(len(entries), 'file')}, {fingerprint_of(entries)})"

        described = self.described(found, origin)
        if allow_schema_change:
            self.check_readable_together(described)
        else:
            self.check_columns(described)
        return described

    # Results

    def _sort(self, outside: OutsideInstance, now: Canonical, if_live: IfLive, adoption: Adoption) -> None:
        """A partition that was live as a plain Dagster asset has no data of ours, so its files are recorded."""
        is_same = now.origin is not None and now.origin.startswith(outside.origin)
        if now.state in LEASED:
            # Raises `BeingBuilt` with what holds the lease, unless that has just ended.
            arrival = Arrival(job_run_id=self.engine.new_id(), ref=outside.ref, origin=outside.origin)
            self.engine.preview(ArriveLots(arrivals=(arrival,)))
        if is_same and now.state is InstanceState.LIVE:
            adoption.same.append(outside.ref)
        elif is_same:
            raise SaidToBeWrong(ref=outside.ref)
        elif now.state is InstanceState.LIVE and now.manifest_uri is not None and if_live is not IfLive.REPLACE:
            adoption.kept.append(outside.ref)
        else:
            adoption.recorded.append(outside)


PARTITION_KEY = "partition_key"


class BadFilePattern(Refused):
    """The pattern {pattern!r} does not give the files of a partition of {asset}: {why}."""

    hint = "Write it as in {example}."


class FilePattern:
    """The paths of the files of each partition of an asset. Raises `BadFilePattern`."""

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
        """The globs of a partition: with its key, and with Hive's spelling of the key if that differs."""
        return list(dict.fromkeys(self._filled(partition_key, spelled) for spelled in (str, hive_value)))

    def twin_of(self, partition_key: str) -> str | None:
        """The key that a format gives the same paths: of the other hour of two hours with the same local time."""
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
