"""The code of an asset in words: what changed since its live partitions were built, and why it is unknown (rule 4.7)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from databuild_dagster.model.datasets import CodeSpec, DatasetSpec
from databuild_dagster.model.events import DatasetRegistered, names_of
from databuild_dagster.model.wording import counted, few_of, typed
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

#: Changed functions of an asset that are named.
MAX_CHANGES: Final = 20


class PartChange(NamedTuple):
    """A function, class or constant of which two codes have different digests; None where a code does not reach it."""

    part: str
    before: str | None
    after: str | None

    @property
    def words(self) -> str:
        if self.before is None:
            return f"{self.part} is new"
        return f"{self.part} is no longer used" if self.after is None else f"{self.part} changed"


class OtherCode(msgspec.Struct, frozen=True):
    """An asset whose live partitions, or some of them, were built by other code than the present code, or whose code is unknown."""

    asset: str
    #: Live partitions of the request that other code built.
    partitions: int
    #: What changed, by function and file; empty if no registration has the earlier code.
    changes: list[str]
    #: Why the present code is unknown.
    unknown: list[str]

    @property
    def words(self) -> str:
        """A sentence for a plan."""
        said = []
        if self.partitions:
            built = "may have built" if self.unknown else "built"
            why = f": {few_of(self.changes)}" if self.changes else ""
            again = f"`databuild build --fresh {typed(self.asset)}` builds again"
            said.append(f"other code {built} {counted(self.partitions, 'live partition')}{why}; {again}")
        if self.unknown:
            said.append(f"its code is unknown, because {few_of(self.unknown)}; a code_version names it")
        return f"{self.asset}: {'; '.join(said)}."


def other_code(
    queries: Queries, datasets: Iterable[DatasetSpec], live: Mapping[str, Iterable[Canonical]]
) -> list[OtherCode]:
    """The datasets with live partitions of other code, or with unknown code. `live` are live instances by asset."""
    specs = {spec.asset: spec for spec in datasets}
    others = {
        asset: [
            one
            for one in live.get(asset, ())
            if one.origin is None and one.manifest_uri and spec.is_of_other_code(one.code_version, one.code)
        ]
        for asset, spec in specs.items()
    }
    without_version = [asset for asset, spec in specs.items() if others[asset] and spec.code_version is None]
    known = registered_codes(queries, without_version) if without_version else {}
    found = []
    for asset, spec in specs.items():
        code = spec.code or CodeSpec()
        unknown = list(code.unknown) if spec.code_version is None else []
        changes: dict[str, None] = {}
        for digest in dict.fromkeys(one.code or "" for one in others[asset]):
            before = known.get((asset, digest))
            if before is not None and code.parts:
                changes.update(dict.fromkeys(change.words for change in changed_parts(before, code)))
        if others[asset] or unknown:
            found.append(OtherCode(asset, len(others[asset]), list(changes)[:MAX_CHANGES], unknown))
    return found


def changed_parts(before: CodeSpec, after: CodeSpec) -> list[PartChange]:
    """The functions, classes and constants in which two codes differ, those of the later code first."""
    old, new = dict(before.parts), dict(after.parts)
    names = dict.fromkeys([*new, *old])
    return [PartChange(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def registered_codes(queries: Queries, assets: Iterable[str]) -> dict[tuple[str, str], CodeSpec]:
    """Every code that datasets were registered with, by asset and digest. Reads every registration of the log."""
    named = set(assets)
    events = queries.events.named(names_of(DatasetRegistered), 0, queries.events.head().seq)
    return {
        (spec.asset, spec.code.digest): spec.code
        for event in events
        if isinstance(event.fact, DatasetRegistered)
        for spec in event.fact.datasets
        if spec.asset in named and isinstance(spec.code, CodeSpec) and spec.code.digest is not None
    }
