"""The arguments of Dagster's `@asset` and `@multi_asset` that mean nothing here, as tables, with what to write instead.

They are refused where the asset is declared. `docs/how-to/existing-assets.md` has all arguments, and a test walks both.
"""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from inspect import isroutine
from typing import Any, Final, TypedDict

from dagster import AssetDep, AssetIn, AssetKey, AssetSpec, PartitionsDefinition

from databuild_dagster.bindings.declare.parameters import InvalidAsset

_TO_EACH_SPEC: Final = "give it to each AssetSpec in outs="
_FILES: Final = (
    "databuild keeps the frame of each build as files of its own; a plain @asset may read it and store it elsewhere"
)

#: Arguments that both of Dagster's decorators have and ours refuse, with what to write instead.
_OF_BOTH: Final[Mapping[str, str]] = {
    "check_specs": "write a separate @asset_check, or give blocking_checks=",
    "config_schema": "annotate a parameter `config:` with a class of dagster.Config",
    "resource_defs": "give resources= to build_definitions",
    "retry_policy": "raise Transient where a retry may help",
}

#: Arguments of `@asset` that `@databuild_asset` refuses.
REFUSED: Final[Mapping[str, str]] = {
    **_OF_BOTH,
    "auto_materialize_policy": "give automation_condition=",
    "compute_kind": "give kinds={…}",
    "dagster_type": "annotate what the function returns, and give blocking_checks= for its rows",
    "io_manager_def": _FILES,
    "io_manager_key": _FILES,
    "is_virtual": "an asset that keeps no data is a plain @asset",
    "legacy_freshness_policy": "give freshness_policy=",
    "non_argument_deps": "give deps=",
    "output_required": "return EMPTY where a partition has no rows",
}

#: Arguments of `@multi_asset` that `@databuild_multi_asset` refuses.
REFUSED_OF_MULTI: Final[Mapping[str, str]] = {
    **_OF_BOTH,
    "can_subset": "each output can be wanted and built by itself; leave it out",
    "code_version": _TO_EACH_SPEC,
    "description": _TO_EACH_SPEC,
    "group_name": _TO_EACH_SPEC,
    "internal_asset_deps": "give deps= to each AssetSpec in outs=; what one output needs of another is an asset of its own",
    "specs": "give outs={'orders': AssetSpec('orders'), …}, and return a dict with a frame for each name",
}


_A_LIST: Final = "deps=[…], a list of assets, of their keys or of AssetDep(…)"
#: The options whose kind is checked, with what to write.
_INSTEAD: Final[Mapping[str, str]] = {
    "deps": _A_LIST,
    "ins": "ins={'orders': AssetIn('orders')}, a dict from a parameter to its asset",
    "outs": "outs={'orders': AssetSpec('orders'), …}, a dict from each output's name to its asset",
    "partitions_def": "a definition such as DailyPartitionsDefinition('2024-01-01')",
    "blocking_checks": "blocking_checks=[…], a list of functions",
    "blocking_checks by output": "blocking_checks={'orders': […]}, a list of functions by output",
}


def check_kinds(asset: str, **given: Any) -> None:
    """Raises `InvalidAsset` for an option that is a text or a single value in place of several, or the reverse."""
    for option, value in given.items():
        if value is not None and not _fits(option, value):
            shown = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
            if option == "deps" and _is_several(value):
                shown = "a list with a function that is no asset"
            raise InvalidAsset(f"Asset {asset!r} is given {shown} as {option.split()[0]}=; write {_INSTEAD[option]}.")


def _fits(option: str, value: Any) -> bool:
    match option:
        case "deps":
            return _is_several(value) and not (isinstance(value, Collection) and any(map(isroutine, value)))
        case "ins":
            return isinstance(value, Mapping) and all(isinstance(given, AssetIn) for given in value.values())
        case "outs":
            return isinstance(value, Mapping)
        case "partitions_def":
            return isinstance(value, PartitionsDefinition)
        case "blocking_checks":
            return _is_several(value) and not isinstance(value, Mapping)
        case _:
            return isinstance(value, Mapping) and all(map(_is_several, value.values()))


def _is_several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | AssetKey | AssetDep | AssetSpec)


class Refused(TypedDict, total=False):
    """The arguments of `REFUSED`, by name, so that a type checker still finds a misspelt name."""

    auto_materialize_policy: Any
    check_specs: Any
    compute_kind: Any
    config_schema: Any
    dagster_type: Any
    io_manager_def: Any
    io_manager_key: Any
    is_virtual: Any
    legacy_freshness_policy: Any
    non_argument_deps: Any
    output_required: Any
    resource_defs: Any
    retry_policy: Any


class RefusedOfMulti(TypedDict, total=False):
    """The arguments of `REFUSED_OF_MULTI`."""

    can_subset: Any
    check_specs: Any
    code_version: Any
    config_schema: Any
    description: Any
    group_name: Any
    internal_asset_deps: Any
    resource_defs: Any
    retry_policy: Any
    specs: Any


def refuse_options(asset_name: str, given: Mapping[str, Any], refused: Mapping[str, str], known: Iterable[str]) -> None:
    """Raises `InvalidAsset` for an argument that has no meaning here, with the replacement; `known` are the valid arguments."""
    for name, value in given.items():
        if name not in refused:
            near = get_close_matches(name, [*known, *refused], 1)
            hint = f"did you mean {near[0]}=?" if near else "leave it out."
            raise InvalidAsset(f"Asset {asset_name!r}: there is no argument {name}=; {hint}")
        if value is not None:
            raise InvalidAsset(f"Asset {asset_name!r}: {name}= means nothing here; {refused[name]}.")
