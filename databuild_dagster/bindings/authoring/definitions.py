"""`build_definitions`: databuild assets and plain assets become Dagster `Definitions` with an orchestrator.

Our resources have our own keys, so that the result merges with other Definitions. No executor is set, because two
Definitions with executors do not merge.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from inspect import ismodule, isroutine
from pathlib import Path
from typing import Any, Unpack

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph, quiet_beta_warnings
from databuild_dagster.bindings.adapter.keys import DEPLOYMENT, IO_MANAGER, SPARK, asset_text
from databuild_dagster.bindings.authoring.automation import AUTOMATION, automation_sensors
from databuild_dagster.bindings.authoring.shared_location import LocationParts, SharedLocation
from databuild_dagster.bindings.authoring.translator import DatabuildTranslator, translated
from databuild_dagster.bindings.building.deployment import GivenSettings, differing, refuse_unknown
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.registry.registration import remember
from databuild_dagster.feature import rows
from databuild_dagster.model.wording import few_of


def build_definitions(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec | dg.SourceAsset],
    *,
    resources: Mapping[str, Any] | None = None,
    jobs: Iterable[Any] | None = None,
    schedules: Iterable[Any] | None = None,
    sensors: Iterable[Any] | None = None,
    asset_checks: Iterable[dg.AssetChecksDefinition] | None = None,
    translator: DatabuildTranslator | None = None,
    location: str | SharedLocation | None = None,
    **settings: Unpack[GivenSettings],
) -> dg.Definitions:
    """Definitions with a running orchestrator sensor, and a running sensor for automation conditions that read the store.

    `assets` are databuild assets, boundaries and plain assets; `translator` changes how they look here. `spark` may be a plain
    `PySparkResource`. `location` is the name of the definitions in the store, the same in every process that loads
    them: the calling module's name, `shop.definitions`, unless given; or a `SharedLocation`, for definitions of several modules that
    `Definitions.merge` joins. `warehouse` is a folder or a url such as
    `s3://bucket/prefix`, `<DAGSTER_HOME>/warehouse` unless given. `threads` build the partitions of a launch. Dagster
    shows and keeps `sample_rows` of each partition, none unless asked. `alerts` are sent for wants that miss their SLA. `operations`
    can run over the datasets, besides the operations of databuild and of installed packages. `publish`, `Iceberg(…)` or
    `Delta(…)`, is the default of databuild assets. `promoters`, such as `["user:deploy"]`, are the actors who may
    promote what an environment built of these assets; without them every writer of the build state may.

    Raises `InvalidAsset` for a translation that is not possible, `InvalidOperationType`, ValueError for a setting out
    of range, or for a setting besides a `SharedLocation`.
    """
    refuse_unknown(build_definitions, settings)
    module = _calling_module()
    if isinstance(location, SharedLocation):
        shared = location
        _refuse_own_settings(shared, settings)
    else:
        shared = SharedLocation(location or module, **settings)
    given = _several(assets)
    automation_name = shared.automation_name(given, module)
    definitions = assembled(
        shared.parts,
        given,
        resources=resources,
        jobs=jobs,
        schedules=schedules,
        sensors=sensors,
        asset_checks=asset_checks,
        translator=translator,
        automation_name=automation_name,
    )
    shared.add(definitions, automation_name)
    remember(shared.name, shared.asset_graph)
    return definitions


def _several(assets: Any) -> list[Any]:
    """The assets of a list, each of which is one. Raises `InvalidAsset`."""
    for module in (
        given for given in (assets, *(assets if isinstance(assets, list | tuple) else ())) if ismodule(given)
    ):
        name = module.__name__.rpartition(".")[2]
        raise InvalidAsset(
            f"build_definitions takes a list of assets; write build_definitions(dg.load_assets_from_modules([{name}]))."
        )
    if isinstance(assets, dg.Definitions):
        raise InvalidAsset("build_definitions takes a list of assets; write build_definitions([*definitions.assets]).")
    if isinstance(assets, dg.AssetsDefinition | dg.AssetSpec | dg.SourceAsset) or not isinstance(assets, Iterable):
        name = getattr(assets, "__name__", "asset")
        raise InvalidAsset(f"build_definitions takes a list of assets; write build_definitions([{name}]).")
    given = list(assets)
    for asset in given:
        if isroutine(asset):
            raise InvalidAsset(f"{asset.__name__!r} is a function among the assets; write @databuild_asset above it.")
        if isinstance(asset, list | str | Mapping):
            raise InvalidAsset(f"A {type(asset).__name__} is among the assets; write build_definitions([*assets, …]).")
        if hasattr(asset, "columns"):
            raise InvalidAsset("A frame is among the assets: a() calls the asset a; write build_definitions([a]).")
    return given


def _refuse_own_settings(shared: SharedLocation, settings: Mapping[str, Any]) -> None:
    """Raises ValueError for a setting that the other definitions of the location would not have."""
    if own := list(differing(settings)):
        raise ValueError(
            f"{own[0]}= is a setting of all definitions of location {shared.name!r}; give it to SharedLocation({shared.name!r}, …)."
        )


def assembled(
    parts: LocationParts,
    assets: Iterable[Any],
    *,
    resources: Mapping[str, Any] | None = None,
    jobs: Iterable[Any] | None = None,
    schedules: Iterable[Any] | None = None,
    sensors: Iterable[Any] | None = None,
    asset_checks: Iterable[dg.AssetChecksDefinition] | None = None,
    translator: DatabuildTranslator | None = None,
    automation_name: str = AUTOMATION,
    has_orchestrator: bool = True,
) -> dg.Definitions:
    """Definitions of some assets of a location, with the parts that they need. Raises `InvalidAsset`."""
    shown, checks = translated(translator, map(_deployed, assets), asset_checks or ())
    given = list(sensors or ())
    for key in (DEPLOYMENT, SPARK, IO_MANAGER):
        if key in (resources or {}):
            raise ValueError(f"Resource {key!r} is databuild's own; give yours another key.")

    definers = rows(lambda feature: feature.definers)
    for definer in definers:
        shown = definer.assets(parts.deployment, shown)
    all_resources = {**parts.resources, **(resources or {})}

    def asset_graph() -> AssetGraph:
        alone = dg.Definitions(assets=shown, asset_checks=checks, resources=all_resources)
        return alone.resolve_asset_graph()

    _warn_of_step_retries(jobs or (), shown, asset_graph)
    automation = automation_sensors(shown, given, asset_graph, name=automation_name)
    return dg.Definitions(
        assets=shown,
        asset_checks=checks,
        jobs=[*(jobs or ()), *(parts.jobs if has_orchestrator else ())],
        schedules=list(schedules or ()),
        sensors=[
            *given,
            *automation,
            *(sensor for definer in definers for sensor in definer.sensors_of(parts.deployment, shown)),
            *(parts.sensors if has_orchestrator else ()),
        ],
        resources=all_resources,
    )


def _warn_of_step_retries(jobs: Iterable[Any], assets: Iterable[Any], asset_graph: Callable[[], AssetGraph]) -> None:
    """Dagster repeats a step by the policy of its job, but a step of ours has ended well or for good (rule 6.8)."""
    repeating = [job for job in jobs if getattr(job, "op_retry_policy", None) is not None and hasattr(job, "selection")]
    if not repeating:
        return
    graph = asset_graph()
    ours = {key for asset in assets if isinstance(asset, dg.AssetsDefinition) and body_of(asset) for key in asset.keys}
    for job in repeating:
        if touched := sorted(asset_text(key) for key in ours & job.selection.resolve(graph)):
            warnings.warn(
                f"op_retry_policy of job {job.name!r} does not repeat {few_of(touched)}: raise Transient in the function where a "
                "retry may help, and the orchestrator makes up to three attempts.",
                stacklevel=4,
            )


def _deployed(asset: Any) -> Any:
    """The asset without the default resources it brings along, which would conflict with the deployment's."""
    if not isinstance(asset, dg.AssetsDefinition) or body_of(asset) is None:
        return asset
    with quiet_beta_warnings():
        return dg.AssetsDefinition(**{**asset.get_attributes_dict(), "resource_defs": {}})


def _calling_module() -> str:
    """The module that called `build_definitions`, with its package; outside of a package, with its folder.

    The file alone decides, so that `-m shop.definitions` and `-f shop/definitions.py` are the same location, and the
    `definitions.py` of two projects are two locations (decision 0011).
    """
    frame = sys._getframe(2)
    path = Path(frame.f_code.co_filename)
    if not path.is_file():
        # A notebook, or a prompt.
        return str(frame.f_globals.get("__name__", "")) or path.stem
    path = path.resolve()
    folders = [path.parent]
    while (folders[0] / "__init__.py").is_file():
        folders.insert(0, folders[0].parent)
    within = folders[1:] or folders
    names = [folder.name for folder in within if folder.name]
    return ".".join(names if path.stem == "__init__" else [*names, path.stem])
