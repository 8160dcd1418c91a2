"""Second builds of `build --fresh --verify`, compared with the earlier instances that could have come back instead (rule 4.9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from databuild_dagster.engine.ports import Sample
from databuild_dagster.model.decide.returning import is_deterministic
from databuild_dagster.model.errors import DatabuildError, InvalidRequest
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.wording import typed

if TYPE_CHECKING:
    from databuild_dagster.model.datasets import DatasetSpec
    from databuild_dagster.store.queries.instances import Instance, SecondBuild
    from databuild_dagster.store.queries.queries import Queries

#: Inputs of two instances that are compared.
MAX_INPUTS: Final = 10_000


class NotDeterministic(DatabuildError):
    """The deterministic=True of {asset!r} is wrong: {ref} has other rows in instance {second} than in {first}, of equal code and inputs."""

    hint = (
        "`databuild diff {ref} --from {first} --to {second}` compares them. Remove the option, or what the rows follow besides: "
        "a clock, chance, an order of rows, data from outside."
    )


class ComparedBuild(msgspec.Struct, frozen=True):
    """A ref that was built a second time: its earlier instance, its new one if it is live, and whether their rows are equal."""

    ref: Ref
    first: str
    second: str | None
    outcome: Literal["equal", "different", "not compared"]
    #: The reason of `not compared`.
    why: str | None = None

    @property
    def error(self) -> NotDeterministic:
        """The error of different rows."""
        return NotDeterministic(asset=asset_of(self.ref), ref=typed(self.ref), first=self.first, second=self.second)


def checked_sample(verify: object, *, fresh: bool, rebuild: bool) -> Sample | None:
    """The sample of a build, None without the option. Raises `InvalidRequest`."""
    if verify is None:
        return None
    # NaN is no part either.
    if not isinstance(verify, int | float) or not 0 < verify <= 1:
        why = "give the part of the refs that is built a second time, above 0 and at most 1, such as 0.01"
        raise InvalidRequest(what="verify", value=verify, why=why)
    if not fresh or rebuild:
        why = "it samples what --fresh takes back; add --fresh, and leave out --rebuild and --downstream, which build every ref"
        raise InvalidRequest(what="verify", value=verify, why=why)
    return Sample(verify)


def compared_builds(queries: Queries, refs: Iterable[Ref]) -> list[ComparedBuild]:
    """The second builds of refs that stand, each compared by the content hash of its rows; files are read where no build recorded it."""
    found = []
    for build in queries.instances.second_builds(refs):
        spec = queries.datasets.get(asset_of(build.ref))
        if spec is not None and is_deterministic(spec):
            found.append(_compared(queries, spec, build))
    return found


def _compared(queries: Queries, spec: DatasetSpec, build: SecondBuild) -> ComparedBuild:
    try:
        first, second = _hashes(queries, spec, build)
    except _NotComparedError as why:
        return ComparedBuild(*build, "not compared", str(why))
    return ComparedBuild(*build, "equal" if first == second else "different")


class _NotComparedError(Exception):
    """The two cannot be compared; the text says why."""


def _hashes(queries: Queries, spec: DatasetSpec, build: SecondBuild) -> tuple[str, str]:
    """Of the two instances, by one implementation. Raises `_NotComparedError`."""
    if build.second is None:
        raise _NotComparedError("its second build is not live")
    uuids = (build.first, build.second)
    known = {instance.uuid: instance for instance in queries.instances.named(uuids)}
    made_with = queries.instances.made_with(uuids)
    codes = [(known[uuid].code_version, made_with[uuid].code if uuid in made_with else None) for uuid in uuids]
    if not all(spec.is_of_this_code(*code) for code in codes):
        raise _NotComparedError("its code was changed meanwhile")
    counts, pairs = queries.instances.input_differences(*uuids, MAX_INPUTS)
    if sum(counts) > len(pairs) or not all(pair.is_same_rows for pair in pairs):
        raise _NotComparedError("its inputs were changed meanwhile")
    recorded = queries.instances.content_hashes(uuids)
    if len({text.partition(":")[0] for text in recorded.values()}) == 1 and len(recorded) == len(uuids):
        return recorded[build.first], recorded[build.second]
    return _computed(spec, known[build.first]), _computed(spec, known[build.second])


def _computed(spec: DatasetSpec, instance: Instance) -> str:
    """Raises `_NotComparedError`."""
    from databuild_dagster.bindings.declare.settings import content_hash_of
    from databuild_dagster.warehouse.layout import Warehouse
    from databuild_dagster.warehouse.manifest import read_manifest

    if instance.manifest_uri is None or instance.manifest_state == REMOVED:
        raise _NotComparedError(f"the data of instance {instance.uuid} was removed")
    try:
        warehouse = Warehouse.of_manifest(instance.manifest_uri, spec.asset)
        manifest = read_manifest(warehouse, spec.asset, instance.uuid)
        found = content_hash_of(msgspec.structs.replace(spec, same_data=True), warehouse, manifest)
    except (DatabuildError, OSError) as error:
        raise _NotComparedError(f"the files of instance {instance.uuid} cannot be read: {error}") from error
    if found is None:
        raise _NotComparedError(f"the rows of instance {instance.uuid} have no content hash; the log says why")
    return found


def verified_in_words(builds: Sequence[ComparedBuild], *, n_returned: int) -> str:
    """What a build with `--verify` has found, apart from different rows, which are errors."""
    from databuild_dagster.model.wording import counted, few_of

    if not builds:
        why = "another process took them back" if n_returned else "no earlier instance could come back"
        return f" Nothing was built a second time: {why}."
    n_equal = sum(build.outcome == "equal" for build in builds)
    found = f" {counted(len(builds), 'ref')} built a second time"
    unknown = [f"{build.ref} ({build.why})" for build in builds if build.outcome == "not compared"]
    n_different = len(builds) - n_equal - len(unknown)
    parts = [f"{n_equal} with equal rows"] * bool(n_equal) + [f"{n_different} with other rows"] * bool(n_different)
    return f"{found}: {', '.join([*parts, *([f'not compared {few_of(unknown, 3)}'] if unknown else [])])}."
