"""Assets as their authors wrote them become assets as a project shows them: other keys, groups, owners, tags.

A translator returns a spec for each spec. Everything that has the key follows it: deps of other assets, upstreams of
parameters (found by Dagster's input names, which stay), checks, outputs, and the records of the store. Deps and
partitions belong to the function, so a translator cannot change them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagster import AssetChecksDefinition, AssetDep, AssetKey, AssetsDefinition, AssetSpec, SourceAsset

from databuild_dagster.bindings.adapter.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.adapter.keys import IO_MANAGER, asset_text, specs_of
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import asset_settings
from databuild_dagster.model.errors import InvalidRef


class DatabuildTranslator:
    """The look in Dagster of assets given to `build_definitions(…, translator=…)`; override `get_asset_spec`."""

    def get_asset_spec(self, spec: AssetSpec) -> AssetSpec:
        """The spec of an asset, or of an output of a multi-asset: `spec`, or a changed copy.

        Key, group, description, tags, kinds, owners, metadata, code version and automation condition may change; deps
        follow translated keys. Changed deps or partitions, and two assets with the same key, raise `InvalidAsset`.
        """
        return spec

    def __str__(self) -> str:
        """Its name in error messages."""
        return f"{type(self).__name__}.get_asset_spec"


def translated(
    translator: DatabuildTranslator | None, assets: Iterable[Any], asset_checks: Iterable[AssetChecksDefinition]
) -> tuple[Sequence[Any], Sequence[AssetChecksDefinition]]:
    """All assets and checks, unchanged without a translator. Raises `InvalidAsset`."""
    given = list(assets)
    if translator is None:
        return (given, list(asset_checks))
    by_key: dict[AssetKey, AssetSpec] = {}
    for asset in given:
        for spec in specs_of(asset):
            by_key[spec.key] = _checked(translator, spec, is_ours=_is_ours(asset))
    _refuse_two_with_one_key(by_key)
    keys = {old: new.key for old, new in by_key.items() if new.key != old}
    with quiet_beta_warnings():
        return ([_asset(asset, by_key, keys) for asset in given], [_check(check, keys) for check in asset_checks])


def _is_ours(asset: Any) -> bool:
    return isinstance(asset, AssetsDefinition) and body_of(asset) is not None


def _checked(translator: DatabuildTranslator, spec: AssetSpec, *, is_ours: bool) -> AssetSpec:
    name = spec.key.to_user_string()
    new = translator.get_asset_spec(spec)
    if not isinstance(new, AssetSpec):
        raise InvalidAsset(
            f"{translator} answered {new!r} for {name!r}; return an AssetSpec, for example the one it was given."
        )
    try:
        asset_text(new.key)
    except InvalidRef as error:
        raise InvalidAsset(
            f"{translator} gives {name!r} the key {new.key.to_user_string()!r}: {error.message}"
        ) from error
    if new.partitions_def != spec.partitions_def:
        raise InvalidAsset(
            f"{translator} changes the partitions of {name!r}, which its function is written for; leave them."
        )
    if _deps(new) != _deps(spec):
        raise InvalidAsset(
            f"{translator} changes the deps of {name!r}; they belong to its function, and follow translated keys by themselves."
        )
    if is_ours:
        # A new spec, or one with other metadata, would have lost these.
        new = new.replace_attributes(skippable=True).with_io_manager_key(IO_MANAGER)
    keys = [key for setting in asset_settings().values() for key in setting.keys]
    if own := {key: spec.metadata[key] for key in keys if key in spec.metadata}:
        new = new.replace_attributes(metadata={**new.metadata, **own})
    return new


def _deps(spec: AssetSpec) -> dict[AssetKey, Any]:
    return {dep.asset_key: dep.partition_mapping for dep in spec.deps}


def _refuse_two_with_one_key(by_key: Mapping[AssetKey, AssetSpec]) -> None:
    first_of: dict[AssetKey, AssetKey] = {}
    for old, spec in by_key.items():
        first = first_of.setdefault(spec.key, old)
        if first != old:
            raise InvalidAsset(
                f"{first.to_user_string()!r} and {old.to_user_string()!r} are both translated to "
                f"{spec.key.to_user_string()!r}; give each asset a key of its own."
            )


def _asset(asset: Any, by_key: Mapping[AssetKey, AssetSpec], keys: Mapping[AssetKey, AssetKey]) -> Any:
    match asset:
        case AssetsDefinition():
            renamed = asset.with_attributes(asset_key_replacements=keys)
            specs = [_with_deps(by_key[spec.key], keys) for spec in asset.specs]
            if _is_ours(asset) and len({spec.code_version for spec in specs}) > 1:
                raise InvalidAsset(
                    f"The outputs of {asset.node_def.name!r} are translated to several code versions; one function has one."
                )
            by_new_key = {spec.key: spec for spec in specs}
            return renamed.map_asset_specs(lambda spec: by_new_key[spec.key])
        case AssetSpec():
            return _with_deps(by_key[asset.key], keys)
        case SourceAsset():
            return asset.with_attributes(key=keys.get(asset.key, asset.key))
        case _:
            return asset


def _check(check: AssetChecksDefinition, keys: Mapping[AssetKey, AssetKey]) -> AssetChecksDefinition:
    attributes = check.with_attributes(asset_key_replacements=keys).get_attributes_dict()
    # Dagster forgets these where it replaces keys.
    specs = {
        output: spec._replace(additional_deps=_renamed(spec.additional_deps, keys))
        for output, spec in attributes["check_specs_by_output_name"].items()
    }
    return AssetChecksDefinition(**{**attributes, "check_specs_by_output_name": specs})


def _renamed(deps: Iterable[AssetDep], keys: Mapping[AssetKey, AssetKey]) -> list[AssetDep]:
    return [dep._replace(asset_key=keys.get(dep.asset_key, dep.asset_key)) for dep in deps]


def _with_deps(spec: AssetSpec, keys: Mapping[AssetKey, AssetKey]) -> AssetSpec:
    return spec.replace_attributes(deps=_renamed(spec.deps, keys))
