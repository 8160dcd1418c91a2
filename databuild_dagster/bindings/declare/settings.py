"""The settings that features add: of a code location, and of an asset.

A feature names its settings in its row. The core hands each value to the setting that has its name, keeps what the setting
makes of it, and does not look into it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from dagster import Resolver

from databuild_dagster.bindings.declare.parameters import InvalidAsset, Parameter
from databuild_dagster.feature import rows
from databuild_dagster.model.datasets import DatasetSpec

if TYPE_CHECKING:
    from databuild_dagster.bindings.declare.asset_spec import Split
    from databuild_dagster.warehouse.layout import Warehouse
    from databuild_dagster.warehouse.manifest import Manifest

T = TypeVar("T", covariant=True)


class HasSettings(Protocol):
    """A deployment: it keeps the values of the features' settings by name."""

    @property
    def of_features(self) -> Mapping[str, object]: ...


@dataclass(frozen=True, kw_only=True)
class Setting(Generic[T]):
    """A setting of a code location: a keyword of `build_definitions`, and an attribute of a `defs.yaml`."""

    name: str
    #: The value when the author sets none; called when it is needed.
    default: Callable[[], T]
    #: What is kept of a given value; the second argument names the place where the value was given. Raises what it refuses.
    checked: Callable[[Any, str], T]
    #: Its type, its default and its description in a `defs.yaml`.
    in_yaml: object
    yaml_default: object
    description: str
    #: What `checked` gets of a value from there; the second argument names the file. Raises `InvalidAsset`.
    from_yaml: Callable[[Any, str], object]
    #: Fields of the registration of each dataset of the location, which a definer has put into the metadata.
    registered: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda *_: {}

    def of(self, deployment: HasSettings) -> T:
        """Its value in a deployment."""
        if self.name in deployment.of_features:
            return cast(T, deployment.of_features[self.name])
        return self.default()


@dataclass(frozen=True, kw_only=True)
class AssetSetting:
    """An option of `@databuild_asset` and of `databuild_boundary`, and by output of `@databuild_multi_asset`."""

    name: str
    #: The metadata of an asset with this value, where Dagster keeps it through every copy of the asset. Raises `InvalidAsset`.
    metadata: Callable[[str, Any], Mapping[str, Any]] = lambda *_: {}
    #: The names of this metadata: a translator cannot change them.
    keys: tuple[str, ...] = ()
    #: How the option divides the calls of an asset's function. The last argument: whether the asset is batched.
    split: Callable[[str, Any, Sequence[Parameter], bool], Split | None] | None = None
    #: The content hash of what a call of an asset's function wrote (rule 4.8); None without the option, or if it has none.
    content_hash: Callable[[DatasetSpec, Warehouse, Manifest], str | None] | None = None
    #: A value that is true is about what a function makes of inputs, and is refused for an asset without any.
    needs_inputs: bool = False
    #: Fields of the dataset's registration that are in the metadata.
    registered: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda *_: {}
    #: Metadata of each materialization of a dataset; the second argument is the warehouse of the home.
    shown: Callable[[DatasetSpec, str], Mapping[str, Any]] = lambda *_: {}
    #: Refuses a build that cannot work here, before a want is recorded. Arguments as for `shown`.
    check_ready: Callable[[DatasetSpec, str], None] = lambda *_: None
    #: Refuses a single value for the outputs of a multi-asset: its name, the number of outputs, the value. Raises `InvalidAsset`.
    check_several: Callable[[str, int, Any], None] = lambda *_: None


def described(description: str) -> Any:
    """An attribute with the description that `dg` shows; its value may be a template."""
    return Resolver.default(description=description)


def imported(name: str) -> ModuleType | None:
    """A module that a `defs.yaml` names, None where there is none; errors of the module itself pass through."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(str(error.name)):
            raise
        return None


@cache
def settings() -> Mapping[str, Setting[object]]:
    """The features' settings of a code location, by name."""
    return {setting.name: setting for setting in rows(lambda feature: feature.settings)}


