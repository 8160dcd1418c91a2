"""The sources of an asset's arc, checked at import (rule 10.5)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagster import AssetDep, AssetKey

from databuild_dagster.bindings.declare.parameters import InvalidAsset

#: A source: the name of a DataFrame parameter or of an asset, an asset, or an `AssetDep` with a partition mapping.
Source = Any


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
