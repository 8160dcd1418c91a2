"""What wakes an asset by itself, as its author writes it, checked at import (SPEC 10.5)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagster import AssetDep, AssetKey

from databuild_dagster.bindings.declare.parameters import InvalidAsset

#: One source: the name of a DataFrame parameter or of an asset, an asset, or an `AssetDep` with a partition mapping.
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
    """The sources of an asset's arc, each with the mapping of the declared input if it is one. Raises `InvalidAsset`."""
    declared = {dep.asset_key: dep for dep in deps}
    if skip_empty and not declared:
        raise InvalidAsset(f"Asset {asset_name!r} has no inputs that could be empty; leave skip_empty out.")
    given = [] if subscribe is None else _listed(subscribe)
    if subscribe is not None and not given:
        raise InvalidAsset(f"subscribe of asset {asset_name!r} names nothing; name its sources, or leave it out.")
    if follow_late and not given:
        raise InvalidAsset(f"Asset {asset_name!r} follows nothing late; say what wakes it by subscribe=.")
    found: dict[AssetKey, AssetDep] = {}
    for each in given:
        dep = _source(asset_name, each, upstreams)
        if dep.asset_key in found:
            raise InvalidAsset(f"subscribe of asset {asset_name!r} names {dep.asset_key.to_user_string()!r} twice.")
        if dep.asset_key in own_keys:
            raise InvalidAsset(f"Asset {asset_name!r} subscribes to itself; it would never come to an end.")
        if dep.asset_key in declared and dep.partition_mapping is not None:
            raise InvalidAsset(
                f"subscribe of asset {asset_name!r} maps {dep.asset_key.to_user_string()!r} once more; "
                "its input has a mapping, so name the asset alone."
            )
        found[dep.asset_key] = declared.get(dep.asset_key, dep)
    return tuple(found.values())


def _listed(subscribe: Source | Sequence[Source]) -> list[Source]:
    """By its very type: what Dagster names assets with are tuples too."""
    return list(subscribe) if type(subscribe) in (list, tuple) else [subscribe]


def _source(asset_name: str, given: Source, upstreams: Mapping[str, AssetKey]) -> AssetDep:
    if isinstance(given, str):
        # As its parameter is called, or as refs name it.
        return AssetDep(upstreams.get(given) or AssetKey.from_user_string(given))
    try:
        return AssetDep.from_coercible(given)
    except Exception as error:  # Dagster raises several kinds here, none of them documented.
        raise InvalidAsset(
            f"subscribe of asset {asset_name!r} has {given!r}, which names no asset; give its name."
        ) from error
