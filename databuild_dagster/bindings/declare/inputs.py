"""The declared inputs of an asset, checked at import: their filters (rule 9.8), and the sources of its arc (rule 10.5).

`ins` has the condition of a filter, as `AssetIn(metadata={"where": "carrier = 'AA'"})`. It restricts the rows that are
read and, with an index, the files. Lineage does not record it, because the whole instance is the input.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dagster import AssetDep, AssetIn, AssetKey

from databuild_dagster.bindings.declare.parameters import InvalidAsset, Parameter, ParameterKind
from databuild_dagster.warehouse.filters import BadFilter, FilterLibraryMissing, parsed_filter

#: A source: the name of a DataFrame parameter or of an asset, an asset, or an `AssetDep` with a partition mapping.
Source = Any

#: The key of a filter in the metadata of an `AssetIn`.
WHERE: Final = "where"


def filters_of(asset_name: str, ins: Mapping[str, AssetIn], parameters: Iterable[Parameter]) -> dict[str, str]:
    """Parameter to its condition, of the parameters with a condition. Raises `InvalidAsset`."""
    by_spark = {parameter.name for parameter in parameters if parameter.kind is ParameterKind.SPARK_FRAME}
    return {
        parameter: _checked(asset_name, parameter, given.metadata[WHERE], spark_decides=parameter in by_spark)
        for parameter, given in ins.items()
        if given.metadata is not None and WHERE in given.metadata
    }


def _checked(asset_name: str, parameter: str, where: Any, *, spark_decides: bool) -> str:
    if not isinstance(where, str):
        raise InvalidAsset(
            f"ins of asset {asset_name!r} filters {parameter!r} by {where!r}; "
            "write a condition of Spark's SQL as text, as in metadata={'where': \"carrier = 'AA'\"}."
        )
    try:
        parsed_filter(where)
    except BadFilter as bad:
        if spark_decides and isinstance(bad, FilterLibraryMissing):
            return where
        raise InvalidAsset(f"ins of asset {asset_name!r}, input {parameter!r}: {bad}") from bad
    return where


def subscriptions_of(
    asset_name: str,
    subscribe: Source | Sequence[Source] | None,
    upstreams: Mapping[str, AssetKey],
    deps: Iterable[AssetDep],
    own_keys: Iterable[AssetKey],
    *,
    follow_late: bool,
    skip_empty: bool,
) -> tuple[AssetDep, ...]:
    """The sources of an asset's arc. A declared input keeps its partition mapping. Raises `InvalidAsset`."""
    declared = {dep.asset_key: dep for dep in deps}
    if skip_empty and not declared:
        raise InvalidAsset(f"Asset {asset_name!r} has no inputs that could be empty; leave skip_empty out.")
    given = [] if subscribe is None else _listed(subscribe)
    if subscribe is not None and not given:
        raise InvalidAsset(f"subscribe of asset {asset_name!r} names nothing; name its sources, or leave it out.")
    if follow_late and not given:
        raise InvalidAsset(f"Asset {asset_name!r} has follow_late and no sources; name its sources by subscribe=.")
    found: dict[AssetKey, AssetDep] = {}
    for source in given:
        dep = _source(asset_name, source, upstreams)
        if dep.asset_key in found:
            raise InvalidAsset(
                f"subscribe of asset {asset_name!r} names {dep.asset_key.to_user_string()!r} twice; name it once."
            )
        if dep.asset_key in own_keys:
            raise InvalidAsset(
                f"Asset {asset_name!r} subscribes to itself and would never end; leave it out of subscribe."
            )
        if dep.asset_key in declared and dep.partition_mapping is not None:
            raise InvalidAsset(
                f"subscribe of asset {asset_name!r} maps {dep.asset_key.to_user_string()!r}, whose input has a mapping; "
                "name the asset alone."
            )
        found[dep.asset_key] = declared.get(dep.asset_key, dep)
    return tuple(found.values())


def _listed(subscribe: Source | Sequence[Source]) -> list[Source]:
    """The sources as a list. The exact type counts, because some of Dagster's asset names are tuples."""
    return list(subscribe) if type(subscribe) in (list, tuple) else [subscribe]


def _source(asset_name: str, given: Source, upstreams: Mapping[str, AssetKey]) -> AssetDep:
    if isinstance(given, str):
        # The name of its parameter, or its asset key.
        return AssetDep(upstreams.get(given) or AssetKey.from_user_string(given))
    try:
        return AssetDep.from_coercible(given)
    except Exception as error:  # Dagster raises several undocumented kinds here.
        raise InvalidAsset(
            f"subscribe of asset {asset_name!r} has {given!r}, which names no asset; give its name."
        ) from error