@cache
def asset_settings() -> Mapping[str, AssetSetting]:
    """The features' settings of an asset, by name."""
    return {setting.name: setting for setting in rows(lambda feature: feature.asset_settings)}


def taken_out(options: dict[str, Any], *, has_function: bool = True) -> dict[str, Any]:
    """The values of asset settings among the options, which do not stay there.

    An asset without a function has no calls to divide, so an option that divides them stays and is refused as unknown. Raises
    `InvalidAsset` for an option about what calls write or read.
    """
    known = {name: setting for name, setting in asset_settings().items() if has_function or setting.split is None}
    found = {name: options.pop(name) for name in list(options) if name in known}
    for name in found:
        if not has_function and (known[name].content_hash is not None or known[name].needs_inputs):
            raise InvalidAsset(f"{name} is for assets with a function, and this one has none; leave it out.")
    return found


def metadata_of(asset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of an asset with the `given` values of settings. Raises `InvalidAsset`."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        found |= asset_settings()[name].metadata(asset, value)
    return found


def check_inputs(asset: str, given: Mapping[str, Any], inputs: Sequence[object]) -> None:
    """Raises `InvalidAsset` for an option about what a function makes of its inputs, if it has none."""
    for name, value in given.items():
        if asset_settings()[name].needs_inputs and value and not inputs:
            raise InvalidAsset(
                f"{name} of asset {asset!r} is about equal inputs, and the asset has no input; leave it out."
            )


def metadata_by_output(
    name: str, outputs: Mapping[str, Any], given: Mapping[str, Any], inputs: Sequence[object]
) -> dict[str, dict[str, Any]]:
    """The metadata of each output of a multi-asset with `inputs`; a dict has a value for some outputs. Raises `InvalidAsset`."""
    values: dict[str, dict[str, Any]] = {output: {} for output in outputs}
    for option, value in given.items():
        asset_settings()[option].check_several(name, len(outputs), value)
        by_output = value if isinstance(value, Mapping) else dict.fromkeys(outputs, value)
        if unknown := [output for output in by_output if output not in outputs]:
            raise InvalidAsset(f"{option} of multi-asset {name!r} names {unknown[0]!r}, which is none of its outs.")
        for output, of_output in by_output.items():
            values[output][option] = of_output
    for output, of_output in values.items():
        check_inputs(output, of_output, [*inputs, *outputs[output].deps])
    return {output: metadata_of(output, of_output) for output, of_output in values.items()}


def split_of(asset: str, given: Mapping[str, Any], parameters: Sequence[Parameter], *, batched: bool) -> Split | None:
    """How the `given` values of settings divide the calls of an asset's function; None if they do not. Raises `InvalidAsset`."""
    for name, value in given.items():
        split = asset_settings()[name].split
        if split is not None and (found := split(asset, value, parameters, batched)) is not None:
            return found
    return None


def content_hash_of(dataset: DatasetSpec, warehouse: Warehouse, manifest: Manifest) -> str | None:
    """The content hash of what a call wrote, by the setting that computes one; None where it is off or unknown."""
    for setting in asset_settings().values():
        if setting.content_hash is not None and (found := setting.content_hash(dataset, warehouse, manifest)):
            return found
    return None


def shown_of(dataset: DatasetSpec, warehouse: str) -> dict[str, Any]:
    """The metadata that the settings add to each materialization of a dataset; `warehouse` is the home's own."""
    found: dict[str, Any] = {}
    for setting in asset_settings().values():
        found |= setting.shown(dataset, warehouse)
    return found


def registered_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a registration that the settings put into an asset's metadata."""
    found: dict[str, Any] = {}
    for of_location in settings().values():
        found |= of_location.registered(metadata)
    for setting in asset_settings().values():
        found |= setting.registered(metadata)
    return found
